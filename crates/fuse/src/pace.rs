//! [`Pace`]: which threads read requests: all, or only one because requests follow one another ([`Mode`]).
//!
//! If idle CPUs halt, as on most virtual machines, a wake-up of another CPU takes 20 to 50 µs:
//! longer than most requests take to serve. A program that issues one request after another pays for two
//! wake-ups per request, our thread's and its own. So when requests arrive in sequence, one thread serves
//! them all: on the caller's CPU, so that no other is woken ([`crate::beside`]), or, where wake-ups are
//! cheap or that is not possible, by spinning for a while before it sleeps. The other threads are parked: if
//! one of them waited in the kernel, each request would wake it needlessly.
//!
//! Invariants:
//! - While one thread reads alone, one of the parked threads is the watcher. It checks every
//!   [tick](Mode::tick) and ends the mode if the same request was in progress for the whole tick, or none
//!   arrived. So a request that blocks delays others by two ticks at most, and without requests no thread
//!   spins or ticks.
//! - A request that is expected to block ends [`Mode::Beside`] before it is served.
//! - A thread that repeatedly spins in vain, or repeatedly finds the next request already queued, ends the
//!   mode itself: spinning gains nothing, or there is work for several threads.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use throughline_locks::{Condvar, Mutex};

/// How long the thread that spins does so for the next request before it sleeps.
pub(crate) const SPIN: Duration = Duration::from_micros(50);
/// After this many useless spins in a row, or this many requests in a row that were already queued, the mode
/// ends.
const PATIENCE: u32 = 8;
/// The longest gap between two requests of a sequence: the time in which two threads wake up and the program
/// does some work.
const SOON: Duration = Duration::from_micros(100);
/// The longest service time of a short request.
const SHORT: Duration = Duration::from_micros(100);
/// The score at which the mode begins. A short request that overlaps no other adds 1 if it follows the last
/// one soon; otherwise it resets the score.
const ENOUGH: u32 = 32;
/// Subtracted for a request that overlaps another. This happens once for each file that a program creates.
const MET: u32 = 2;
/// Subtracted for a long request.
const LONG: u32 = 8;

/// Which threads read requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mode {
    /// All of them.
    All = 0,
    /// One, which spins for the next request before it sleeps. The others are parked.
    Spinning = 1,
    /// The thread on the caller's CPU. All others are parked.
    Beside = 2,
}

impl Mode {
    /// The interval of the watcher's checks. When the watcher goes back to sleep, the scheduler looks for
    /// other work for its CPU, and may move the program there, away from [`Mode::Beside`]'s thread. So
    /// that mode is checked less often.
    fn tick(self) -> Duration {
        match self {
            Mode::All | Mode::Spinning => Duration::from_millis(1),
            Mode::Beside => Duration::from_millis(4),
        }
    }
}

/// See the head of this file.
pub(crate) struct Pace {
    /// [`Mode::Spinning`] is allowed.
    may_spin: AtomicBool,
    /// [`Mode::Beside`] is possible from this time on, in nanoseconds since `begun`: its thread exists, and
    /// does not pause.
    beside_from_ns: AtomicU64,
    mode: AtomicU8,
    watched: AtomicBool,
    /// Counts requests taken and requests done, while one thread is alone.
    turns: AtomicU64,
    score: AtomicU32,
    begun: Instant,
    /// When the last request was done, in nanoseconds since `begun`.
    done_ns: AtomicU64,
    ended: Mutex<bool>,
    changed: Condvar,
}

/// A request in progress.
pub(crate) struct Turn {
    taken_ns: u64,
    /// No other request was in progress when it was taken.
    only: bool,
}

/// How the last requests reached the thread that is alone: lengths of the current runs.
#[derive(Default)]
pub(crate) struct Finds {
    at_once: u32,
    in_vain: u32,
}

/// How a request reached the thread that is alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Find {
    /// It was already queued.
    AtOnce,
    /// It arrived while the thread was spinning.
    Soon,
    /// It did not arrive in time.
    NotYet,
}

