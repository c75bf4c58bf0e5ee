//! [`Claim`]: a mount of a block device as the kernel knows such mounts (`fuseblk`), made before the volume is opened.
//!
//! What that gives over a plain FUSE mount:
//! - The kernel holds the device for the mount: nobody else mounts it or opens it for itself, and `e2fsck` refuses it.
//! - `sync(2)` reaches the server (Linux 6.18), so that it is durable when it returns, and so does `FIBMAP`.
//! - Unmounting waits for the server, which closes the volume before it answers (`Opcode::Destroy`).
//!
//! What it costs: a mount that is ended by force (a signal while it is in use, `umount -f`) lets go of the device at once, while the
//! server still closes the volume. A plain mount's server holds the device until then. So this is not the default
//! (`-o with=fuseblk`).
//!
//! Only root outside of user namespaces may mount so; everybody else gets a plain mount, whose server holds the device itself.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::mount::MountFlags;

use crate::mounts;
use crate::options::{Access, Atime, MountOptions};
use crate::unmount::{Unmount, unmount};

/// A block device that is mounted, and whose requests wait until it is served. Dropped, it is unmounted.
pub struct Claim {
    connection: OwnedFd,
    at: PathBuf,
    lasts: bool,
}

impl Claim {
    /// Whether this file would be mounted so, and this process may.
    pub fn is_for(device: &Path, options: &MountOptions) -> bool {
        options.choices.fuseblk
            && options.fs_name.is_none()
            && std::fs::metadata(device).is_ok_and(|meta| meta.file_type().is_block_device())
            && mounts::may_mount()
    }

    /// Mounts a block device with a volume that has blocks of so many bytes.
    ///
    /// # Errors
    /// What mount(2) says: `EBUSY` where somebody has the device, `EPERM` in a user namespace, `EINVAL` for a block size
    /// that the kernel cannot use, `ENODEV` where it does not know such mounts.
    pub fn mount(
        device: &Path,
        at: &Path,
        block_bytes: u32,
        options: &MountOptions,
    ) -> Result<Claim> {
        let connection =
            rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| Errno::INVAL);
        let subtype = options.subtype.as_deref().unwrap_or("throughline");
        let told = told(&connection, block_bytes, options);
        rustix::mount::mount(
            text(device.as_os_str().as_bytes())?,
            at,
            text(format!("fuseblk.{subtype}").as_bytes())?,
            flags(options),
            text(told.as_bytes())?.as_c_str(),
        )?;
        Ok(Claim {
            connection,
            at: at.to_owned(),
            lasts: false,
        })
    }

    /// The connection, for who serves it.
    pub(crate) fn connection(&self) -> std::io::Result<OwnedFd> {
        self.connection.try_clone()
    }

    /// It has gone from its place: nothing is to be unmounted any more.
    pub(crate) fn has_gone(mut self) {
        self.lasts = true;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.lasts
            && let Err(error) = unmount(&self.at, Unmount::Force)
        {
            tracing::warn!(%error, "unmounting");
        }
    }
}

fn flags(options: &MountOptions) -> MountFlags {
    [
        (options.read_only, MountFlags::RDONLY),
        (!options.suid, MountFlags::NOSUID),
        (!options.dev, MountFlags::NODEV),
        (!options.exec, MountFlags::NOEXEC),
        (options.atime == Atime::Never, MountFlags::NOATIME),
    ]
    .into_iter()
    .filter(|(is, _)| *is)
    .fold(MountFlags::empty(), |all, (_, flag)| all | flag)
}

/// What the kernel's FUSE takes in text.
fn told(connection: &OwnedFd, block_bytes: u32, options: &MountOptions) -> String {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let mut told = format!(
        "fd={},rootmode=40000,user_id={},group_id={},blksize={block_bytes}",
        connection.as_raw_fd(),
        user.as_raw(),
        group.as_raw()
    );
    if options.kernel_checks_permissions() {
        told.push_str(",default_permissions");
    }
    // For root and its user our own server tells who may look in.
    if options.access != Access::Owner {
        told.push_str(",allow_other");
    }
    told
}
