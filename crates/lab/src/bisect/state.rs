//! [`State`]: a bisection's directory, and [`Event`]s, the log of everything built and measured.
//!
//! ```text
//! FOLDER/lock          locked by the running process; contains its ID
//!        events.jsonl  the events, one per line
//!        running       the process group of the running command
//!        trees/        the worktrees, each with a mark beside it if it was built
//!        logs/         the output of the commands, per commit
//! ```
//!
//! Invariants:
//! - An event has reached the kernel when [`State::note`] returns, so a killed program loses only the run in
//!   progress. A last line torn by a crash is dropped.
//! - The log holds measurements, not conclusions: a resumed bisection makes the same decisions again, from
//!   the same figures.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::Plan;
use super::bench::Fault;
use crate::shell::end_leftovers;
use crate::{Error, Result};

/// The version of the log's format.
const FORM: u32 = 3;

/// An event.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Event {
    /// The bisection started.
    Start {
        /// The writer's [`FORM`].
        form: u32,
        /// What to bisect.
        plan: Box<Plan>,
        /// The time: RFC 3339.
        at: String,
    },
    /// Two commits were measured one after the other.
    Pair(Pair),
    /// A commit could not be built, or its measurement failed more than once.
    Fault(Fault),
    /// The bisection finished.
    End {
        /// The time: RFC 3339.
        at: String,
    },
}

/// Two commits, measured one after the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Pair {
    /// The commit compared against.
    pub(super) base: String,
    /// The commit being examined.
    pub(super) new: String,
    /// The figure of `base`.
    pub(super) base_value: f64,
    /// The figure of `new`.
    pub(super) new_value: f64,
}

/// The directory of a bisection, locked by this process.
#[derive(Debug)]
pub(super) struct State {
    folder: PathBuf,
    log: File,
    /// Holds the lock until the process ends.
    _lock: File,
    /// All events, in order.
    pub(super) events: Vec<Event>,
}

/// The default place for bisections: `throughline/bisect` in the user's state directory.
///
/// # Errors
/// If neither `XDG_STATE_HOME` nor `HOME` is set.
pub(super) fn home() -> Result<PathBuf> {
    let named = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    named("XDG_STATE_HOME")
        .or_else(|| Some(named("HOME")?.join(".local/state")))
        .map(|base| base.join("throughline/bisect"))
        .ok_or_else(|| {
            Error::new("neither XDG_STATE_HOME nor HOME is set: name a directory with --state")
        })
}

/// The events in the log's complete lines, and their length in bytes.
fn read(path: &Path) -> Result<(Vec<Event>, u64)> {
    let text = match fs::read_to_string(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
        text => text.map_err(|e| Error::new(format!("cannot read {}: {e}", path.display())))?,
    };
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let event = |(line, number): (&str, usize)| {
        serde_json::from_str(line).map_err(|e| {
            let path = path.display();
            Error::new(format!(
                "{path}, line {number}: {e}; --restart starts again"
            ))
        })
    };
    let events = text[..whole].lines().zip(1..).map(event);
    Ok((events.collect::<Result<_>>()?, whole as u64))
}

impl State {
    /// Opens a directory, creating it if needed. Resumes from its state, or starts anew.
    ///
    /// # Errors
    /// If another process is using it, if it contains something else, and errors of the system.
    pub(super) fn open(folder: &Path, plan: &Plan, at: &str, restart: bool) -> Result<State> {
        let cannot = |e| {
            Error::new(format!(
                "cannot store the state in {}: {e}; choose another directory with --state",
                folder.display()
            ))
        };
        if !may_be_ours(folder) {
            return Err(Error::new(format!(
                "{} is not empty, and contains no state of a bisection: name another directory with --state",
                folder.display()
            )));
        }
        for part in ["trees", "logs"] {
            fs::create_dir_all(folder.join(part)).map_err(cannot)?;
        }
        let folder = fs::canonicalize(folder).map_err(cannot)?;
        let lock = lock(&folder)?;
        end_leftovers(&folder.join("running"), &folder);
        let path = folder.join("events.jsonl");
        let (events, len_bytes) = match restart {
            true => (Vec::new(), 0),
            false => read(&path)?,
        };
        let mut log = OpenOptions::new();
        let log = log.append(true).create(true).open(&path).map_err(cannot)?;
        // Remove a torn last line, so that the next event starts a new line.
        log.set_len(len_bytes).map_err(cannot)?;
        let mut state = State {
            folder,
            log,
            _lock: lock,
            events,
        };
        match state.events.first() {
            None => state.note(Event::Start {
                form: FORM,
                plan: Box::new(plan.clone()),
                at: at.to_owned(),
            })?,
            Some(Event::Start {
                form: FORM,
                plan: begun,
                ..
            }) if **begun == *plan => {}
            Some(_) => {
                return Err(Error::new(format!(
                    "{} contains the state of another bisection: name another directory with --state, or \
                     start again with --restart",
                    state.folder.display()
                )));
            }
        }
        Ok(state)
    }

