//! [`Watch`]: which serving threads have the policy `SCHED_IDLE` ([`throughline_device::Background`]).
//!
//! ```text
//!           8 requests soon after one another            the next request
//!   Usual ───────────────────────────► Wanted ──► Granted ──► Entering ──► Idle
//!    ▲ ▲                                   watcher   │                      │ a tick without a request,
//!    │ └─────────────────────────────────────────────┘                      │ or with long waits: watcher
//!    │                       a tick without a request: watcher              ▼
//!    └──────────────────────────────────────────────────────────────────── Left
//!                                  the next request
//! ```
//!
//! What is not marked is done by the thread itself.
//!
//! A thread in the policy may have to wait for seconds while other programs of its scheduling group (a
//! session, a container) keep its CPU busy. It cannot notice that itself, and what it holds, such as a
//! lock or a transaction, waits with it. So it enters the policy once another thread, the watcher, looks.
//! That one takes the policy away after a tick in which the thread served nothing; also from the kernel's
//! workers, which inherit it.
//!
//! Invariants:
//! - While a thread has the policy, it serves a request in every [`TICK`], or the watcher takes the policy
//!   away. It does so also if the thread only sleeps, so the first request after a pause is served with the
//!   usual policy. So a request waits for two ticks at most because of the policy.
//! - A thread enters by itself: the sandbox lets no thread give another the policy. The watcher waits for
//!   none of the threads.
//! - The watcher ticks from when it grants the policy until it has taken it away, or back: the thread may
//!   enter at any time between. Otherwise it sleeps until a thread wants it.
//! - After it was late, a thread does not want the policy for a pause. Each pause is twice as long as the
//!   last one, up to a bound. So a machine that stays busy makes few requests late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use throughline_device::{Background, free_workers, prefer_thread};
use throughline_locks::{Condvar, Mutex};

use crate::transport::Transport;

/// The interval of the watcher's looks. With a shorter one, the scheduler would often move the program to
/// another CPU ([`crate::pace::Mode`]).
const TICK: Duration = Duration::from_millis(4);
/// A thread is late if it waits longer than this for its CPU per request, on average.
const LATE: Duration = Duration::from_millis(1);
/// After this many requests within [`SOON`], a thread wants the policy.
const WANTS: u32 = 8;
const SOON: Duration = Duration::from_millis(32);
/// The shortest and the longest pause. The shortest is for a single delay, as when a virtual machine does not
/// get its CPU for some milliseconds.
const PAUSE: (Duration, Duration) = (Duration::from_millis(64), Duration::from_secs(8));

const USUAL: u8 = 0;
const WANTED: u8 = 1;
const GRANTED: u8 = 2;
const ENTERING: u8 = 3;
const IDLE: u8 = 4;
const LEFT: u8 = 5;
/// For good, after an error.
const REFUSED: u8 = 6;

/// See the head of this file.
#[derive(Default)]
pub(crate) struct Watch {
    members: Mutex<Members>,
    changed: Condvar,
    /// The watcher sleeps without a time limit, or is about to.
    sleeps: AtomicBool,
}

#[derive(Default)]
struct Members {
    all: Vec<Watched>,
    ended: bool,
}

/// A thread, and what it had done at the last look.
struct Watched {
    member: Arc<Member>,
    served: u64,
    delay: Duration,
}

/// What a thread shares with the watcher.
struct Member {
    background: Background,
    marks: CachePadded<Marks>,
}

#[derive(Default)]
struct Marks {
    served: AtomicU64,
    stage: AtomicU8,
    /// The delay at the last look before [`LEFT`], in nanoseconds.
    delay_ns: AtomicU64,
}

impl Watch {
    /// Adds the current thread.
    pub(crate) fn add(&self, background: Background) -> Watching<'_> {
        let member = Arc::new(Member {
            background,
            marks: CachePadded::default(),
        });
        self.members.lock().all.push(Watched {
            member: Arc::clone(&member),
            served: 0,
            delay: Duration::ZERO,
        });
        let pauses = Pauses::new(Instant::now());
        Watching {
            watch: self,
            member,
            served: 0,
            requests: 0,
            since: Instant::now(),
            pauses,
        }
    }

    /// The watcher: runs until [`Watch::end`].
    pub(crate) fn run(&self, transport: &Transport) {
        prefer_thread();
        let mut members = self.members.lock();
        while !members.ended {
            if members.look(transport) {
                self.changed.wait_for(&mut members, TICK);
                continue;
            }
            // A thread that does not see this is seen by the next look.
            self.sleeps.store(true, Ordering::SeqCst);
            if !members.is_wanted() {
                self.changed.wait(&mut members);
            }
            self.sleeps.store(false, Ordering::SeqCst);
        }
    }

    /// Ends the watcher. The threads keep their policies.
    pub(crate) fn end(&self) {
        self.members.lock().ended = true;
        self.changed.notify_all();
    }

    fn wake(&self) {
        if self.sleeps.load(Ordering::SeqCst) {
            drop(self.members.lock());
            self.changed.notify_one();
        }
    }
}

