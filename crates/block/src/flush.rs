//! Flushes of one device: one at a time, in [rounds](crate::rounds), each for all callers that wait for it.
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

use throughline_locks::Rank;

use crate::error::{Error, Result};
use crate::rounds::Rounds;

/// See the head of this file.
pub(crate) struct Flushes {
    rounds: Rounds,
    failed: OnceLock<Error>,
}

impl Default for Flushes {
    fn default() -> Flushes {
        Flushes {
            rounds: Rounds::new(Rank::Leaf),
            failed: OnceLock::new(),
        }
    }
}

impl Flushes {
    /// Flushes by `flush`, or waits for the flush of another caller that began after this call.
    ///
    /// # Errors
    /// Of `flush`; the error of the first flush that the device failed.
    pub(crate) fn run(&self, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        let Some(mut lead) = self.rounds.sync(|| self.works())? else {
            return self.works();
        };
        let result = flush();
        match &result {
            Ok(()) => lead.done(),
            Err(error @ Error::Device { .. }) if !error.is_full() => {
                // Before the round ends, so that all others see it.
                let _ = self.failed.set(error.clone());
            }
            Err(_) => {}
        }
        result
    }

    /// The device has failed no flush.
    fn works(&self) -> Result<()> {
        match self.failed.get() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
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
