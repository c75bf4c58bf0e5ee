//! Hash trees: index blocks of hashed directories.
//!
//! ```text
//! root  | "." 12 | ".." to the end of the block, over it: info 8 | limit,count | (hash, block) ... | tail 8 |
//! node  | empty record 8, as long as the block                   | limit,count | (hash, block) ... | tail 8 |
//! ```
//! The first entry has no hash: its place holds limit and count, and its hash counts as 0.
//! [`IndexNode`] is a view of either kind; it is made only if `count` <= `limit`, `count` >= 1
//! and the entries fit the block.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::crc32c;
use crate::dir::rec_len_from_disk;
use crate::error::ensure;
use crate::features::Incompat;
use crate::hash::HashVersion;
use crate::units::{FileBlock, InodeNumber};
use crate::{Corrupt, Geometry, Result};

/// Bytes of limit and count, and of an entry.
pub const INDEX_ENTRY_BYTES: usize = 8;
/// Bytes of the tail.
pub const INDEX_TAIL_BYTES: usize = 8;
/// Byte of the root's info.
pub const ROOT_INFO_OFFSET: usize = 24;
/// Byte of the limit and count in a root.
pub const ROOT_ENTRIES_OFFSET: usize = 32;
/// Byte of the limit and count in a node.
pub const NODE_ENTRIES_OFFSET: usize = 8;
/// Bits of an entry's block number that are the number.
pub const BLOCK_MASK: u32 = 0x0FFF_FFFF;

/// The root's info, behind "." and "..".
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct DxRootInfo {
    pub reserved_zero: U32,
    pub hash_version: u8,
    pub info_length: u8,
    pub indirect_levels: u8,
    pub unused_flags: u8,
}

/// In place of the first entry's hash.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct DxCountLimit {
    pub limit: U16,
    pub count: U16,
}

/// An entry of an index block.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct DxEntry {
    pub hash: U32,
    pub block: U32,
}

/// Behind the last possible entry, with `metadata_csum`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct DxTail {
    pub dt_reserved: U32,
    pub dt_checksum: U32,
}

const _: () = {
    assert!(size_of::<DxRootInfo>() == 8);
    assert!(size_of::<DxEntry>() == INDEX_ENTRY_BYTES);
    assert!(size_of::<DxTail>() == INDEX_TAIL_BYTES);
    assert!(offset_of!(DxRootInfo, hash_version) == 4);
};
