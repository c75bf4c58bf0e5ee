//! Metadata and times, as Python has them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use throughline::{FileType, Metadata};

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

/// The bits of a type in `st_mode`.
pub(crate) fn type_bits(file_type: FileType) -> u32 {
    match file_type {
        FileType::Fifo => 0o010_000,
        FileType::CharDevice => 0o020_000,
        FileType::Directory => 0o040_000,
        FileType::BlockDevice => 0o060_000,
        FileType::File => 0o100_000,
        FileType::Symlink => 0o120_000,
        FileType::Socket => 0o140_000,
    }
}

pub(crate) fn of(meta: &Metadata) -> Stat {
    let device = meta
        .device()
        .map_or((0, 0), |device| (device.major, device.minor));
    (
        (
            type_bits(meta.file_type()) | meta.mode(),
            meta.ino(),
            meta.nlink(),
            meta.uid(),
            meta.gid(),
            meta.len(),
            meta.blocks_512(),
        ),
        device,
        from_system(meta.accessed()),
        from_system(meta.modified()),
        from_system(meta.changed()),
        meta.created().map(from_system),
    )
}

fn from_system(time: SystemTime) -> Time {
    let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (seconds(after), after.subsec_nanos()),
        Err(before) => match before.duration().subsec_nanos() {
            0 => (-seconds(before.duration()), 0),
            nanos => (-1 - seconds(before.duration()), 1_000_000_000 - nanos),
        },
    }
}

/// `None`: out of the range of the system.
pub(crate) fn to_system((seconds, nanos): Time) -> Option<SystemTime> {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let whole = match seconds < 0 {
        true => UNIX_EPOCH.checked_sub(whole),
        false => UNIX_EPOCH.checked_add(whole),
    };
    whole?.checked_add(Duration::from_nanos(nanos.into()))
}
