//! Expressions of `find` and their evaluation for a file.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use glob::{MatchOptions, Pattern};
use regex::bytes::Regex;
use throughline::{FileType, Metadata};

use crate::place::Place;
use crate::problem::Failure;

/// See the head of this file.
#[derive(Clone, Debug)]
pub(super) enum Expression {
    And(Box<Expression>, Box<Expression>),
    Or(Box<Expression>, Box<Expression>),
    Not(Box<Expression>),
    True,
    False,
    /// The last component of the path.
    Name(Pattern, bool),
    /// The whole path; `true` if it is case-sensitive.
    Path(Pattern, bool),
    Type(Vec<FileType>),
    /// The number of units of this many bytes, rounded up.
    Size(Count, u64),
    Empty,
    Links(Count),
    Inode(Count),
    User(Count),
    Group(Count),
    /// Which time, how many units ago, and the unit.
    Age(Which, Count, Duration),
    /// Changed after that file; its time is known after [`Expression::resolve`].
    Newer(Place, Option<SystemTime>),
    Mode(Rights, u32),
    /// Matches the whole path.
    Regex(Regex),
    Print,
    Print0,
    /// Prints a line in this format.
    Printf(OsString),
    /// A command for each file; `{}` in its words stands for the file.
    Exec(Vec<OsString>),
    /// A command for many files, which are appended to its words.
    ExecAll(Vec<OsString>),
    Ls,
    Delete,
    Prune,
    Quit,
}

/// `5`, `+5`: more, `-5`: fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    Exactly(u64),
    More(u64),
    Fewer(u64),
}

/// Which time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Accessed,
    Modified,
    Changed,
}

/// How permissions are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rights {
    Exactly,
    All,
    Any,
}

/// Options that apply to the whole walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) least_depth: usize,
    pub(super) most_depth: usize,
    /// The contents of a directory come before the directory.
    pub(super) depth_first: bool,
    /// Some action may change an image.
    pub(super) writes: bool,
}

/// The file to evaluate.
pub(super) struct Seen<'a> {
    pub(super) name: &'a OsStr,
    pub(super) path: &'a OsStr,
    pub(super) meta: &'a Metadata,
    pub(super) now: SystemTime,
    pub(super) is_empty: &'a dyn Fn() -> bool,
}

impl Count {
    pub(super) fn fits(self, number: u64) -> bool {
        match self {
            Count::Exactly(wanted) => number == wanted,
            Count::More(least) => number > least,
            Count::Fewer(most) => number < most,
        }
    }
}

fn fits(pattern: &Pattern, text: &OsStr, case_sensitive: bool) -> bool {
    let options = MatchOptions {
        case_sensitive,
        require_literal_separator: false,
        require_literal_leading_dot: false,
    };
    pattern.matches_with(&text.to_string_lossy(), options)
}

impl Expression {
    pub(super) fn and(a: Expression, b: Expression) -> Expression {
        Expression::And(Box::new(a), Box::new(b))
    }

    pub(super) fn or(a: Expression, b: Expression) -> Expression {
        Expression::Or(Box::new(a), Box::new(b))
    }

    /// Whether it has an action; otherwise, matching names are printed.
    pub(super) fn acts(&self) -> bool {
        match self {
            Expression::And(a, b) | Expression::Or(a, b) => a.acts() || b.acts(),
            Expression::Not(a) => a.acts(),
            Expression::Print
            | Expression::Print0
            | Expression::Printf(_)
            | Expression::Exec(_)
            | Expression::ExecAll(_)
            | Expression::Ls
            | Expression::Delete => true,
            _ => false,
        }
    }

    /// Looks up the times of the reference files.
    pub(super) fn resolve(
        &mut self,
        time_of: &mut dyn FnMut(&Place) -> Result<SystemTime, Failure>,
    ) -> Result<(), Failure> {
        match self {
            Expression::And(a, b) | Expression::Or(a, b) => {
                a.resolve(time_of)?;
                b.resolve(time_of)
            }
            Expression::Not(a) => a.resolve(time_of),
            Expression::Newer(place, time) => {
                *time = Some(time_of(place)?);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether a file matches. Actions are performed by `act`, which returns whether they succeeded.
    pub(super) fn eval(
        &self,
        seen: &Seen<'_>,
        act: &mut dyn FnMut(&Expression) -> Result<bool, Failure>,
    ) -> Result<bool, Failure> {
        Ok(match self {
            Expression::And(a, b) => a.eval(seen, act)? && b.eval(seen, act)?,
            Expression::Or(a, b) => a.eval(seen, act)? || b.eval(seen, act)?,
            Expression::Not(a) => !a.eval(seen, act)?,
            Expression::Prune | Expression::Quit => return act(self),
            action if action.acts() => return act(action),
            test => test.fits(seen),
        })
    }

    fn fits(&self, seen: &Seen<'_>) -> bool {
        let meta = seen.meta;
        match self {
            Expression::True => true,
            Expression::Name(pattern, case) => fits(pattern, seen.name, *case),
            Expression::Path(pattern, case) => fits(pattern, seen.path, *case),
            Expression::Regex(regex) => regex.is_match(seen.path.as_bytes()),
            Expression::Type(kinds) => kinds.contains(&meta.file_type()),
            Expression::Size(count, unit) => count.fits(meta.len().div_ceil(*unit)),
            Expression::Empty => (seen.is_empty)(),
            Expression::Links(count) => count.fits(meta.nlink().into()),
            Expression::Inode(count) => count.fits(meta.ino()),
            Expression::User(count) => count.fits(meta.uid().into()),
            Expression::Group(count) => count.fits(meta.gid().into()),
            Expression::Age(which, count, unit) => {
                let time = match which {
                    Which::Accessed => meta.accessed(),
                    Which::Modified => meta.modified(),
                    Which::Changed => meta.changed(),
                };
                age(seen.now, time, *unit, *count)
            }
            Expression::Newer(_, time) => time.is_some_and(|time| meta.modified() > time),
            Expression::Mode(Rights::Exactly, mode) => meta.mode() == *mode,
            Expression::Mode(Rights::All, mode) => meta.mode() & mode == *mode,
            Expression::Mode(Rights::Any, mode) => *mode == 0 || meta.mode() & mode != 0,
            _ => false,
        }
    }
}

/// Compares the age in whole units of time. A time in the future is younger than any age.
fn age(now: SystemTime, time: SystemTime, unit: Duration, count: Count) -> bool {
    match now.duration_since(time) {
        Ok(age) => count.fits(age.as_secs() / unit.as_secs().max(1)),
        Err(_) => matches!(count, Count::Fewer(_)),
    }
}