impl Pace {
    pub(crate) fn new(may_spin: bool) -> Pace {
        Pace {
            may_spin: AtomicBool::new(may_spin),
            beside_from_ns: AtomicU64::new(u64::MAX),
            mode: AtomicU8::new(Mode::All as u8),
            watched: AtomicBool::new(false),
            turns: AtomicU64::new(0),
            score: AtomicU32::new(0),
            begun: Instant::now(),
            done_ns: AtomicU64::new(0),
            ended: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    /// From now on all threads read requests.
    pub(crate) fn disable(&self) {
        self.may_spin.store(false, Ordering::Relaxed);
        self.beside_from_ns.store(u64::MAX, Ordering::Relaxed);
        self.end_alone();
    }

    /// A mode with one thread is possible.
    pub(crate) fn may_be_alone(&self) -> bool {
        self.may_spin.load(Ordering::Relaxed)
    }

    /// [`Mode::Beside`] may begin after this time; its thread exists.
    pub(crate) fn allow_beside(&self, after: Duration) {
        let from_ns = self.now_ns() + after.as_nanos() as u64;
        self.beside_from_ns.store(from_ns, Ordering::Relaxed);
    }

    /// Which threads read requests now.
    pub(crate) fn mode(&self) -> Mode {
        match self.mode.load(Ordering::Acquire) {
            1 => Mode::Spinning,
            2 => Mode::Beside,
            _ => Mode::All,
        }
    }

    fn is_alone(&self) -> bool {
        self.mode() != Mode::All
    }

    fn set_mode(&self, mode: Mode) {
        tracing::trace!(?mode, "which threads read requests");
        self.mode.store(mode as u8, Ordering::Release);
    }

    /// A watcher is active, so no thread needs to wait in the kernel while a request is served.
    pub(crate) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Acquire)
    }

    /// A thread has taken a request while `working` others were in progress.
    pub(crate) fn take(&self, working: usize) -> Turn {
        if self.is_alone() {
            self.turns.fetch_add(1, Ordering::Release);
        }
        Turn {
            taken_ns: self.now_ns(),
            only: working == 0,
        }
    }

