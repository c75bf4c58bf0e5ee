//! Unmounting: by the system call if permitted (root, or the owner of the mount's namespace), else through
//! `fusermount3`.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::mounts::{self, Mount};
use crate::outside::Outside;

/// How to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Fails if the mount is in use.
    Plain,
    /// Detaches the mount at once; it ends when the last file in it is closed.
    Lazy,
    /// Ends the mount at once; programs that still use it get errors. Without root this is the same as
    /// [`Unmount::Lazy`] where the connection cannot be aborted.
    Force,
}

/// Why unmounting failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnmountError {
    /// It is in use.
    #[error("Device or resource busy")]
    Busy,
    /// Nothing is mounted there.
    #[error("not mounted")]
    NotMounted,
    /// Something else is mounted over it.
    #[error("another mount covers it")]
    Covered,
    /// The system refused.
    #[error("{0}")]
    System(#[source] io::Error),
    /// `fusermount3` could not be run.
    #[error("cannot run fusermount3: {0}")]
    NoHelper(#[source] io::Error),
    /// `fusermount3` failed with this message.
    #[error("{0}")]
    Helper(String),
}

/// Unmounts the last mount at a mount point. Symbolic links are not followed: resolve the path with
/// [`crate::mounts::resolve`] first.
///
/// # Errors
/// [`UnmountError`].
pub fn unmount(point: &Path, how: Unmount) -> Result<(), UnmountError> {
    let flags = UnmountFlags::NOFOLLOW
        | match how {
            Unmount::Plain => UnmountFlags::empty(),
            Unmount::Lazy => UnmountFlags::DETACH,
            // With `MNT_FORCE`, FUSE aborts the connection.
            Unmount::Force => UnmountFlags::FORCE | UnmountFlags::DETACH,
        };
    match rustix::mount::unmount(point, flags) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(UnmountError::Busy),
        Err(Errno::INVAL) => Err(UnmountError::NotMounted),
        Err(Errno::PERM) if how == Unmount::Force => {
            // Without the control files, the mount ends with its last user.
            if let Ok(Some(mount)) = mounts::at(point) {
                let _ = abort(mount.connection);
            }
            through_helper(point, Unmount::Lazy)
        }
        Err(Errno::PERM) => through_helper(point, how),
        Err(other) => Err(UnmountError::System(other.into())),
    }
}

/// One mount, to be ended by another thread or process than the one that serves it.
#[derive(Clone)]
pub struct Ending {
    mount: Mount,
    /// [`mounts::unique_id`].
    unique: Option<u64>,
    /// Closes the volume, if this must be done before the connection is aborted.
    close_volume: Option<Arc<dyn Fn() + Send + Sync>>,
    /// Unmounts in place of this process.
    by: Option<Arc<dyn Outside>>,
}

