//! Runs external programs with a time limit. A program that exceeds it is killed with everything it started,
//! and the test fails.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Interval between checks of a process.
const POLL: Duration = Duration::from_millis(2);

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

/// The path of a program, if it is installed.
pub fn find(program: &str) -> Option<PathBuf> {
    search_path()
        .split(':')
        .map(|dir| PathBuf::from(dir).join(program))
        .find(|file| file.is_file())
}

/// Whether all of these programs are installed; if not, prints that something is skipped to standard error.
pub fn has(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| find(program).is_none());
    if let Some(program) = missing {
        throughline_testkit::missing!("{program} is not installed");
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
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() > until => return None,
            Ok(None) => sleep(POLL),
            Err(e) => panic!("waiting for process {}: {e}", child.id()),
        }
    }
}

/// Kills the process group of a process that leads one, and waits for the process.
pub fn kill_group(child: &mut Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may have exited already.
        let _ = kill_process_group(pid, Signal::KILL);
    }
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
