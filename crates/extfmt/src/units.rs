//! Units of the format as types, and the reserved inode numbers.

use std::fmt;

/// A physical block of the file system, counted from block 0 of the volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct FsBlock(pub u64);

/// A logical block of a file, counted from the start of the file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct FileBlock(pub u32);

/// The number of an inode; the first is 1, and 0 means "none".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct InodeNumber(pub u32);

/// The number of a block group, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct GroupNumber(pub u32);

impl FsBlock {
    /// The block `count` further on; `None` past the end of the number range.
    pub fn checked_add(self, count: u64) -> Option<Self> {
        self.0.checked_add(count).map(Self)
    }

    /// Byte offset of the block in the volume; `None` if it does not fit 64 bits.
    pub fn byte_offset(self, block_bytes: u32) -> Option<u64> {
        self.0.checked_mul(u64::from(block_bytes))
    }
}

impl FileBlock {
    /// The last logical block number that exists (2^32 - 1); ext4 maps blocks below it only.
    pub const MAX: Self = Self(u32::MAX);

    /// The block `count` further on; `None` past the end of the number range.
    pub fn checked_add(self, count: u32) -> Option<Self> {
        self.0.checked_add(count).map(Self)
    }

    /// Byte offset of the block in its file. Cannot overflow for blocks up to 64 KiB.
    pub fn byte_offset(self, block_bytes: u32) -> u64 {
        u64::from(self.0).saturating_mul(u64::from(block_bytes))
    }
}

impl InodeNumber {
    /// "No inode": an empty directory entry, the end of the orphan list.
    pub const NONE: Self = Self(0);
    /// List of bad blocks.
    pub const BAD_BLOCKS: Self = Self(1);
    /// The root directory.
    pub const ROOT: Self = Self(2);
    /// User quota file.
    pub const USER_QUOTA: Self = Self(3);
    /// Group quota file.
    pub const GROUP_QUOTA: Self = Self(4);
    /// Boot loader.
    pub const BOOT_LOADER: Self = Self(5);
    /// Undelete directory (never used).
    pub const UNDEL_DIR: Self = Self(6);
    /// Owner of the reserved group descriptor blocks (`resize_inode`).
    pub const RESIZE: Self = Self(7);
    /// The journal.
    pub const JOURNAL: Self = Self(8);
    /// Snapshots (never merged).
    pub const EXCLUDE: Self = Self(9);
    /// Replica (never merged).
    pub const REPLICA: Self = Self(10);
    /// First non-reserved inode in revision 0, where the superblock has no field for it.
    pub const GOOD_OLD_FIRST: Self = Self(11);
}

macro_rules! display {
    ($($unit:ty),+) => {$(
        impl fmt::Display for $unit {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )+};
}
display!(FsBlock, FileBlock, InodeNumber, GroupNumber);
