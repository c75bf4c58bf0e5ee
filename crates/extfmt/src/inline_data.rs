//! Inline data: a small file or directory in `i_block` (60 bytes), continued in the value of the
//! extended attribute `system.data`.
//!
//! The first 4 bytes of a directory are the inode of ".."; "." is not stored. The
//! entries are in the rest of `i_block` and in the attribute's value, as two separate chains
//! without a checksum tail (see [`crate::dir::DirFormat::inline`]).

use crate::inode::I_BLOCK_BYTES;
use crate::units::InodeNumber;

/// Bytes of data that `i_block` holds.
pub const INLINE_MAIN_BYTES: usize = I_BLOCK_BYTES;
/// Name index of the attribute that holds the rest: "system.".
pub const XATTR_NAME_INDEX: u8 = crate::xattr::INDEX_SYSTEM;
/// Name of the attribute after its prefix.
pub const XATTR_NAME: &[u8] = b"data";
/// Bytes of an inline directory that hold the inode of "..".
pub const DIR_PARENT_BYTES: usize = 4;

/// The inode of ".." of an inline directory.
pub fn parent(i_block: &[u8; I_BLOCK_BYTES]) -> InodeNumber {
    InodeNumber(u32::from_le_bytes([
        i_block[0], i_block[1], i_block[2], i_block[3],
    ]))
}

/// Sets the inode of ".." of an inline directory.
pub fn set_parent(i_block: &mut [u8; I_BLOCK_BYTES], inode: InodeNumber) {
    i_block[..DIR_PARENT_BYTES].copy_from_slice(&inode.0.to_le_bytes());
}

/// The chain of entries in `i_block` of an inline directory.
pub fn dir_region(i_block: &[u8; I_BLOCK_BYTES]) -> &[u8] {
    &i_block[DIR_PARENT_BYTES..]
}

/// As [`dir_region`], mutable.
pub fn dir_region_mut(i_block: &mut [u8; I_BLOCK_BYTES]) -> &mut [u8] {
    &mut i_block[DIR_PARENT_BYTES..]
}
