//! The user's commands: run by `sh -c`, in a process group of their own, without a terminal, with a time
//! limit.
//!
//! Invariants:
//! - No command outlives [`Shell::run`], however it returns: after a timeout, Ctrl-C or a panic, SIGTERM is
//!   sent to the whole group, then SIGKILL after [`GRACE`]. If this program is killed by SIGKILL, the next
//!   run ends what is left ([`end_leftovers`]).
//! - Output of a command goes to files, not pipes, so a background process cannot block the lab.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::kernel::named;
use crate::{Error, Result};

/// How long a group may take to clean up after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);
/// Interval for polling, while a command runs, whether the user wants to stop.
const LOOK: Duration = Duration::from_millis(100);
/// Length of the end of the output that is read.
const TAIL_BYTES: u64 = 16 << 10;
/// Number of its lines shown in a message.
const TAIL_LINES: usize = 12;
/// A disk with less room than this counts as full.
const ROOM_BYTES: usize = 1 << 20;

/// The variable that contains the state directory for a command. [`end_leftovers`] recognises processes by
/// it.
pub(crate) const STATE_VARIABLE: &str = "THROUGHLINE_STATE";

/// How a command ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Exit status 0, and the end of its standard output.
    Well(String),
    /// Any other end: its reason, and the last lines of the output.
    Badly(String),
}

/// A command line, with what is needed to run it and to keep its output.
pub(crate) struct Shell<'a> {
    /// The argument of `sh -c`.
    pub(crate) line: &'a str,
    /// Its working directory.
    pub(crate) dir: &'a Path,
    /// Environment variables to set.
    pub(crate) variables: Vec<(&'static str, OsString)>,
    /// Environment variables to remove.
    pub(crate) without: &'a [&'a str],
    /// Its time limit.
    pub(crate) limit: Duration,
    /// A file for all its output, which later runs append to.
    pub(crate) log: &'a Path,
    /// A file for its process group, so that the next run can end it if this one cannot.
    pub(crate) running: &'a Path,
    /// Polled; an error ends the command.
    pub(crate) check: &'a dyn Fn() -> Result<()>,
}

/// A program that has ended, with its output in unnamed files.
pub(crate) struct Finished {
    /// `None` if it exceeded its time limit.
    status: Option<ExitStatus>,
    pub(crate) stdout: File,
    pub(crate) stderr: File,
    pub(crate) took: Duration,
}

