//! What may be in the image after the kill: the state of the last promise, or any later one.
//!
//! ```text
//!  World (on the disk before) + diary ─► for each thread: its names after each operation
//!                                       for each file: the promised state and all later ones,
//!                                                      with attributes
//!                                ─► the state found must be among them
//! ```
//!
//! With a journal, the names of a thread are exactly those after some number of its operations, which
//! includes all promised ones: so a rename is complete or absent, never half done. Without one, promised
//! names not touched since must exist.

use std::collections::{BTreeMap, BTreeSet};

use throughline_testing::attributes::Attributes;
use throughline_testing::sectors::{SECTOR_BYTES, Sector};

use crate::diary::load::THREADS;
use crate::diary::tree::{Seen, Tree, thread_of};
use crate::diary::{Entry, Op, Promise};

const SECTOR: u64 = SECTOR_BYTES as u64;

/// The promises that the volume keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promises {
    /// All promises.
    Journal,
    /// Without a journal: synced files, under the name they have had since. Sizes may be rounded up to a
    /// block of this many bytes.
    NoJournal { block_bytes: u64 },
}

/// A file's content: the version of each sector, 0 for zeros; covers the whole file.
type Content = Vec<u64>;
/// Names of one thread.
type Names = BTreeMap<String, u32>;

/// What is certainly on the disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    names: Names,
    files: BTreeMap<u32, Content>,
    attributes: BTreeMap<u32, Attributes>,
}

impl World {
    /// The state found, once it was accepted.
    pub(crate) fn of(tree: &Tree) -> World {
        let version = |sector: &Sector| match sector {
            Sector::Data { version, .. } => *version,
            _ => 0,
        };
        let content = |seen: &Seen| seen.sectors.iter().map(version).collect();
        World {
            names: tree
                .iter()
                .map(|(path, seen)| (path.clone(), seen.id))
                .collect(),
            files: tree.values().map(|seen| (seen.id, content(seen))).collect(),
            attributes: tree
                .values()
                .filter_map(|seen| {
                    let attributes = Attributes::of(&seen.attributes, seen.mode);
                    Some((seen.id, attributes.ok()?))
                })
                .collect(),
        }
    }

    fn names_of(&self, thread: usize) -> Names {
        let mine = self
            .names
            .iter()
            .filter(|(path, _)| thread_of(path) == Some(thread));
        mine.map(|(path, id)| (path.clone(), *id)).collect()
    }
}

/// Counts of what was checked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Judged {
    /// Promises given.
    pub(crate) promises: u64,
    /// Files whose contents were compared.
    pub(crate) files: u64,
}

/// Checks whether `tree` can result from `world` and the diary.
pub(crate) fn judge(
    world: &World,
    entries: &[Entry],
    tree: &Tree,
    promises: Promises,
) -> Result<Judged, String> {
    let mut judged = Judged::default();
    let mut seen_ids = BTreeSet::new();
    let twice = tree.iter().find(|(_, seen)| !seen_ids.insert(seen.id));
    if let (Some((path, seen)), Promises::Journal) = (twice, promises) {
        return Err(format!("{path}: file {} has two names", seen.id));
    }
    for thread in 0..THREADS {
        let history = History::new(world, entries, thread);
        judged.promises += history.given;
        match promises {
            Promises::Journal => history.judge_names(tree)?,
            Promises::NoJournal { .. } => history.judge_kept_names(tree)?,
        }
        let mine = tree
            .iter()
            .filter(|(path, _)| thread_of(path) == Some(thread));
        for (path, seen) in mine {
            history
                .judge_content(seen, promises)
                .and_then(|()| history.judge_attributes(seen, promises))
                .map_err(|what| format!("{path}, file {}: {what}", seen.id))?;
            judged.files += 1;
        }
    }
    Ok(judged)
}

/// The operations of one thread and their effects.
struct History<'a> {
    world: &'a World,
    thread: usize,
    ops: Vec<&'a Entry>,
    /// Names after each operation that changes names; the first entry is the state before all of them.
    states: Vec<Names>,
    /// For each operation, the number of name changes up to and including it.
    counts: Vec<usize>,
    /// The number of these that are promised.
    promised_names: usize,
    /// The operation up to which a file is promised.
    promised: BTreeMap<u32, usize>,
    /// Files whose names an operation touches.
    touched: Vec<Vec<u32>>,
    /// Directories whose names an operation changes.
    dirs: Vec<Vec<String>>,
    given: u64,
}

