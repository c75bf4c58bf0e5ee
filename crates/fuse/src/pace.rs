//! [`Pace`]: whether many threads wait for requests, or one alone, which spins for the next.
//!
//! Where processors halt when idle, as those of most virtual machines, a thread takes 20 µs to wake: longer than most requests
//! take to serve. A program that asks one thing after the other pays that twice a request, for our thread and for its own. So
//! when requests come like that, one thread serves them all, and looks for the next for a while before it sleeps; the others
//! are parked, as each that waits in the kernel would be woken too, for nothing.
//!
//! Invariants:
//! - While one thread is alone, one of those parked is the watcher. It looks each [`TICK`], and ends the other's being alone
//!   when the same request has been worked at all the while, or none has come. So a request that blocks keeps others waiting
//!   for two ticks at most; and when nothing comes, nobody spins or ticks.
//! - Who spins in vain, or finds the next request there already each time, gives it up itself: there is nothing to be gained,
//!   or there is work for more than one.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The thread that is alone looks so long for the next request before it sleeps.
pub(crate) const SPIN: Duration = Duration::from_micros(50);
/// How often the watcher looks.
const TICK: Duration = Duration::from_millis(1);
/// Requests in a row that find the thread spinning in vain, or that were there already, until it gives up.
const PATIENCE: u32 = 8;
/// A request comes soon after the one before, if no more than this is between them: two threads wake, and a program works.
const SOON: Duration = Duration::from_micros(100);
/// Work at a request is short, if it takes no more than this.
const SHORT: Duration = Duration::from_micros(100);
/// The score from which on one thread is alone: each request that comes soon, is short and meets no other counts one.
const ENOUGH: u32 = 32;
/// What a request costs the score that meets another: of each file that a program makes, one does.
const MET: u32 = 2;
/// What a long one costs.
const LONG: u32 = 8;

/// See the head of this file.
pub(crate) struct Pace {
    /// One thread can be alone at all.
    able: AtomicBool,
    alone: AtomicBool,
    watched: AtomicBool,
    /// Counts each request that is taken and each that is done, while one thread is alone.
    turns: AtomicU64,
    score: AtomicU32,
    begun: Instant,
    /// When the last request was done, in nanoseconds since then.
    done_ns: AtomicU64,
    ended: Mutex<bool>,
    changed: Condvar,
}

/// A request that is worked at.
pub(crate) struct Turn {
    taken_ns: u64,
    /// Nobody else works.
    only: bool,
}

/// Of the thread that is alone: how its last requests came.
#[derive(Default)]
pub(crate) struct Finds {
    at_once: u32,
    in_vain: u32,
}

/// How the thread that is alone came by a request, or did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Find {
    /// It was there.
    AtOnce,
    /// It came while the thread was spinning.
    Soon,
    /// It has not come.
    NotYet,
}

