//! The verdict on every call, of both policies, for both kinds of machines: the filters are run here.

use std::collections::BTreeMap;

use super::*;
use crate::Network;

/// What a filter says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Allowed,
    NotPermitted,
    NoSuchCall,
    Killed,
}

/// The `arch` of `struct seccomp_data`, as in `linux/audit.h`.
const X86_64_CALLS: u32 = 0xc000_003e;
const AARCH64_CALLS: u32 = 0xc000_00b7;
const I386_CALLS: u32 = 0x4000_0003;
/// Bit 30 of a call's number.
const X32: u32 = 1 << 30;

const OWN: u32 = 4711;

/// Runs a filter as the kernel does: the instructions that filters here have.
fn run(program: &BpfProgram, arch: u32, call: u32, arguments: [u64; 6]) -> Verdict {
    let mut data = Vec::new();
    data.extend(call.to_le_bytes());
    data.extend(arch.to_le_bytes());
    data.extend(0_u64.to_le_bytes());
    data.extend(arguments.into_iter().flat_map(u64::to_le_bytes));
    let (mut at, mut accumulator) = (0, 0_u32);
    loop {
        let step = &program[at];
        let skipped = |holds: bool| usize::from(if holds { step.jt } else { step.jf });
        at += 1;
        match step.code {
            0x20 => {
                let word = &data[step.k as usize..][..4];
                accumulator = u32::from_le_bytes(word.try_into().unwrap());
            }
            0x54 => accumulator &= step.k,
            0x05 => at += step.k as usize,
            0x15 => at += skipped(accumulator == step.k),
            0x25 => at += skipped(accumulator > step.k),
            0x35 => at += skipped(accumulator >= step.k),
            0x06 => {
                return match step.k {
                    libc::SECCOMP_RET_ALLOW => Verdict::Allowed,
                    libc::SECCOMP_RET_KILL_PROCESS => Verdict::Killed,
                    refused if refused == libc::SECCOMP_RET_ERRNO | bits(libc::EPERM) => {
                        Verdict::NotPermitted
                    }
                    refused if refused == libc::SECCOMP_RET_ERRNO | bits(libc::ENOSYS) => {
                        Verdict::NoSuchCall
                    }
                    other => panic!("{other:x}"),
                };
            }
            other => panic!("an instruction {other:x}"),
        }
    }
}

struct Filtered {
    program: BpfProgram,
    arch: u32,
    number: fn(&str) -> Option<i32>,
}

impl Filtered {
    fn new(machine: &Machine, policy: &Policy, rings: bool) -> Filtered {
        Filtered {
            program: program(machine, policy, rings, OWN).unwrap(),
            arch: match machine.target {
                TargetArch::aarch64 => AARCH64_CALLS,
                _ => X86_64_CALLS,
            },
            number: machine.number,
        }
    }

    fn of(&self, name: &str, arguments: &[u64]) -> Verdict {
        let number = (self.number)(name).unwrap_or_else(|| panic!("no call is named {name}"));
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        run(&self.program, self.arch, number.cast_unsigned(), all)
    }
}

fn open(policy: Policy) -> Policy {
    Policy {
        network: Network::Open,
        ..policy
    }
}

/// Both policies, without and with the network, on both machines.
fn all() -> Vec<(String, Machine, Policy)> {
    let mut all = Vec::new();
    for (name, policy) in [("server", Policy::server()), ("command", Policy::command())] {
        for (rights, policy) in [("closed", policy.clone()), ("open", open(policy))] {
            for machine in [X86_64, AARCH64] {
                all.push((format!("{name}, {rights}"), machine, policy.clone()));
            }
        }
    }
    all
}

/// A call that its list has without conditions is allowed, whatever its arguments are; one that it does not
/// have is refused; and there is nothing else.
#[test]
fn every_number_has_the_verdict_of_its_list() {
    for (name, machine, policy) in all() {
        let filter = Filtered::new(&machine, &policy, true);
        let text = match policy.role {
            Role::Server => machine.server,
            Role::Command => machine.command,
        };
        // Read a second time, in another way.
        let mut listed: BTreeMap<i32, bool> = BTreeMap::new();
        let mut is_ours = true;
        for line in text.lines().map(str::trim) {
            match line.as_bytes() {
                [] | [b'#', ..] => {}
                [b'[', ..] => is_ours = line == "[network]" && policy.network == Network::Open,
                _ if is_ours => {
                    let call = line.split(':').next().unwrap();
                    let always = !line.contains(':');
                    *listed.entry((machine.number)(call).unwrap()).or_default() |= always;
                }
                _ => {}
            }
        }
        let clone3 = (machine.number)("clone3").unwrap();
        for call in (0..=1024).chain([i32::MAX, -1]) {
            for arguments in [[0; 6], [u64::MAX; 6]] {
                let verdict = run(
                    &filter.program,
                    filter.arch,
                    call.cast_unsigned(),
                    arguments,
                );
                let expected = match listed.get(&call) {
                    Some(true) => Verdict::Allowed,
                    // Another test has the conditions.
                    Some(false) if verdict == Verdict::Allowed => Verdict::Allowed,
                    _ if call == clone3 || call.cast_unsigned() > NEWEST => Verdict::NoSuchCall,
                    _ => Verdict::NotPermitted,
                };
                assert_eq!(verdict, expected, "{name}: {call} {arguments:?}");
            }
        }
        for call in 0..=1024 {
            let x32 = run(&filter.program, filter.arch, call | X32, [0; 6]);
            assert_eq!(x32, Verdict::NoSuchCall, "{name}: {call} of x32");
            let i386 = run(&filter.program, I386_CALLS, call, [0; 6]);
            assert!(i386 > Verdict::Allowed, "{name}: {call} of i386");
        }
    }
}

