//! Unmounting: by the system call where it is allowed (root, and who owns the mount's namespace), else through `fusermount3`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::mounts::{self, Mount};

/// How a mount is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Only where nobody uses it.
    Plain,
    /// It is gone from its place at once, and ends when the last file in it is closed.
    Lazy,
    /// It is gone at once, and those who still use it get errors. Without root, as [`Unmount::Lazy`] where the system has no
    /// other way.
    Force,
}

/// Why it was not.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnmountError {
    /// It is in use.
    #[error("Device or resource busy")]
    Busy,
    /// Nothing is mounted there.
    #[error("not mounted")]
    NotMounted,
    /// What the system said.
    #[error("{0}")]
    System(#[source] io::Error),
    /// `fusermount3` could not be run.
    #[error("cannot run fusermount3: {0}")]
    NoHelper(#[source] io::Error),
    /// What `fusermount3` said.
    #[error("{0}")]
    Helper(String),
}

/// Unmounts what was last mounted at a place. The path should be as [`crate::mounts::resolve`] makes it: links are not
/// followed.
///
/// # Errors
/// [`UnmountError`].
pub fn unmount(point: &Path, how: Unmount) -> Result<(), UnmountError> {
    let flags = UnmountFlags::NOFOLLOW
        | match how {
            Unmount::Plain => UnmountFlags::empty(),
            Unmount::Lazy => UnmountFlags::DETACH,
            // FUSE's answer to `MNT_FORCE` is to cut the connection.
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

/// One mount, to be ended by another thread of the process that serves it.
#[derive(Clone, Debug)]
pub struct Ending {
    mount: Mount,
}

impl Ending {
    /// Of what is mounted at a place now.
    ///
    /// # Errors
    /// Where the list of mounts cannot be read, or has nothing at that place.
    pub fn of(point: &Path) -> io::Result<Ending> {
        let mount = mounts::at(&mounts::resolve(point)?)?;
        let mount = mount.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Ending { mount })
    }

    /// The same mount again, from what [`Ending::name`] gave in another process.
    pub fn named(name: &OsStr) -> Option<Ending> {
        let bytes = name.as_bytes();
        let end = bytes.iter().position(|byte| *byte == b':')?;
        let id: u64 = std::str::from_utf8(&bytes[..end]).ok()?.parse().ok()?;
        let point = Path::new(OsStr::from_bytes(&bytes[end + 1..]));
        let mount = mounts::at(point).ok()??;
        (mount.id == id).then_some(Ending { mount })
    }

    /// What the mount is known by, in the processes that see the same mounts.
    pub fn name(&self) -> OsString {
        let mut name = OsString::from(format!("{}:", self.mount.id));
        name.push(&self.mount.point);
        name
    }

    /// Takes it from its place where its server has ended, or is about to.
    ///
    /// # Errors
    /// [`UnmountError`].
    pub fn clean_up(&self) -> Result<(), UnmountError> {
        unmount(&self.mount.point, Unmount::Lazy)
    }

    /// Unmounts it, in use or not: what was written is taken in before, what is still open gets errors from then on. Nothing
    /// where it has gone already, or lies under another mount.
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
        // What programs wrote through their maps is with the kernel still.
        if let Ok(root) = std::fs::File::open(point)
            && let Err(error) = rustix::fs::syncfs(&root)
        {
            tracing::warn!(%error, "taking in what was written through maps of files");
        }
        tracing::warn!(point = %point.display(), "the mount is in use, and ends all the same");
        unmount(point, Unmount::Force)
    }

    /// As [`Ending::end`], where the server does not answer: nothing is taken in before, and nobody is waited for.
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

/// Cuts the connection of a mount of our own, where the kernel's files for that are there (`fusectl`).
fn abort(point: &Path) {
    if let Ok(Some(mount)) = mounts::at(point) {
        // Where they are not, the mount ends with its last user.
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
    let said = String::from_utf8_lossy(&output.stderr);
    Err(if said.contains("busy") {
        UnmountError::Busy
    } else if said.contains("not found in /etc/mtab") || said.contains("not mounted") {
        UnmountError::NotMounted
    } else {
        UnmountError::Helper(said.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_mounted_is_not_unmounted() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().canonicalize().unwrap();
        let error = unmount(&place, Unmount::Plain).unwrap_err();
        // Without root and without fusermount3 there is another reason.
        assert!(
            matches!(
                error,
                UnmountError::NotMounted | UnmountError::Helper(_) | UnmountError::NoHelper(_)
            ),
            "{error:?}"
        );
    }
}
