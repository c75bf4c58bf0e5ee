//! The actions of `find` on a matching file.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use throughline_forms::find::printf::{self, Subject};
use throughline_forms::find::{Expression, Seen};
use throughline_forms::format;
use throughline_forms::kind::letter;
use throughline_forms::mode::show;
use throughline_forms::time::short;

use super::super::within::{Stop, within};
use super::Search;
use crate::context::Context;
use crate::place::Place;
use crate::problem::{Doing, Failure};
use crate::text::printable;
use crate::walk::At;

/// Maximum number of files per command of `-exec … +`; bounds the memory for them.
const MAX_GATHERED: usize = 10_000;

impl Search<'_> {
    /// Tests a name and performs the actions. Returns whether to prune its directory.
    pub(super) fn act(&mut self, context: &mut Context, at: &At<'_>) -> Result<bool, Failure> {
        let path = at.place.to_shown();
        let seen = Seen {
            name: at.path().file_name().unwrap_or(at.path().as_os_str()),
            path: &path,
            meta: at.meta,
            now: self.now,
            is_empty: &|| match at.meta.is_dir() {
                true => at
                    .open_dir()
                    .and_then(|dir| dir.entries())
                    .is_ok_and(|mut entries| entries.next().is_none()),
                false => at.meta.is_file() && at.meta.len() == 0,
            },
        };
        let mut pruned = false;
        let expression = self.expression;
        expression.eval(&seen, &mut |action| {
            if matches!(action, Expression::Prune) {
                pruned = true;
                return Ok(true);
            }
            self.one(action, context, at, &path)
        })?;
        Ok(pruned)
    }

    /// Performs one action on a file. Returns whether it succeeded.
    fn one(
        &mut self,
        action: &Expression,
        context: &mut Context,
        at: &At<'_>,
        path: &OsStr,
    ) -> Result<bool, Failure> {
        match action {
            Expression::Print => {
                context.out.name_line(path)?;
            }
            Expression::Print0 => {
                context.out.bytes(path.as_bytes())?;
                context.out.bytes(b"\0")?;
            }
            Expression::Printf(format) => {
                let text = self.filled(format, at, path).map_err(Failure::Usage)?;
                context.out.bytes(&text)?;
            }
            Expression::Exec(words) => {
                let path = at.place.to_argument();
                let words = words.iter().map(|word| put(word, &path)).collect();
                return exec(context, words);
            }
            Expression::ExecAll(words) => return self.gather(context, words, at.place),
            Expression::Ls => context.out.line(self.row(at, path, context.out.terminal))?,
            Expression::Delete => {
                if let Err(failure) = delete(at) {
                    context.complain(failure)?;
                    return Ok(false);
                }
            }
            Expression::Quit => self.ended = true,
            _ => {}
        }
        Ok(true)
    }

    /// The text of `-printf`.
    fn filled(&self, format: &OsStr, at: &At<'_>, path: &OsStr) -> Result<Vec<u8>, String> {
        let start = at.start.place.to_shown();
        let subject = Subject {
            path,
            start: &start,
            depth: at.depth,
            meta: at.meta,
            names: &self.names,
            target: &|| at.link_target(),
            followed: &|| {
                let meta = at.start.volume.metadata(at.path()).ok()?;
                Some(meta.file_type())
            },
        };
        format::fill(format.as_bytes(), true, |asked| {
            printf::value(asked, &subject)
        })
    }

    /// Adds a file to the arguments of a command that takes many files.
    fn gather(
        &mut self,
        context: &mut Context,
        words: &[OsString],
        place: &Place,
    ) -> Result<bool, Failure> {
        let found = self.gathered.iter_mut().find(|(known, _)| known == words);
        let Some((_, places)) = found else {
            self.gathered.push((words.to_vec(), vec![place.clone()]));
            return Ok(true);
        };
        places.push(place.clone());
        if places.len() >= MAX_GATHERED {
            self.run_gathered(context)?;
        }
        Ok(true)
    }

    /// Runs the commands that take many files. If one fails, sets the exit code.
    pub(super) fn run_gathered(&mut self, context: &mut Context) -> Result<(), Failure> {
        let mut failed = false;
        for (words, places) in std::mem::take(&mut self.gathered) {
            let places = places.iter().map(|place| place.to_argument());
            failed |= !exec(context, words.into_iter().chain(places).collect())?;
        }
        match failed {
            true => context.complain(Failure::Reported),
            false => Ok(()),
        }
    }

    /// A line of `-ls`.
    fn row(&self, at: &At<'_>, path: &OsStr, terminal: bool) -> Vec<u8> {
        let meta = at.meta;
        let mut row = format!(
            "{:>9} {:>6} {} {:>3} {:<8} {:<8} {:>8} {} ",
            meta.ino(),
            meta.blocks_512().div_ceil(2),
            show(letter(meta.file_type()), meta.mode()),
            meta.nlink(),
            self.names.user_or_number(meta.uid()),
            self.names.group_or_number(meta.gid()),
            meta.len(),
            short(meta.modified(), self.now),
        )
        .into_bytes();
        row.extend_from_slice(&printable(path, terminal));
        row
    }
}

fn delete(at: &At<'_>) -> Result<(), Failure> {
    let cannot = || format!("cannot delete {}", at.place);
    let (volume, path) = (&at.start.volume, &at.start.path);
    let removed = match (at.parent, at.meta.is_dir()) {
        (Some((dir, name)), true) => dir.remove_dir(name),
        (Some((dir, name)), false) => dir.remove_file(name),
        (None, true) => volume.remove_dir(path),
        (None, false) => volume.remove_file(path),
    };
    removed.doing(cannot)
}

/// Replaces each `{}` in a word by the path.
fn put(word: &OsStr, path: &OsStr) -> OsString {
    let mut out = Vec::new();
    let mut rest = word.as_bytes();
    while let Some(at) = rest.windows(2).position(|two| two == b"{}") {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(path.as_bytes());
        rest = &rest[at + 2..];
    }
    out.extend_from_slice(rest);
    OsStr::from_bytes(&out).to_owned()
}

/// Runs a command. Returns whether it succeeded. Failures that it reports do not change the exit code of
/// `find`.
fn exec(context: &mut Context, words: Vec<OsString>) -> Result<bool, Failure> {
    let own = std::mem::take(&mut context.complaints);
    let (json, exit_bits) = (context.json, context.exit_bits);
    let done = within(words.into_iter(), context);
    (context.json, context.exit_bits) = (json, exit_bits);
    context.complaints = own;
    match done {
        Ok(()) => Ok(true),
        Err(Stop::Failed(_)) => Ok(false),
        Err(Stop::Ends(failure)) => Err(failure),
    }
}