impl Finished {
    /// Runs a program with minimal overhead. Its output goes to unnamed files.
    ///
    /// # Errors
    /// If it cannot be run at all, and errors of `check`.
    pub(crate) fn of(
        command: Command,
        dir: &Path,
        limit: Duration,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Finished> {
        let temporary = std::env::temp_dir();
        let output = (unnamed_in(&temporary)?, unnamed_in(&temporary)?);
        Finished::with(command, dir, limit, check, output)
    }

    fn with(
        command: Command,
        dir: &Path,
        limit: Duration,
        check: &dyn Fn() -> Result<()>,
        (stdout, stderr): (File, File),
    ) -> Result<Finished> {
        let began = Instant::now();
        let status = Group::of(command, dir, (&stdout, &stderr))?.wait(limit, check)?;
        Ok(Finished {
            status,
            stdout,
            stderr,
            took: began.elapsed(),
        })
    }

    /// How it failed; `None` if its exit status was 0.
    pub(crate) fn failure(&self, limit: Duration) -> Option<String> {
        let status = self.status.map(|status| (status.code(), status.signal()));
        Some(match status {
            Some((Some(0), _)) => return None,
            Some((Some(code), _)) => format!("ended with {code}"),
            Some((None, Some(signal))) => format!("ended by signal {signal}"),
            Some((None, None)) => "ended badly".to_owned(),
            None => format!("did not end within {} s", limit.as_secs()),
        })
    }
}

fn unnamed_in(folder: &Path) -> Result<File> {
    tempfile::tempfile_in(folder)
        .map_err(|e| Error::new(format!("cannot write in {}: {e}", folder.display())))
}

/// Runs a command line. The second value is its duration.
///
/// # Errors
/// As for [`Shell::run`].
pub(crate) fn timed(
    line: &str,
    dir: &Path,
    limit: Duration,
    check: &dyn Fn() -> Result<()>,
) -> Result<(Ended, Duration)> {
    let mut command = named("sh");
    command.args(["-c", line]);
    let mut finished = Finished::of(command, dir, limit, check)?;
    let ended = match finished.failure(limit) {
        None => Ended::Well(tail(&mut finished.stdout)?),
        Some(how) => {
            check_room(&std::env::temp_dir(), line, &how)?;
            let printed = tail(&mut finished.stdout)? + &tail(&mut finished.stderr)?;
            Ended::Badly(format!("{how}{}", shown(&printed)))
        }
    };
    Ok((ended, finished.took))
}

impl Shell<'_> {
    /// Runs it to its end or its time limit.
    ///
    /// # Errors
    /// If it cannot be run at all, and errors of `check`.
    pub(crate) fn run(&self) -> Result<Ended> {
        let of_log = |e| Error::new(format!("cannot write {}: {e}", self.log.display()));
        let mut log = OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.log)
            .map_err(of_log)?;
        writeln!(log, "$ {}", self.line).map_err(of_log)?;
        let folder = self.running.parent().unwrap_or(self.dir);
        let output = (unnamed_in(folder)?, log.try_clone()?);
        let finished = Finished::with(self.command(), self.dir, self.limit, self.check, output);
        let mut finished = finished?;
        let text = tail(&mut finished.stdout)?;
        log.write_all(text.as_bytes()).map_err(of_log)?;
        let Some(how) = finished.failure(self.limit) else {
            writeln!(log, "[ended well after {:.1?}]", finished.took).map_err(of_log)?;
            return Ok(Ended::Well(text));
        };
        writeln!(log, "[{how}]").map_err(of_log)?;
        for disk in [folder, &std::env::temp_dir()] {
            check_room(disk, self.line, &how)?;
        }
        let mut log = File::open(self.log).map_err(of_log)?;
        Ok(Ended::Badly(format!("{how}{}", shown(&tail(&mut log)?))))
    }

    fn command(&self) -> Command {
        let mut command = named("sh");
        // The outer shell records its process group before the command runs.
        command
            .args(["-c", "echo $$ >\"$1\"; exec sh -c \"$2\"", "sh"])
            .arg(self.running)
            .arg(self.line);
        for variable in self.without {
            command.env_remove(variable);
        }
        for (name, value) in &self.variables {
            command.env(name, value);
        }
        command
    }
}

/// An error if a disk is full, because the command's failure is then not a property of the commit.
fn check_room(folder: &Path, line: &str, how: &str) -> Result<()> {
    let wrote =
        tempfile::tempfile_in(folder).and_then(|mut file| file.write_all(&vec![0; ROOM_BYTES]));
    match wrote {
        Err(e) if matches!(e.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
            Err(Error::new(format!(
                "the disk of {} is full, and '{line}' {how}: free some space there; the same command then \
                 continues",
                folder.display()
            )))
        }
        _ => Ok(()),
    }
}

/// The last lines of a text, each indented, for a message.
pub(crate) fn shown(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(TAIL_LINES);
    lines[from..].iter().fold(String::new(), |mut out, line| {
        out.push_str("\n    ");
        // A command's output must not send control characters to the terminal.
        out.extend(line.chars().filter(|c| !c.is_control() || *c == '\t'));
        out
    })
}

/// The number printed as the last line of a measurement. It must be above 0, because ratios to it are
/// computed.
pub(crate) fn figure(text: &str) -> std::result::Result<f64, String> {
    let last = text
        .lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty());
    let Some(last) = last else {
        return Err("the measurement printed nothing: its last line must be a number".to_owned());
    };
    match last.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        Ok(_) => Err(format!(
            "the measurement's last line must be a number above 0, and was:{}",
            shown(last)
        )),
        Err(_) => Err(format!(
            "the measurement's last line must be a number alone; it printed:{}",
            shown(text)
        )),
    }
}

