//! The journal's thread: commits old transactions, and checkpoints before the log is full.
//!
//! It sleeps until the running transaction reaches the commit interval or it is signalled, and ends with the
//! journal. While the running transaction has no changes it has no age, and the thread sleeps until the first
//! change ([`Signals::began`]).

use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use throughline_locks::{Condvar, Mutex};

use crate::commit::Core;

/// How long it waits before it tries again what found no room on the device.
const RETRY: Duration = Duration::from_secs(1);
/// The shortest commit interval; a shorter one gains nothing.
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
    /// The callback that the thread runs after commits.
    after_commits: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct Wanted {
    stop: bool,
    checkpoint: bool,
    /// The running transaction has its first change.
    began: bool,
    /// A transaction has become durable, and there is a callback to run.
    committed: bool,
}

impl Signals {
    /// Requests a checkpoint.
    pub(crate) fn checkpoint(&self) {
        self.state.lock().checkpoint = true;
        self.wake.notify_one();
    }

    /// Sets the callback to run after commits. Only the first one is kept.
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

    /// Something found no room on the device and must be tried again.
    pub(crate) fn full(&self) {
        self.began();
    }

    /// The running transaction has its first change, so its age counts.
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
        // The thread itself may drop the last reference to the volume in its callback. It cannot join itself;
        // it ends on its own.
        let is_other = |thread: &JoinHandle<()>| thread.thread().id() != thread::current().id();
        if let Some(thread) = self.thread.take().filter(is_other) {
            // The panic hook has already reported a panic of the thread.
            let _ = thread.join();
        }
    }
}

fn run(core: &Core, signals: &Signals, commit_interval: Duration) {
    loop {
        let full = core.is_full();
        // A change that begins after this is signalled through `began`.
        let due = core
            .gate
            .since()
            .map(|since| commit_interval.saturating_sub(since.elapsed()));
        let (checkpoint, committed) = {
            let mut wanted = signals.state.lock();
            let is_idle = !wanted.checkpoint && !wanted.began && !wanted.committed;
            if !wanted.stop && (is_idle || full) {
                match due {
                    _ if full => drop(signals.wake.wait_for(&mut wanted, RETRY)),
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
        let old = core
            .gate
            .since()
            .is_some_and(|since| since.elapsed() >= commit_interval);
        let mut done = Ok(());
        if checkpoint || full {
            done = core.checkpoint();
        }
        if old || full {
            done = done.and(core.commit(core.gate.tid()));
        }
        // If the journal is aborted, later callers get the error, and this thread has nothing left to do.
        if done.is_err() && core.aborted().is_some() {
            return;
        }
        if committed && let Some(after) = signals.after_commits.get() {
            after();
        }
    }
}
