//! A FUSE server in a process of its own, and the file system that it serves.
//!
//! Invariant: nothing is left behind. As soon as the root is open, the mount is detached from the tree, so it
//! exists only as long as our descriptors. When the last one is closed, the kernel ends the session, and
//! thereby the server, even if the lab is killed with SIGKILL. The same holds for a [`View`].

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, StatxFlags};

use super::place::Place;
use super::view::{Holder, View};
use crate::kernel::{named, run, search_path};
use crate::meter::peak_memory_kib;
use crate::{Error, Result};

/// Time limit for a server's first answer and for its exit: far more than a server needs, even on a busy
/// machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Maximum length of a server's error output in an error.
const MAX_LOG_BYTES: usize = 16 << 10;

/// Where to mount.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    /// Mount points are created in it.
    pub(crate) scratch: &'a Path,
    /// Whether programs get a path: see [`View`].
    pub(crate) visible: bool,
}

/// A mounted file system with its server.
pub(crate) struct Server {
    /// Dropped to unmount, before the root.
    view: Option<View>,
    /// Dropped to unmount.
    root: Option<OwnedFd>,
    child: Child,
    /// Its standard error: an unnamed file.
    log: File,
}

/// Why FUSE mounts are impossible here; `None` if they are possible.
pub(crate) fn unavailable() -> Option<String> {
    let opened = File::options().read(true).write(true).open("/dev/fuse");
    opened.err().map(|e| format!("/dev/fuse: {e}"))
}

/// Why this program cannot be run; `None` if it is installed.
pub(crate) fn missing(program: &str) -> Option<String> {
    let path = search_path();
    let there = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    (!there).then(|| format!("no {program} in {path}"))
}

impl Server {
    /// `throughline mount`.
    pub(crate) fn ours(image: &Path, options: Option<&str>, place: At<'_>) -> Result<Server> {
        let mut command = crate::command::own()?;
        command.args(["mount", "-f"]).arg(image);
        Server::start(command, options, place)
    }

    /// Our server without a volume.
    pub(crate) fn null(options: Option<&str>, place: At<'_>) -> Result<Server> {
        let mut command = crate::command::own()?;
        command.args(["lab", "null"]);
        Server::start(command, options, place)
    }

    /// The server of e2fsprogs.
    pub(crate) fn fuse2fs(image: &Path, options: Option<&str>, place: At<'_>) -> Result<Server> {
        let mut command = named("fuse2fs");
        command.arg("-f").arg(image);
        Server::start(command, options, place)
    }

    /// Starts `command`, which gets mount options, and a mount point as its last argument.
    fn start(mut command: Command, options: Option<&str>, place: At<'_>) -> Result<Server> {
        let point = tempfile::tempdir_in(place.scratch)?;
        let log = tempfile::tempfile()?;
        if let Some(options) = options {
            command.args(["-o", options]);
        }
        command.arg(point.path());
        let child = command
            .env("PATH", search_path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.try_clone()?)
            // The lab handles Ctrl-C: it unmounts, which ends the server.
            .process_group(0)
            .spawn()
            .map_err(|e| Error::new(format!("cannot run {command:?}: {e}")))?;
        let mut server = Server {
            view: None,
            root: None,
            child,
            log,
        };
        server.wait_mounted(point.path())?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let root = fs::open(point.path(), flags, Mode::empty());
        let holder = place.visible.then(Holder::new).transpose();
        let detached = detach(point.path());
        server.root = Some(root.map_err(|e| Error::new(format!("the root of the mount: {e}")))?);
        server.view = holder?.map(|holder| holder.view(point));
        detached.map(|()| server)
    }

    fn wait_mounted(&mut self, point: &Path) -> Result<()> {
        let before = device_of(point.parent().unwrap_or(point))?;
        let begun = Instant::now();
        while device_of(point)? == before {
            if let Some(status) = self.child.try_wait()? {
                return Err(self.ended(status));
            }
            if begun.elapsed() > PATIENCE {
                return Err(Error::new(format!("nothing mounted within {PATIENCE:?}")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// The root of the file system it serves.
    ///
    /// # Panics
    /// Never: the root is open until the server is unmounted.
    pub(crate) fn root(&self) -> Place<'_> {
        Place::new(self.root.as_ref().expect("open while mounted").as_fd())
    }

    /// The path of the file system, if one was asked for.
    pub(crate) fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// The server's peak memory so far; 0 if the kernel does not report it.
    pub(crate) fn peak_memory_kib(&self) -> u64 {
        peak_memory_kib(self.child.id())
    }

    /// Unmounts. Returns once the server has exited. If it failed, the error contains its error output.
    pub(crate) fn unmount(mut self) -> Result<()> {
        let status = self.end()?;
        match status.success() {
            true => Ok(()),
            false => Err(self.ended(status)),
        }
    }

    fn end(&mut self) -> Result<ExitStatus> {
        self.view = None;
        self.root = None;
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if begun.elapsed() > PATIENCE {
                self.child.kill()?;
                self.child.wait()?;
                let late = format!("the server had not ended {PATIENCE:?} after it was unmounted");
                return Err(Error::new(late));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn ended(&self, status: ExitStatus) -> Error {
        let mut log = vec![0; MAX_LOG_BYTES];
        let len = self.log.read_at(&mut log, 0).unwrap_or(0);
        let log = String::from_utf8_lossy(&log[..len]);
        Error::new(format!("the server ended, {status}: {}", log.trim()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        if self.root.is_none() {
            // Not mounted yet, so no data can be lost.
            let _ = self.child.kill();
        }
        let _ = self.end();
    }
}

/// Detaches the mount from the tree. It exists as long as something in it is open.
fn detach(point: &Path) -> Result<()> {
    let path = point.to_string_lossy();
    match rustix::process::geteuid().is_root() {
        true => run("umount", &["--lazy", &path]),
        false => run("fusermount3", &["-u", "-z", &path]),
    }
    .map(drop)
}

/// The device number of `path`, without a request to a server.
fn device_of(path: &Path) -> Result<(u32, u32)> {
    let flags = AtFlags::STATX_DONT_SYNC;
    let stat = fs::statx(CWD, path, flags, StatxFlags::TYPE)
        .map_err(|e| Error::new(format!("{}: {e}", path.display())))?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor))
}