/// What an attacker has use for, whatever the arguments: of another machine, in no list.
#[test]
fn what_reaches_beyond_the_process_is_in_no_list() {
    let never = "execve execveat ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_open \
         pidfd_getfd pidfd_send_signal tkill rt_sigqueueinfo rt_tgsigqueueinfo mount umount2 pivot_root \
         chroot move_mount open_tree fsopen fsconfig fsmount fspick mount_setattr open_tree_attr unshare \
         setns bpf perf_event_open userfaultfd fanotify_init add_key request_key keyctl init_module \
         finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff acct quotactl \
         quotactl_fd syslog vhangup personality settimeofday clock_settime clock_adjtime adjtimex \
         sethostname setdomainname shmat shmget shmctl open_by_handle_at name_to_handle_at setpriority \
         ioprio_set msgget msgsnd msgrcv semget semop mq_open listen accept accept4 setuid setgid setresuid \
         setgroups setrlimit seccomp landlock_restrict_self memfd_secret process_mrelease migrate_pages \
         move_pages set_mempolicy setsid setpgid capset nfsservctl timer_create io_setup io_submit";
    let old = "fork vfork uselib iopl ioperm modify_ldt arch_prctl _sysctl alarm create_module";
    for (name, machine, policy) in all() {
        let filter = Filtered::new(&machine, &policy, true);
        let old = old
            .split_whitespace()
            .filter(|_| filter.arch == X86_64_CALLS);
        for call in never.split_whitespace().chain(old) {
            for arguments in [[0; 6], [OWN.into(); 6], [u64::MAX; 6]] {
                assert_eq!(
                    filter.of(call, &arguments),
                    Verdict::NotPermitted,
                    "{name}: {call}"
                );
            }
        }
        assert_eq!(
            filter.of("io_uring_setup", &[]),
            Verdict::NotPermitted,
            "{name}"
        );
        let rings = Filtered::new(&machine, &policy, false);
        assert_eq!(rings.of("io_uring_setup", &[]), Verdict::Allowed, "{name}");
    }
    for machine in [X86_64, AARCH64] {
        let server = Filtered::new(&machine, &Policy::server(), true);
        for call in "fchmodat fchownat mknodat setxattr lsetxattr removexattr lremovexattr fchmodat2 \
             setxattrat removexattrat utimensat mkdirat unlinkat renameat2 linkat symlinkat truncate \
             socket connect bind sendmsg sendmmsg"
            .split_whitespace()
        {
            assert_eq!(server.of(call, &[]), Verdict::NotPermitted, "{call}");
        }
        // It reads the image's files of a cache, and changes no others.
        let remote = Filtered::new(&machine, &open(Policy::server()), true);
        assert_eq!(remote.of("fchmodat", &[]), Verdict::NotPermitted);
    }
}

