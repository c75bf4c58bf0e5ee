//! System calls in a thread of another process, as code there would make them: by ptrace(2), with the
//! registers that the calls take on x86-64. So that there need be no such code.

use std::collections::BTreeMap;

use nix::libc::user_regs_struct;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// The bytes of the instruction `syscall`, as a number.
const SYSCALL: i64 = 0x050f;
const SYSCALL_BYTES: u64 = 2;
const MAX_TRIES: usize = 10_000;

/// A call, by its number, and arguments.
pub(crate) type Call = (u64, [u64; 6]);

/// What `calls` return in each thread of a process, by its name: a result, or a negative error number. All
/// threads must wait in a system call. The kernel's workers are left out: they take no signals.
pub(crate) fn in_each_thread(process: Pid, calls: &[Call]) -> BTreeMap<String, Vec<i64>> {
    let tasks = format!("/proc/{process}/task");
    let mut results = BTreeMap::new();
    for task in std::fs::read_dir(&tasks).unwrap() {
        let task = task.unwrap();
        let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if name.is_empty() || name.starts_with("iou-") {
            continue;
        }
        let number: i32 = task.file_name().to_str().unwrap().parse().unwrap();
        let returned = in_thread(Pid::from_raw(number), calls);
        results.insert(format!("{} ({number})", name.trim()), returned);
    }
    results
}

fn in_thread(thread: Pid, calls: &[Call]) -> Vec<i64> {
    let (before, instruction) = stopped(thread);
    let returned = calls.iter().map(|(number, [a, b, c, d, e, f])| {
        let registers = user_regs_struct {
            rax: *number,
            // None is interrupted here.
            orig_rax: u64::MAX,
            rip: instruction,
            rdi: *a,
            rsi: *b,
            rdx: *c,
            r10: *d,
            r8: *e,
            r9: *f,
            ..before
        };
        ptrace::setregs(thread, registers).unwrap();
        ptrace::step(thread, None).unwrap();
        wait(thread);
        ptrace::getregs(thread).unwrap().rax.cast_signed()
    });
    let returned = returned.collect();
    // The call that was interrupted is made again.
    ptrace::setregs(thread, before).unwrap();
    ptrace::detach(thread, None).unwrap();
    returned
}

/// Stops a thread that waits in a system call. Returns its registers, and where the instruction is.
fn stopped(thread: Pid) -> (user_regs_struct, u64) {
    for _ in 0..MAX_TRIES {
        ptrace::attach(thread).unwrap();
        wait(thread);
        let registers = ptrace::getregs(thread).unwrap();
        let instruction = registers.rip - SYSCALL_BYTES;
        let word = ptrace::read(thread, instruction as ptrace::AddressType);
        if word.is_ok_and(|word| word & 0xffff == SYSCALL) {
            return (registers, instruction);
        }
        // It has just done something.
        ptrace::detach(thread, None).unwrap();
        std::thread::yield_now();
    }
    panic!("the thread {thread} waits in no system call");
}

fn wait(thread: Pid) {
    waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
}
