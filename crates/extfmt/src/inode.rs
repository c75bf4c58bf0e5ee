//! The inode: 128 bytes in revision 0, later more, with an extra part whose size varies.
//!
//! [`InodeImage`] owns the on-disk bytes of one inode (`inode_bytes` of them) and
//! lays two structures over them: [`InodeBase`], always present, to which it dereferences, and
//! [`InodeExtra`], whose fields exist only up to `i_extra_isize`. The bytes beyond (extended attributes,
//! unknown fields) are preserved.

mod base;
mod checksum;
mod extra;
mod i_block;
mod image;

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use extra::Time;
pub use image::InodeImage;

/// Bytes of `i_block`.
pub const I_BLOCK_BYTES: usize = 60;
/// Bytes of the part every inode has.
pub const BASE_BYTES: usize = 128;
/// Fast symlinks hold up to this many bytes (one is the terminating NUL).
pub const FAST_SYMLINK_MAX: usize = I_BLOCK_BYTES - 1;

/// The first 128 bytes of an inode (`osd1` and `osd2` as Linux lays them out).
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct InodeBase {
    pub i_mode: U16,
    pub i_uid: U16,
    pub i_size_lo: U32,
    pub i_atime: U32,
    pub i_ctime: U32,
    pub i_mtime: U32,
    pub i_dtime: U32,
    pub i_gid: U16,
    pub i_links_count: U16,
    pub i_blocks_lo: U32,
    pub i_flags: U32,
    pub l_i_version: U32,
    pub i_block: [u8; I_BLOCK_BYTES],
    pub i_generation: U32,
    pub i_file_acl_lo: U32,
    pub i_size_high: U32,
    pub i_obso_faddr: U32,
    pub l_i_blocks_high: U16,
    pub l_i_file_acl_high: U16,
    pub l_i_uid_high: U16,
    pub l_i_gid_high: U16,
    pub l_i_checksum_lo: U16,
    pub l_i_reserved: U16,
}

/// The fields after the first 128 bytes, present up to `i_extra_isize`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct InodeExtra {
    pub i_extra_isize: U16,
    pub i_checksum_hi: U16,
    pub i_ctime_extra: U32,
    pub i_mtime_extra: U32,
    pub i_atime_extra: U32,
    pub i_crtime: U32,
    pub i_crtime_extra: U32,
    pub i_version_hi: U32,
    pub i_projid: U32,
}

/// `i_extra_isize` of an inode that has every field known here: 32.
pub const EXTRA_ISIZE: u16 = size_of::<InodeExtra>() as u16;

/// Bytes of an inode with every field known here.
const FULL_BYTES: usize = BASE_BYTES + size_of::<InodeExtra>();

const _: () = {
    assert!(size_of::<InodeBase>() == BASE_BYTES);
    assert!(size_of::<InodeExtra>() == 32);
    assert!(offset_of!(InodeBase, i_block) == 0x28);
    assert!(offset_of!(InodeBase, i_generation) == 0x64);
    assert!(offset_of!(InodeBase, l_i_checksum_lo) == 0x7C);
    assert!(offset_of!(InodeExtra, i_projid) == 0x1C);
};

bitflags::bitflags! {
    /// The flags of an inode (`i_flags`), some of which `chattr` sets.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct InodeFlags: u32 {
        /// Secure deletion (never implemented).
        const SECRM = 0x1;
        /// Undelete (never implemented).
        const UNRM = 0x2;
        /// Compress (never implemented).
        const COMPR = 0x4;
        /// Synchronous updates.
        const SYNC = 0x8;
        /// May not be changed.
        const IMMUTABLE = 0x10;
        /// May only be appended to.
        const APPEND = 0x20;
        /// Not dumped.
        const NODUMP = 0x40;
        /// Access time is not updated.
        const NOATIME = 0x80;
        /// Encrypted (fscrypt).
        const ENCRYPT = 0x800;
        /// Hashed directory; no meaning on other inodes.
        const INDEX = 0x1000;
        /// AFS directory.
        const IMAGIC = 0x2000;
        /// Data goes through the journal.
        const JOURNAL_DATA = 0x4000;
        /// Tail is not merged.
        const NOTAIL = 0x8000;
        /// Directory updates are synchronous.
        const DIRSYNC = 0x1_0000;
        /// Top of a directory hierarchy (allocator hint).
        const TOPDIR = 0x2_0000;
        /// `i_blocks` counts file-system blocks.
        const HUGE_FILE = 0x4_0000;
        /// Mapped by extents.
        const EXTENTS = 0x8_0000;
        /// fs-verity file.
        const VERITY = 0x10_0000;
        /// Holds the value of an extended attribute.
        const EA_INODE = 0x20_0000;
        /// Blocks past the end of the file are intentional (obsolete).
        const EOFBLOCKS = 0x40_0000;
        /// Direct access.
        const DAX = 0x200_0000;
        /// Data in the inode.
        const INLINE_DATA = 0x1000_0000;
        /// New files inherit the project.
        const PROJINHERIT = 0x2000_0000;
        /// Names ignore case.
        const CASEFOLD = 0x4000_0000;
        const _ = !0;
    }
}

/// The type in `i_mode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum FileType {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
    /// Symbolic link.
    Symlink,
}

/// The type bits of a mode.
pub const S_IFMT: u16 = 0xF000;

impl FileType {
    /// The type of a mode; `None` for invalid type bits (0 in a free inode).
    pub fn from_mode(mode: u16) -> Option<Self> {
        Some(match mode & S_IFMT {
            0x1000 => Self::Fifo,
            0x2000 => Self::CharDevice,
            0x4000 => Self::Directory,
            0x6000 => Self::BlockDevice,
            0x8000 => Self::Regular,
            0xA000 => Self::Symlink,
            0xC000 => Self::Socket,
            _ => return None,
        })
    }

    /// The type bits of a mode.
    pub fn mode_bits(self) -> u16 {
        match self {
            Self::Fifo => 0x1000,
            Self::CharDevice => 0x2000,
            Self::Directory => 0x4000,
            Self::BlockDevice => 0x6000,
            Self::Regular => 0x8000,
            Self::Symlink => 0xA000,
            Self::Socket => 0xC000,
        }
    }

    /// The code of the type in directory entries (`filetype`).
    pub fn dir_code(self) -> u8 {
        match self {
            Self::Regular => 1,
            Self::Directory => 2,
            Self::CharDevice => 3,
            Self::BlockDevice => 4,
            Self::Fifo => 5,
            Self::Socket => 6,
            Self::Symlink => 7,
        }
    }

    /// The type of a directory entry's code; `None` for 0 (not stored) and unknown codes.
    pub fn from_dir_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::CharDevice,
            4 => Self::BlockDevice,
            5 => Self::Fifo,
            6 => Self::Socket,
            7 => Self::Symlink,
            _ => return None,
        })
    }
}
