//! Calls that are injected into each thread of the server: those of no list, and calls that reach beyond the
//! process by their arguments.

use nix::libc;
use nix::unistd::Pid;
use syscalls::x86_64::Sysno;

use super::inject::{Call, in_each_thread};

/// Numbers beyond all calls that this kernel or a later one may have.
const NUMBERS: usize = 600;
/// The newest call that the lists know, as in `calls.rs`.
const NEWEST: u64 = 469;
/// `uretprobe` and `uprobe`, which the kernel passes by every filter (6.14), and which only its own code can
/// make: others get SIGILL.
const UNFILTERED: [usize; 2] = [335, 336];
/// `F_SETSIG` of the kernel's `asm-generic/fcntl.h`.
const F_SETSIG: u64 = 10;
/// Bit 30 of the number of a call of x32.
const X32: u64 = 1 << 30;

/// Calls that concern another process, or that the user's terminal or other programs would notice.
fn attempts(victim: u32) -> Vec<Call> {
    let victim = u64::from(victim);
    let call = |call: Sysno, arguments: &[u64]| {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        (call as u64, all)
    };
    // Its type is not the same in all C libraries.
    let core = libc::RLIMIT_CORE as u64;
    let (set_owner, set_signal) = (libc::F_SETOWN as u64, F_SETSIG);
    let batch = libc::SCHED_BATCH as u64;
    vec![
        call(Sysno::prlimit64, &[victim, core]),
        call(Sysno::setpriority, &[0, victim, 0]),
        call(Sysno::sched_setaffinity, &[victim]),
        call(Sysno::sched_setscheduler, &[victim, batch]),
        call(Sysno::sched_setattr, &[victim]),
        call(Sysno::ioprio_set, &[1, victim]),
        call(Sysno::ioprio_get, &[1, victim]),
        call(Sysno::msgget, &[1]),
        call(Sysno::semget, &[1]),
        call(Sysno::shmget, &[1]),
        call(Sysno::utimensat, &[libc::AT_FDCWD as u64]),
        call(Sysno::fcntl, &[1, set_owner, victim]),
        call(Sysno::fcntl, &[1, set_signal, 9]),
        // TIOCSTI, TIOCLINUX, FIOSETOWN
        call(Sysno::ioctl, &[1, 0x5412]),
        call(Sysno::ioctl, &[1, 0x541c]),
        call(Sysno::ioctl, &[1, 0x8901]),
        call(Sysno::kill, &[victim, 0]),
        call(Sysno::tgkill, &[victim, victim, 0]),
        call(Sysno::socket, &[1, 1]),
        call(Sysno::socket, &[2, 1]),
        call(Sysno::mmap, &[0, 4096, 5, 0x22, u64::MAX]),
        // The kernel compares all 64 bits of these with 0.
        call(Sysno::sendto, &[1, 0, 0, 0, 1 << 40]),
        call(Sysno::prlimit64, &[0, core, 1 << 40]),
    ]
}

/// The calls whose name is in no line of the server's list.
fn unlisted() -> Vec<Call> {
    let list = include_str!("../../calls/server.x86_64");
    let listed: Vec<&str> = list
        .lines()
        .filter_map(|line| line.split(':').next())
        .collect();
    // Those for images in object storage, which the test's mount is not, are left out with the others.
    let is_listed =
        |number: usize| Sysno::new(number).is_some_and(|call| listed.contains(&call.name()));
    let numbers = (0..NUMBERS).filter(|number| !is_listed(*number) && !UNFILTERED.contains(number));
    let numbers = numbers.map(|number| number as u64);
    numbers
        .chain([X32, X32 | 59, X32 | 520])
        .map(|number| (number, [0; 6]))
        .collect()
}

/// In the sandbox, every thread is refused all of this; without it, what would do no harm is not refused.
pub(crate) fn assert_refused(server: Pid, victim: u32, in_sandbox: bool) {
    let mut calls = attempts(victim);
    let tried = calls.len();
    if in_sandbox {
        calls.extend(unlisted());
        assert!(calls.len() > tried + 200, "{}", calls.len());
    }
    let results = in_each_thread(server, &calls);
    assert!(results.len() > 3, "{:?}", results.keys());
    for (thread, results) in &results {
        for ((number, arguments), result) in calls.iter().zip(results) {
            let expected = match *number {
                number if number == Sysno::clone3 as u64 || number > NEWEST => libc::ENOSYS,
                _ => libc::EPERM,
            };
            assert_eq!(
                *result == -i64::from(expected),
                in_sandbox,
                "{thread}: call {number} {arguments:x?}: {result}, in the sandbox: {in_sandbox}"
            );
        }
    }
}
