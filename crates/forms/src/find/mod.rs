//! Expressions of `find`: parsed from words, and evaluated for a file.

mod parse;
pub mod printf;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use glob::{MatchOptions, Pattern};
use regex::bytes::Regex;
use throughline::{FileType, Metadata};

pub use parse::{Check, parse};

/// A test, an action, or a combination of them.
#[derive(Clone, Debug)]
pub enum Expression {
    /// Matches if both match.
    And(Box<Expression>, Box<Expression>),
    /// Matches if either matches.
    Or(Box<Expression>, Box<Expression>),
    /// Matches if this does not.
    Not(Box<Expression>),
    /// Matches any file.
    True,
    /// Matches no file.
    False,
    /// Matches the last component of the path; `true` if case-sensitive.
    Name(Pattern, bool),
    /// Matches the whole path; `true` if case-sensitive.
    Path(Pattern, bool),
    /// Matches files of these types.
    Type(Vec<FileType>),
    /// Compares the size in units of this many bytes, rounded up.
    Size(Count, u64),
    /// Matches an empty file or directory.
    Empty,
    /// Compares the number of hard links.
    Links(Count),
    /// Compares the inode number.
    Inode(Count),
    /// Compares the owner's ID.
    User(Count),
    /// Compares the group's ID.
    Group(Count),
    /// Compares the age by one of the times, in this unit.
    Age(Which, Count, Duration),
    /// Modified later than this file, whose time is known after [`Expression::resolve`].
    Newer(OsString, Option<SystemTime>),
    /// Compares the permission bits.
    Mode(Rights, u32),
    /// Matches the whole path by a regular expression.
    Regex(Regex),
    /// Prints the path.
    Print,
    /// Prints the path and a zero byte.
    Print0,
    /// Prints a line in this format.
    Printf(OsString),
    /// Runs a command for each file; `{}` in its words stands for the file.
    Exec(Vec<OsString>),
    /// Runs a command for many files, which are appended to its words.
    ExecAll(Vec<OsString>),
    /// Prints a line as `ls -dils` does.
    Ls,
    /// Removes the file.
    Delete,
    /// Does not enter this directory.
    Prune,
    /// Ends the walk.
    Quit,
}

/// A number to compare with: `5` exactly, `+5` more, `-5` fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// This number.
    Exactly(u64),
    /// More than this.
    More(u64),
    /// Fewer than this.
    Fewer(u64),
}

/// A time of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The time of the last access.
    Accessed,
    /// The time of the last change of the contents.
    Modified,
    /// The time of the last change of the inode.
    Changed,
}

/// How permission bits are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Exactly these bits are set.
    Exactly,
    /// All of these bits are set.
    All,
    /// Any of these bits is set.
    Any,
}

/// Options that apply to the whole walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Files with fewer directories above them, the start included, are not tested.
    pub least_depth: usize,
    /// Files with more directories above them are not visited.
    pub most_depth: usize,
    /// Whether the contents of a directory are visited before the directory.
    pub depth_first: bool,
    /// Whether an action may change an image.
    pub writes: bool,
}

/// The file to evaluate.
pub struct Seen<'a> {
    /// The last component of the path.
    pub name: &'a OsStr,
    /// The path as shown.
    pub path: &'a OsStr,
    /// Its attributes.
    pub meta: &'a Metadata,
    /// The time that ages are relative to.
    pub now: SystemTime,
    /// Whether it is an empty file or directory.
    pub is_empty: &'a dyn Fn() -> bool,
}

impl Count {
    fn fits(self, number: u64) -> bool {
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
    /// Matches if both match.
    pub fn and(a: Expression, b: Expression) -> Expression {
        Expression::And(Box::new(a), Box::new(b))
    }

    pub(crate) fn or(a: Expression, b: Expression) -> Expression {
        Expression::Or(Box::new(a), Box::new(b))
    }

    /// Whether it has an action. If not, the matching paths are printed.
    pub fn acts(&self) -> bool {
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
    ///
    /// # Errors
    /// Those of `time_of`.
    pub fn resolve<E>(
        &mut self,
        time_of: &mut dyn FnMut(&OsStr) -> Result<SystemTime, E>,
    ) -> Result<(), E> {
        match self {
            Expression::And(a, b) | Expression::Or(a, b) => {
                a.resolve(time_of)?;
                b.resolve(time_of)
            }
            Expression::Not(a) => a.resolve(time_of),
            Expression::Newer(file, time) => {
                *time = Some(time_of(file)?);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether a file matches. Actions are performed by `act`, which returns whether they succeeded.
    ///
    /// # Errors
    /// Those of `act`.
    pub fn eval<E>(
        &self,
        seen: &Seen<'_>,
        act: &mut dyn FnMut(&Expression) -> Result<bool, E>,
    ) -> Result<bool, E> {
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
