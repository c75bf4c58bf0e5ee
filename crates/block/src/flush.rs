//! Flushes of one device: one at a time, each for all callers that wait for it.
//!
//! ```text
//!  flush N    ─ led ──────────── ends: its callers return, one that came later leads N + 1
//!  flush N+1      ▲ calls made here wait for it
//! ```
//!
//! A device whose flush failed may have dropped all that it had not yet stored, for whomever that was
//! written, and later flushes succeed without it.
//!
//! Invariants:
//! - A flush that a caller relies on began after the call.
//! - Once the device has failed a flush, no call returns success, whether it was waiting, or comes later. As
//!   only one flush runs at a time, none can succeed while the failure of another is not yet known. Not so if
//!   it had no room: then it keeps what it could not store, and the flush is tried again.

use std::sync::OnceLock;

use throughline_locks::{Condvar, Mutex};

use crate::error::{Error, Result};

/// See the head of this file.
#[derive(Default)]
pub(crate) struct Flushes {
    state: Mutex<State>,
    ended: Condvar,
    failed: OnceLock<Error>,
}

#[derive(Default)]
struct State {
    is_led: bool,
    begun: u64,
    /// The newest flush that succeeded.
    done: u64,
}

/// Ends a flush when it is dropped, also in a panic.
struct Lead<'f> {
    flushes: &'f Flushes,
    number: u64,
    is_done: bool,
}

impl Flushes {
    /// Flushes by `flush`, or waits for the flush of another caller that began after this call.
    ///
    /// # Errors
    /// Of `flush`; the error of the first flush that the device failed.
    pub(crate) fn run(&self, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut state = self.state.lock();
        let wanted = state.begun + 1;
        loop {
            if let Some(error) = self.failed.get() {
                return Err(error.clone());
            }
            if state.done >= wanted {
                return Ok(());
            }
            if !state.is_led {
                break;
            }
            self.ended.wait(&mut state);
        }
        state.is_led = true;
        state.begun += 1;
        let mut lead = Lead {
            flushes: self,
            number: state.begun,
            is_done: false,
        };
        drop(state);
        let result = flush();
        if let Err(error @ Error::Device { .. }) = &result
            && !error.is_full()
        {
            // Before the lead ends, so that all others see it.
            let _ = self.failed.set(error.clone());
        }
        lead.is_done = result.is_ok();
        result
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut state = self.flushes.state.lock();
        state.is_led = false;
        if self.is_done {
            state.done = self.number;
        }
        drop(state);
        self.flushes.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use throughline_device::Op;

    use super::*;

    /// All callers are covered by a flush that began after their call; once one has failed, none succeeds,
    /// although the device's later flushes would.
    #[test]
    fn a_failed_flush_reaches_everyone() {
        const THREADS: usize = 6;
        let flushes = Flushes::default();
        let (written, stored, runs) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let kept = AtomicU64::new(u64::MAX);
        let flush = || {
            if runs.fetch_add(1, Ordering::SeqCst) == 200 {
                kept.store(stored.load(Ordering::SeqCst), Ordering::SeqCst);
                std::thread::yield_now();
                return Err(Error::device(
                    Op::Flush,
                    0,
                    0,
                    std::io::ErrorKind::Other.into(),
                ));
            }
            let now = written.load(Ordering::SeqCst);
            std::thread::yield_now();
            stored.fetch_max(now, Ordering::SeqCst);
            Ok(())
        };
        let work = || {
            loop {
                let mine = written.fetch_add(1, Ordering::SeqCst) + 1;
                match flushes.run(flush) {
                    Ok(()) => assert!(mine <= stored.load(Ordering::SeqCst)),
                    Err(_) => break,
                }
                assert!(
                    mine <= kept.load(Ordering::SeqCst),
                    "dropped, and reported as stored"
                );
            }
        };
        std::thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
        assert_eq!(runs.into_inner(), 201, "nothing is flushed after that");
        assert!(flushes.run(|| Ok(())).is_err());
    }

    /// An error of the system, before the device was asked, is only the caller's.
    #[test]
    fn what_never_reached_the_device_is_tried_again() {
        let flushes = Flushes::default();
        let refused = || Err(Error::system("a queue", std::io::ErrorKind::Other.into()));
        assert!(flushes.run(refused).is_err());
        flushes
            .run(|| Ok(()))
            .expect("the device has dropped nothing");
    }
}
