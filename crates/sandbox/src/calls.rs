//! The seccomp filter: the system calls that all threads may make.
//!
//! They are lists in `calls/`, one for each policy and machine ([`list`] has their form). A call that is
//! known and not listed fails with `EPERM`. `clone3`, whose flags a filter cannot see, and calls that are
//! newer than the lists fail with `ENOSYS`: C libraries then use older ones. Calls of another machine's
//! numbering are refused, too.
//!
//! What a list costs: which calls we make depends on the C library (two of them), its allocator, and the
//! runtime of the HTTP client, and changes with their versions. So the lists have what both libraries use for
//! what we ask of them, also where that was not seen (`./dev calls` compares them with runs of the tests).
//! And an update that needs a call that is not listed does not end the process: the call fails. A list of
//! what is refused costs more: it must have every call that an attacker has use for, and nobody notices the
//! one that it lacks.
//!
//! The kernel finds out once which calls the filter always allows, and does not run it for them. So
//! conditions are only on calls that are rare beside the work that they cause: `mmap`, `ioctl`, `fcntl`.

mod list;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;

use libc::c_int;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter_all_threads, sock_filter,
};

use self::list::Rules;
use crate::{Network, Policy, Role};

/// The newest call of which the lists say whether it is allowed (Linux 6.17).
const NEWEST: u32 = 469;
/// With this environment variable, all calls are allowed, and the kernel logs those that are not [`OFTEN`]
/// made (`SECCOMP_RET_LOG`): for `./dev calls`, to which its value is a folder for the roles of processes.
/// Only in builds with debug assertions: others would say that they are in a sandbox that refuses nothing.
const LOG_CALLS: &str = "THROUGHLINE_LOG_CALLS";
/// Too many to be logged.
const OFTEN: &[&str] = &[
    "read",
    "write",
    "pread64",
    "pwrite64",
    "preadv",
    "pwritev",
    "readv",
    "writev",
    "poll",
    "ppoll",
    "futex",
    "io_uring_enter",
    "lseek",
    "munmap",
];

/// A kind of machine: its calls have numbers of their own.
struct Machine {
    target: TargetArch,
    number: fn(&str) -> Option<i32>,
    server: &'static str,
    command: &'static str,
}

#[cfg(any(target_arch = "x86_64", test))]
const X86_64: Machine = Machine {
    target: TargetArch::x86_64,
    number: |name| {
        name.parse()
            .ok()
            .map(|call: syscalls::x86_64::Sysno| call.id())
    },
    server: include_str!("../calls/server.x86_64"),
    command: include_str!("../calls/command.x86_64"),
};

#[cfg(any(target_arch = "aarch64", test))]
const AARCH64: Machine = Machine {
    target: TargetArch::aarch64,
    number: |name| {
        name.parse()
            .ok()
            .map(|call: syscalls::aarch64::Sysno| call.id())
    },
    server: include_str!("../calls/server.aarch64"),
    command: include_str!("../calls/command.aarch64"),
};

#[cfg(target_arch = "x86_64")]
const THIS: Option<Machine> = Some(X86_64);
#[cfg(target_arch = "aarch64")]
const THIS: Option<Machine> = Some(AARCH64);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const THIS: Option<Machine> = None;

/// Refuses, from now on and on all threads, the calls that `policy` does not list. `rings`: no ring of
/// io_uring can be made.
///
/// # Errors
/// The reason why the system does not.
pub(crate) fn refuse(policy: &Policy, rings: bool) -> Result<(), String> {
    let machine = THIS.ok_or("there is no list of calls for this kind of machine")?;
    let program = match log_calls() {
        Some(_) => logging(&machine)?,
        None => program(&machine, policy, rings, std::process::id())?,
    };
    apply_filter_all_threads(&program).map_err(|error| error.to_string())
}

/// The value of [`LOG_CALLS`].
fn log_calls() -> Option<OsString> {
    cfg!(debug_assertions)
        .then(|| std::env::var_os(LOG_CALLS))
        .flatten()
}

/// For `./dev calls`: notes the role of this process and the time, because process IDs are reused. Called
/// before the sandbox is entered, which refuses to write it.
pub(crate) fn note_role(role: Role) {
    let Some(dir) = log_calls() else {
        return;
    };
    let role = match role {
        Role::Server => "server",
        Role::Command => "command",
    };
    let note = || -> std::io::Result<()> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs_f64();
        let path = Path::new(&dir).join(std::process::id().to_string());
        let mut notes = std::fs::File::options();
        let mut notes = notes.create(true).append(true).open(path)?;
        writeln!(notes, "{now:.3} {role}")
    };
    // Without it, the calls of this process are not compared.
    let _ = note();
}

/// Logs calls, and refuses none but `clone3`, and those that are unknown.
fn logging(machine: &Machine) -> Result<BpfProgram, String> {
    let calls = OFTEN.iter().filter_map(|name| (machine.number)(name));
    let rules = calls.map(|call| (call.into(), Vec::new())).collect();
    compiled(machine, rules, SeccompAction::Log)
}

fn program(
    machine: &Machine,
    policy: &Policy,
    rings: bool,
    own_process: u32,
) -> Result<BpfProgram, String> {
    let text = match policy.role {
        Role::Server => machine.server,
        Role::Command => machine.command,
    };
    let rights = [
        (policy.network == Network::Open).then_some("network"),
        (!rings).then_some("rings"),
        policy.fakeroot.then_some("fakeroot"),
    ];
    let rights: Vec<&str> = rights.into_iter().flatten().collect();
    let rules = list::read(text, &rights, own_process, machine.number)
        .map_err(|wrong| wrong.to_string())?;
    compiled(machine, rules, SeccompAction::Errno(bits(libc::EPERM)))
}

/// The filter that allows what `rules` do; `others` happens with other calls that are known.
fn compiled(machine: &Machine, rules: Rules, others: SeccompAction) -> Result<BpfProgram, String> {
    let filter = SeccompFilter::new(rules, others, SeccompAction::Allow, machine.target);
    let listed: Result<BpfProgram, _> = filter.and_then(TryInto::try_into);
    let mut program = unknown((machine.number)("clone3"));
    program.extend(listed.map_err(|error| error.to_string())?);
    Ok(program)
}

/// The beginning of the filter: `ENOSYS` for `clone3`, and for calls that are newer than [`NEWEST`], among
/// which are those of x32, whose numbers begin at 1 << 30.
fn unknown(clone3: Option<i32>) -> BpfProgram {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const IF_GREATER: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let no_such_call = libc::SECCOMP_RET_ERRNO | bits(libc::ENOSYS);
    let clone3 = clone3.map_or(u32::MAX, i32::cast_unsigned);
    vec![
        // The number of the call is first in `struct seccomp_data`.
        step(LOAD, 0, 0, 0),
        step(IF_EQUAL, 1, 0, clone3),
        step(IF_GREATER, 0, 1, NEWEST),
        step(RETURN, 0, 0, no_such_call),
    ]
}

fn bits(value: c_int) -> u32 {
    value.cast_unsigned()
}