/// Calls with conditions: arguments that are allowed, and others.
#[test]
fn arguments_decide() {
    const ALLOWED: bool = true;
    const REFUSED: bool = false;
    let own = u64::from(OWN);
    let other = own + 1;
    let thread = 0x3d_0f00;
    // The kernel reads 32 bits of the number of a process: 2^32 more is the same one.
    let same = own | 1 << 32;
    let cases: &[(&str, &[u64], bool)] = &[
        ("clone", &[thread], ALLOWED),
        ("clone", &[17], REFUSED),
        ("clone", &[0x1000_0000 | 17], REFUSED),
        ("kill", &[own, 15], ALLOWED),
        ("kill", &[same, 15], ALLOWED),
        ("kill", &[other, 0], REFUSED),
        ("kill", &[0, 15], REFUSED),
        ("kill", &[u64::MAX, 15], REFUSED),
        ("tgkill", &[own, other, 6], ALLOWED),
        ("tgkill", &[other, other, 6], REFUSED),
        ("mmap", &[0, 4096, 3], ALLOWED),
        ("mmap", &[0, 4096, 5], REFUSED),
        ("mprotect", &[0, 4096, 1], ALLOWED),
        ("mprotect", &[0, 4096, 4], REFUSED),
        ("sendto", &[3, 0, 0, 0, 0], ALLOWED),
        ("sendto", &[3, 0, 0, 0, 1 << 32], REFUSED),
        // F_GETFL, F_SETOWN, F_SETSIG, F_NOTIFY, F_SETOWN_EX
        ("fcntl", &[3, 3], ALLOWED),
        ("fcntl", &[3, 8, other], REFUSED),
        ("fcntl", &[3, 10, 9], REFUSED),
        ("fcntl", &[3, 1026], REFUSED),
        ("fcntl", &[3, 15], REFUSED),
        // TCGETS, TIOCSTI, TIOCLINUX, FIOSETOWN, FIOASYNC, TIOCSPGRP, TIOCSCTTY, TIOCSETD
        ("ioctl", &[3, 0x5401], ALLOWED),
        ("ioctl", &[3, 0x5412], REFUSED),
        ("ioctl", &[3, 0x541c], REFUSED),
        ("ioctl", &[3, 0x8901], REFUSED),
        ("ioctl", &[3, 0x5452], REFUSED),
        ("ioctl", &[3, 0x5410], REFUSED),
        ("ioctl", &[3, 0x540e], REFUSED),
        ("ioctl", &[3, 0x5423], REFUSED),
        // PR_SET_NAME, PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_MM, PR_SET_PTRACER
        ("prctl", &[15, 0], ALLOWED),
        ("prctl", &[1, 9], REFUSED),
        ("prctl", &[4, 1], REFUSED),
        ("prctl", &[35, 1], REFUSED),
        ("prctl", &[0x5961_6d61, 1], REFUSED),
        // To read limits of this process.
        ("prlimit64", &[0, 7, 0, 1 << 32], ALLOWED),
        ("prlimit64", &[own, 7, 0, 1], ALLOWED),
        ("prlimit64", &[0, 7, 1 << 32, 0], REFUSED),
        ("prlimit64", &[other, 7, 0, 1], REFUSED),
        // SCHED_OTHER, SCHED_FIFO, SCHED_IDLE
        ("sched_setscheduler", &[0, 5], ALLOWED),
        ("sched_setscheduler", &[other, 0], ALLOWED),
        ("sched_setscheduler", &[other, 1], REFUSED),
        ("sched_setscheduler", &[other, 5], REFUSED),
        ("sched_setaffinity", &[0], ALLOWED),
        ("sched_setaffinity", &[other], REFUSED),
        ("sched_setattr", &[0], ALLOWED),
        ("sched_setattr", &[other], REFUSED),
    ];
    for (name, machine, policy) in all() {
        let filter = Filtered::new(&machine, &policy, true);
        for (call, arguments, allowed) in cases {
            // With the network, modules of the C library are loaded.
            if policy.network == Network::Open && ["mmap", "mprotect", "sendto"].contains(call) {
                continue;
            }
            let expected = match allowed {
                true => Verdict::Allowed,
                false => Verdict::NotPermitted,
            };
            assert_eq!(
                filter.of(call, arguments),
                expected,
                "{name}: {call} {arguments:?}"
            );
        }
        let is_open = policy.network == Network::Open;
        for (family, allowed) in [
            (1, false),
            (2, is_open),
            (10, is_open),
            (16, is_open),
            (40, false),
        ] {
            let verdict = filter.of("socket", &[family]);
            assert_eq!(
                verdict == Verdict::Allowed,
                allowed,
                "{name}: family {family}"
            );
        }
        // Ctrl-Z in a line editor.
        let suspends = filter.of("kill", &[0, 20]) == Verdict::Allowed;
        assert_eq!(suspends, policy.role == Role::Command, "{name}");
    }
}

/// A call that both machines have is in the lists of both or of none, with the same conditions.
#[test]
fn machines_differ_in_names_only() {
    let lines = |text: &'static str| -> Vec<&str> {
        text.lines().filter(|line| !line.starts_with('#')).collect()
    };
    for (x86_64, aarch64) in [
        (X86_64.server, AARCH64.server),
        (X86_64.command, AARCH64.command),
    ] {
        let is_known = |machine: &Machine, line: &&&str| {
            let call = line.split(':').next().unwrap();
            line.is_empty() || line.starts_with('[') || (machine.number)(call).is_some()
        };
        let (x86_64, aarch64) = (lines(x86_64), lines(aarch64));
        let both: Vec<_> = x86_64
            .iter()
            .filter(|line| is_known(&AARCH64, line))
            .collect();
        let other: Vec<_> = aarch64
            .iter()
            .filter(|line| is_known(&X86_64, line))
            .collect();
        assert_eq!(both, other);
    }
}
