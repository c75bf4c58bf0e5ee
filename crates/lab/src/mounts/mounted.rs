//! A mounted file system: of the kernel on a loop device with direct-io=on, or of a FUSE server in a process
//! of its own.
//!
//! Invariant: nothing is left behind. As soon as the root is open, the mount is detached from the tree, so it
//! exists only as long as our descriptors. When the last one is closed, the kernel unmounts, which ends a
//! server and detaches a loop device, even if the lab is killed with SIGKILL. The same holds for a [`View`].

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, StatxFlags};
use tempfile::TempDir;

use super::place::Place;
use super::view::View;
use crate::kernel::{run, search_path};
use crate::meter::memory_kib;
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

impl At<'_> {
    /// A mount without a path.
    pub(crate) fn hidden(scratch: &Path) -> At<'_> {
        At {
            scratch,
            visible: false,
        }
    }
}

/// A mounted file system. It exists as long as this value and the files opened through it.
pub(crate) struct Mounted {
    /// Dropped to unmount, before the root.
    view: Option<View>,
    /// Dropped to unmount.
    root: Option<OwnedFd>,
    /// The server, and its standard error: an unnamed file.
    server: Option<(Child, File)>,
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

impl Mounted {
    /// The kernel's file system of this type on an image, without a path.
    pub(crate) fn hidden(image: &Path, fs_type: &str) -> Result<Mounted> {
        Mounted::kernel(At::hidden(&std::env::temp_dir()), image, fs_type, None)
    }

    /// The kernel's file system of this type on an image, with these options of `mount`.
    pub(crate) fn kernel(
        place: At<'_>,
        image: &Path,
        fs_type: &str,
        options: Option<&str>,
    ) -> Result<Mounted> {
        let image = image.to_string_lossy();
        let device = run("losetup", &["--find", "--show", "--direct-io=on", &image])?;
        let mounted = Mounted::by_kernel(device.trim(), fs_type, options, place);
        // While the device has a user, this makes it detach after the last one. Otherwise it detaches at
        // once.
        let detached = run("losetup", &["--detach", device.trim()]);
        let mounted = mounted?;
        detached.map(|_| mounted)
    }

    /// A new tmpfs, which needs no image and no loop device.
    #[cfg(test)]
    pub(crate) fn tmpfs(place: At<'_>) -> Result<Mounted> {
        Mounted::by_kernel("tmpfs", "tmpfs", None, place)
    }

    fn by_kernel(
        device: &str,
        fs_type: &str,
        options: Option<&str>,
        place: At<'_>,
    ) -> Result<Mounted> {
        let point = tempfile::tempdir_in(place.scratch)?;
        let path = point.path().to_string_lossy();
        let mut arguments = vec!["-t", fs_type];
        arguments.extend(options.iter().flat_map(|options| ["-o", options]));
        arguments.extend([device, &path]);
        run("mount", &arguments)?;
        let mut mounted = Mounted::of(None);
        mounted.detach(point, place).map(|()| mounted)
    }

    /// Starts a server by a command, which gets mount options, and a mount point as its last argument.
    pub(crate) fn served(
        mut command: Command,
        options: Option<&str>,
        place: At<'_>,
    ) -> Result<Mounted> {
        let point = tempfile::tempdir_in(place.scratch)?;
        let log = tempfile::tempfile()?;
        command.args(options.iter().flat_map(|options| ["-o", options]));
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
        let mut mounted = Mounted::of(Some((child, log)));
        mounted.wait_mounted(point.path())?;
        mounted.detach(point, place).map(|()| mounted)
    }

    fn of(server: Option<(Child, File)>) -> Mounted {
        Mounted {
            view: None,
            root: None,
            server,
        }
    }

    /// Opens the root of what is mounted, and detaches it from the tree.
    fn detach(&mut self, point: TempDir, place: At<'_>) -> Result<()> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let root = fs::open(point.path(), flags, Mode::empty());
        let path = point.path().to_string_lossy();
        let view = place.visible.then(View::new).transpose();
        let detached = match rustix::process::geteuid().is_root() {
            true => run("umount", &["--lazy", &path]),
            false => run("fusermount3", &["-u", "-z", &path]),
        };
        self.root = Some(root.map_err(|e| Error::new(format!("the root of the mount: {e}")))?);
        self.view = view?;
        detached?;
        // While something is mounted on it here, removing the directory would remove what is in it.
        if let Some(view) = &mut self.view {
            view.keep(point);
        }
        Ok(())
    }

    fn wait_mounted(&mut self, point: &Path) -> Result<()> {
        let before = device_of(point.parent().unwrap_or(point))?;
        let begun = Instant::now();
        while device_of(point)? == before {
            if let Some(status) = self.exited()? {
                return Err(self.ended(status));
            }
            if begun.elapsed() > PATIENCE {
                return Err(Error::new(format!("nothing mounted within {PATIENCE:?}")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// The root of the file system.
    ///
    /// # Panics
    /// Never: the root is open until it is unmounted.
    pub(crate) fn root(&self) -> Place<'_> {
        Place::new(self.root.as_ref().expect("open while mounted").as_fd())
    }

    /// The path of the file system, if one was asked for.
    pub(crate) fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// Writes back the dirty data of this file system, and of no other.
    pub(crate) fn sync(&self) -> Result<()> {
        self.root.iter().try_for_each(|root| Ok(fs::syncfs(root)?))
    }

    /// The server's peak memory so far; 0 without one, or if the kernel does not report it.
    pub(crate) fn peak_memory_kib(&self) -> u64 {
        let server = self.server.as_ref();
        server.map_or(0, |(child, _)| memory_kib(child.id(), "VmHWM:"))
    }

    /// Unmounts. Returns once all data is durable and a server has exited. If that failed, the error contains
    /// its error output.
    pub(crate) fn unmount(mut self) -> Result<()> {
        match self.end()? {
            Some(status) if !status.success() => Err(self.ended(status)),
            _ => Ok(()),
        }
    }

    /// The server's status, if it has exited.
    fn exited(&mut self) -> Result<Option<ExitStatus>> {
        match &mut self.server {
            Some((child, _)) => Ok(child.try_wait()?),
            None => Ok(None),
        }
    }

    fn end(&mut self) -> Result<Option<ExitStatus>> {
        self.view = None;
        self.root = None;
        let begun = Instant::now();
        while let Some((child, _)) = &mut self.server {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            if begun.elapsed() > PATIENCE {
                child.kill()?;
                child.wait()?;
                let late = format!("the server had not ended {PATIENCE:?} after it was unmounted");
                return Err(Error::new(late));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(None)
    }

    fn ended(&self, status: ExitStatus) -> Error {
        let mut log = vec![0; MAX_LOG_BYTES];
        let read = self
            .server
            .as_ref()
            .map(|(_, file)| file.read_at(&mut log, 0));
        let len = read.and_then(std::result::Result::ok).unwrap_or(0);
        let log = String::from_utf8_lossy(&log[..len]);
        Error::new(format!("the server ended, {status}: {}", log.trim()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let (None, Some((child, _))) = (&self.root, &mut self.server) {
            // Not mounted yet, or not any more, so no data can be lost.
            let _ = child.kill();
        }
        let _ = self.end();
    }
}

/// The device number of `path`, without a request to a server.
fn device_of(path: &Path) -> Result<(u32, u32)> {
    let flags = AtFlags::STATX_DONT_SYNC;
    let stat = fs::statx(CWD, path, flags, StatxFlags::TYPE)
        .map_err(|e| Error::new(format!("{}: {e}", path.display())))?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor))
}
