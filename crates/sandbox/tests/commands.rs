//! The sandbox of commands: which signals they can send. Ctrl-Z in a line editor suspends the process group.
//!
//! The command is this test program, started again.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpid, getppid};
use throughline_sandbox::{Policy, enter};

/// With this environment variable, this program acts as the command.
const COMMAND: &str = "THROUGHLINE_SANDBOXED_COMMAND";
const TEST: &str = "a_command_suspends_its_group_and_sends_no_other_signals";
/// Exit code of a command that found no seccomp.
const NO_SECCOMP: i32 = 42;

/// What the command does in the sandbox.
fn command() {
    if !enter(&Policy::command()).calls {
        std::process::exit(NO_SECCOMP);
    }
    let group = Pid::from_raw(0);
    kill(group, Signal::SIGTSTP).expect("suspends the group");
    kill(getpid(), None).expect("asks for itself");
    for (whose, id) in [("its group", group), ("its parent", getppid())] {
        let refused = kill(id, Signal::SIGCONT).expect_err(whose);
        assert_eq!(
            io::Error::from(refused).kind(),
            io::ErrorKind::PermissionDenied
        );
    }
}

#[test]
fn a_command_suspends_its_group_and_sends_no_other_signals() {
    if std::env::var_os(COMMAND).is_some() {
        return command();
    }
    let program = std::env::current_exe().expect("a name");
    let mut started = Command::new(program)
        .args(["--exact", TEST, "--nocapture"])
        .env(COMMAND, "1")
        .process_group(0)
        .spawn()
        .expect("a process");
    let id = Pid::from_raw(started.id().cast_signed());
    // It stays to be waited for.
    let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    let state = waitid(Id::Pid(id), flags).expect("a state");
    kill(id, Signal::SIGCONT).expect("it goes on");
    let status = started.wait().expect("its end");
    if status.code() == Some(NO_SECCOMP) {
        return throughline_testkit::missing!("seccomp");
    }
    assert_eq!(state, WaitStatus::Stopped(id, Signal::SIGTSTP));
    assert!(status.success(), "{status}");
}