    /// The directory, with symbolic links resolved.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Logs an event.
    pub(super) fn note(&mut self, event: Event) -> Result<()> {
        let mut line = serde_json::to_vec(&event)?;
        line.push(b'\n');
        self.log.write_all(&line).map_err(|e| {
            Error::new(format!(
                "cannot write to {}: {e}; when that is fixed, the same command continues",
                self.folder.display()
            ))
        })?;
        self.events.push(event);
        Ok(())
    }

    /// Whether it finished.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.events.last(), Some(Event::End { .. }))
    }

    /// When it started: RFC 3339.
    pub(super) fn began(&self) -> &str {
        match self.events.first() {
            Some(Event::Start { at, .. }) => at,
            _ => "",
        }
    }

    /// Why a commit cannot be measured, if known.
    pub(super) fn failure(&self, commit: &str) -> Option<&str> {
        self.events.iter().find_map(|event| match event {
            Event::Fault(fault) if fault.id == commit => Some(fault.why.as_str()),
            _ => None,
        })
    }

    /// The pairs of these two, in the order they were measured.
    pub(super) fn pairs(&self, of: &str, beside: &str) -> Vec<(f64, f64)> {
        self.all_pairs()
            .filter(|pair| pair.base == beside && pair.new == of)
            .map(|pair| (pair.base_value, pair.new_value))
            .collect()
    }

    /// The pairs of all commits, in the order they were measured.
    pub(super) fn all_pairs(&self) -> impl Iterator<Item = &Pair> {
        self.events.iter().filter_map(|event| match event {
            Event::Pair(pair) => Some(pair),
            _ => None,
        })
    }

    /// All values measured for a commit.
    pub(super) fn values(&self, of: &str) -> Vec<f64> {
        let mut values = Vec::new();
        for pair in self.all_pairs() {
            if pair.base == of {
                values.push(pair.base_value);
            }
            if pair.new == of {
                values.push(pair.new_value);
            }
        }
        values
    }

    /// Removes all of the bisection's files, and the directory if it is then empty. The worktrees must have
    /// been removed before.
    pub(super) fn remove(self) -> Result<()> {
        let cannot = |e| Error::new(format!("cannot remove {}: {e}", self.folder.display()));
        for part in ["trees", "logs"] {
            fs::remove_dir_all(self.folder.join(part)).map_err(cannot)?;
        }
        for part in ["running", "events.jsonl", "lock"] {
            match fs::remove_file(self.folder.join(part)) {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(cannot(e)),
                _ => {}
            }
        }
        match fs::remove_dir(&self.folder) {
            Err(e) if e.kind() != ErrorKind::DirectoryNotEmpty => Err(cannot(e)),
            _ => Ok(()),
        }
    }
}

/// Whether a directory contains our state, or nothing else. This is checked because the contents of `trees`
/// are removed at the end.
fn may_be_ours(folder: &Path) -> bool {
    let empty = |path: &Path| fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    let Ok(entries) = fs::read_dir(folder) else {
        return !folder.exists();
    };
    let log = read(&folder.join("events.jsonl")).unwrap_or_default();
    let ours = |entry: fs::DirEntry| match entry.file_name().to_str() {
        Some("lock" | "events.jsonl") => true,
        Some("trees" | "logs") => empty(&entry.path()),
        _ => false,
    };
    // A run that was killed before its first event leaves nothing to keep.
    matches!(log.0.first(), Some(Event::Start { .. })) || entries.flatten().all(ours)
}

/// Locks the directory, so that only one process uses it.
fn lock(folder: &Path) -> Result<File> {
    let path = folder.join("lock");
    let cannot = |e: std::io::Error| Error::new(format!("cannot lock {}: {e}", path.display()));
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(cannot)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let holder = fs::read_to_string(&path).unwrap_or_default();
            return Err(Error::new(format!(
                "process {} is already running this bisection",
                holder.trim()
            )));
        }
        Err(e) => return Err(cannot(e.into())),
    }
    file.set_len(0).map_err(cannot)?;
    writeln!(file, "{}", std::process::id()).map_err(cannot)?;
    Ok(file)
}
