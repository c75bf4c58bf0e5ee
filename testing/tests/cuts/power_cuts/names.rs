//! Names: the effect of operations on a tree, and the trees that a crash may leave.
//!
//! Invariants:
//! - The operations of one actor are sequential, on its own names.
//! - On a journaled volume a crash leaves the result of the first `n` operations and of no others: at least
//!   those that a sync covers, at most those that had begun.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// Identifies a file independently of its name: its owner.
pub type Id = u32;

/// The time of an operation, in positions of the device's record.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Span {
    /// Position at its start: earlier events do not belong to it.
    pub begun: usize,
    /// Position at its return; `None` if it did not return.
    pub done: Option<usize>,
}

impl Span {
    /// Whether it had returned at a position.
    pub fn done_by(&self, at: usize) -> bool {
        self.done.is_some_and(|done| done <= at)
    }
}

/// An object with a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    File,
    Dir,
    Symlink(String),
}

/// An operation on names.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum NameOp {
    Make(String, Id, Kind),
    Link(String, String),
    Remove(String),
    Rename(String, String),
    Exchange(String, String),
}

/// An actor's tree, by path.
pub type Names = BTreeMap<String, (Id, Kind)>;

/// The operations on names, in order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NameHistory(pub Vec<(Span, NameOp)>);

impl NameOp {
    /// Applies the operation.
    ///
    /// # Panics
    /// If it is not possible: a bug in the workload.
    pub fn apply(&self, names: &mut Names) {
        match self {
            NameOp::Make(path, id, kind) => {
                let before = names.insert(path.clone(), (*id, kind.clone()));
                assert!(before.is_none(), "{path} was there");
            }
            NameOp::Link(from, to) => {
                let node = names[from].clone();
                let before = names.insert(to.clone(), node);
                assert!(before.is_none(), "{to} was there");
            }
            NameOp::Remove(path) => drop(names.remove(path).expect("removed what is there")),
            NameOp::Rename(from, to) => {
                names.remove(to);
                let moved = take(names, from);
                put(names, moved, from, to);
            }
            NameOp::Exchange(one, other) => {
                let (a, b) = (take(names, one), take(names, other));
                put(names, a, one, other);
                put(names, b, other, one);
            }
        }
    }

    /// Whether it changes a name in the directory `dir`.
    fn is_in(&self, dir: &str) -> bool {
        let there = |path: &String| {
            path.rsplit_once('/')
                .is_some_and(|(parent, _)| parent == dir)
        };
        match self {
            NameOp::Make(path, ..) | NameOp::Link(_, path) | NameOp::Remove(path) => there(path),
            NameOp::Rename(a, b) | NameOp::Exchange(a, b) => there(a) || there(b),
        }
    }

    /// Whether it changes a name of `id`; `names` are those before it.
    fn touches(&self, names: &Names, id: Id) -> bool {
        let is = |path: &String| names.get(path).is_some_and(|(found, _)| *found == id);
        match self {
            NameOp::Make(_, made, _) => *made == id,
            NameOp::Link(path, _) | NameOp::Remove(path) => is(path),
            NameOp::Rename(a, b) | NameOp::Exchange(a, b) => is(a) || is(b),
        }
    }
}

/// Whether `path` is `dir` or in it.
pub fn is_in(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn take(names: &mut Names, top: &str) -> Names {
    let (taken, left) = std::mem::take(names)
        .into_iter()
        .partition(|(path, _)| is_in(path, top));
    *names = left;
    taken
}

fn put(names: &mut Names, moved: Names, from: &str, to: &str) {
    let renamed = |(path, node): (String, _)| (format!("{to}{}", &path[from.len()..]), node);
    names.extend(moved.into_iter().map(renamed));
}

impl NameHistory {
    /// The trees after 0, 1, 2, … operations.
    pub fn trees(&self) -> Vec<Names> {
        let mut now = Names::new();
        let mut trees = vec![now.clone()];
        for (_, op) in &self.0 {
            op.apply(&mut now);
            trees.push(now.clone());
        }
        trees
    }

    /// Number of operations that had returned when a sync of everything began.
    pub fn covered(&self, sync: Span) -> usize {
        self.0
            .iter()
            .take_while(|(span, _)| span.done_by(sync.begun))
            .count()
    }

    /// The same for a sync of `id` only: up to the last one that changed a name of it.
    pub fn covered_for(&self, trees: &[Names], id: Id, sync: Span) -> usize {
        let done = self.covered(sync);
        let touches = |n: &usize| self.0[*n].1.touches(&trees[*n], id);
        (0..done).rev().find(touches).map_or(0, |n| n + 1)
    }

    /// Number of operations that a sync of the directory `dir`, which was never anything else, covers now.
    pub fn covered_in(&self, dir: &str) -> usize {
        let last = self.0.iter().rposition(|(_, op)| op.is_in(dir));
        last.map_or(0, |n| n + 1)
    }

    /// The possible numbers of operations, at least `covered`, if power failed at `at`.
    pub fn may_be(&self, covered: usize, at: usize) -> RangeInclusive<usize> {
        covered
            ..=self
                .0
                .iter()
                .take_while(|(span, _)| span.begun < at)
                .count()
                .max(covered)
    }
}