    /// The request is done. This may begin the mode.
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
        if next >= ENOUGH && self.begin_alone() {
            self.score.store(0, Ordering::Relaxed);
        } else if next != score {
            self.score.store(next.min(ENOUGH), Ordering::Relaxed);
        }
    }

    fn may_be_beside(&self) -> bool {
        self.now_ns() >= self.beside_from_ns.load(Ordering::Relaxed)
    }

    /// Returns `false` if no mode with one thread is allowed.
    fn begin_alone(&self) -> bool {
        if self.may_be_beside() {
            let _ended = self.ended.lock();
            self.set_mode(Mode::Beside);
            // Its thread is parked.
            self.changed.notify_all();
            return true;
        }
        let spins = self.may_spin.load(Ordering::Relaxed);
        if spins {
            self.set_mode(Mode::Spinning);
        }
        spins
    }

    /// Called by the thread that spins, with how it got a request. Ends the mode if spinning gains nothing.
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

    /// Ends the mode: all threads wait for requests again.
    pub(crate) fn end_alone(&self) {
        let _ended = self.ended.lock();
        self.set_mode(Mode::All);
        self.changed.notify_all();
    }

    /// For the thread of [`Mode::Beside`]: blocks until it begins, or the mount is gone.
    pub(crate) fn await_beside(&self) {
        let mut ended = self.ended.lock();
        while !*ended && self.mode() != Mode::Beside {
            self.changed.wait(&mut ended);
        }
    }

    /// The mount is gone: no thread stays parked.
    pub(crate) fn end(&self) {
        *self.ended.lock() = true;
        self.end_alone();
    }

    /// Blocks until the mode ends. The first thread to park becomes the watcher, which calls `stopped` when
    /// it ends the mode.
    pub(crate) fn park(&self, stopped: impl Fn()) {
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
            let mode = self.mode();
            let turns = self.turns.load(Ordering::Acquire);
            let looked = self.changed.wait_for(&mut ended, mode.tick());
            let is_still = looked.timed_out() && self.turns.load(Ordering::Acquire) == turns;
            if is_still || (mode == Mode::Spinning && self.may_be_beside()) {
                self.set_mode(Mode::All);
                stopped();
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

    /// A pace with one thread alone, after requests in quick succession.
    fn alone() -> Pace {
        let pace = Pace::new(true);
        for _ in 0..1_000_000 {
            pace.done(&pace.take(0));
            if pace.is_alone() {
                return pace;
            }
        }
        panic!("the mode did not begin");
    }

    #[test]
    fn the_mode_begins_only_when_requests_follow_one_another() {
        alone();
        let pace = Pace::new(true);
        for working in [0, 1].repeat(100) {
            pace.done(&pace.take(working));
        }
        assert!(!pace.is_alone(), "requests overlap");
        let pace = Pace::new(false);
        for _ in 0..1000 {
            pace.done(&pace.take(0));
        }
        assert!(!pace.is_alone(), "switched off");
    }

    #[test]
    fn the_watcher_ends_the_mode_if_a_request_blocks() {
        let pace = alone();
        let turn = pace.take(0);
        std::thread::scope(|scope| {
            // One of them becomes the watcher and wakes the others.
            for _ in 0..3 {
                scope.spawn(|| pace.park(|| {}));
            }
        });
        assert!(!pace.is_alone() && !pace.is_watched());
        pace.done(&turn);
    }

    #[test]
    fn no_thread_stays_parked_without_requests_or_without_the_mount() {
        let pace = alone();
        pace.park(|| {});
        assert!(!pace.is_alone(), "no request arrived");
        let pace = alone();
        pace.end();
        pace.park(|| {});
        let pace = alone();
        pace.disable();
        pace.park(|| {});
        assert!(!pace.is_alone());
    }

    #[test]
    fn the_mode_lasts_while_requests_are_served() {
        let pace = alone();
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| pace.park(|| {}));
            let mut looked = 0;
            // For several ticks of the watcher.
            let begun = Instant::now();
            while begun.elapsed() < Mode::Spinning.tick() * 20 && pace.is_alone() {
                pace.done(&pace.take(0));
                looked += 1;
            }
            assert!(looked > 0);
            pace.end_alone();
            watcher.join().expect("the watcher returns");
        });
    }

    #[test]
    fn the_mode_ends_when_spinning_does_not_pay() {
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

    #[test]
    fn the_thread_beside_its_caller_is_preferred_to_spinning() {
        let pace = Pace::new(true);
        pace.allow_beside(Duration::ZERO);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| pace.await_beside());
            for _ in 0..1_000_000 {
                pace.done(&pace.take(0));
                if pace.mode() != Mode::All {
                    break;
                }
            }
            assert_eq!(pace.mode(), Mode::Beside);
            thread.join().unwrap();
        });
        // Without requests, the watcher ends it.
        pace.park(|| {});
        assert_eq!(pace.mode(), Mode::All);
        pace.end();
        pace.await_beside();
    }

    #[test]
    fn spinning_ends_as_soon_as_a_thread_can_be_beside_its_caller() {
        let pace = alone();
        assert_eq!(pace.mode(), Mode::Spinning);
        pace.allow_beside(Duration::ZERO);
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| pace.park(|| {}));
            while !watcher.is_finished() {
                pace.done(&pace.take(0));
                if pace.mode() == Mode::Beside {
                    pace.end_alone();
                }
            }
        });
        pace.allow_beside(Duration::from_secs(1000));
        assert!(!pace.may_be_beside());
        pace.allow_beside(Duration::ZERO);
        pace.disable();
        assert!(!pace.may_be_beside());
    }
}
