//! Expressions of `find`: parsed from words, and evaluated for a file.

mod parse;
pub mod printf;

use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

use throughline::Metadata;

pub use parse::{Check, parse};

/// A test, an action, or a combination of them.
pub enum Expression {
    /// Matches if both match.
    And(Box<Expression>, Box<Expression>),
    /// Matches if either matches.
    Or(Box<Expression>, Box<Expression>),
    /// Matches if this does not.
    Not(Box<Expression>),
    /// Matches the files that pass it.
    Test(Box<dyn Fn(&Seen<'_>) -> bool>),
    /// Modified later than this file, whose time is known after [`Expression::resolve`].
    Newer(OsString, Option<SystemTime>),
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

impl Expression {
    /// Matches if both match.
    pub fn and(a: Expression, b: Expression) -> Expression {
        Expression::And(Box::new(a), Box::new(b))
    }

    pub(crate) fn test(test: impl Fn(&Seen<'_>) -> bool + 'static) -> Expression {
        Expression::Test(Box::new(test))
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
            Expression::Test(test) => test(seen),
            Expression::Newer(_, time) => time.is_some_and(|time| seen.meta.modified() > time),
            action => return act(action),
        })
    }
}
