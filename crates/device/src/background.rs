//! [`Background`]: the policy `SCHED_IDLE` for the current thread, and what it costs it.
//!
//! The scheduler moves a task that is woken to an idle processor, if there is one, unless its own is idle. A
//! processor on which only threads of this policy run counts as idle. So a thread of this policy that wakes a
//! task on its own processor leaves it there. Without that, the task moves to another processor at each
//! reply, which costs an interrupt to a halted processor, 20 to 35 µs on most virtual machines.
//!
//! The price: where other tasks want the processor, such a thread runs late. The kernel counts how late
//! (`/proc/thread-self/schedstat`), so that a thread can leave the policy.
//!
//! Source: sched(7); `Documentation/scheduler/sched-stats.rst`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Threads of this process have entered the policy.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// The current thread's policy. Belongs to the thread that made it.
pub struct Background {
    statistics: File,
}

impl Background {
    /// For the current thread, which keeps its policy.
    ///
    /// # Errors
    /// - The system does not count delays.
    /// - It does not let the thread return to its usual policy: that needs `CAP_SYS_NICE`, or a `RLIMIT_NICE`
    ///   of at least 20 minus its nice value.
    /// - That policy is not `SCHED_OTHER`: somebody has chosen another for this process.
    pub fn new() -> io::Result<Background> {
        if policy() != libc::SCHED_OTHER {
            return Err(io::Error::other(
                "the process has a scheduling policy of its own",
            ));
        }
        let statistics = File::open("/proc/thread-self/schedstat")?;
        let background = Background { statistics };
        background.delay()?;
        match can_return() {
            true => Ok(background),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// For the current thread, which enters the policy and is never to leave it.
    ///
    /// # Errors
    /// The system does not count delays, or does not allow the policy.
    pub fn for_good() -> io::Result<Background> {
        let statistics = File::open("/proc/thread-self/schedstat")?;
        let background = Background { statistics };
        background.delay()?;
        background.enter()?;
        Ok(background)
    }

    /// Enters the policy. Threads that are started in it have it, too, until they call
    /// [`free_thread`](crate::free_thread).
    ///
    /// # Errors
    /// System errors.
    pub fn enter(&self) -> io::Result<()> {
        ENTERED.store(true, Ordering::Relaxed);
        set_policy(libc::SCHED_IDLE)
    }

    /// Returns to the usual policy.
    ///
    /// # Errors
    /// System errors.
    pub fn leave(&self) -> io::Result<()> {
        set_policy(libc::SCHED_OTHER)
    }

    /// How long the thread has waited for its processor, in all.
    ///
    /// # Errors
    /// System errors; the system counts nothing.
    pub fn delay(&self) -> io::Result<Duration> {
        let mut text = [0; 80];
        let len = self.statistics.read_at(&mut text, 0)?;
        parse(&text[..len]).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// Whether threads of the process can return to their usual policy.
fn can_return() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    // In a thread of its own, which may be left in the policy.
    let trial = || {
        let there_and_back =
            || set_policy(libc::SCHED_IDLE).and_then(|()| set_policy(libc::SCHED_OTHER));
        let thread = thread::Builder::new().name("tl-policy".to_owned());
        let thread = thread.spawn(move || there_and_back().is_ok());
        thread.is_ok_and(|thread| thread.join().unwrap_or(false))
    };
    *CAN.get_or_init(trial)
}

/// The second number of `schedstat`, in nanoseconds.
fn parse(text: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(text).ok()?;
    let number = text.split_ascii_whitespace().nth(1)?;
    Some(Duration::from_nanos(number.parse().ok()?))
}

/// In a new thread: leaves the policy if the thread that started it was in it.
pub(crate) fn leave_inherited() {
    // A thread that is started after its starter entered sees the store.
    if ENTERED.load(Ordering::Relaxed) && policy() == libc::SCHED_IDLE {
        let _ = set_policy(libc::SCHED_OTHER);
    }
}

/// The policy of the current thread. A system call, because the function of this name in musl always fails.
fn policy() -> libc::c_int {
    // SAFETY: the call has no memory arguments.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    policy as libc::c_int
}

/// Sets the policy of the current thread. A system call, as in [`policy`].
fn set_policy(policy: libc::c_int) -> io::Result<()> {
    // The kernel's `struct sched_param` has this member only; that of musl has more.
    let priority: libc::c_int = 0;
    // SAFETY: the call reads the priority, which lives until it returns.
    match unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_enters_the_policy_and_leaves_it() {
        let thread = std::thread::spawn(|| match Background::new() {
            Ok(background) => {
                assert_eq!(policy(), libc::SCHED_OTHER);
                background.enter().unwrap();
                assert_eq!(policy(), libc::SCHED_IDLE);
                let started = std::thread::spawn(|| {
                    let before = policy();
                    crate::free_thread();
                    (before, policy())
                });
                assert_eq!(
                    started.join().unwrap(),
                    (libc::SCHED_IDLE, libc::SCHED_OTHER)
                );
                background.leave().unwrap();
                assert_eq!(policy(), libc::SCHED_OTHER);
                let before = background.delay().unwrap();
                std::thread::yield_now();
                assert!(background.delay().unwrap() >= before);
            }
            Err(error) => throughline_testkit::left_out!("SCHED_IDLE for a while: {error}"),
        });
        thread.join().unwrap();
    }

    #[test]
    fn delays_are_parsed() {
        assert_eq!(parse(b"12 345 6\n"), Some(Duration::from_nanos(345)));
        for wrong in [&b""[..], b"12", b"12 x 6", b"1 -2 3", b"\xff 1 2"] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
