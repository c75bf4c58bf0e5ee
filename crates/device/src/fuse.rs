//! The one call of a FUSE server that needs `unsafe`: another descriptor of its connection.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// `FUSE_DEV_IOC_CLONE` of the kernel's `fuse.h`: `_IOR(229, 0, uint32_t)`.
const CLONE: Opcode = opcode::read::<u32>(229, 0);

/// Another descriptor of the FUSE connection that `connection` is of. Each has a queue of requests in progress of its own,
/// so threads that serve through one each do not meet at a lock.
///
/// # Errors
/// What the system says: `/dev/fuse` cannot be opened, or `connection` is no mounted connection.
pub fn clone_fuse_connection(connection: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let fresh = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")?;
    let number = connection.as_raw_fd().cast_unsigned();
    // SAFETY: `FUSE_DEV_IOC_CLONE` reads one u32 through the pointer that it gets.
    let clone = unsafe { Setter::<CLONE, u32>::new(number) };
    // SAFETY: the number is of a descriptor that is open as long as `connection` is borrowed; no pointer is kept.
    unsafe { ioctl(&fresh, clone) }?;
    Ok(fresh.into())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::clone_fuse_connection;

    #[test]
    fn what_is_no_connection_is_refused() {
        let file = tempfile::tempfile().unwrap();
        assert!(clone_fuse_connection(file.as_fd()).is_err());
    }
}
