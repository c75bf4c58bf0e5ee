//! [`State`]: the folder that a bisection lives in, and [`Event`]s, the log of all that was built and measured.
//!
//! ```text
//! FOLDER/lock          held by the process at work; its number
//!        events.jsonl  what happened, a line each
//!        running       the process group of the command at work
//!        trees/        the worktrees, and beside each built one a mark
//!        logs/         what the commands printed, per commit
//!        record.jsonl  all samples as a record of the lab, once it has ended
//! ```
//!
//! Invariants:
//! - An event is with the kernel when [`State::note`] returns, so that a run that is killed loses the run it was in, and no more.
//!   A last line torn by a crash is left out.
//! - The log holds what was found, not what was concluded: a run that goes on walks through the same decisions again, on the
//!   same figures.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::Plan;
use crate::shell::end_leftovers;
use crate::{Error, Result};

/// The version of the log's form.
const FORM: u32 = 2;

/// Something that happened.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Event {
    /// It began.
    Start {
        /// [`FORM`] of the writer.
        form: u32,
        /// What was asked.
        plan: Box<Plan>,
        /// When: RFC 3339.
        at: String,
    },
    /// A commit was built, or could not be.
    Build {
        /// The commit.
        id: String,
        /// Why not; `None` where it was.
        failed: Option<String>,
        /// Seconds that it took.
        took_s: f64,
    },
    /// Two commits were measured one after the other.
    Pair(Pair),
    /// A commit's measurement failed, more than once.
    Fault {
        /// The commit.
        id: String,
        /// How.
        why: String,
    },
    /// It came to an end.
    End {
        /// When: RFC 3339.
        at: String,
    },
}

/// Two commits, measured one after the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Pair {
    /// The one that is compared with.
    pub(super) base: String,
    /// The one that is looked at.
    pub(super) new: String,
    /// The figure of `base`.
    pub(super) base_value: f64,
    /// The figure of `new`.
    pub(super) new_value: f64,
    /// Seconds that both took.
    pub(super) took_s: f64,
}

/// A bisection's folder, locked.
#[derive(Debug)]
pub(super) struct State {
    folder: PathBuf,
    log: File,
    /// Held until the process ends.
    _lock: File,
    /// All that happened, in order.
    pub(super) events: Vec<Event>,
}

/// Where bisections live that are given no folder: `throughline/bisect` in the user's folder for state.
///
/// # Errors
/// Where there is neither `XDG_STATE_HOME` nor `HOME`.
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
            Error::new("neither XDG_STATE_HOME nor HOME is set: name a folder with --state")
        })
}

/// What was asked of the bisection in a folder, and whether it came to its end; `None` for another folder.
pub(super) fn look(folder: &Path) -> Option<(Plan, bool)> {
    let events = read(&folder.join("events.jsonl")).ok()?;
    let ended = matches!(events.last(), Some(Event::End { .. }));
    match events.into_iter().next()? {
        Event::Start {
            plan, form: FORM, ..
        } => Some((*plan, ended)),
        _ => None,
    }
}

/// The log's whole lines.
fn read(path: &Path) -> Result<Vec<Event>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Error::new(format!("cannot read {}: {e}", path.display()))),
    };
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let lines = text[..whole].lines().zip(1..);
    lines
        .map(|(line, number)| {
            serde_json::from_str(line).map_err(|e| {
                Error::new(format!(
                    "{}, line {number}: {e}; --restart begins anew",
                    path.display()
                ))
            })
        })
        .collect()
}