impl Members {
    /// Returns whether any thread has the policy, or may enter it.
    fn look(&mut self, transport: &Transport) -> bool {
        let mut has_left = false;
        for watched in &mut self.all {
            has_left |= watched.look().unwrap_or_else(|error| {
                tracing::warn!(%error, "changing the policy of a thread");
                let _ = watched.member.background.leave();
                watched.member.set_stage(REFUSED);
                true
            });
        }
        let members = self.all.iter().map(|watched| &*watched.member);
        let may_have = members.filter(|member| (GRANTED..=IDLE).contains(&member.stage()));
        let may_have: Vec<_> = may_have.map(|member| &member.background).collect();
        transport.set_idle_policy(may_have.len());
        if has_left && let Err(error) = free_workers(&may_have) {
            tracing::warn!(%error, "changing the policy of workers");
        }
        !may_have.is_empty()
    }

    fn is_wanted(&self) -> bool {
        let mut all = self.all.iter();
        all.any(|watched| watched.member.stage() == WANTED) || self.ended
    }
}

impl Watched {
    /// Returns whether the thread has left the policy.
    fn look(&mut self) -> std::io::Result<bool> {
        let Watched { member, .. } = &*self;
        let stage = member.stage();
        if !(WANTED..=IDLE).contains(&stage) {
            return Ok(false);
        }
        let served = member.marks.served.load(Ordering::Relaxed);
        let delay = member.background.delay()?;
        let waited = delay.saturating_sub(self.delay);
        let late = is_late(waited, served - self.served);
        let leaves = match stage {
            WANTED => {
                member.set_stage(GRANTED);
                false
            }
            GRANTED => {
                if late {
                    // Unless it enters just now: then the next look decides.
                    let _ = member.advance(GRANTED, USUAL);
                }
                false
            }
            ENTERING => {
                // It may have the policy, and not say so before it runs again.
                if late {
                    member.background.leave()?;
                }
                false
            }
            // It may have left by itself, to start a thread.
            _ => late || !member.background.is_entered(),
        };
        if leaves {
            member.background.leave()?;
            let before_ns = self.delay.as_nanos() as u64;
            member.marks.delay_ns.store(before_ns, Ordering::Relaxed);
            member.set_stage(LEFT);
        }
        (self.served, self.delay) = (served, delay);
        Ok(leaves)
    }
}

/// Whether a thread that waited this long for its CPU while it served `requests` must leave the policy.
pub(crate) fn is_late(waited: Duration, requests: u64) -> bool {
    let most = LATE.saturating_mul(requests.try_into().unwrap_or(u32::MAX));
    requests == 0 || waited > most
}

impl Member {
    fn stage(&self) -> u8 {
        self.marks.stage.load(Ordering::SeqCst)
    }

    fn set_stage(&self, stage: u8) {
        self.marks.stage.store(stage, Ordering::SeqCst);
    }

    /// From one stage to the next. Fails if the other thread has just changed it.
    fn advance(&self, from: u8, to: u8) -> Result<u8, u8> {
        let stage = &self.marks.stage;
        stage.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
    }
}

/// Belongs to one thread, which is watched until this is dropped.
pub(crate) struct Watching<'a> {
    watch: &'a Watch,
    member: Arc<Member>,
    served: u64,
    /// The requests since `since`, with the usual policy.
    requests: u32,
    since: Instant,
    pauses: Pauses,
}

