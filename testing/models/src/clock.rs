//! [`Clock`]: the time base of a model.
//!
//! Real time: a wait sleeps, and spins for at most the last [`SPIN_NS`]. Timers of an ordinary kernel wake a
//! thread about 50 us late, too inexact for a model of a device with 20 us. Spinning is counted
//! ([`Clock::spun_ns`]): it replaces a better timer and is no work of the code under test.
//!
//! Simulated time advances only by waiting and working in it. With one thread everything is deterministic, as
//! tests need; with several threads each would advance the time for all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Maximum time that a wait spins.
const SPIN_NS: u64 = 80_000;

/// A source of time. Clones share the same clock.
#[derive(Clone, Debug)]
pub struct Clock(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Real {
        epoch: Instant,
        spun_ns: Arc<AtomicU64>,
    },
    Simulated {
        now_ns: Arc<AtomicU64>,
    },
}

impl Clock {
    /// The machine's clock, counted from now.
    pub fn real() -> Clock {
        Clock(Kind::Real {
            epoch: Instant::now(),
            spun_ns: Arc::default(),
        })
    }

    /// A simulated clock at 0.
    pub fn simulated() -> Clock {
        Clock(Kind::Simulated {
            now_ns: Arc::default(),
        })
    }

    /// Nanoseconds since the clock's start.
    pub fn now_ns(&self) -> u64 {
        match &self.0 {
            Kind::Real { epoch, .. } => {
                u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
            }
            Kind::Simulated { now_ns } => now_ns.load(Ordering::Acquire),
        }
    }

    /// Waits until `at_ns`; returns at once if that has passed.
    pub fn wait_until(&self, at_ns: u64) {
        match &self.0 {
            Kind::Real { spun_ns, .. } => self.wait_in_earnest(at_ns, spun_ns),
            Kind::Simulated { now_ns } => {
                now_ns.fetch_max(at_ns, Ordering::AcqRel);
            }
        }
    }

    /// Keeps this thread's processor busy for `ns`.
    pub fn work(&self, ns: u64) {
        match &self.0 {
            Kind::Real { .. } if ns == 0 => {}
            Kind::Real { .. } => {
                let end_ns = self.now_ns().saturating_add(ns);
                while self.now_ns() < end_ns {
                    std::hint::spin_loop();
                }
            }
            Kind::Simulated { now_ns } => {
                now_ns.fetch_add(ns, Ordering::AcqRel);
            }
        }
    }

    /// Processor time spent spinning in waits so far, by all threads, in nanoseconds.
    pub fn spun_ns(&self) -> u64 {
        match &self.0 {
            Kind::Real { spun_ns, .. } => spun_ns.load(Ordering::Relaxed),
            Kind::Simulated { .. } => 0,
        }
    }

    fn wait_in_earnest(&self, at_ns: u64, spun_ns: &AtomicU64) {
        let mut begun_ns = self.now_ns();
        if let Some(long_ns) = at_ns.saturating_sub(begun_ns).checked_sub(SPIN_NS) {
            std::thread::sleep(Duration::from_nanos(long_ns));
            begun_ns = self.now_ns();
        }
        if begun_ns >= at_ns {
            return;
        }
        let mut now_ns = begun_ns;
        while now_ns < at_ns {
            std::hint::spin_loop();
            now_ns = self.now_ns();
        }
        spun_ns.fetch_add(now_ns - begun_ns, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_time_passes_by_waiting_and_working_alone() {
        let clock = Clock::simulated();
        let same = clock.clone();
        clock.wait_until(500);
        clock.work(30);
        clock.wait_until(100);
        assert_eq!(same.now_ns(), 530);
    }

    #[test]
    fn a_real_wait_is_never_short() {
        let clock = Clock::real();
        for ns in [0, 20_000, 300_000] {
            let until_ns = clock.now_ns() + ns;
            clock.wait_until(until_ns);
            assert!(clock.now_ns() >= until_ns);
        }
    }
}