impl State {
    /// Takes a folder, made if need be, and goes on with what it holds, or begins.
    ///
    /// # Errors
    /// Where another process is at work in it, where it holds something else, and what the system says.
    pub(super) fn open(folder: &Path, plan: &Plan, at: &str, restart: bool) -> Result<State> {
        let cannot = |e| {
            Error::new(format!(
                "cannot keep state in {}: {e}; another folder is chosen with --state",
                folder.display()
            ))
        };
        if !may_be_ours(folder) {
            return Err(Error::new(format!(
                "{} is not empty, and holds no state of a bisection: name another folder with --state",
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
        let events = if restart { Vec::new() } else { read(&path)? };
        // Whole lines only, so that the next one begins a line.
        rewrite(&path, &events).map_err(cannot)?;
        let log = OpenOptions::new()
            .append(true)
            .open(&path)
            .map_err(cannot)?;
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
                    "{} holds the state of another bisection: name another folder with --state, or begin anew with --restart",
                    state.folder.display()
                )));
            }
        }
        Ok(state)
    }

    /// The folder, without symbolic links.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Takes in what happened.
    pub(super) fn note(&mut self, event: Event) -> Result<()> {
        let mut line = serde_json::to_vec(&event)?;
        line.push(b'\n');
        self.log.write_all(&line).map_err(|e| {
            Error::new(format!(
                "cannot write to {}: {e}; the same command goes on once that is mended",
                self.folder.display()
            ))
        })?;
        self.events.push(event);
        Ok(())
    }

    /// Forgets what was measured of a commit, and whether it could be built.
    pub(super) fn forget(&mut self, commit: &str) -> Result<()> {
        self.events.retain(|event| match event {
            Event::Build { id, .. } | Event::Fault { id, .. } => id != commit,
            Event::Pair(pair) => pair.new != commit,
            _ => true,
        });
        self.write_again()
    }

    /// Forgets that these commits could not be built or measured.
    pub(super) fn forget_failures(&mut self, commits: &[String]) -> Result<()> {
        self.events.retain(|event| match event {
            Event::Build {
                id,
                failed: Some(_),
                ..
            }
            | Event::Fault { id, .. } => !commits.contains(id),
            _ => true,
        });
        self.write_again()
    }

    fn write_again(&mut self) -> Result<()> {
        let path = self.folder.join("events.jsonl");
        let cannot = |e| Error::new(format!("cannot write {}: {e}", path.display()));
        rewrite(&path, &self.events).map_err(cannot)?;
        self.log = OpenOptions::new()
            .append(true)
            .open(&path)
            .map_err(cannot)?;
        Ok(())
    }

    /// Whether it came to its end.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.events.last(), Some(Event::End { .. }))
    }

    /// When it began: RFC 3339.
    pub(super) fn began(&self) -> &str {
        match self.events.first() {
            Some(Event::Start { at, .. }) => at,
            _ => "",
        }
    }

    /// Why a commit cannot be measured, if that is known.
    pub(super) fn failure(&self, commit: &str) -> Option<&str> {
        self.events.iter().find_map(|event| match event {
            Event::Build { id, failed, .. } if id == commit => failed.as_deref(),
            Event::Fault { id, why } if id == commit => Some(why.as_str()),
            _ => None,
        })
    }

    /// The pairs of these two, in the order in which they were measured.
    pub(super) fn pairs(&self, of: &str, beside: &str) -> Vec<(f64, f64)> {
        self.all_pairs()
            .filter(|pair| pair.base == beside && pair.new == of)
            .map(|pair| (pair.base_value, pair.new_value))
            .collect()
    }

    /// The pairs of all commits, in the order in which they were measured.
    pub(super) fn all_pairs(&self) -> impl Iterator<Item = &Pair> {
        self.events.iter().filter_map(|event| match event {
            Event::Pair(pair) => Some(pair),
            _ => None,
        })
    }

    /// All that was measured of a commit.
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

    /// Removes all that a bisection keeps, and the folder if nothing else is in it. The worktrees are gone before.
    pub(super) fn remove(self) -> Result<()> {
        let cannot = |e| Error::new(format!("cannot remove {}: {e}", self.folder.display()));
        for part in ["trees", "logs"] {
            fs::remove_dir_all(self.folder.join(part)).map_err(cannot)?;
        }
        for part in ["record.jsonl", "running", "events.jsonl", "lock"] {
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

    /// Seconds that a pair takes, and a build, by what was seen; 0 without any.
    pub(super) fn costs(&self) -> (f64, f64) {
        let (mut pairs, mut builds) = ((0.0, 0u32), (0.0, 0u32));
        for event in &self.events {
            match event {
                Event::Pair(pair) => pairs = (pairs.0 + pair.took_s, pairs.1 + 1),
                Event::Build { took_s, .. } => builds = (builds.0 + took_s, builds.1 + 1),
                _ => {}
            }
        }
        let each = |(sum, count): (f64, u32)| sum / f64::from(count.max(1));
        (each(pairs), each(builds))
    }
}

/// Whether a folder is one of ours, or may become one: what is in `trees` is removed at the end.
fn may_be_ours(folder: &Path) -> bool {
    let empty = |path: &Path| fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    let Ok(entries) = fs::read_dir(folder) else {
        return !folder.exists();
    };
    let begun = matches!(
        read(&folder.join("events.jsonl"))
            .unwrap_or_default()
            .first(),
        Some(Event::Start { .. })
    );
    // One that was killed before its first event is as good as empty.
    begun
        || entries
            .flatten()
            .all(|entry| match entry.file_name().to_str() {
                Some("lock" | "events.jsonl") => true,
                Some("trees" | "logs") => empty(&entry.path()),
                _ => false,
            })
}

/// One process at a time.
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
                "process {} is at work on this bisection already",
                holder.trim()
            )));
        }
        Err(e) => return Err(cannot(e.into())),
    }
    file.set_len(0).map_err(cannot)?;
    writeln!(file, "{}", std::process::id()).map_err(cannot)?;
    Ok(file)
}

/// Replaces the log in one go.
fn rewrite(path: &Path, events: &[Event]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    let mut text = Vec::new();
    for event in events {
        serde_json::to_writer(&mut text, event)?;
        text.push(b'\n');
    }
    file.write_all(&text)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}