impl Watching<'_> {
    /// The thread has served a request.
    pub(crate) fn served(&mut self) {
        self.served += 1;
        let marks = &self.member.marks;
        marks.served.store(self.served, Ordering::Relaxed);
        match marks.stage.load(Ordering::Relaxed) {
            USUAL => self.count(),
            GRANTED => self.enter(),
            LEFT => self.has_left(),
            _ => {}
        }
    }

    fn count(&mut self) {
        self.requests += 1;
        if self.requests < WANTS {
            return;
        }
        let now = Instant::now();
        let (took, is_pause) = (now - self.since, self.pauses.is_pause(now));
        (self.requests, self.since) = (0, now);
        if took <= SOON && !is_pause {
            self.member.set_stage(WANTED);
            self.watch.wake();
        }
    }

    /// The watcher looks: the thread enters the policy.
    fn enter(&mut self) {
        // The watcher has just taken the grant back.
        if self.member.advance(GRANTED, ENTERING).is_err() {
            return;
        }
        let entered = self.member.background.enter();
        if let Err(error) = &entered {
            tracing::warn!(%error, "changing the policy of a thread");
        }
        let next = if entered.is_ok() { IDLE } else { REFUSED };
        if self.member.advance(ENTERING, next).is_err() {
            // The watcher has met an error.
            let _ = self.member.background.leave();
        }
    }

    /// The watcher took the policy away: was the thread late, or was there nothing to do?
    fn has_left(&mut self) {
        let before = self.member.marks.delay_ns.load(Ordering::Relaxed);
        let delay = self.member.background.delay().unwrap_or_default();
        let now = Instant::now();
        if is_late(delay.saturating_sub(Duration::from_nanos(before)), 1) {
            let _ = self.pauses.late(now);
        }
        (self.requests, self.since) = (0, now);
        self.member.set_stage(USUAL);
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        // First, because the watcher must not wait for a thread that has the policy.
        let _ = self.member.background.leave();
        let is_other = |watched: &Watched| !Arc::ptr_eq(&watched.member, &self.member);
        self.watch.members.lock().all.retain(is_other);
    }
}

/// The pauses of one thread, in which it does not want the policy.
pub(crate) struct Pauses {
    until: Instant,
    /// The length of the next one.
    next: Duration,
}

impl Pauses {
    pub(crate) fn new(now: Instant) -> Pauses {
        Pauses {
            until: now,
            next: PAUSE.0,
        }
    }

    fn is_pause(&self, now: Instant) -> bool {
        now < self.until
    }

    /// The thread was late: a pause begins. Returns its length.
    pub(crate) fn late(&mut self, now: Instant) -> Duration {
        if now.saturating_duration_since(self.until) > 4 * self.next {
            self.next = PAUSE.0;
        }
        let pause = self.next;
        self.until = now + pause;
        self.next = (2 * pause).min(PAUSE.1);
        pause
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Fails the test if it hangs.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn wait_until(what: &str, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < PATIENCE, "{what}");
            std::thread::yield_now();
        }
    }

    /// It stays in a request, so it cannot leave the policy itself.
    #[test]
    fn a_thread_that_does_not_get_on_loses_the_policy() {
        let (watch, transport) = (&Watch::default(), &Transport::default());
        let (tell, told) = mpsc::channel();
        let (go_on, await_go) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(|| watch.run(transport));
            scope.spawn(move || {
                let Ok(background) = Background::new() else {
                    throughline_testkit::left_out!("SCHED_IDLE for a while");
                    return;
                };
                let mut watching = watch.add(background);
                let member = Arc::clone(&watching.member);
                let begun = Instant::now();
                while !member.background.is_entered() {
                    assert!(begun.elapsed() < PATIENCE, "it never had the policy");
                    watching.served();
                }
                tell.send(Arc::clone(&member)).unwrap();
                await_go.recv().unwrap();
                // It may have it again.
                watching.served();
                assert_ne!(member.stage(), LEFT);
                drop(watching);
                assert!(!member.background.is_entered());
            });
            if let Ok(member) = told.recv() {
                wait_until("it still has the policy", || member.stage() == LEFT);
                assert!(!member.background.is_entered());
                wait_until("the watcher ticks", || watch.sleeps.load(Ordering::SeqCst));
                go_on.send(()).unwrap();
            }
            wait_until("it is still watched", || {
                watch.members.lock().all.is_empty()
            });
            watch.end();
        });
    }

    #[test]
    fn a_thread_is_late_if_it_serves_nothing_or_waits_long_for_each_request() {
        assert!(is_late(Duration::ZERO, 0));
        for requests in [1, 7, 1000] {
            assert!(!is_late(LATE * requests, requests.into()));
            assert!(is_late(
                LATE * requests + Duration::from_nanos(1),
                requests.into()
            ));
        }
    }

    #[test]
    fn pauses_double_and_are_short_again_after_a_long_time() {
        let begin = Instant::now();
        let mut pauses = Pauses::new(begin);
        assert!(!pauses.is_pause(begin));
        let mut now = begin;
        let mut lengths = Vec::new();
        for _ in 0..9 {
            lengths.push(pauses.late(now).as_millis());
            assert!(pauses.is_pause(now));
            now = pauses.until;
            assert!(!pauses.is_pause(now));
        }
        assert_eq!(lengths, [64, 128, 256, 512, 1024, 2048, 4096, 8000, 8000]);
        assert_eq!(pauses.late(now + 5 * PAUSE.1), PAUSE.0);
    }
}
