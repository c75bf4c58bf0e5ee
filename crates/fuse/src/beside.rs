//! [`Beside`]: the thread that serves alone ([`crate::pace::Mode::Beside`]) runs on its caller's CPU.
//!
//! The caller sleeps while it waits for the reply. So our thread can use its CPU, no other CPU is
//! woken, and the data is in that CPU's cache. To keep the caller there when it is woken, the thread
//! has the policy `SCHED_IDLE`: a CPU on which only such threads run counts as idle, so the scheduler
//! does not move the caller to another. It leaves the policy when the mode ends. An unprivileged process may
//! not do that, so there the thread keeps it: it serves only in this mode.
//!
//! The mode pays only where the wake-up of another CPU is expensive ([`pays`]). Elsewhere the program's
//! and our own work overlap on two CPUs, if our thread spins.
//!
//! Invariants:
//! - The caller's CPU is looked up in `/proc` at the caller's second request in a row, and then once
//!   every [`LOOKED`] requests.
//! - If the thread was scheduled late, the mode is not entered for a while ([`Pauses`]).
//! - Only the thread enters the policy. The watcher of the mode takes it away ([`Policy::take`]) when it ends
//!   the mode: the thread may be waiting for its CPU, with a request that it has read.
//! - If the caller's CPU is not known (the caller is in another PID namespace), the mode pauses as
//!   well: the thread would run on another CPU, which has to be woken.
//! - If several callers make requests at the same time, the mode ends: they would all wait for one CPU.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use throughline_device::{Background, bind_thread, wake_up_us};

use crate::watch::{Pauses, is_late};

/// The number of requests of a caller between two look-ups of its CPU.
const LOOKED: u32 = 16;
/// The number of requests between two checks of the scheduling delay.
const CHECKED: u32 = 8;
/// A request from another caller than the previous one adds this to the score. A request from the same caller
/// subtracts 1.
const CHANGE: u32 = 2;
/// After this many requests without a known CPU, the mode pauses for this time.
const UNKNOWN: (u32, Duration) = (32, Duration::from_secs(64));
/// At this score, several callers are assumed to make requests at the same time.
const SEVERAL: u32 = 32;

/// The mode pays if the wake-up of another CPU takes at least this time, in microseconds. With 7 µs
/// (idle CPUs poll before they halt), small files through a mount took 1.2 times as long in this mode
/// as with a spinning thread. With 15 to 21 µs (they halt at once), a third.
const EXPENSIVE_US: f64 = 10.0;

/// Whether wake-ups are so expensive on this machine that the mode pays. Measures it at the first call, for
/// up to 8 ms; a wake-up that cannot be measured counts as cheap.
pub(crate) fn pays() -> bool {
    let measured = wake_up_us();
    tracing::info!(
        wake_up_us = measured,
        serves_on_callers_processor = measured >= EXPENSIVE_US,
        "the cost of waking another CPU"
    );
    measured >= EXPENSIVE_US
}

/// The policy of the mode's thread.
pub(crate) struct Policy {
    background: Background,
    is_entered: AtomicBool,
    /// It was taken from the thread, which does not know yet.
    is_taken: AtomicBool,
}

impl Policy {
    /// Returns whether the thread has just entered it.
    fn enter(&self) -> std::io::Result<bool> {
        if self.is_entered() {
            return Ok(false);
        }
        self.is_entered.store(true, Ordering::Release);
        self.background.enter().map(|()| true)
    }

    /// For another thread: the mode has ended. Returns whether the policy can be taken from threads.
    pub(crate) fn take(&self) -> bool {
        self.is_taken.store(true, Ordering::Release);
        self.leave();
        self.background.can_return()
    }

    fn leave(&self) {
        if self.background.can_return() && self.background.leave().is_ok() {
            self.is_entered.store(false, Ordering::Release);
        }
    }

    pub(crate) fn is_entered(&self) -> bool {
        self.is_entered.load(Ordering::Acquire)
    }
}

/// Belongs to one thread.
pub(crate) struct Beside {
    policy: Arc<Policy>,
    pauses: Pauses,
    /// The delay at the last check, and the requests since.
    delay: Duration,
    requests: u32,
    caller: Caller,
    /// The score: see [`CHANGE`].
    changes: u32,
    bound_to: Option<u16>,
    /// The requests served while the thread was not bound to a CPU.
    unbound: u32,
}

/// The thread that made the last requests.
#[derive(Default)]
struct Caller {
    pid: u32,
    /// The number of its requests in a row.
    requests: u32,
    /// Its `/proc/PID/stat`.
    stat: Option<File>,
}

/// Whether the mode goes on after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The mode goes on.
    On,
    /// It ends, because there are several callers.
    End,
    /// It ends, because the thread was scheduled late or the caller's CPU is unknown. It must not begin
    /// again for this time.
    Pause(Duration),
}

impl Beside {
    /// For the current thread, which enters the policy, permanently if it cannot return.
    ///
    /// # Errors
    /// The system does not count delays, or does not allow the policy.
    pub(crate) fn new() -> std::io::Result<Beside> {
        let background = Background::for_good()?;
        Ok(Beside {
            delay: background.delay()?,
            policy: Arc::new(Policy {
                background,
                is_entered: AtomicBool::new(true),
                is_taken: AtomicBool::new(false),
            }),
            pauses: Pauses::new(Instant::now()),
            requests: 0,
            caller: Caller::default(),
            changes: 0,
            bound_to: None,
            unbound: 0,
        })
    }

