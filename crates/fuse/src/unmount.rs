//! Unmounting: by the system call if permitted (root, or the owner of the mount's namespace), else through
//! `fusermount3`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::mounts::{self, Mount};

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
            abort(point);
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
    /// Closes the volume, if this must be done before the connection is aborted.
    close_volume: Option<Arc<dyn Fn() + Send + Sync>>,
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
            mount,
            close_volume: None,
        })
    }

    /// Calls `close` before the connection is aborted, which releases the device.
    pub(crate) fn closing_first(self, close: impl Fn() + Send + Sync + 'static) -> Ending {
        Ending {
            close_volume: Some(Arc::new(close)),
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
        let id: u64 = std::str::from_utf8(&bytes[..end]).ok()?.parse().ok()?;
        let point = Path::new(OsStr::from_bytes(&bytes[end + 1..]));
        let mount = mounts::at(point).ok()??;
        (mount.id == id).then_some(Ending {
            mount,
            close_volume: None,
        })
    }

    /// A name for the mount, valid in processes of the same mount namespace.
    pub fn name(&self) -> OsString {
        let mut name = OsString::from(format!("{}:", self.mount.id));
        name.push(&self.mount.point);
        name
    }

    /// Detaches the mount of a server that has ended, or is about to.
    ///
    /// # Errors
    /// [`UnmountError`].
    pub fn clean_up(&self) -> Result<(), UnmountError> {
        unmount(&self.mount.point, Unmount::Lazy)
    }

    /// Unmounts it even if it is in use: written data is synced first, and open files get errors afterwards.
    /// Does nothing if the mount is already gone, or is covered by another mount.
    ///
    /// # Errors
    /// [`UnmountError`].
    pub fn end(&self) -> Result<(), UnmountError> {
        if !self.is_there() {
            return Ok(());
        }
        let point = &self.mount.point;
        match unmount(point, Unmount::Plain) {
            Err(UnmountError::Busy) => {}
            Err(UnmountError::NotMounted) => return Ok(()),
            other => return other,
        }
        // The kernel still holds what programs wrote through mappings.
        if let Ok(root) = std::fs::File::open(point)
            && let Err(error) = rustix::fs::syncfs(&root)
        {
            tracing::warn!(%error, "syncing what was written through mappings of files");
        }
        tracing::warn!(point = %point.display(), "ending the mount although it is in use");
        if let Some(close) = &self.close_volume {
            close();
        }
        unmount(point, Unmount::Force)
    }

    /// As [`Ending::end`], for a server that does not answer: does not sync, and does not wait. If
    /// [`Ending::waits_for_volume`], the caller must make sure first that nothing more is written.
    ///
    /// # Errors
    /// [`UnmountError`].
    pub fn cut(&self) -> Result<(), UnmountError> {
        match self.is_there() {
            true => unmount(&self.mount.point, Unmount::Force),
            false => Ok(()),
        }
    }

    fn is_there(&self) -> bool {
        matches!(mounts::at(&self.mount.point), Ok(Some(mount)) if mount.id == self.mount.id)
    }
}

/// Aborts the connection of our own mount, if the kernel's control files (`fusectl`) are available.
fn abort(point: &Path) {
    if let Ok(Some(mount)) = mounts::at(point) {
        // Without them, the mount ends with its last user.
        let _ = std::fs::write(
            format!("/sys/fs/fuse/connections/{}/abort", mount.connection),
            b"1",
        );
    }
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
        UnmountError::Helper(message.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
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
}
