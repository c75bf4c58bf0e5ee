//! An image that our server has mounted by FUSE, in a process of its own that can be killed, and unmounted on every way out.
//!
//! ```text
//!  test ── starts ──► its own executable, as the server (serve.rs) ── mounts ──► a temporary directory
//!    └── unmount(), kill9(), or dropped, also by a panic: no mount and no process stay behind
//! ```
//!
//! Everything that waits here has a limit, and a server that does not answer is killed at it: whoever waits for it goes on.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;

use crate::{program, serve};

/// How long a mount may take to answer, and an unmount to be let in.
const ANSWER: Duration = Duration::from_secs(90);
/// How long a server may take to end once it is unmounted: it writes what is left.
const END: Duration = Duration::from_secs(180);
const POLL: Duration = Duration::from_millis(2);
/// The bit of `CAP_SYS_ADMIN` in a set of capabilities.
const SYS_ADMIN: u64 = 1 << 21;

/// Why nothing can be mounted by FUSE here, if it cannot.
pub fn skip_reason() -> Option<String> {
    if let Err(e) = File::options().read(true).write(true).open("/dev/fuse") {
        return Some(format!("/dev/fuse cannot be opened: {e}"));
    }
    if may_mount() || program::find("fusermount3").is_some() {
        return None;
    }
    Some("no right to mount, and no fusermount3".to_owned())
}

/// Whether this process may call `mount(2)` itself.
fn may_mount() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .is_some_and(|set| set & SYS_ADMIN != 0)
}

/// An image that a server of ours has mounted.
///
/// The test's crate declares the server's process with [`mount_server!`](crate::mount_server).
pub struct Mounted {
    point: PathBuf,
    server: Child,
    /// Its end tells the server that the test is gone.
    _life: Option<ChildStdin>,
    /// Whether the server has been waited for, and how it ended.
    ended: Option<ExitStatus>,
    /// Mounts on the directory before ours, and whether ours may be there.
    below: usize,
    attached: bool,
    /// The server's log, and the mount point where we made it.
    scratch: TempDir,
}

impl Mounted {
    /// Whether mounting is possible at all; says on standard error that something is skipped, and why, where it is not.
    pub fn possible() -> bool {
        let reason = skip_reason();
        if let Some(reason) = &reason {
            eprintln!("skipped: {reason}");
        }
        reason.is_none()
    }

    /// Mounts an image on a new directory, with options as after `-o`, separated by commas; none if empty.
    ///
    /// # Panics
    /// Where it cannot, with what the server said.
    #[track_caller]
    pub fn new(image: &Path, options: &str) -> Mounted {
        Mounted::start(image, options)
            .unwrap_or_else(|e| panic!("mounting {} with '{options}': {e}", image.display()))
    }

    /// As [`Mounted::new`], for mounts that may be refused.
    ///
    /// # Errors
    /// How the server ended and what it said.
    pub fn start(image: &Path, options: &str) -> Result<Mounted, String> {
        Mounted::launch(image, None, options)
    }

    /// As [`Mounted::start`], on a directory that is there.
    ///
    /// # Errors
    /// As there.
    pub fn at(image: &Path, point: &Path, options: &str) -> Result<Mounted, String> {
        Mounted::launch(image, Some(point), options)
    }