/// The end of a file, as text.
pub(crate) fn tail(file: &mut File) -> Result<String> {
    let len = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(len.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A running command, with everything it started in its group.
struct Group {
    child: Child,
    ended: bool,
}

impl Group {
    /// Starts a command in its own group, without a terminal.
    fn of(mut command: Command, dir: &Path, (stdout, stderr): (&File, &File)) -> Result<Group> {
        command
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(stdout.try_clone()?)
            .stderr(stderr.try_clone()?)
            .process_group(0);
        let child = command.spawn().map_err(|e| {
            let program = command.get_program().to_string_lossy();
            Error::new(format!("cannot run {program} in {}: {e}", dir.display()))
        })?;
        Ok(Group {
            child,
            ended: false,
        })
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Waits for the end. Returns `None` if the command exceeded `limit` and was ended.
    fn wait(
        &mut self,
        limit: Duration,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Option<ExitStatus>> {
        let until = Instant::now() + limit;
        loop {
            check()?;
            let left = until.saturating_duration_since(Instant::now());
            self.rest(left.min(LOOK));
            if let Some(status) = self.child.try_wait()? {
                self.ended = true;
                return Ok(Some(status));
            }
            if left.is_zero() {
                self.end();
                return Ok(None);
            }
        }
    }

    /// Waits until the command has exited, without reaping it, or until the time is up.
    fn rest(&self, long: Duration) {
        let watched = self
            .pid()
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let (Some(watched), Ok(time)) = (watched, Timespec::try_from(long)) else {
            // A kernel or sandbox without pidfd_open.
            std::thread::sleep(long.min(Duration::from_millis(5)));
            return;
        };
        // If a signal interrupts this, the caller checks again.
        let _ = poll(&mut [PollFd::new(&watched, PollFlags::IN)], Some(&time));
    }

    /// Ends the whole group: sends SIGTERM, waits, sends SIGKILL.
    fn end(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        if let Some(pid) = self.pid() {
            // The process is not reaped yet, so its ID and that of its group have not been reused.
            let _ = kill_process_group(pid, Signal::TERM);
            self.rest(GRACE);
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

/// Ends what a killed run left running: the group recorded in `running`, if its first process was started
/// with this `state`. The ID alone may have been reused.
pub(crate) fn end_leftovers(running: &Path, state: &Path) {
    let noted = fs::read_to_string(running).unwrap_or_default();
    if let Some(pid) = noted.trim().parse().ok().and_then(Pid::from_raw) {
        let mut variable = format!("{STATE_VARIABLE}=").into_bytes();
        variable.extend_from_slice(state.as_os_str().as_encoded_bytes());
        let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()));
        let environment = environment.unwrap_or_default();
        if environment
            .split(|byte| *byte == 0)
            .any(|one| one == variable)
        {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
    let _ = fs::remove_file(running);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_figure() {
        assert_eq!(figure("134.5"), Ok(134.5));
        assert_eq!(figure("speed:\n 1.3e2 \n\n"), Ok(130.0));
        for text in ["", "\n", "134 MB/s", "0", "-3", "NaN", "inf", "12\ndone"] {
            assert!(figure(text).is_err(), "{text:?}");
        }
        let rubbish = figure("\x1b[31mall is well").expect_err("no number");
        assert!(
            rubbish.contains("all is well") && !rubbish.contains('\x1b'),
            "{rubbish}"
        );
    }

    #[test]
    fn a_command_is_timed_and_its_failure_is_reported() {
        let limit = Duration::from_secs(60);
        let run = |line, limit| timed(line, Path::new("."), limit, &|| Ok(())).expect("run");
        let (ended, took) = run("sleep 0.02; echo 7", limit);
        assert!(matches!(ended, Ended::Well(text) if text == "7\n"));
        assert!(took >= Duration::from_millis(20), "{took:?}");
        let (ended, _) = run("echo before; echo why >&2; exit 3", limit);
        let Ended::Badly(how) = ended else {
            panic!("{ended:?}")
        };
        assert_eq!(how, "ended with 3\n    before\n    why");
        let (ended, _) = run("sleep 100 & wait", Duration::from_millis(50));
        assert!(matches!(ended, Ended::Badly(how) if how.starts_with("did not end within")));
        let stopped = timed("sleep 100", Path::new("."), limit, &|| {
            Err(Error::new("enough"))
        });
        assert_eq!(stopped.expect_err("stopped").to_string(), "enough");
    }
}
