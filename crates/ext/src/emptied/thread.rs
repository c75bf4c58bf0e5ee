//! The thread that carries out deferred truncations when they are due. It runs only while there are some.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use throughline_locks::{Condvar, Mutex};

/// The thread's loop. It ends when [`Thread::wait`] returns `false`.
pub(crate) type Body = Arc<dyn Fn() + Send + Sync>;

/// See the head of this file.
#[derive(Default)]
pub(super) struct Thread {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    handle: Option<JoinHandle<()>>,
    is_running: bool,
    /// There is new work.
    is_woken: bool,
    is_stopping: bool,
}

impl Thread {
    /// Notifies the thread of new work; starts it if it is not running.
    pub(super) fn wake(&self, body: &Body) {
        let mut state = self.state.lock();
        state.is_woken = true;
        if !state.is_running && !state.is_stopping {
            let body = Arc::clone(body);
            let thread = thread::Builder::new().name("tl-emptied".into());
            let run = move || {
                throughline_device::free_thread();
                body();
            };
            throughline_device::leave_background();
            match thread.spawn(run) {
                Ok(handle) => {
                    state.handle = Some(handle);
                    state.is_running = true;
                }
                // A sync or the next write-back of the file will carry out the truncation.
                Err(error) => {
                    tracing::warn!(%error, "cannot start the thread for deferred truncations")
                }
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.state.lock().is_stopping
    }

    /// Stops the thread for good.
    pub(super) fn stop(&self) {
        let handle = {
            let mut state = self.state.lock();
            state.is_stopping = true;
            state.handle.take()
        };
        self.changed.notify_all();
        // The thread itself may drop the last reference to the volume. It cannot join itself, and exits on
        // its own.
        if let Some(handle) = handle.filter(|t| t.thread().id() != thread::current().id()) {
            let _ = handle.join();
        }
    }

    /// Waits until `until` or until there is new work; `false` if the thread must exit.
    pub(super) fn wait(&self, until: Option<Instant>) -> bool {
        let mut state = self.state.lock();
        while !state.is_stopping && !std::mem::take(&mut state.is_woken) {
            let Some(until) = until else {
                state.is_running = false;
                return false;
            };
            if self.changed.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        !state.is_stopping
    }
}
