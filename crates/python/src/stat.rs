//! Metadata and times, as Python has them.

use throughline::Metadata;
use throughline::internal::since_epoch;

/// Seconds since 1970 and nanoseconds; the second is the one before.
pub(crate) type Time = (i64, u32);

/// Mode, inode, links, user, group, bytes, blocks of 512 bytes, major and minor number of a device, times of
/// the last read, write and change, and of the creation.
pub(crate) type Stat = (
    (u32, u64, u32, u32, u32, u64, u64),
    (u32, u32),
    Time,
    Time,
    Time,
    Option<Time>,
);

pub(crate) fn of(meta: &Metadata) -> Stat {
    let device = meta
        .device()
        .map_or((0, 0), |device| (device.major, device.minor));
    (
        (
            meta.file_type().mode_bits() | meta.mode(),
            meta.ino(),
            meta.nlink(),
            meta.uid(),
            meta.gid(),
            meta.len(),
            meta.blocks_512(),
        ),
        device,
        since_epoch(meta.accessed()),
        since_epoch(meta.modified()),
        since_epoch(meta.changed()),
        meta.created().map(since_epoch),
    )
}