impl Ending {
    /// The current mount at a mount point.
    ///
    /// # Errors
    /// If the list of mounts cannot be read, or nothing is mounted there.
    pub fn of(point: &Path) -> io::Result<Ending> {
        let mount = mounts::at(&mounts::resolve(point)?)?;
        let mount = mount.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Ending {
            unique: mounts::unique_id(&mount.point),
            mount,
            close_volume: None,
            by: None,
        })
    }

    /// Calls `close` before the connection is aborted, which releases the device.
    pub(crate) fn closing_first(self, close: impl Fn() + Send + Sync + 'static) -> Ending {
        Ending {
            close_volume: Some(Arc::new(close)),
            ..self
        }
    }

    /// Leaves unmounting to `by`, from now on.
    #[must_use]
    pub fn through(self, by: Arc<dyn Outside>) -> Ending {
        Ending {
            by: Some(by),
            ..self
        }
    }

    /// Whether the mount holds the device for the server, and so must last until nothing more is written.
    pub fn waits_for_volume(&self) -> bool {
        self.close_volume.is_some()
    }

    /// The mount with that [`Ending::name`], which may come from another process. `None` if it is gone.
    pub fn named(name: &OsStr) -> Option<Ending> {
        let bytes = name.as_bytes();
        let end = bytes.iter().position(|byte| *byte == b':')?;
        let (id, unique) = std::str::from_utf8(&bytes[..end]).ok()?.split_once(',')?;
        let point = Path::new(OsStr::from_bytes(&bytes[end + 1..]));
        let mount = mounts::at(point).ok()??;
        let ending = Ending {
            unique: unique.parse().ok(),
            mount,
            close_volume: None,
            by: None,
        };
        let is_same = ending.mount.id == id.parse::<u64>().ok()? && ending.is_visible();
        is_same.then_some(ending)
    }

    /// The mount point.
    pub fn point(&self) -> &Path {
        &self.mount.point
    }

    /// A name for the mount, valid in processes of the same mount namespace.
    pub fn name(&self) -> OsString {
        let unique = self.unique.map(|id| id.to_string()).unwrap_or_default();
        let mut name = OsString::from(format!("{},{unique}:", self.mount.id));
        name.push(&self.mount.point);
        name
    }

    /// Detaches the mount of a server that has ended, or is about to. Does nothing if it is already gone.
    ///
    /// # Errors
    /// [`UnmountError`].
    pub fn clean_up(&self) -> Result<(), UnmountError> {
        self.unmount_if_there(Unmount::Lazy)
    }

    /// Unmounts it even if it is in use: written data is synced first, and open files get errors afterwards.
    /// Does nothing if the mount is already gone.
    ///
    /// # Errors
    /// [`UnmountError`].
    pub fn end(&self) -> Result<(), UnmountError> {
        match self.unmount_if_there(Unmount::Plain) {
            Err(UnmountError::Busy) => {}
            other => return other,
        }
        if let Err(error) = self.sync() {
            tracing::warn!(%error, "syncing what was written through mappings of files");
        }
        let point = &self.mount.point;
        tracing::warn!(point = %point.display(), "ending the mount although it is in use");
        if let Some(close) = &self.close_volume {
            close();
        }
        // Syncing and closing may take long. Another process may have ended the mount meanwhile, and mounted
        // something else there.
        self.unmount_if_there(Unmount::Force)
    }

    /// Syncs what programs wrote through mappings of files, which the kernel still holds.
    ///
    /// # Errors
    /// The system's. A mount that cannot be opened has nothing to sync.
    pub fn sync(&self) -> io::Result<()> {
        if let Some(by) = &self.by {
            return by.sync();
        }
        match std::fs::File::open(&self.mount.point) {
            Ok(root) => Ok(rustix::fs::syncfs(&root)?),
            Err(_) => Ok(()),
        }
    }

    /// As [`Ending::end`], for a server that does not answer: does not sync, and does not wait. If
    /// [`Ending::waits_for_volume`], the caller must make sure first that nothing more is written.
    ///
    /// # Errors
    /// [`UnmountError`].
    pub fn cut(&self) -> Result<(), UnmountError> {
        self.unmount_if_there(Unmount::Force)
    }

    /// Ends the connection of a server that was killed and cannot end. The mount stays, and programs that use
    /// it get errors.
    ///
    /// # Errors
    /// [`UnmountError`]: without root, this needs the kernel's control files (`fusectl`).
    pub fn abort(&self) -> Result<(), UnmountError> {
        let now = mounts::at(&self.mount.point).map_err(UnmountError::System)?;
        if now.is_none_or(|now| now.id != self.mount.id) || !self.is_visible() {
            return Ok(());
        }
        if abort(self.mount.connection).is_ok() {
            return Ok(());
        }
        // While it is in use, it is not unmounted.
        let system = |errno: Errno| UnmountError::System(errno.into());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let _in_use = rustix::fs::open(&self.mount.point, flags, Mode::empty()).map_err(system)?;
        let forced = UnmountFlags::NOFOLLOW | UnmountFlags::FORCE;
        match rustix::mount::unmount(&self.mount.point, forced) {
            Ok(()) | Err(Errno::BUSY) => Ok(()),
            Err(other) => Err(system(other)),
        }
    }

    /// Whether the mount at the mount point is this one as far as unique IDs tell.
    fn is_visible(&self) -> bool {
        let now = mounts::unique_id(&self.mount.point);
        self.unique.is_none() || now.is_none() || self.unique == now
    }

    /// Unmounts this mount, unless it is gone. The system call takes a path, so a mount that another process
    /// makes between the check and the call would still be hit.
    ///
    /// # Errors
    /// [`UnmountError`].
    pub fn unmount_if_there(&self, how: Unmount) -> Result<(), UnmountError> {
        if let Some(by) = &self.by {
            return by.unmount(how);
        }
        let mut there = mounts::all().map_err(UnmountError::System)?;
        there.retain(|mount| mount.point == self.mount.point);
        let is_ours = |mount: &Mount| mount.id == self.mount.id;
        match there.last() {
            Some(top) if is_ours(top) && self.is_visible() => {}
            Some(top) if !is_ours(top) && there.iter().any(is_ours) => {
                return Err(UnmountError::Covered);
            }
            _ => return Ok(()),
        }
        match unmount(&self.mount.point, how) {
            Err(UnmountError::NotMounted) => Ok(()),
            other => other,
        }
    }
}

