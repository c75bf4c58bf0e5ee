//! [`Claim`]: a `fuseblk` mount of a block device, made before the volume is opened.
//!
//! Advantages over a plain FUSE mount:
//! - The kernel holds the device for the mount: nobody else can mount it or open it exclusively, and `e2fsck`
//!   refuses it.
//! - `sync(2)` (Linux 6.18) reaches the server, so data is durable when it returns; so does `FIBMAP`.
//! - Unmounting waits for the server, which closes the volume before it replies (`Opcode::Destroy`).
//!
//! The disadvantage: an unmount that another process forces (`umount -f`, `abort` of fusectl) releases the
//! device at once, while the server is still closing the volume. The server of a plain mount holds the device
//! itself until the volume is closed; the server of a `fuseblk` mount cannot. So `fuseblk` is not the default
//! (`-o with=fuseblk`). If our server ends the mount itself after a signal, it closes the volume first
//! ([`crate::Session::ending`]).
//!
//! Only root outside of user namespaces may use it. All others get a plain mount, whose server holds the
//! device itself.

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

/// A mounted block device. Requests wait until it is served. Dropping it unmounts it.
pub struct Claim {
    connection: OwnedFd,
    at: PathBuf,
    lasts: bool,
}

impl Claim {
    /// Whether this file is to be mounted as `fuseblk`, and this process may do it.
    pub fn is_for(device: &Path, options: &MountOptions) -> bool {
        options.choices.fuseblk
            && options.fs_name.is_none()
            && std::fs::metadata(device).is_ok_and(|meta| meta.file_type().is_block_device())
            && mounts::may_mount()
    }

    /// Mounts a block device whose volume has blocks of `block_bytes` bytes.
    ///
    /// # Errors
    /// Those of mount(2): `EBUSY` if the device is in use, `EPERM` in a user namespace, `EINVAL` for a block
    /// size that the kernel does not support, `ENODEV` if it has no `fuseblk`.
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
        let data = mount_data(&connection, block_bytes, options);
        rustix::mount::mount(
            text(device.as_os_str().as_bytes())?,
            at,
            text(format!("fuseblk.{subtype}").as_bytes())?,
            flags(options),
            text(data.as_bytes())?.as_c_str(),
        )?;
        Ok(Claim {
            connection,
            at: at.to_owned(),
            lasts: false,
        })
    }

    /// A duplicate of the connection, to serve it.
    pub(crate) fn connection(&self) -> std::io::Result<OwnedFd> {
        self.connection.try_clone()
    }

    /// The mount point.
    pub(crate) fn point(&self) -> &Path {
        &self.at
    }

    /// The mount is gone: dropping this no longer unmounts.
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

/// The data argument of mount(2) for the kernel's FUSE.
fn mount_data(connection: &OwnedFd, block_bytes: u32, options: &MountOptions) -> String {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},blksize={block_bytes}",
        connection.as_raw_fd(),
        user.as_raw(),
        group.as_raw()
    );
    if options.kernel_checks_permissions() {
        data.push_str(",default_permissions");
    }
    // For "the owner and root", the server itself checks who has access.
    if options.access != Access::Owner {
        data.push_str(",allow_other");
    }
    data
}
