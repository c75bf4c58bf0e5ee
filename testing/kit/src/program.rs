//! Runs external programs with a time limit. A program that exceeds it is killed with everything it started,
//! and the test fails.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// Result of a program.
#[derive(Debug)]
pub struct Ran {
    /// Exit status.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Ran {
    /// The exit code; -1 if a signal ended the program.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    /// Standard output, then standard error.
    pub fn text(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// Fails the test unless the program exited with 0.
    ///
    /// # Panics
    /// If it did not, with its output.
    #[track_caller]
    pub fn good(self, what: &str) -> Ran {
        let Ran {
            status,
            stdout,
            stderr,
        } = &self;
        assert!(status.success(), "{what}: {status}\n{stdout}\n{stderr}");
        self
    }
}

/// The search path for programs: `PATH` and the system administration directories.
pub fn search_path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/sbin:/sbin")
}

/// The path of a program, if it is installed. As in a shell, a name with a slash is not searched for.
pub fn find(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program));
    }
    search_path()
        .split(':')
        .map(|dir| PathBuf::from(dir).join(program))
        .find(|file| file.is_file())
}

/// A command for a program that is found in [`search_path`].
///
/// It has the program's full path, because the standard library starts a program with another `PATH` than
/// ours by fork(2) if it must search for it. That copies the page tables of the test process: milliseconds
/// for each program, where a test has hundreds of megabytes.
pub fn command(program: &str) -> Command {
    let path = find(program).unwrap_or_else(|| program.into());
    let mut command = Command::new(path);
    command.env("PATH", search_path());
    command
}

/// Whether all of these programs are installed; if not, prints that something is skipped to standard error.
pub fn has(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| find(program).is_none());
    if let Some(program) = missing {
        crate::missing!("{program} is not installed");
    }
    missing.is_none()
}

/// Runs a program to its end, in its own process group, with empty standard input and in the C locale.
///
/// # Panics
/// If it cannot be started or does not exit within `limit`: then its process group is killed.
#[track_caller]
pub fn run(command: &mut Command, limit: Duration) -> Ran {
    run_on(command, Stdio::null(), limit)
}

/// As [`run`], with the given standard input.
///
/// # Panics
/// As [`run`].
#[track_caller]
pub fn run_on(command: &mut Command, stdin: Stdio, limit: Duration) -> Ran {
    let (mut stdout, mut stderr) = (scratch(), scratch());
    let handle = |file: &File| Stdio::from(file.try_clone().expect("a second handle"));
    let mut child = command
        .env("PATH", search_path())
        .env("LC_ALL", "C")
        .stdin(stdin)
        .stdout(handle(&stdout))
        .stderr(handle(&stderr))
        .process_group(0)
        .spawn()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let status = wait(&mut child, limit);
    if status.is_none() {
        kill_group(&mut child);
    }
    let (stdout, stderr) = (text(&mut stdout), text(&mut stderr));
    let Some(status) = status else {
        panic!("{command:?} has not ended in {limit:?}:\n{stdout}\n{stderr}");
    };
    Ran {
        status,
        stdout,
        stderr,
    }
}

/// Waits for a process for at most `limit`. Returns its exit status, if it exited.
///
/// # Panics
/// If waiting fails.
pub fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let until = Instant::now() + limit;
    let id = child.id();
    let mut ended = move || {
        let status = child.try_wait();
        status.unwrap_or_else(|e| panic!("waiting for process {id}: {e}"))
    };
    if let Some(status) = ended() {
        return Some(status);
    }
    // Not reaped, so the number still names this process.
    let fd = pidfd_open(pid(id), PidfdFlags::empty());
    let fd = fd.unwrap_or_else(|e| panic!("a file descriptor of process {id}: {e}"));
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left_or_max = Timespec::try_from(left).unwrap_or(Timespec {
            tv_sec: i64::from(i32::MAX),
            tv_nsec: 0,
        });
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&left_or_max)) {
            Ok(0) if left.is_zero() => return None,
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return ended(),
            Err(e) => panic!("waiting for process {id}: {e}"),
        }
    }
}

fn pid(id: u32) -> Pid {
    let id = i32::try_from(id).ok().and_then(Pid::from_raw);
    id.expect("the number of a process")
}

/// Kills the process group of a process that leads one, and waits for the process.
pub fn kill_group(child: &mut Child) {
    // It may have exited already.
    let _ = kill_process_group(pid(child.id()), Signal::KILL);
    let _ = child.wait();
}

fn scratch() -> File {
    tempfile::tempfile().expect("a place for temporary files")
}

/// Contents of a file shared with another process.
fn text(file: &mut File) -> String {
    use std::io::Seek;
    let mut bytes = Vec::new();
    file.rewind()
        .and_then(|()| file.read_to_end(&mut bytes))
        .expect("what the program wrote");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_runs_to_its_end() {
        let limit = Duration::from_secs(60);
        let ran = run(&mut sh("cat; echo out; echo err >&2; exit 3"), limit);
        assert_eq!((ran.code(), ran.text()), (3, "out\nerr\n".into()));
        assert!(std::panic::catch_unwind(|| ran.good("it")).is_err());
        let mut input = scratch();
        std::io::Write::write_all(&mut input, b"in").expect("written");
        std::io::Seek::rewind(&mut input).expect("at the start");
        assert_eq!(run_on(&mut sh("cat"), input.into(), limit).stdout, "in");
    }

    #[test]
    fn a_program_that_exceeds_its_limit_is_killed_with_its_children() {
        let mut child = sh("sleep 1000 & echo $!; wait")
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("sh");
        let mut out = child.stdout.take().expect("a pipe");
        let mut first = [0; 1];
        out.read_exact(&mut first).expect("the child's number");
        assert_eq!(wait(&mut child, Duration::ZERO), None);
        kill_group(&mut child);
        assert!(!wait(&mut child, Duration::ZERO).expect("ended").success());
        // The pipe ends when the child has ended too.
        out.read_to_end(&mut Vec::new()).expect("the end");
        let slow = || run(&mut sh("sleep 1000"), Duration::from_millis(1));
        assert!(std::panic::catch_unwind(slow).is_err());
    }

    #[test]
    fn programs_are_found_by_name() {
        assert!(find("sh").is_some_and(|path| path.is_file()));
        assert_eq!(find("no such program"), None);
    }
}
