//! The journal's thread: commits what is old, and checkpoints before the log is full.
//!
//! It sleeps until the running transaction reaches its age or somebody asks for it, and ends with the journal. While the
//! running transaction has no changes there is no age to wait for: it sleeps until the first one ([`Signals::began`]).

use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::commit::Core;

/// Nothing is gained by looking more often.
const SHORTEST: Duration = Duration::from_millis(10);

/// See the head of this file. Dropping it ends the thread.
pub(crate) struct Daemon {
    signals: Arc<Signals>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
pub(crate) struct Signals {
    state: Mutex<Wanted>,
    wake: Condvar,
    /// What the thread does after commits.
    after_commits: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct Wanted {
    stop: bool,
    checkpoint: bool,
    /// The running transaction has got its first change.
    began: bool,
    /// One has become durable, and somebody wants to hear of it.
    committed: bool,
}

impl Signals {
    /// Asks for a checkpoint.
    pub(crate) fn checkpoint(&self) {
        self.state.lock().checkpoint = true;
        self.wake.notify_one();
    }

    /// Has the thread do this after commits; the first one given stays.
    pub(crate) fn set_after_commits(&self, after: Box<dyn Fn() + Send + Sync>) {
        let _ = self.after_commits.set(after);
    }

    /// A transaction has become durable.
    pub(crate) fn committed(&self) {
        if self.after_commits.get().is_some() {
            self.state.lock().committed = true;
            self.wake.notify_one();
        }
    }

    /// The running transaction has got its first change: its age counts.
    pub(crate) fn began(&self) {
        self.state.lock().began = true;
        self.wake.notify_one();
    }
}

impl Daemon {
    /// Starts the thread.
    pub(crate) fn start(
        core: Arc<Core>,
        signals: Arc<Signals>,
        commit_interval: Duration,
    ) -> io::Result<Self> {
        let theirs = Arc::clone(&signals);
        let commit_interval = commit_interval.max(SHORTEST);
        let thread = thread::Builder::new()
            .name("tl-journal".into())
            .spawn(move || run(&core, &theirs, commit_interval))?;
        Ok(Self {
            signals,
            thread: Some(thread),
        })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.signals.state.lock().stop = true;
        self.signals.wake.notify_one();
        // The thread itself may let the last of the volume go, after a commit: it ends on its own.
        let is_other = |thread: &JoinHandle<()>| thread.thread().id() != thread::current().id();
        if let Some(thread) = self.thread.take().filter(is_other) {
            // A panic there was reported by its thread; there is nothing to add.
            let _ = thread.join();
        }
    }
}

fn run(core: &Core, signals: &Signals, commit_interval: Duration) {
    loop {
        // What begins after this look says so.
        let due = core
            .gate
            .since()
            .map(|since| commit_interval.saturating_sub(since.elapsed()));
        let (checkpoint, committed) = {
            let mut wanted = signals.state.lock();
            let is_idle = !wanted.checkpoint && !wanted.began && !wanted.committed;
            if !wanted.stop && is_idle {
                match due {
                    Some(due) => drop(signals.wake.wait_for(&mut wanted, due)),
                    None => signals.wake.wait(&mut wanted),
                }
            }
            if wanted.stop {
                return;
            }
            wanted.began = false;
            let checkpoint = std::mem::take(&mut wanted.checkpoint);
            (checkpoint, std::mem::take(&mut wanted.committed))
        };
        // Errors stop the journal; whoever uses it next is told, and there is nothing left to do here.
        if checkpoint && core.checkpoint().is_err() {
            return;
        }
        let old = core
            .gate
            .since()
            .is_some_and(|since| since.elapsed() >= commit_interval);
        if old && core.commit(core.gate.tid()).is_err() {
            return;
        }
        if committed && let Some(after) = signals.after_commits.get() {
            after();
        }
    }
}
