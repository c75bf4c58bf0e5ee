//! A FUSE server as a process of its own, and what it serves.
//!
//! Invariant: nothing is left behind. As soon as the root is open, the mount is detached from the tree, so that it lives as
//! long as its descriptors here: with the last of them the kernel ends the session, and the server, SIGKILL of the
//! lab included.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, StatxFlags};

use crate::kernel::{run, search_path};
use crate::{Error, Result};

/// For a server to answer its first request, and to end: far more than a healthy one needs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// So much of what a server complained about is told.
const MAX_LOG_BYTES: usize = 16 << 10;

/// A mounted file system with its server.
pub(crate) struct Server {
    /// Given up to unmount.
    root: Option<OwnedFd>,
    child: Child,
    /// Where its standard error goes: a file without a name.
    log: File,
}

/// Why nothing can be mounted by FUSE here; `None`: it can.
pub(crate) fn unavailable() -> Option<String> {
    let opened = File::options().read(true).write(true).open("/dev/fuse");
    opened.err().map(|e| format!("/dev/fuse: {e}"))
}

/// Why this program cannot be run; `None`: it is there.
pub(crate) fn missing(program: &str) -> Option<String> {
    let path = search_path();
    let there = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    (!there).then(|| format!("no {program} in {path}"))
}

impl Server {
    /// `throughline mount` by this program itself.
    pub(crate) fn ours(image: &Path, scratch: &Path, options: Option<&str>) -> Result<Server> {
        let own = std::env::current_exe()
            .map_err(|e| Error::new(format!("cannot find this program: {e}")))?;
        let mut command = Command::new(own);
        command.args(["mount", "-f"]);
        if let Some(options) = options {
            command.args(["-o", options]);
        }
        Server::start(command, image, scratch)
    }

    /// e2fsprogs' own.
    pub(crate) fn fuse2fs(image: &Path, scratch: &Path) -> Result<Server> {
        let mut command = Command::new("fuse2fs");
        command.arg("-f");
        Server::start(command, image, scratch)
    }

    /// Has `command` serve `image`; its folders are made in `scratch`.
    fn start(mut command: Command, image: &Path, scratch: &Path) -> Result<Server> {
        let point = tempfile::tempdir_in(scratch)?;
        let log = tempfile::tempfile()?;
        command.arg(image).arg(point.path());
        let child = command
            .env("PATH", search_path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.try_clone()?)
            // Ctrl-C is for the lab, which unmounts and has the server end.
            .process_group(0)
            .spawn()
            .map_err(|e| Error::new(format!("cannot run {command:?}: {e}")))?;
        let mut server = Server {
            root: None,
            child,
            log,
        };
        server.wait_mounted(point.path())?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let root = fs::open(point.path(), flags, Mode::empty());
        let detached = detach(point.path());
        server.root = Some(root.map_err(|e| Error::new(format!("the root of {image:?}: {e}")))?);
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

    /// The root of what it serves.
    ///
    /// # Panics
    /// Never: the root is open until the server is unmounted.
    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_ref().expect("open while mounted").as_fd()
    }

    /// The most memory that the server had so far; 0 where the kernel does not tell.
    pub(crate) fn peak_memory_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok())
            .unwrap_or(0)
    }

    /// Unmounts; returns when the server has ended, and with its complaint where it ended badly.
    pub(crate) fn unmount(mut self) -> Result<()> {
        let status = self.end()?;
        match status.success() {
            true => Ok(()),
            false => Err(self.ended(status)),
        }
    }

    fn end(&mut self) -> Result<ExitStatus> {
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
            // Not mounted yet: there is nothing to be lost.
            let _ = self.child.kill();
        }
        let _ = self.end();
    }
}

/// Takes the mount out of the tree; it lives on while something of it is open.
fn detach(point: &Path) -> Result<()> {
    let path = point.to_string_lossy();
    match rustix::process::geteuid().is_root() {
        true => run("umount", &["--lazy", &path]),
        false => run("fusermount3", &["-u", "-z", &path]),
    }
    .map(drop)
}

/// The device number of what is at `path`, without asking a server.
fn device_of(path: &Path) -> Result<(u32, u32)> {
    let flags = AtFlags::STATX_DONT_SYNC;
    let stat = fs::statx(CWD, path, flags, StatxFlags::TYPE)
        .map_err(|e| Error::new(format!("{}: {e}", path.display())))?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor))
}
