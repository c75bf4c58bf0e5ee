//! The seccomp filter: the system calls that are refused, on all threads.
//!
//! It lists what is refused, not what is allowed. The calls that we make are partly those of the C library
//! (two of them), its allocator, the runtime of the HTTP client, and differ between versions and
//! architectures; a list of them would end the server of a mount on the next update. What a list of refused
//! calls would miss is mended: files are landlock's, calls that are newer than this list get `ENOSYS`, with
//! which every C library copes, and calls of another architecture end the process.
//!
//! A refused call fails with `EPERM`. Exceptions: `clone3` fails with `ENOSYS`, as the filter cannot see its
//! flags; the C library then uses `clone`, which may only start threads.
//!
//! The kernel finds out once which calls the filter always allows, and does not run it for them. The others
//! are few: `mmap`, `mprotect`, `clone`, `kill`, `sendto`.

use std::collections::BTreeMap;

use libc::{c_int, c_long};
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter_all_threads, sock_filter,
};

use crate::{Network, Policy};

/// Starts another program, or a process.
const PROGRAMS: &[c_long] = &[libc::SYS_execve, libc::SYS_execveat];

/// Reads, changes or controls another process.
const OTHER_PROCESSES: &[c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
];

/// Mounts and namespaces.
const MOUNTS: &[c_long] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    OPEN_TREE_ATTR,
];

/// The kernel itself, and its parts that are often attacked.
const KERNEL: &[c_long] = &[
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_personality,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_lookup_dcookie,
    libc::SYS_shmat,
    libc::SYS_shmget,
    libc::SYS_open_by_handle_at,
];

/// Changes of files by their path that landlock does not know.
const FILES: &[c_long] = &[
    libc::SYS_fchmodat,
    libc::SYS_fchownat,
    libc::SYS_mknodat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    FCHMODAT2,
    SETXATTRAT,
    REMOVEXATTRAT,
];

/// Calls that only the older numbering of x86-64 has.
#[cfg(target_arch = "x86_64")]
const OLD: &[c_long] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_uselib,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_kexec_file_load,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[c_long] = &[];

/// As [`FILES`], in that numbering.
#[cfg(target_arch = "x86_64")]
const OLD_FILES: &[c_long] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_mknod,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_FILES: &[c_long] = &[];

/// Makes or connects sockets. Those that are connected, as the one to the system's log, go on working.
const NETWORK: &[c_long] = &[
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    // Their address is in memory, which the filter cannot see.
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
];

/// Numbers that all architectures share, and the C libraries' headers do not have yet.
const FCHMODAT2: c_long = 452;
const SETXATTRAT: c_long = 463;
const REMOVEXATTRAT: c_long = 466;
const OPEN_TREE_ATTR: c_long = 467;
/// The newest call that was considered here (Linux 6.15).
const NEWEST: u32 = 467;

/// Refuses the calls from now on, on all threads. `rings`: no ring of io_uring can be made.
///
/// # Errors
/// The reason why the system does not.
pub(crate) fn refuse(policy: &Policy, rings: bool) -> Result<(), String> {
    let text = |error: seccompiler::Error| error.to_string();
    let filter = filter(policy, rings).map_err(|error| error.to_string())?;
    let filter: BpfProgram = filter
        .try_into()
        .map_err(|error: seccompiler::BackendError| error.to_string())?;
    apply_filter_all_threads(&filter).map_err(text)?;
    apply_filter_all_threads(&unknown()).map_err(text)
}

fn filter(policy: &Policy, rings: bool) -> Result<SeccompFilter, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let mut always = vec![PROGRAMS, OTHER_PROCESSES, MOUNTS, KERNEL, OLD];
    if policy.files.is_some() {
        always.extend([FILES, OLD_FILES]);
    }
    if policy.network == Network::Closed {
        always.push(NETWORK);
    }
    if rings {
        always.push(&[libc::SYS_io_uring_setup]);
    }
    rules.extend(always.into_iter().flatten().map(|call| (*call, Vec::new())));
    // Only threads, no processes, and so no namespaces either.
    let no_thread = SeccompCmpOp::MaskedEq(bits(libc::CLONE_THREAD));
    rules.insert(libc::SYS_clone, when(0, Dword, no_thread, 0)?);
    // Signals only to this process.
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, when(0, Dword, SeccompCmpOp::Ne, own)?);
    rules.insert(libc::SYS_kill, signals(policy, own)?);
    if policy.network == Network::Local {
        let local = bits(libc::AF_UNIX);
        rules.insert(libc::SYS_socket, when(0, Dword, SeccompCmpOp::Ne, local)?);
    }
    if policy.network == Network::Closed {
        // Sockets of datagrams, connected or not, could send to any address.
        rules.insert(libc::SYS_sendto, when(4, Qword, SeccompCmpOp::Ne, 0)?);
        // No new code. The C library would load modules that resolve names.
        let runs = bits(libc::PROT_EXEC);
        for call in [libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_pkey_mprotect] {
            rules.insert(call, when(2, Dword, SeccompCmpOp::MaskedEq(runs), runs)?);
        }
    }
    SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(bits(libc::EPERM) as u32),
        TargetArch::try_from(std::env::consts::ARCH)?,
    )
}

/// Rules that refuse `kill` for other processes than this one.
fn signals(policy: &Policy, own: u64) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    if !policy.suspend {
        return when(0, Dword, SeccompCmpOp::Ne, own);
    }
    // Process 0 is the group of the caller.
    let of_group = SeccompCondition::new(0, Dword, SeccompCmpOp::Eq, 0)?;
    let of_one = SeccompCondition::new(0, Dword, SeccompCmpOp::Ne, 0)?;
    let of_other = SeccompCondition::new(0, Dword, SeccompCmpOp::Ne, own)?;
    let stop = bits(libc::SIGTSTP);
    let is_other_signal = SeccompCondition::new(1, Dword, SeccompCmpOp::Ne, stop)?;
    Ok(vec![
        SeccompRule::new(vec![of_one, of_other])?,
        SeccompRule::new(vec![of_group, is_other_signal])?,
    ])
}

/// Rules that refuse a call on one condition on an argument, of which the kernel reads so many bits.
fn when(
    argument: u8,
    bits: SeccompCmpArgLen,
    compare: SeccompCmpOp,
    value: u64,
) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let condition = SeccompCondition::new(argument, bits, compare, value)?;
    Ok(vec![SeccompRule::new(vec![condition])?])
}

fn bits(value: c_int) -> u64 {
    u64::from(value.cast_unsigned())
}

/// A filter that answers `ENOSYS` to `clone3`, and to calls that are newer than [`NEWEST`], among which are
/// those of x32, whose numbers begin at 1 << 30.
fn unknown() -> BpfProgram {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const IF_GREATER: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        // The number of the call is first in `struct seccomp_data`.
        step(LOAD, 0, 0, 0),
        step(IF_EQUAL, 1, 0, libc::SYS_clone3 as u32),
        step(IF_GREATER, 0, 1, NEWEST),
        step(
            RETURN,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | bits(libc::ENOSYS) as u32,
        ),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}