    fn launch(image: &Path, point: Option<&Path>, options: &str) -> Result<Mounted, String> {
        let told = |e: io::Error| e.to_string();
        let scratch = TempDir::with_prefix("throughline-mounted-").map_err(told)?;
        let point = match point {
            Some(point) => point.canonicalize().map_err(told)?,
            None => {
                let point = scratch.path().canonicalize().map_err(told)?.join("point");
                std::fs::create_dir(&point).map_err(told)?;
                point
            }
        };
        let below = mounts_on(&point);
        let log = File::create(scratch.path().join("log")).map_err(told)?;
        let mut server = serve::command(image, &point, options)
            .env("PATH", program::search_path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            // A signal to the test's group (Ctrl-C, `timeout`) is not for the server, which then takes its mount away itself.
            .process_group(0)
            .spawn()
            .map_err(told)?;
        let mut mounted = Mounted {
            point,
            _life: server.stdin.take(),
            server,
            ended: None,
            below,
            attached: true,
            scratch,
        };
        mounted.wait_until_it_answers()?;
        Ok(mounted)
    }

    /// Where it is mounted.
    pub fn root(&self) -> &Path {
        &self.point
    }

    /// Where a path of the volume is on the host.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    /// The server's process.
    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    /// What the server has said so far on standard error.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.scratch.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }

    /// What `throughline status` reads: JSON.
    ///
    /// # Panics
    /// Where the mount does not answer.
    #[track_caller]
    pub fn status(&self) -> String {
        let mut bytes = vec![0; 1 << 16];
        let len = rustix::fs::getxattr(&self.point, "throughline.status", &mut bytes[..])
            .unwrap_or_else(|e| panic!("the status of {}: {e}", self.point.display()));
        bytes.truncate(len);
        String::from_utf8(bytes).expect("JSON is UTF-8")
    }

    /// Unmounts and waits for the server's end, which must be a good one: everything is in the image then.
    ///
    /// # Panics
    /// Where either does not come in time, or the server says that something went wrong.
    #[track_caller]
    pub fn unmount(self) {
        let (status, log) = self.end();
        assert!(status.success(), "the server ended with {status}: {log}");
    }

    /// Unmounts and waits for the server's end: how it ended, and its log.
    ///
    /// # Panics
    /// Where either does not come in time.
    #[track_caller]
    pub fn end(mut self) -> (ExitStatus, String) {
        let until = Instant::now() + ANSWER;
        // A process that another test is just starting may hold our files until it runs its program: that passes.
        while let Err(why) = let_go(&self.point) {
            assert!(
                Instant::now() < until,
                "umount {}: {why}; the server said: {}",
                self.point.display(),
                self.log()
            );
            sleep(POLL);
        }
        self.attached = false;
        self.ended = program::wait(&mut self.server, END);
        let log = self.log();
        let Some(status) = self.ended else {
            panic!("unmounted, but the server has not ended in {END:?}: {log}");
        };
        (status, log)
    }

    /// Kills the server with SIGKILL. The dead mount stays on its directory until this is dropped.
    pub fn kill(&mut self) {
        let _ = self.server.kill();
        if self.ended.is_none() {
            self.ended = self.server.wait().ok();
        }
    }

    /// Kills the server with SIGKILL and takes the dead mount away: what was promised is in the image, and no more.
    pub fn kill9(mut self) {
        self.kill();
    }

    fn wait_until_it_answers(&mut self) -> Result<(), String> {
        let until = Instant::now() + ANSWER;
        while mounts_on(&self.point) <= self.below {
            if let Some(status) = program::wait(&mut self.server, POLL) {
                self.ended = Some(status);
                return Err(format!("{status}: {}", self.log()));
            }
            if Instant::now() > until {
                return Err(format!("not mounted in {ANSWER:?}: {}", self.log()));
            }
        }
        let (tell, told) = mpsc::channel();
        let point = self.point.clone();
        std::thread::spawn(move || tell.send(std::fs::metadata(point).map(drop)));
        match told.recv_timeout(ANSWER) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(e)) => Err(format!("the mount answers {e}: {}", self.log())),
            Err(_) => Err(format!("no answer in {ANSWER:?}: {}", self.log())),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.kill();
        }
        if self.attached && mounts_on(&self.point) > self.below {
            detach(&self.point);
        }
        if std::thread::panicking() && !self.log().is_empty() {
            eprintln!(
                "the server of {} said: {}",
                self.point.display(),
                self.log()
            );
        }
    }
}

/// How many mounts are stacked on a directory, told without a look at them, which might hang.
fn mounts_on(point: &Path) -> usize {
    let mut wanted = String::new();
    for c in point.to_string_lossy().chars() {
        match c {
            ' ' | '\t' | '\n' | '\\' => wanted += &format!("\\{:03o}", u32::from(c)),
            c => wanted.push(c),
        }
    }
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table
        .lines()
        .filter(|line| line.split(' ').nth(4) == Some(wanted.as_str()))
        .count()
}

/// Unmounts, if nobody uses it.
fn let_go(point: &Path) -> Result<(), String> {
    if may_mount() {
        return unmount(point, UnmountFlags::NOFOLLOW).map_err(|e| e.to_string());
    }
    let mut command = Command::new("fusermount3");
    let ran = program::run(command.arg("-u").arg(point), ANSWER);
    if ran.status.success() {
        Ok(())
    } else {
        Err(ran.stderr)
    }
}

/// Takes the uppermost mount on a directory away from it, also if it is in use or dead.
pub(crate) fn detach(point: &Path) {
    if may_mount() {
        let _ = unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    } else {
        let mut command = Command::new("fusermount3");
        let _ = command.arg("-uz").arg(point).stderr(Stdio::null()).status();
    }
}
