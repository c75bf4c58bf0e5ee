//! Rounds of work that makes things durable, shared by its callers: one caller leads a round, the others wait
//! for its end or for one of them to lead the next. A flush of a device is one, and a commit of a journal.
//!
//! ```text
//!  round N    ─ led ───────────────────── ends: all waiters for N return, one waiter for N + 1 leads
//!  round N+1      ▲ a call made here needs it   ─ led ─────────────────────
//! ```
//!
//! Invariants:
//! - One round runs at a time. A round covers what was done before it began, and counts as done only if it
//!   made that durable.
//! - No caller waits unless a round is running: the end of a round wakes all callers that it covered and one
//!   that needs the next round. A woken caller leads, waits for another round, or wakes all the others when
//!   it returns an error.

use std::sync::atomic::{AtomicU64, Ordering};

use throughline_locks::{Condvar, Mutex, MutexGuard, Rank};

/// See the head of this file.
pub struct Rounds {
    state: Mutex<State>,
    /// Notified at the end of even and of odd rounds.
    ended: [Condvar; 2],
    /// Calls that waited for another caller's round, or led one.
    waits: AtomicU64,
}

#[derive(Default)]
struct State {
    is_led: bool,
    begun: u64,
    /// The newest round that was done.
    done: u64,
}

/// A round that the caller leads. It ends when this is dropped, also in a panic.
pub struct Lead<'r> {
    rounds: &'r Rounds,
    round: u64,
    is_done: bool,
}

impl Rounds {
    /// No round has run. `rank` is that of the lock, which is held for no longer than it takes to look.
    pub fn new(rank: Rank) -> Rounds {
        Rounds {
            state: Mutex::ranked(rank, State::default()),
            ended: Default::default(),
            waits: AtomicU64::new(0),
        }
    }

    /// Leads a round, or waits until a round that began after this call is done and returns `None`.
    ///
    /// # Errors
    /// The error of `alive`, which is checked before each wait: once it fails, waiting is useless.
    pub fn sync<E>(&self, alive: impl Fn() -> Result<(), E>) -> Result<Option<Lead<'_>>, E> {
        let state = self.state.lock();
        let wanted = state.begun + 1;
        self.lead_unless(state, wanted, alive, |state| state.done >= wanted)
    }

    /// Leads a round, or waits until a round makes `is_done` true and returns `None`. Errors as
    /// [`Rounds::sync`].
    pub fn until<E>(
        &self,
        is_done: impl Fn() -> bool,
        alive: impl Fn() -> Result<(), E>,
    ) -> Result<Option<Lead<'_>>, E> {
        self.lead_unless(self.state.lock(), 0, alive, |_| is_done())
    }

    /// The number of calls of [`Rounds::sync`] and [`Rounds::until`] that led a round or waited for one.
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    fn lead_unless<'r, E>(
        &'r self,
        mut state: MutexGuard<'r, State>,
        wanted: u64,
        alive: impl Fn() -> Result<(), E>,
        is_done: impl Fn(&State) -> bool,
    ) -> Result<Option<Lead<'r>>, E> {
        let mut has_waited = false;
        loop {
            if is_done(&state) {
                return Ok(None);
            }
            if let Err(error) = alive() {
                drop(state);
                // This caller may be the one that was woken to lead: pass that on.
                self.wake_all();
                return Err(error);
            }
            if !std::mem::replace(&mut has_waited, true) {
                self.waits.fetch_add(1, Ordering::Relaxed);
            }
            if !state.is_led {
                state.is_led = true;
                state.begun += 1;
                return Ok(Some(Lead {
                    rounds: self,
                    round: state.begun,
                    is_done: false,
                }));
            }
            // The running round if that suffices, else the next one.
            let awaited = state.begun + u64::from(wanted > state.begun);
            self.ended_of(awaited).wait(&mut state);
        }
    }

    fn ended_of(&self, round: u64) -> &Condvar {
        &self.ended[usize::from(round % 2 == 1)]
    }

    fn wake_all(&self) {
        for ended in &self.ended {
            ended.notify_all();
        }
    }
}

impl Lead<'_> {
    /// All that was done before the round began is durable.
    pub fn done(&mut self) {
        self.is_done = true;
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut state = self.rounds.state.lock();
        state.is_led = false;
        if self.is_done {
            state.done = self.round;
        }
        drop(state);
        self.rounds.ended_of(self.round).notify_all();
        self.rounds.ended_of(self.round + 1).notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// What each thread has done is durable after its call, in whatever order rounds run, and no thread waits
    /// for ever.
    #[test]
    fn a_round_covers_what_was_done_before_it() {
        const THREADS: usize = 8;
        let rounds = Rounds::new(Rank::Leaf);
        let (made, durable) = (AtomicU64::new(0), AtomicU64::new(0));
        let is_led = AtomicBool::new(false);
        let alive = || Ok::<_, &str>(());
        let lead = |mut lead: Lead<'_>, is_flush: bool| {
            assert!(!is_led.swap(true, Ordering::SeqCst), "one at a time");
            let seen = made.load(Ordering::SeqCst);
            std::thread::yield_now();
            if is_flush {
                durable.fetch_max(seen, Ordering::SeqCst);
                lead.done();
            }
            is_led.store(false, Ordering::SeqCst);
        };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (rounds, made, durable, lead) = (&rounds, &made, &durable, &lead);
                scope.spawn(move || {
                    for step in 0..2000 {
                        let mine = made.fetch_add(1, Ordering::SeqCst) + 1;
                        if (thread + step) % 16 == 0 {
                            // A round that finds nothing to do covers no caller.
                            if let Some(round) = rounds.until(|| false, alive).unwrap() {
                                lead(round, false);
                            }
                        }
                        if let Some(round) = rounds.sync(alive).unwrap() {
                            lead(round, true);
                        }
                        assert!(durable.load(Ordering::SeqCst) >= mine);
                    }
                });
            }
        });
        assert!(rounds.waits() >= (THREADS * 2000) as u64);
    }

    #[test]
    fn all_waiters_return_an_abort() {
        let rounds = Rounds::new(Rank::Leaf);
        let is_dead = AtomicBool::new(false);
        let alive = || match is_dead.load(Ordering::SeqCst) {
            true => Err("dead"),
            false => Ok(()),
        };
        let first = rounds.sync(alive).unwrap().unwrap();
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| rounds.sync(alive).map(|lead| lead.is_some())))
                .collect();
            while rounds.waits() < 5 {
                std::thread::yield_now();
            }
            is_dead.store(true, Ordering::SeqCst);
            drop(first);
            for waiter in waiters {
                assert!(waiter.join().unwrap().is_err());
            }
        });
    }
}