impl Pace {
    pub(crate) fn new(able: bool) -> Pace {
        Pace {
            able: AtomicBool::new(able),
            alone: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            turns: AtomicU64::new(0),
            score: AtomicU32::new(0),
            begun: Instant::now(),
            done_ns: AtomicU64::new(0),
            ended: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    /// From now on many wait.
    pub(crate) fn disable(&self) {
        self.able.store(false, Ordering::Relaxed);
        self.end_alone();
    }

    /// One thread reads alone: any other parks.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Acquire)
    }

    /// Somebody looks after the thread that is alone, so that it may work while nobody waits for requests.
    pub(crate) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Acquire)
    }

    /// A thread has taken a request; `working` others work at theirs.
    pub(crate) fn take(&self, working: usize) -> Turn {
        if self.is_alone() {
            self.turns.fetch_add(1, Ordering::Release);
        }
        Turn {
            taken_ns: self.now_ns(),
            only: working == 0,
        }
    }

    /// It has answered it. From here on one thread may be alone.
    pub(crate) fn done(&self, turn: &Turn) {
        if self.is_alone() {
            self.turns.fetch_add(1, Ordering::Release);
            return;
        }
        let score = self.score.load(Ordering::Relaxed);
        let now_ns = self.now_ns();
        let within = |from: u64, to: u64, most: Duration| {
            u128::from(to.saturating_sub(from)) <= most.as_nanos()
        };
        let next = if !within(turn.taken_ns, now_ns, SHORT) {
            score.saturating_sub(LONG)
        } else if !turn.only {
            score.saturating_sub(MET)
        } else if within(self.done_ns.load(Ordering::Relaxed), turn.taken_ns, SOON) {
            score + 1
        } else {
            0
        };
        if turn.only {
            self.done_ns.store(now_ns, Ordering::Relaxed);
        }
        if next >= ENOUGH && self.able.load(Ordering::Relaxed) {
            self.score.store(0, Ordering::Relaxed);
            self.alone.store(true, Ordering::Release);
        } else if next != score {
            self.score.store(next.min(ENOUGH), Ordering::Relaxed);
        }
    }

    /// The thread that is alone tells how it came by a request; it is alone no more when that is of no use.
    pub(crate) fn found(&self, finds: &mut Finds, find: Find) {
        match find {
            Find::AtOnce => finds.at_once += 1,
            Find::Soon => *finds = Finds::default(),
            Find::NotYet => finds.in_vain += 1,
        }
        if finds.at_once >= PATIENCE || finds.in_vain >= PATIENCE {
            *finds = Finds::default();
            self.end_alone();
        }
    }

    /// Many wait again.
    pub(crate) fn end_alone(&self) {
        let _ended = self.ended.lock();
        self.alone.store(false, Ordering::Release);
        self.changed.notify_all();
    }

    /// The mount has gone: nobody is parked any more.
    pub(crate) fn end(&self) {
        *self.ended.lock() = true;
        self.end_alone();
    }

    /// Waits until many are to wait for requests. The first who comes watches the thread that is alone.
    pub(crate) fn park(&self) {
        let mut ended = self.ended.lock();
        let go_on = |ended: bool| ended || !self.is_alone();
        if self.watched.load(Ordering::Relaxed) {
            while !go_on(*ended) {
                self.changed.wait(&mut ended);
            }
            return;
        }
        self.watched.store(true, Ordering::Release);
        while !go_on(*ended) {
            let turns = self.turns.load(Ordering::Acquire);
            let looked = self.changed.wait_for(&mut ended, TICK);
            if looked.timed_out() && self.turns.load(Ordering::Acquire) == turns {
                self.alone.store(false, Ordering::Release);
                self.changed.notify_all();
            }
        }
        self.watched.store(false, Ordering::Release);
    }

    fn now_ns(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests that come one right after the other, until one thread is alone.
    fn alone() -> Pace {
        let pace = Pace::new(true);
        for _ in 0..1_000_000 {
            pace.done(&pace.take(0));
            if pace.is_alone() {
                return pace;
            }
        }
        panic!("never alone");
    }

    #[test]
    fn one_is_alone_when_requests_follow_each_other_and_only_then() {
        alone();
        let pace = Pace::new(true);
        for working in [0, 1].repeat(100) {
            pace.done(&pace.take(working));
        }
        assert!(!pace.is_alone(), "two work at once");
        let pace = Pace::new(false);
        for _ in 0..1000 {
            pace.done(&pace.take(0));
        }
        assert!(!pace.is_alone(), "switched off");
    }

    #[test]
    fn who_is_stuck_with_a_request_is_alone_no_more() {
        let pace = alone();
        let turn = pace.take(0);
        std::thread::scope(|scope| {
            // One of them watches, and wakes the others.
            for _ in 0..3 {
                scope.spawn(|| pace.park());
            }
        });
        assert!(!pace.is_alone() && !pace.is_watched());
        pace.done(&turn);
    }

    #[test]
    fn nobody_is_parked_while_nothing_comes_or_when_the_mount_has_gone() {
        let pace = alone();
        pace.park();
        assert!(!pace.is_alone(), "nothing came");
        let pace = alone();
        pace.end();
        pace.park();
        let pace = alone();
        pace.disable();
        pace.park();
        assert!(!pace.is_alone());
    }

    #[test]
    fn a_thread_that_works_is_left_alone() {
        let pace = alone();
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| pace.park());
            let mut looked = 0;
            // As long as some ticks of the watcher.
            let begun = Instant::now();
            while begun.elapsed() < TICK * 20 && pace.is_alone() {
                pace.done(&pace.take(0));
                looked += 1;
            }
            assert!(looked > 0);
            pace.end_alone();
            watcher.join().expect("parked no more");
        });
    }

    #[test]
    fn it_gives_up_what_is_of_no_use() {
        for find in [Find::AtOnce, Find::NotYet] {
            let (pace, mut finds) = (alone(), Finds::default());
            for _ in 1..PATIENCE {
                pace.found(&mut finds, find);
            }
            assert!(pace.is_alone());
            pace.found(&mut finds, Find::Soon);
            for _ in 1..PATIENCE {
                pace.found(&mut finds, find);
            }
            assert!(pace.is_alone(), "{find:?} not in a row");
            pace.found(&mut finds, find);
            assert!(!pace.is_alone(), "{find:?}");
        }
    }
}
