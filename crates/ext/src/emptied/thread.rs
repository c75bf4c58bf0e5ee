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
    /// That of the thread, and of earlier ones that are about to end: each holds the volume until then, and
    /// with it the lock of the device.
    handles: Vec<JoinHandle<()>>,
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
                    state.handles.retain(|earlier| !earlier.is_finished());
                    state.handles.push(handle);
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
        let handles = {
            let mut state = self.state.lock();
            state.is_stopping = true;
            std::mem::take(&mut state.handles)
        };
        self.changed.notify_all();
        // The thread itself may drop the last reference to the volume. It cannot join itself, and exits on
        // its own.
        let own = thread::current().id();
        for handle in handles.into_iter().filter(|t| t.thread().id() != own) {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    /// A device was still locked after its volume was closed.
    #[test]
    fn stopping_waits_for_threads_that_were_replaced() {
        let thread = Arc::new(Thread::default());
        let (begun, ended) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
        let (leave, left) = channel::<()>();
        let left = Mutex::new(left);
        let body: Body = {
            let (thread, ended) = (Arc::clone(&thread), Arc::clone(&ended));
            Arc::new(move || {
                let is_first = begun.fetch_add(1, Ordering::SeqCst) == 0;
                while thread.wait(None) {}
                if is_first {
                    // As a thread that is not scheduled.
                    let _ = left.lock().recv();
                }
                ended.fetch_add(1, Ordering::SeqCst);
            })
        };
        thread.wake(&body);
        while thread.state.lock().is_running {
            thread::yield_now();
        }
        thread.wake(&body);
        let stopping = {
            let (thread, ended) = (Arc::clone(&thread), Arc::clone(&ended));
            thread::spawn(move || {
                thread.stop();
                ended.load(Ordering::SeqCst)
            })
        };
        while ended.load(Ordering::SeqCst) == 0 || !thread.is_stopping() {
            thread::yield_now();
        }
        leave.send(()).unwrap();
        assert_eq!(stopping.join().unwrap(), 2);
    }
}
