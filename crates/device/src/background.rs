//! [`Background`]: the policy `SCHED_IDLE` for a thread, and what it costs it.
//!
//! The scheduler moves a task that is woken to an idle CPU, if there is one, unless its own is idle. A
//! CPU on which only threads of this policy run counts as idle. So a thread of this policy that wakes a
//! task on its own CPU leaves it there. Without that, the task moves to another CPU at each
//! reply, which costs an interrupt to a halted CPU, 20 to 35 µs on most virtual machines.
//!
//! The price: where other tasks want the CPU, such a thread runs late, by seconds if they are several.
//! The kernel counts how late (`/proc/thread-self/schedstat`), but not before the thread has run. So another
//! thread can take the policy from it, and that one must not be late itself ([`prefer_thread`]).
//!
//! Source: sched(7); `Documentation/scheduler/sched-stats.rst`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getpriority_process, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use crate::Kept;

/// Threads of this process have entered the policy.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// The policy of the thread that made it. Other threads may use it as long as that one lasts.
pub struct Background {
    thread: libc::pid_t,
    /// The thread can return to its usual policy.
    can_return: bool,
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
        if policy(0) != libc::SCHED_OTHER {
            return Err(io::Error::other(
                "the process has a scheduling policy of its own",
            ));
        }
        let background = Background::of_thread()?;
        match background.can_return {
            true => Ok(background),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }

    /// For the current thread, which enters the policy. It can leave it only if it
    /// [can return](Background::can_return).
    ///
    /// # Errors
    /// The system does not count delays, or does not allow the policy.
    pub fn for_good() -> io::Result<Background> {
        let background = Background::of_thread()?;
        background.enter()?;
        Ok(background)
    }

    fn of_thread() -> io::Result<Background> {
        let background = Background {
            thread: this_thread(),
            can_return: can_return(),
            statistics: File::open("/proc/thread-self/schedstat")?,
        };
        background.delay()?;
        Ok(background)
    }

    /// Whether the thread can return to its usual policy. If not, [`Background::leave`] fails.
    pub fn can_return(&self) -> bool {
        self.can_return
    }

    /// Enters the policy, in its own thread: a sandbox allows no other to give it. Threads that are started
    /// in it have it, too ([`leave_background`]).
    ///
    /// # Errors
    /// System errors.
    pub fn enter(&self) -> io::Result<()> {
        debug_assert_eq!(self.thread, this_thread(), "a thread enters by itself");
        ENTERED.store(true, Ordering::Relaxed);
        set_policy(0, libc::SCHED_IDLE, 0)
    }

    /// Returns to the usual policy.
    ///
    /// # Errors
    /// System errors.
    pub fn leave(&self) -> io::Result<()> {
        set_policy(self.thread, libc::SCHED_OTHER, 0)
    }

    /// Whether the thread has the policy.
    pub fn is_entered(&self) -> bool {
        policy(self.thread) == libc::SCHED_IDLE
    }

    /// How long the thread has waited for its CPU, in all.
    ///
    /// # Errors
    /// System errors; the system counts nothing.
    pub fn delay(&self) -> io::Result<Duration> {
        let mut text = [0; 80];
        let len = self.statistics.read_at(&mut text, 0)?;
        parse(&text[..len]).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// Lets the current thread run as soon as it is woken, with the lowest priority of `SCHED_FIFO`; where that
/// is not allowed, with the shortest time slice. For a thread that sleeps nearly always. Threads that it
/// starts do not get the policy.
pub fn prefer_thread() {
    let fifo = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    if set_policy(0, fifo, 1).is_err() {
        crate::shorten_slice();
    }
}

fn this_thread() -> libc::pid_t {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Lets threads of this process do without `CAP_SYS_NICE` what they do here with it, if they have it: raises
/// `RLIMIT_NICE` to what their nice value needs, and `RLIMIT_RTPRIO` to the lowest priority. Returns what
/// must be kept: a process that has no `CAP_SYS_RESOURCE`, as in some containers, cannot raise them.
pub fn keep_scheduling() -> Kept {
    // Nice values go from -20 to 19.
    let nice = getpriority_process(None).unwrap_or(0);
    let nice = u64::try_from(20 - nice).unwrap_or(0);
    for (resource, least) in [(Resource::Nice, nice), (Resource::Rtprio, 1)] {
        let limit = getrlimit(resource);
        let raised = Rlimit {
            current: limit.current.map(|now| now.max(least)),
            maximum: limit.maximum.map(|now| now.max(least)),
        };
        if setrlimit(resource, raised).is_err() && has_right() {
            return Kept::Nice;
        }
    }
    Kept::None
}

/// Whether the current thread has `CAP_SYS_NICE`.
fn has_right() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_NICE))
}

