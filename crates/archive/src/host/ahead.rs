//! Threads that look at names ahead of the one that enters them into the tree.
//!
//! Invariants:
//! - What comes out depends on what was pushed, and in which order, but not on the number of threads or their
//!   speed: results come in the order of their jobs.
//! - At most [`JOBS_AHEAD`] jobs, of at most [`NAMES_TOGETHER`] names each, are done and not taken, or begun.
//! - Once [`Ahead`] is dropped, the threads end after the jobs that they have been given.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::thread::Scope;

use crossbeam_channel::{Receiver, Sender};
use rustix::fs::FileType;

use super::look::Seen;
use super::unreached;
use crate::error::{Error, Result};
use crate::host_tree::{FolderId, Folders, Names};
use crate::threads;

const JOBS_AHEAD: u64 = 64;
const NAMES_TOGETHER: usize = 256;
/// Threads at most. More would wait for the one that enters the names.
const MOST_THREADS: usize = 4;

/// Names to look at.
pub(super) struct Job {
    /// The path of the directory, for messages and for the tree.
    path: PathBuf,
    directory: FolderId,
    /// Names in it, and their types where it says them; `None`: all.
    names: Option<Vec<(OsString, FileType)>>,
}

/// Names of a directory, in order.
pub(super) struct Listed {
    pub(super) directory: FolderId,
    pub(super) seen: Vec<Seen>,
    /// Jobs for further names.
    pub(super) rest: Vec<Job>,
}

impl Job {
    /// Lists a directory.
    pub(super) fn list(path: PathBuf, directory: FolderId) -> Job {
        Job {
            path,
            directory,
            names: None,
        }
    }

    fn run(
        self,
        folders: &Folders,
        is_unwanted: &(dyn Fn(&Path) -> bool + Sync),
    ) -> Result<Listed> {
        let dir = folders.get(self.directory);
        let dir = dir.map_err(|error| unreached(self.path.display(), error))?;
        let mut rest = Vec::new();
        let names = match self.names {
            Some(names) => names,
            None => {
                let failed = |error| Error::io(self.path.display(), error);
                let mut all: Vec<_> = Names::read(&dir).map_err(failed)?.collect();
                // So that nothing depends on the order in which the host lists them.
                all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
                let further = all.split_off(all.len().min(NAMES_TOGETHER));
                rest.extend(further.chunks(NAMES_TOGETHER).map(|names| Job {
                    path: self.path.clone(),
                    directory: self.directory,
                    names: Some(names.to_vec()),
                }));
                all
            }
        };
        let mut seen = Vec::new();
        for (name, listed) in names {
            let path = self.path.join(&name);
            if !is_unwanted(&path) {
                seen.push(Seen::look(&dir, &name, listed, path)?);
            }
        }
        Ok(Listed {
            directory: self.directory,
            seen,
            rest,
        })
    }
}

/// What became of a job. The caller's code, which says what is unwanted, may panic.
type Done = std::thread::Result<Result<Listed>>;

/// The jobs, and the threads that do them.
pub(super) struct Ahead {
    waiting: VecDeque<Job>,
    jobs: Sender<(u64, Job)>,
    done: Receiver<(u64, Done)>,
    /// Jobs given to the threads, and results taken.
    given: u64,
    taken: u64,
    /// Results whose turn has not come.
    early: HashMap<u64, Done>,
}

impl Ahead {
    pub(super) fn start<'s, 'e>(
        scope: &'s Scope<'s, 'e>,
        folders: &'e Folders,
        is_unwanted: &'e (dyn Fn(&Path) -> bool + Sync),
    ) -> Result<Ahead> {
        let (jobs, to_do) = crossbeam_channel::unbounded::<(u64, Job)>();
        let (result, done) = crossbeam_channel::unbounded();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        threads::start(scope, threads.min(MOST_THREADS), || {
            let (to_do, result) = (to_do.clone(), result.clone());
            move || {
                for (number, job) in to_do {
                    let run = AssertUnwindSafe(|| job.run(folders, is_unwanted));
                    // Nobody takes it after an error.
                    let _ = result.send((number, catch_unwind(run)));
                }
            }
        })?;
        Ok(Ahead {
            waiting: VecDeque::new(),
            jobs,
            done,
            given: 0,
            taken: 0,
            early: HashMap::new(),
        })
    }

    /// Adds a job behind all others.
    pub(super) fn push(&mut self, job: Job) {
        self.waiting.push_back(job);
    }

    /// The result of the next job; `None` if there is none.
    pub(super) fn next(&mut self) -> Option<Result<Listed>> {
        while self.given - self.taken < JOBS_AHEAD
            && let Some(job) = self.waiting.pop_front()
        {
            self.jobs.send((self.given, job)).expect("the threads wait");
            self.given += 1;
        }
        while self.taken < self.given {
            if let Some(result) = self.early.remove(&self.taken) {
                self.taken += 1;
                return Some(result.unwrap_or_else(|panic| resume_unwind(panic)));
            }
            let (number, result) = self.done.recv().expect("a thread does it");
            self.early.insert(number, result);
        }
        None
    }
}
