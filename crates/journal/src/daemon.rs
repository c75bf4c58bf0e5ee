//! The journal's thread: commits what is old, and checkpoints before the log is full.
//!
//! It sleeps until the running transaction reaches its age or somebody asks for it, and ends with the journal. While the
//! running transaction has no changes there is no age to wait for: it sleeps until the first one ([`Signals::began`]).

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
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
}

#[derive(Default)]
struct Wanted {
    stop: bool,
    checkpoint: bool,
    /// The running transaction has got its first change.
    began: bool,
}

impl Signals {
    /// Asks for a checkpoint.
    pub(crate) fn checkpoint(&self) {
        self.state.lock().checkpoint = true;
        self.wake.notify_one();
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
        let thread = std::thread::Builder::new()
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
        if let Some(thread) = self.thread.take() {
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
        let checkpoint = {
            let mut wanted = signals.state.lock();
            if !wanted.stop && !wanted.checkpoint && !wanted.began {
                match due {
                    Some(due) => drop(signals.wake.wait_for(&mut wanted, due)),
                    None => signals.wake.wait(&mut wanted),
                }
            }
            if wanted.stop {
                return;
            }
            wanted.began = false;
            std::mem::take(&mut wanted.checkpoint)
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
    }
}
