//! The kernel's readahead on a mount.
//!
//! The kernel reads 128 KiB ahead on a FUSE mount, and INIT can only lower that. A cold stream then sends a
//! request for each 128 KiB, and the program waits for a wake-up of another CPU for most of them. Root
//! may raise the limit in sysfs.

use std::path::Path;

use crate::mounts;

/// Measured: with 512 KiB to 4 MiB, a cold stream took two thirds of the time that it took with 128 KiB.
const READ_AHEAD_KIB: u32 = 1024;

/// Raises the readahead of the mount at this mount point, an absolute path without symbolic links. (It is not
/// resolved here, as that would wait for the server.) Without the permission it stays as it is.
pub(crate) fn raise(point: &Path) {
    let Ok(Some(mount)) = mounts::at(point) else {
        return;
    };
    let place = mount.queue().join("read_ahead_kb");
    let now = std::fs::read_to_string(&place).unwrap_or_default();
    // Who set more than that keeps it.
    if now
        .trim()
        .parse()
        .is_ok_and(|now: u32| now >= READ_AHEAD_KIB)
    {
        return;
    }
    match std::fs::write(&place, READ_AHEAD_KIB.to_string()) {
        Ok(()) => tracing::debug!(kib = READ_AHEAD_KIB, "the kernel's readahead"),
        Err(error) => tracing::debug!(%error, "the kernel's readahead stays as it is"),
    }
}
