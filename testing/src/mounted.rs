//! An image mounted by our FUSE server, in its own process that can be killed; unmounted on every exit.
//!
//! ```text
//!  test ── starts ──► its own executable, as the server (serve.rs) ── mounts ──► a temporary directory
//!    └── unmount(), kill9(), or drop, also on panic: no mount and no process remain
//! ```
//!
//! Every wait has a time limit. A server that does not respond by then is killed, which ends the waits for
//! it.

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

/// Time limit for a mount to respond and for an unmount to succeed.
const ANSWER: Duration = Duration::from_secs(90);
/// Time limit for a server to exit after the unmount: it still writes back.
const END: Duration = Duration::from_secs(180);
const POLL: Duration = Duration::from_millis(2);
/// Bit of `CAP_SYS_ADMIN` in a capability set.
const SYS_ADMIN: u64 = 1 << 21;

/// The reason why FUSE mounts are not possible here, if they are not.
pub fn skip_reason() -> Option<String> {
    if let Err(e) = File::options().read(true).write(true).open("/dev/fuse") {
        return Some(format!("/dev/fuse cannot be opened: {e}"));
    }
    if may_mount() || program::find("fusermount3").is_some() {
        return None;
    }
    Some("no permission to mount, and no fusermount3".to_owned())
}

/// Whether this process may call `mount(2)`.
fn may_mount() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .is_some_and(|set| set & SYS_ADMIN != 0)
}

/// An image mounted by our server.
///
/// The test crate declares the server's entry point with [`mount_server!`](crate::mount_server).
pub struct Mounted {
    point: PathBuf,
    server: Child,
    /// When this pipe closes, the server exits.
    _life: Option<ChildStdin>,
    /// The exit status, once the server has been waited for.
    ended: Option<ExitStatus>,
    /// Number of mounts on the directory before ours, and whether ours may still be there.
    below: usize,
    attached: bool,
    /// Contains the server's log, and the mount point if we created it.
    scratch: TempDir,
}

impl Mounted {
    /// Whether FUSE mounts are possible; if not, prints what is skipped and why to standard error.
    pub fn possible() -> bool {
        let reason = skip_reason();
        if let Some(reason) = &reason {
            throughline_testkit::missing!("{reason}");
        }
        reason.is_none()
    }

    /// Mounts an image on a new directory, with comma-separated options as for `-o`; may be empty.
    ///
    /// # Panics
    /// If that fails, with the server's output.
    #[track_caller]
    pub fn new(image: &Path, options: &str) -> Mounted {
        Mounted::start(image, options)
            .unwrap_or_else(|e| panic!("mounting {} with '{options}': {e}", image.display()))
    }

    /// As [`Mounted::new`], for mounts that may fail.
    ///
    /// # Errors
    /// The server's exit status and output.
    pub fn start(image: &Path, options: &str) -> Result<Mounted, String> {
        Mounted::launch(image, None, options)
    }

    /// As [`Mounted::start`], on an existing directory.
    ///
    /// # Errors
    /// As [`Mounted::start`].
    pub fn at(image: &Path, point: &Path, options: &str) -> Result<Mounted, String> {
        Mounted::launch(image, Some(point), options)
    }

    fn launch(image: &Path, point: Option<&Path>, options: &str) -> Result<Mounted, String> {
        let message = |e: io::Error| e.to_string();
        let scratch = TempDir::with_prefix("throughline-mounted-").map_err(message)?;
        let point = match point {
            Some(point) => point.canonicalize().map_err(message)?,
            None => {
                let point = scratch
                    .path()
                    .canonicalize()
                    .map_err(message)?
                    .join("point");
                std::fs::create_dir(&point).map_err(message)?;
                point
            }
        };
        let below = mounts_on(&point);
        let log = File::create(scratch.path().join("log")).map_err(message)?;
        let mut server = serve::command(image, &point, options)
            .env("PATH", program::search_path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            // Signals to the test's group (Ctrl-C, `timeout`) must not reach the server, which then detaches
            // its mount itself.
            .process_group(0)
            .spawn()
            .map_err(message)?;
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

    /// The mount point.
    pub fn root(&self) -> &Path {
        &self.point
    }

    /// The host path of a path on the volume.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    /// Process id of the server.
    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    /// The server's standard error so far.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.scratch.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }

    /// The JSON that `throughline status` reads.
    ///
    /// # Panics
    /// If the mount does not respond.
    #[track_caller]
    pub fn status(&self) -> String {
        let mut bytes = vec![0; 1 << 16];
        let len = rustix::fs::getxattr(&self.point, "throughline.status", &mut bytes[..])
            .unwrap_or_else(|e| panic!("the status of {}: {e}", self.point.display()));
        bytes.truncate(len);
        String::from_utf8(bytes).expect("JSON is UTF-8")
    }

    /// Unmounts and waits for the server to exit successfully: afterwards all data is in the image.
    ///
    /// # Panics
    /// On a timeout, or if the server exits with an error.
    #[track_caller]
    pub fn unmount(self) {
        let (status, log) = self.end();
        assert!(status.success(), "the server ended with {status}: {log}");
    }

    /// Unmounts and waits for the server to exit. Returns its exit status and log.
    ///
    /// # Panics
    /// On a timeout.
    #[track_caller]
    pub fn end(mut self) -> (ExitStatus, String) {
        let until = Instant::now() + ANSWER;
        // Retry while busy: a process just being started by another test may hold our files until it executes
        // its program.
        while let Err(why) = unmount_idle(&self.point) {
            assert!(
                Instant::now() < until,
                "umount {}: {why}; the server's log: {}",
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
        // A request that panics only fails, which its caller may have expected.
        assert!(
            !log.contains("panicked"),
            "a thread of the server panicked: {log}"
        );
        (status, log)
    }

    /// Kills the server with SIGKILL. The dead mount stays on its directory until drop.
    pub fn kill(&mut self) {
        let _ = self.server.kill();
        if self.ended.is_none() {
            self.ended = self.server.wait().ok();
        }
    }

    /// Kills the server with SIGKILL and removes the dead mount: the image then contains only what was made
    /// durable.
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
        let (sender, receiver) = mpsc::channel();
        let point = self.point.clone();
        std::thread::spawn(move || sender.send(std::fs::metadata(point).map(drop)));
        match receiver.recv_timeout(ANSWER) {
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
                "the log of the server of {}: {}",
                self.point.display(),
                self.log()
            );
        }
    }
}

/// Number of mounts on a directory, found without accessing it, which might hang.
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

/// Unmounts if the mount is not busy.
fn unmount_idle(point: &Path) -> Result<(), String> {
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

/// Detaches the topmost mount on a directory, even if it is busy or dead.
pub(crate) fn detach(point: &Path) {
    if may_mount() {
        let _ = unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    } else {
        let mut command = Command::new("fusermount3");
        let _ = command.arg("-uz").arg(point).stderr(Stdio::null()).status();
    }
}
