//! Cloning a FUSE connection: the one call of a FUSE server that needs `unsafe`.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// `FUSE_DEV_IOC_CLONE` of the kernel's `fuse.h`: `_IOR(229, 0, uint32_t)`.
const CLONE: Opcode = opcode::read::<u32>(229, 0);

/// Opens another descriptor of the same FUSE connection as `connection`. Each descriptor has its own list of
/// requests in progress, so threads that use one each do not contend for its lock.
///
/// # Errors
/// System errors: `/dev/fuse` cannot be opened, or `connection` is not a mounted connection.
pub fn clone_fuse_connection(connection: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let fresh = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")?;
    let number = connection.as_raw_fd().cast_unsigned();
    // SAFETY: `FUSE_DEV_IOC_CLONE` reads one u32 through the pointer passed to it.
    let clone = unsafe { Setter::<CLONE, u32>::new(number) };
    // SAFETY: the descriptor stays open as long as `connection` is borrowed, and the kernel keeps no pointer.
    unsafe { ioctl(&fresh, clone) }?;
    Ok(fresh.into())
}

/// A descriptor of the same connection for one thread. Threads that share one contend for its references.
///
/// # Errors
/// System errors.
pub(crate) fn own_connection(connection: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    clone_fuse_connection(connection).or_else(|_| connection.try_clone_to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::clone_fuse_connection;

    #[test]
    fn other_descriptors_are_refused() {
        let file = tempfile::tempfile().unwrap();
        assert!(clone_fuse_connection(file.as_fd()).is_err());
    }
}