/// Whether threads of the process can return to their usual policy.
fn can_return() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    // In a thread of its own, which may be left in the policy.
    let trial = || {
        let there_and_back = || {
            set_policy(0, libc::SCHED_IDLE, 0).and_then(|()| set_policy(0, libc::SCHED_OTHER, 0))
        };
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

/// Gives the usual policy to all threads of the process that have this one, without those of `keep`. The
/// kernel's workers of io_uring inherit the policy of the thread that they work for, and keep it when that
/// thread leaves it.
///
/// # Errors
/// `/proc` is not readable.
pub fn free_workers(keep: &[&Background]) -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/task")? {
        let name = entry?.file_name();
        let thread = name.to_str().and_then(|name| name.parse().ok());
        if let Some(thread) = thread
            && policy(thread) == libc::SCHED_IDLE
            && keep.iter().all(|background| background.thread != thread)
        {
            // It may have ended.
            let _ = set_policy(thread, libc::SCHED_OTHER, 0);
        }
    }
    Ok(())
}

/// Leaves the policy, if the current thread has it and can. Call this before starting a thread: that one
/// inherits the policy, and nobody would notice that it is late.
pub fn leave_background() {
    // A thread that is started after its starter entered sees the store.
    if ENTERED.load(Ordering::Relaxed) && policy(0) == libc::SCHED_IDLE {
        let _ = set_policy(0, libc::SCHED_OTHER, 0);
    }
}

/// The policy of a thread; 0 is the current one. Negative: it has ended. A system call, because the function
/// of this name in musl always fails.
fn policy(thread: libc::pid_t) -> libc::c_int {
    // SAFETY: the call has no memory arguments.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, thread) };
    policy as libc::c_int
}

/// Sets the policy of a thread; 0 is the current one. A system call, as in [`policy`].
fn set_policy(thread: libc::pid_t, policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    // The kernel's `struct sched_param` has the priority only; that of musl has more.
    let param = &raw const priority;
    // SAFETY: the call reads the priority, which lives until it returns.
    match unsafe { libc::syscall(libc::SYS_sched_setscheduler, thread, policy, param) } {
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
                assert_eq!(policy(0), libc::SCHED_OTHER);
                background.enter().unwrap();
                assert_eq!(policy(0), libc::SCHED_IDLE);
                let started = std::thread::spawn(|| {
                    let before = policy(0);
                    crate::free_thread();
                    (before, policy(0))
                });
                assert_eq!(
                    started.join().unwrap(),
                    (libc::SCHED_IDLE, libc::SCHED_OTHER)
                );
                leave_background();
                assert!(!background.is_entered());
                background.enter().unwrap();
                // By another thread, as by the one that watches it.
                let free = |keep: &[&Background]| free_workers(keep).unwrap();
                std::thread::scope(|scope| {
                    scope.spawn(|| free(&[&background])).join().unwrap();
                    assert!(background.is_entered());
                    scope.spawn(|| free(&[])).join().unwrap();
                });
                assert_eq!(policy(0), libc::SCHED_OTHER);
                background.enter().unwrap();
                background.leave().unwrap();
                assert_eq!(policy(0), libc::SCHED_OTHER);
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