impl<'a> History<'a> {
    fn new(world: &'a World, entries: &'a [Entry], thread: usize) -> History<'a> {
        let mine = |entry: &&Entry| entry.thread == thread && id_of(&entry.op).is_some();
        let mut history = History {
            world,
            thread,
            ops: entries.iter().filter(mine).collect(),
            states: vec![world.names_of(thread)],
            counts: Vec::new(),
            promised_names: 0,
            promised: BTreeMap::new(),
            touched: Vec::new(),
            dirs: Vec::new(),
            given: 0,
        };
        history.walk_names();
        history.take_promises(entries);
        history
    }

    fn walk_names(&mut self) {
        let mut names = self.states[0].clone();
        for entry in &self.ops {
            let mut touched = Vec::new();
            let before = id_of(&entry.op).and_then(|id| path_of(&names, id));
            match &entry.op {
                Op::Create { id, path } => {
                    names.insert(path.clone(), *id);
                    touched.push(*id);
                }
                Op::Rename { id, to } => {
                    names.retain(|_, other| other != id);
                    touched.extend(names.insert(to.clone(), *id));
                    touched.push(*id);
                }
                Op::Unlink { id } => {
                    names.retain(|_, other| other != id);
                    touched.push(*id);
                }
                _ => {}
            }
            let mut dirs = Vec::new();
            if !touched.is_empty() {
                self.states.push(names.clone());
                let after = id_of(&entry.op).and_then(|id| path_of(&names, id));
                dirs.extend(
                    before
                        .iter()
                        .chain(&after)
                        .map(|path| dir_of(path).to_owned()),
                );
            }
            self.touched.push(touched);
            self.dirs.push(dirs);
            self.counts.push(self.states.len() - 1);
        }
    }

    fn take_promises(&mut self, entries: &[Entry]) {
        for entry in entries.iter().filter(|entry| entry.end.is_some()) {
            match entry.op {
                Op::SyncAll | Op::Close => self.promise_all(entry.begin),
                Op::SyncDir { ref dir } => self.promise_dir(dir, entry.begin),
                Op::Sync { id, promise } | Op::Write { id, promise, .. }
                    if entry.thread == self.thread && promise != Promise::None =>
                {
                    self.promise_file(id, promise, entry.begin);
                }
                _ => {}
            }
        }
    }

    /// All operations that had returned before line `begin`.
    fn promise_all(&mut self, begin: usize) {
        self.given += 1;
        for (index, entry) in self.ops.iter().enumerate() {
            if entry.end.is_some_and(|end| end < begin) {
                self.promised_names = self.promised_names.max(self.counts[index]);
                for id in self.touched[index].iter().copied().chain(id_of(&entry.op)) {
                    let promised = self.promised.entry(id).or_default();
                    *promised = index.max(*promised);
                }
            }
        }
    }

    /// The names of a directory, of all threads, before line `begin`.
    fn promise_dir(&mut self, dir: &str, begin: usize) {
        self.given += 1;
        for (index, entry) in self.ops.iter().enumerate() {
            let before = entry.end.is_some_and(|end| end < begin);
            if before && self.dirs[index].iter().any(|touched| touched == dir) {
                self.promised_names = self.promised_names.max(self.counts[index]);
            }
        }
    }

    /// All operations on a file up to and including the one that began at line `begin`.
    fn promise_file(&mut self, id: u32, promise: Promise, begin: usize) {
        self.given += 1;
        for (index, entry) in self.ops.iter().enumerate() {
            if entry.begin > begin {
                break;
            }
            let made = matches!(entry.op, Op::Create { .. });
            if self.touched[index].contains(&id) && (made || promise == Promise::All) {
                self.promised_names = self.promised_names.max(self.counts[index]);
            }
            if id_of(&entry.op) == Some(id) {
                self.promised.insert(id, index);
            }
        }
    }

    fn found(&self, tree: &Tree) -> Names {
        let mine = tree
            .iter()
            .filter(|(path, _)| thread_of(path) == Some(self.thread));
        mine.map(|(path, seen)| (path.clone(), seen.id)).collect()
    }

    fn judge_names(&self, tree: &Tree) -> Result<(), String> {
        let found = self.found(tree);
        let allowed = &self.states[self.promised_names..];
        if allowed.contains(&found) {
            return Ok(());
        }
        let older = self.states.iter().rposition(|state| *state == found);
        let hint = older.map_or("no state at all".into(), |at| {
            format!("the state after {at} operations")
        });
        Err(format!(
            "thread {}: its names are of {hint}; {} of its {} operations on names are promised\n\
             found {found:?}\npromised {:?}\nlast {:?}",
            self.thread,
            self.promised_names,
            self.states.len() - 1,
            allowed.first(),
            allowed.last(),
        ))
    }

    /// Files that are promised and whose names no later operation has touched.
    fn judge_kept_names(&self, tree: &Tree) -> Result<(), String> {
        let mut kept: BTreeMap<u32, Option<usize>> = BTreeMap::new();
        kept.extend(self.states[0].values().map(|id| (*id, None)));
        kept.extend(self.promised.iter().map(|(id, at)| (*id, Some(*at))));
        for (id, at) in kept {
            let since = at.map_or(0, |at| at + 1);
            if self.touched[since..]
                .iter()
                .flatten()
                .any(|other| *other == id)
            {
                continue;
            }
            let last = self
                .states
                .last()
                .and_then(|names| names.iter().find(|(_, other)| **other == id));
            let Some((path, _)) = last else { continue };
            if tree.get(path).is_none_or(|seen| seen.id != id) {
                return Err(format!("file {id} was synced as {path} and is not there"));
            }
        }
        Ok(())
    }

    /// Every sector must have its promised version or a later one.
    fn judge_content(&self, seen: &Seen, promises: Promises) -> Result<(), String> {
        let id = seen.id;
        let mut content = self.world.files.get(&id).cloned().unwrap_or_default();
        let promised = self.promised.get(&id).map_or(0, |at| at + 1);
        for entry in &self.ops[..promised] {
            apply(&mut content, id, &entry.op);
        }
        let (mut least, mut most) = (content.len(), content.len());
        let mut allowed: Vec<BTreeSet<u64>> = Vec::new();
        admit(&mut allowed, &content);
        for entry in &self.ops[promised..] {
            if apply(&mut content, id, &entry.op) {
                least = least.min(content.len());
                most = most.max(content.len());
                admit(&mut allowed, &content);
            }
        }
        if let Promises::NoJournal { block_bytes } = promises {
            most = most.next_multiple_of((block_bytes / SECTOR) as usize);
        }
        let len = seen.sectors.len();
        if !(least..=most).contains(&len) {
            return Err(format!("{len} sectors, not {least} to {most}"));
        }
        for (index, sector) in seen.sectors.iter().enumerate() {
            let version = match sector {
                Sector::Zero => 0,
                Sector::Data {
                    file,
                    offset,
                    version,
                } if *file == u64::from(id) && *offset == index as u64 * SECTOR => *version,
                other => return Err(format!("sector {index} holds {other:?}")),
            };
            let allowed = allowed.get(index);
            if !allowed.map_or(version == 0, |allowed| allowed.contains(&version)) {
                return Err(format!(
                    "sector {index} of {len} holds version {version}, not one of {allowed:?}"
                ));
            }
        }
        Ok(())
    }
}