    pub(crate) fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The mode lasts: makes sure that the thread has the policy. Returns whether it has just entered it.
    /// Then the caller checks again that the mode lasts: the watcher may have ended it before.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn enter(&self) -> std::io::Result<bool> {
        self.policy.enter()
    }

    /// The mode has ended, or is about to.
    pub(crate) fn leave(&self) {
        self.policy.leave();
    }

    /// A request of the thread `pid` was read: moves the current thread to the caller's CPU, if that
    /// has changed.
    pub(crate) fn follow(&mut self, pid: u32) {
        // Requests from the kernel itself and from callers in other PID namespaces have no PID.
        if pid == 0 {
            return;
        }
        if self.caller.pid != pid {
            self.caller = Caller {
                pid,
                ..Caller::default()
            };
            self.changes += CHANGE;
        } else {
            self.changes = self.changes.saturating_sub(1);
        }
        self.caller.requests += 1;
        if self.caller.requests % LOOKED == 2 {
            let processor = self.caller.processor();
            if processor.is_some() && processor != self.bound_to {
                self.bound_to = processor;
                processor.into_iter().for_each(bind_thread);
            }
        }
    }

    /// The request was served.
    pub(crate) fn served(&mut self) -> Next {
        if self.bound_to.is_none() {
            self.unbound += 1;
            if self.unbound >= UNKNOWN.0 {
                self.unbound = 0;
                return Next::Pause(UNKNOWN.1);
            }
        }
        if self.changes >= SEVERAL {
            self.changes = 0;
            return Next::End;
        }
        self.requests += 1;
        let is_taken = self.policy.is_taken.load(Ordering::Acquire);
        if self.requests < CHECKED && !is_taken {
            return Next::On;
        }
        let delay = self.policy.background.delay().unwrap_or_default();
        let waited = delay.saturating_sub(self.delay);
        let requests = if is_taken { 1 } else { self.requests.into() };
        self.policy.is_taken.store(false, Ordering::Release);
        (self.delay, self.requests) = (delay, 0);
        match is_late(waited, requests) {
            true => Next::Pause(self.pauses.late(Instant::now())),
            false => Next::On,
        }
    }
}

impl Caller {
    /// The CPU that it runs on, or ran on last; `None` if that is not known.
    fn processor(&mut self) -> Option<u16> {
        if self.stat.is_none() {
            self.stat = File::open(format!("/proc/{}/stat", self.pid)).ok();
        }
        let mut text = [0; 1024];
        let len = self.stat.as_ref()?.read_at(&mut text, 0).ok()?;
        parse(&text[..len])
    }
}

/// Field 39 of `/proc/PID/stat`, see proc_pid_stat(5). The second is a name in brackets, which may have any
/// bytes.
fn parse(stat: &[u8]) -> Option<u16> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
    rest.split_ascii_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_parsed() {
        let rest = (3..=38).map(|n| n.to_string()).collect::<Vec<_>>();
        let line = |name: &str| format!("77 ({name}) {} 5 40 41\n", rest.join(" "));
        for name in ["cat", "a b", "a) 1 2 (b", ")"] {
            assert_eq!(parse(line(name).as_bytes()), Some(5), "{name}");
        }
        for wrong in ["", "77 (cat", "77 (cat) S 1", ") "] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong}");
        }
        let own = std::fs::read("/proc/self/stat").unwrap();
        assert!(parse(&own).is_some());
    }

    #[test]
    fn several_callers_at_the_same_time_end_the_mode() {
        let thread = std::thread::spawn(|| {
            let Ok(mut beside) = Beside::new() else {
                throughline_testkit::left_out!("SCHED_IDLE is not possible");
                return;
            };
            let own = std::process::id();
            for _ in 0..1000 {
                beside.follow(own);
                assert_ne!(beside.served(), Next::End);
            }
            assert!(beside.bound_to.is_some());
            // One after the other, with a few requests each.
            for turn in 0..1000 {
                beside.follow(u32::MAX - turn / 4);
                beside.follow(0);
                assert_ne!(beside.served(), Next::End);
            }
            let ends = |turn: u32| {
                beside.follow(u32::MAX - turn % 2);
                beside.served() == Next::End
            };
            assert!((0..100).any(ends));
        });
        thread.join().unwrap();
    }

    #[test]
    fn callers_without_a_number_pause_the_mode() {
        let thread = std::thread::spawn(|| {
            let Ok(mut beside) = Beside::new() else {
                throughline_testkit::left_out!("SCHED_IDLE is not possible");
                return;
            };
            let mut pauses = |request: u32| {
                // No thread has this number.
                beside.follow(if request < 8 { 0 } else { u32::MAX });
                beside.served() == Next::Pause(UNKNOWN.1)
            };
            assert!((0..UNKNOWN.0).any(&mut pauses));
        });
        thread.join().unwrap();
    }
}
