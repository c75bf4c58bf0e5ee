//! Programs that nobody here wrote, run with an end: one that outlives its time is killed with all it started, and the test
//! fails.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// How long a look at a process waits before the next.
const POLL: Duration = Duration::from_millis(2);

/// What a program left behind.
#[derive(Debug)]
pub struct Ran {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
}

impl Ran {
    /// Fails the test unless the program ended with 0.
    ///
    /// # Panics
    /// With all that the program said.
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

/// Where programs are looked for: `PATH`, and where system administration keeps its own.
pub fn search_path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/sbin:/sbin")
}

/// The file of a program, if it is installed.
pub fn find(program: &str) -> Option<PathBuf> {
    search_path()
        .split(':')
        .map(|dir| PathBuf::from(dir).join(program))
        .find(|file| file.is_file())
}

/// Whether all of these programs are installed; says on standard error that something is skipped where one is not.
pub fn has(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| find(program).is_none());
    if let Some(program) = missing {
        eprintln!("skipped: {program} is not installed");
    }
    missing.is_none()
}

/// Runs a program to its end, in a process group of its own, with nothing to read and plain messages.
///
/// # Panics
/// Where it cannot be started, and where it has not ended within `limit`: it and what it started is killed then.
#[track_caller]
pub fn run(command: &mut Command, limit: Duration) -> Ran {
    run_on(command, Stdio::null(), limit)
}

/// As [`run`], with this as its standard input.
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

/// The end of a process, if it comes within `limit`.
///
/// # Panics
/// Where the process cannot be waited for.
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

/// Kills a process that has a group of its own, with its group, and waits for its end.
pub fn kill_group(child: &mut Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended by now.
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let _ = child.wait();
}

fn scratch() -> File {
    tempfile::tempfile().expect("a place for temporary files")
}

/// What was written to a file that another process shares with us.
fn text(file: &mut File) -> String {
    use std::io::Seek;
    let mut bytes = Vec::new();
    file.rewind()
        .and_then(|()| file.read_to_end(&mut bytes))
        .expect("what the program wrote");
    String::from_utf8_lossy(&bytes).into_owned()
}
