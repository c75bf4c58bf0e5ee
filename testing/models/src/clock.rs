//! [`Clock`]: the time that a model lives in.
//!
//! Real time is kept by deadlines. A wait sleeps, and spins for no more than its last [`SPIN_NS`]: timers of an ordinary
//! kernel wake a thread some 50 us late, and a model of a device of 20 us has to be more exact than that. What was spun is
//! counted ([`Clock::spun_ns`]): it stands in for a better timer, and is no work of the path's.
//!
//! Simulated time stands still but for those who wait or work in it. With one thread everything that happens in it is
//! determined, which is what tests want; several threads would each carry it on for all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest that a wait spins.
const SPIN_NS: u64 = 80_000;

/// Where time comes from; clones are the same clock.
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
    /// The machine's, counted from now.
    pub fn real() -> Clock {
        Clock(Kind::Real {
            epoch: Instant::now(),
            spun_ns: Arc::default(),
        })
    }

    /// One that stands at 0.
    pub fn simulated() -> Clock {
        Clock(Kind::Simulated {
            now_ns: Arc::default(),
        })
    }

    /// Nanoseconds since its beginning.
    pub fn now_ns(&self) -> u64 {
        match &self.0 {
            Kind::Real { epoch, .. } => {
                u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
            }
            Kind::Simulated { now_ns } => now_ns.load(Ordering::Acquire),
        }
    }

    /// Returns when it is `at_ns`, and at once if that is past.
    pub fn wait_until(&self, at_ns: u64) {
        match &self.0 {
            Kind::Real { spun_ns, .. } => self.wait_in_earnest(at_ns, spun_ns),
            Kind::Simulated { now_ns } => {
                now_ns.fetch_max(at_ns, Ordering::AcqRel);
            }
        }
    }

    /// Has this thread work for so long: its processor is busy.
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

    /// Nanoseconds of processor time that waits have spun away so far, of all threads.
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
