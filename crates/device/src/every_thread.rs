//! Restricts all threads of this process, each by itself: by a landlock ruleset, and to no capabilities.
//!
//! `landlock_restrict_self(2)` and `capset(2)` restrict the calling thread and those that it starts later.
//! Only for the first, and since Linux 7.0, can the others be included. A thread that is left out keeps its
//! rights, and with them the whole process does: the threads share their memory. So each thread gets a
//! signal, whose handler makes the system call, as the C library changes user IDs.
//!
//! Invariants:
//! - The handler is async-signal-safe: system calls, and atomics.
//! - The list of threads is read again until every thread in it has been restricted. A thread that is
//!   started meanwhile is in the next list; it may be restricted twice, to the same.
//! - Threads of the kernel (`iou-…`) take no signals. They act with the rights of the thread that submitted
//!   their work.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use throughline_locks::Mutex;

/// How long a thread may take to handle the signal. One that waits for a slow disk takes no signal meanwhile.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_micros(20);
/// How often the list of threads is read at most.
const MAX_ROUNDS: usize = 64;
/// Added to `SIGRTMIN`, the first signal that the C library leaves to programs.
const SIGNAL: libc::c_int = 5;

/// The descriptor of the ruleset, or -1 for none.
static RULESET: AtomicI32 = AtomicI32::new(-1);
/// The capabilities that threads keep, as the low 32 bits of their sets; all bits: those beyond them, too.
static KEPT: AtomicU32 = AtomicU32::new(u32::MAX);
/// Threads that have handled the signal.
static HANDLED: AtomicUsize = AtomicUsize::new(0);
/// The first error number of a handler, or 0.
static FAILED: AtomicI32 = AtomicI32::new(0);
/// One call at a time.
static ONE: Mutex<()> = Mutex::new(());

/// The capabilities that threads keep, if they have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kept {
    /// None.
    #[default]
    None,
    /// `CAP_SYS_NICE`, where limits cannot take its place ([`keep_scheduling`](crate::keep_scheduling)).
    Nice,
    /// All.
    All,
}

impl Kept {
    fn bits(self) -> u32 {
        match self {
            Kept::None => 0,
            Kept::Nice => 1 << CAP_SYS_NICE,
            Kept::All => u32::MAX,
        }
    }
}

/// Of the kernel's `capability.h`.
const CAP_SYS_NICE: u32 = 23;

/// Gives this process's threads no new privileges (`PR_SET_NO_NEW_PRIVS`), restricts them by a ruleset, if
/// there is one, and takes the capabilities that are not kept. It cannot be undone.
///
/// # Errors
/// A thread could not be restricted. The others are.
pub fn restrict_every_thread(ruleset: Option<BorrowedFd<'_>>, kept: Kept) -> io::Result<()> {
    let _one = ONE.lock();
    KEPT.store(kept.bits(), Ordering::SeqCst);
    RULESET.store(ruleset.map_or(-1, |fd| fd.as_raw_fd()), Ordering::SeqCst);
    FAILED.store(0, Ordering::SeqCst);
    let signal = libc::SIGRTMIN() + SIGNAL;
    let before = set_handler(signal)?;
    let signalled = signal_all(signal);
    restore_handler(signal, &before);
    signalled?;
    match FAILED.load(Ordering::SeqCst) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

fn signal_all(signal: libc::c_int) -> io::Result<()> {
    let mut handled = HashSet::new();
    for _ in 0..MAX_ROUNDS {
        let mut fresh = threads()?;
        fresh.retain(|thread| !handled.contains(thread));
        if fresh.is_empty() {
            return Ok(());
        }
        for thread in fresh {
            signal_one(thread, signal)?;
            handled.insert(thread);
        }
    }
    Err(io::Error::other(
        "threads start faster than they can be restricted",
    ))
}

/// The threads of this process that are not the kernel's.
fn threads() -> io::Result<Vec<libc::pid_t>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/self/task")? {
        let entry = entry?;
        let Some(thread) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if !name.starts_with("iou-wrk-") && !name.starts_with("iou-sqp-") {
            found.push(thread);
        }
    }
    Ok(found)
}

/// Signals a thread and waits until it has handled the signal, or has ended.
fn signal_one(thread: libc::pid_t, signal: libc::c_int) -> io::Result<()> {
    let before = HANDLED.load(Ordering::SeqCst);
    let process = rustix::process::getpid().as_raw_pid();
    // SAFETY: a system call without pointers, to a thread of this process.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) };
    if sent != 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ESRCH) => Ok(()),
            _ => Err(error),
        };
    }
    let begun = Instant::now();
    while HANDLED.load(Ordering::SeqCst) == before {
        if !fs::exists(format!("/proc/self/task/{thread}")).unwrap_or(true) {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::other(format!(
                "thread {thread} takes no signals"
            )));
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

extern "C" fn handle(_: libc::c_int) {
    // SAFETY: the location of this thread's errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: valid in this thread.
    let before = unsafe { *errno };
    // SAFETY: a system call without pointers.
    let mut done = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into();
    let ruleset = RULESET.load(Ordering::SeqCst);
    if done == 0 && ruleset >= 0 {
        // SAFETY: a system call without pointers.
        done = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0) };
    }
    let kept = KEPT.load(Ordering::SeqCst);
    if done == 0 && kept != u32::MAX {
        done = drop_capabilities(kept);
    }
    if done != 0 {
        // SAFETY: valid in this thread.
        FAILED.store(unsafe { *errno }, Ordering::SeqCst);
    }
    // SAFETY: valid in this thread. The interrupted code may be about to read it.
    unsafe { *errno = before };
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

/// Takes the capabilities from the current thread that are not among `kept`, by two system calls.
fn drop_capabilities(kept: u32) -> libc::c_long {
    /// `_LINUX_CAPABILITY_VERSION_3` of the kernel's `capability.h`: the sets have 64 bits.
    const VERSION: u32 = 0x2008_0522;
    // The version, and this thread.
    let mut header = [VERSION, 0];
    // Effective, permitted and inheritable ones: the low 32 bits of each, and then the high ones.
    let mut sets = [0_u32; 6];
    // SAFETY: the call reads and writes `header`, and writes `sets`, which have the sizes of its structures.
    let read = unsafe { libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()) };
    if read != 0 {
        return read;
    }
    let [effective, permitted, ..] = sets;
    let sets = [effective & kept, permitted & kept, 0, 0, 0, 0];
    // SAFETY: the call reads `header` and `sets`, as above.
    unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) }
}

fn set_handler(signal: libc::c_int) -> io::Result<libc::sigaction> {
    // SAFETY: plain data, for which zeros are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // Interrupted system calls go on.
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: as above.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: both are valid; the handler is async-signal-safe (module head).
    match unsafe { libc::sigaction(signal, &raw const action, &raw mut before) } {
        0 => Ok(before),
        _ => Err(io::Error::last_os_error()),
    }
}

fn restore_handler(signal: libc::c_int, before: &libc::sigaction) {
    let mut ignored = *before;
    // A thread that was too late would otherwise end the process.
    if ignored.sa_sigaction == libc::SIG_DFL {
        ignored.sa_sigaction = libc::SIG_IGN;
    }
    // SAFETY: an action that was set before, or ignoring the signal.
    let _ = unsafe { libc::sigaction(signal, &raw const ignored, std::ptr::null_mut()) };
}