impl History<'_> {
    /// The attributes must be the promised ones or later ones.
    fn judge_attributes(&self, seen: &Seen, promises: Promises) -> Result<(), String> {
        let found = Attributes::of(&seen.attributes, seen.mode)?;
        let world = self.world.attributes.get(&seen.id);
        let mut now = world.cloned().unwrap_or_default();
        let promised = self.promised.get(&seen.id).map_or(0, |at| at + 1);
        let mut allowed = Vec::new();
        for (index, entry) in self.ops.iter().enumerate() {
            if index == promised {
                allowed.push(now.clone());
            }
            if let Op::Attribute { id, name, value } = entry.op
                && id == seen.id
            {
                now.set(name, value);
                if index >= promised {
                    allowed.push(now.clone());
                }
            }
        }
        if promised >= self.ops.len() {
            allowed.push(now);
        }
        // Without a journal, what was touched since may have any state.
        let known = promises == Promises::Journal || allowed.len() == 1;
        if known && !allowed.iter().any(|one| one.admits(&found)) {
            return Err(format!("{found:?}, not one of {allowed:?}"));
        }
        Ok(())
    }
}

fn path_of(names: &Names, id: u32) -> Option<String> {
    let found = names.iter().find(|(_, other)| **other == id);
    found.map(|(path, _)| path.clone())
}

/// The directory of a path.
fn dir_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

fn id_of(op: &Op) -> Option<u32> {
    match op {
        Op::Create { id, .. }
        | Op::Write { id, .. }
        | Op::Sync { id, .. }
        | Op::Rename { id, .. }
        | Op::Unlink { id }
        | Op::Attribute { id, .. }
        | Op::Cut { id, .. } => Some(*id),
        Op::SyncAll | Op::SyncDir { .. } | Op::Close => None,
    }
}

/// Applies `op` to the content of file `id`. Returns whether it changes the content of that file.
fn apply(content: &mut Content, id: u32, op: &Op) -> bool {
    match *op {
        Op::Write {
            id: of,
            at,
            len,
            version,
            ..
        } if of == id => {
            let (first, end) = ((at / SECTOR) as usize, ((at + len) / SECTOR) as usize);
            if content.len() < end {
                content.resize(end, 0);
            }
            content[first..end].fill(version);
            true
        }
        Op::Cut { id: of, size } if of == id => {
            content.resize((size / SECTOR) as usize, 0);
            true
        }
        _ => false,
    }
}

/// Adds a state; bytes past its end are zeros.
fn admit(allowed: &mut Vec<BTreeSet<u64>>, content: &Content) {
    if allowed.len() < content.len() {
        let old = allowed.len();
        allowed.resize_with(content.len(), BTreeSet::new);
        // It was past the end of all earlier states.
        allowed[old..].iter_mut().for_each(|set| {
            set.insert(0);
        });
    }
    for (index, set) in allowed.iter_mut().enumerate() {
        set.insert(content.get(index).copied().unwrap_or(0));
    }
}