/// Aborts a connection of this user, if the kernel's control files (`fusectl`) are available.
fn abort(connection: u32) -> io::Result<()> {
    let file = format!("/sys/fs/fuse/connections/{connection}/abort");
    std::fs::File::options()
        .write(true)
        .open(file)?
        .write_all(b"1")
}

fn through_helper(point: &Path, how: Unmount) -> Result<(), UnmountError> {
    let mut command = Command::new("fusermount3");
    command.arg("-u");
    if how == Unmount::Lazy {
        command.arg("-z");
    }
    let output = command
        .arg("--")
        .arg(point)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(UnmountError::NoHelper)?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(if message.contains("busy") {
        UnmountError::Busy
    } else if message.contains("not found in /etc/mtab") || message.contains("not mounted") {
        UnmountError::NotMounted
    } else {
        let text = match message.trim() {
            "" => format!("fusermount3: {}", output.status),
            said => said.to_owned(),
        };
        UnmountError::Helper(text)
    })
}

#[cfg(test)]
mod tests {
    use throughline_locks::Mutex;

    use throughline_testkit::kernel;

    use super::*;

    #[test]
    fn unmounting_a_directory_that_is_not_mounted_fails() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().canonicalize().unwrap();
        let error = unmount(&place, Unmount::Plain).unwrap_err();
        // Without root and without fusermount3, the error is another one.
        assert!(
            matches!(
                error,
                UnmountError::NotMounted | UnmountError::Helper(_) | UnmountError::NoHelper(_)
            ),
            "{error:?}"
        );
    }

    /// Mounts a file system without a device.
    fn mounted(point: &Path) -> Option<kernel::Mount> {
        kernel::Mount::or_skip(Path::new("none"), point, &["-t", "tmpfs"])
    }

    /// An end of the mount at `point` during which, while the volume is closed, another process unmounts it
    /// and does `then`.
    fn overtaken(
        point: &Path,
        first: kernel::Mount,
        then: impl Fn() + Send + Sync + 'static,
    ) -> Ending {
        // In use, so that it is not unmounted at once.
        let user = std::fs::File::create(point.join("user")).unwrap();
        let first = Mutex::new(Some((user, first)));
        Ending::of(point).unwrap().closing_first(move || {
            let (user, first) = first.lock().take().unwrap();
            drop(user);
            first.unmount();
            then();
        })
    }

    #[test]
    fn a_later_mount_at_the_same_directory_is_not_ended() {
        let folder = tempfile::tempdir().unwrap();
        let point = folder.path().canonicalize().unwrap();
        let Some(first) = mounted(&point) else {
            return;
        };
        if mounts::unique_id(&point).is_none() {
            throughline_testkit::left_out!("this kernel has no unique IDs of mounts");
            return;
        }
        let later = Arc::new(Mutex::new(None));
        let ending = overtaken(&point, first, {
            let (later, point) = (Arc::clone(&later), point.clone());
            move || *later.lock() = mounted(&point)
        });
        ending.end().unwrap();
        // The kernel may have given it the old ID.
        let id = mounts::at(&point).unwrap().expect("the later mount").id;
        ending.clean_up().unwrap();
        ending.cut().unwrap();
        assert!(Ending::named(&ending.name()).is_none());
        assert_eq!(mounts::at(&point).unwrap().map(|mount| mount.id), Some(id));
        later.lock().take().unwrap().unmount();
    }

    #[test]
    fn a_mount_that_another_process_ends_first_counts_as_ended() {
        let folder = tempfile::tempdir().unwrap();
        let point = folder.path().canonicalize().unwrap();
        let Some(first) = mounted(&point) else {
            return;
        };
        let ending = overtaken(&point, first, || {});
        ending.end().unwrap();
        ending.clean_up().unwrap();
        ending.cut().unwrap();
        assert_eq!(mounts::at(&point).unwrap(), None);
    }

    #[test]
    fn a_covered_mount_is_not_unmounted_and_that_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let point = folder.path().canonicalize().unwrap();
        let Some(first) = mounted(&point) else {
            return;
        };
        let ending = Ending::of(&point).unwrap();
        let Some(cover) = mounted(&point) else {
            return;
        };
        assert!(matches!(ending.end(), Err(UnmountError::Covered)));
        assert!(matches!(ending.cut(), Err(UnmountError::Covered)));
        cover.unmount();
        first.unmount();
    }
}
