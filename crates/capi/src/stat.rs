//! Metadata and times in C's form.

use std::time::SystemTime;

use throughline::Metadata;
use throughline::internal::{from_epoch, since_epoch};

use crate::failure::Failure;

/// A time: seconds since 1970, and nanoseconds from 0 to 999999999.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct tl_time {
    /// Seconds since 1970; negative before.
    pub seconds: i64,
    /// Nanoseconds after them.
    pub nanoseconds: u32,
    /// 0.
    pub reserved: u32,
}

/// The metadata of an inode, as of stat(2).
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct tl_stat {
    /// The number of the inode.
    pub ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// Allocated units of 512 bytes.
    pub blocks: u64,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Major number of a device node.
    pub rdev_major: u32,
    /// Minor number of a device node.
    pub rdev_minor: u32,
    /// The last read.
    pub atime: tl_time,
    /// The last change of the contents.
    pub mtime: tl_time,
    /// The last change of contents or metadata.
    pub ctime: tl_time,
    /// The creation; 0 if the volume does not store it.
    pub btime: tl_time,
}

impl tl_stat {
    pub(crate) fn of(meta: &Metadata) -> tl_stat {
        let device = meta.device();
        let device = device.map_or((0, 0), |device| (device.major, device.minor));
        tl_stat {
            ino: meta.ino(),
            size: meta.len(),
            blocks: meta.blocks_512(),
            mode: meta.file_type().mode_bits() | meta.mode(),
            nlink: meta.nlink(),
            uid: meta.uid(),
            gid: meta.gid(),
            rdev_major: device.0,
            rdev_minor: device.1,
            atime: tl_time::of(meta.accessed()),
            mtime: tl_time::of(meta.modified()),
            ctime: tl_time::of(meta.changed()),
            btime: meta.created().map(tl_time::of).unwrap_or_default(),
        }
    }
}

impl tl_time {
    fn of(time: SystemTime) -> tl_time {
        let (seconds, nanoseconds) = since_epoch(time);
        tl_time {
            seconds,
            nanoseconds,
            reserved: 0,
        }
    }

    pub(crate) fn to_system(self) -> Result<SystemTime, Failure> {
        let time = match self.nanoseconds {
            0..1_000_000_000 => from_epoch(self.seconds, self.nanoseconds),
            _ => None,
        };
        time.ok_or_else(|| Failure::invalid("a time outside of the range"))
    }
}
