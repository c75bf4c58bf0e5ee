//! The journal on disk: jbd2, all numbers big-endian.
//!
//! ```text
//! | superblock | descriptor, data ..., [descriptor, data ...] [revoke ...] commit | ... around to s_first
//! ```

pub mod log;
mod superblock;

use std::mem::size_of;

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Result;
use crate::checksum::crc32c;
use crate::error::ensure;

pub use superblock::{
    JOURNAL_SUPERBLOCK_BYTES, JournalCompat, JournalGeometry, JournalIncompat, JournalSuperblock,
    MAX_USERS,
};

/// `h_magic` of every journal block that is not data.
pub const JBD2_MAGIC: u32 = 0xC03B_3998;
/// `s_checksum_type`, `h_chksum_type` of crc32c.
pub const CHECKSUM_CRC32C: u8 = 4;
/// `h_chksum_type` of crc32 (the `checksum` feature).
pub const CHECKSUM_CRC32: u8 = 1;

/// `h_blocktype`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum BlockType {
    /// Lists the data blocks that follow it.
    Descriptor = 1,
    /// Ends a transaction.
    Commit = 2,
    /// Superblock of the first version.
    SuperblockV1 = 3,
    /// Superblock with features.
    SuperblockV2 = 4,
    /// Lists blocks that must not be replayed.
    Revoke = 5,
}

/// Header of every journal block that is not data.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct BlockHeader {
    pub h_magic: U32,
    pub h_blocktype: U32,
    pub h_sequence: U32,
}

/// A tag of a descriptor block, with checksums up to version 2. Without `64bit` it ends before
/// `t_blocknr_high`.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct BlockTag {
    pub t_blocknr: U32,
    pub t_checksum: U16,
    pub t_flags: U16,
    pub t_blocknr_high: U32,
}

/// A tag of a descriptor block, with checksums version 3.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct BlockTag3 {
    pub t_blocknr: U32,
    pub t_flags: U32,
    pub t_blocknr_high: U32,
    pub t_checksum: U32,
}

/// The tail of a descriptor or revoke block, with checksums version 2 or 3.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct BlockTail {
    pub t_checksum: U32,
}

/// Header of a revoke block; `r_count` is in bytes, including this header.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct RevokeHeader {
    pub r_header: BlockHeader,
    pub r_count: U32,
}

/// A commit block.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct CommitHeader {
    pub h_header: BlockHeader,
    pub h_chksum_type: u8,
    pub h_chksum_size: u8,
    pub h_padding: [u8; 2],
    pub h_chksum: [U32; 8],
    pub h_commit_sec: U64,
    pub h_commit_nsec: U32,
}

const _: () = {
    assert!(size_of::<BlockHeader>() == 12);
    assert!(size_of::<BlockTag>() == 12);
    assert!(size_of::<BlockTag3>() == 16);
    assert!(size_of::<RevokeHeader>() == 16);
    assert!(size_of::<CommitHeader>() == 60);
};

bitflags::bitflags! {
    /// `t_flags`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct TagFlags: u32 {
        /// Escaped: the block starts with the journal's magic number, which is written as 0.
        const ESCAPE = 1;
        /// The uuid is that of the tag before: none follows.
        const SAME_UUID = 2;
        /// Deleted (unused).
        const DELETED = 4;
        /// The last tag of the block.
        const LAST_TAG = 8;
        const _ = !0;
    }
}

/// The checksums of a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JournalCsum {
    /// None.
    None,
    /// A crc32 of descriptors and data in the commit block.
    V1,
    /// crc32c in every block, 16 bits in tags.
    V2,
    /// crc32c in every block, 32 bits in tags.
    V3,
}

/// The parameters to read and write journal blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalFormat {
    /// Block size in bytes, that of the volume.
    pub block_bytes: u32,
    /// Whether block numbers have 64 bits.
    pub bit64: bool,
    /// The kind of checksums.
    pub csum: JournalCsum,
    /// Seed of crc32c, from the uuid.
    pub csum_seed: u32,
    /// `s_uuid`, which follows the first tag of a descriptor.
    pub uuid: [u8; 16],
}

impl BlockType {
    /// The type of an on-disk code.
    pub fn from_disk(code: u32) -> Option<Self> {
        Some(match code {
            1 => Self::Descriptor,
            2 => Self::Commit,
            3 => Self::SuperblockV1,
            4 => Self::SuperblockV2,
            5 => Self::Revoke,
            _ => return None,
        })
    }

    /// The on-disk code.
    pub fn to_disk(self) -> u32 {
        match self {
            Self::Descriptor => 1,
            Self::Commit => 2,
            Self::SuperblockV1 => 3,
            Self::SuperblockV2 => 4,
            Self::Revoke => 5,
        }
    }
}

impl BlockHeader {
    /// A header.
    pub fn new(kind: BlockType, sequence: u32) -> Self {
        Self {
            h_magic: JBD2_MAGIC.into(),
            h_blocktype: kind.to_disk().into(),
            h_sequence: sequence.into(),
        }
    }

    /// The type and sequence number of a block of the log; `None` if it has no jbd2 header
    /// (usually the end of the log).
    pub fn read(block: &[u8]) -> Option<(BlockType, u32)> {
        let (header, _) = Self::ref_from_prefix(block).ok()?;
        let kind = BlockType::from_disk(header.h_blocktype.get())?;
        (header.h_magic.get() == JBD2_MAGIC).then_some((kind, header.h_sequence.get()))
    }
}

impl JournalFormat {
    /// Whether blocks end in a [`BlockTail`] and tags hold crc32c sums.
    pub fn has_crc32c(&self) -> bool {
        matches!(self.csum, JournalCsum::V2 | JournalCsum::V3)
    }

    /// The bytes of a block available for tags or records.
    fn usable(&self) -> usize {
        let tail = if self.has_crc32c() {
            size_of::<BlockTail>()
        } else {
            0
        };
        (self.block_bytes as usize).saturating_sub(tail)
    }

    /// Checks the tail of a descriptor or revoke block.
    pub fn verify_tail(&self, block: &[u8]) -> Result<()> {
        if !self.has_crc32c() {
            return Ok(());
        }
        let right = self.tail_checksum(block);
        let found = BlockTail::ref_from_suffix(block).map_or(0, |(_, t)| t.t_checksum.get());
        ensure!(
            found == right,
            "journal block checksum is {found:#010x}, should be {right:#010x}"
        );
        Ok(())
    }

    fn tail_checksum(&self, block: &[u8]) -> u32 {
        let covered = block.len().saturating_sub(size_of::<BlockTail>());
        let crc = crc32c(self.csum_seed, block.get(..covered).unwrap_or_default());
        crc32c(crc, &[0; size_of::<BlockTail>()])
    }

    /// Sets the tail of a descriptor or revoke block, if it has one.
    fn update_tail(&self, block: &mut [u8]) {
        if self.has_crc32c() {
            let crc = self.tail_checksum(block);
            if let Ok((_, tail)) = BlockTail::mut_from_suffix(block) {
                tail.t_checksum.set(crc);
            }
        }
    }

    /// The checksum of a data block in its tag, computed over the block as stored in the journal
    /// (escaped). 0 if tags have none; 16 bits with version 2.
    pub fn data_checksum(&self, sequence: u32, data: &[u8]) -> u32 {
        if !self.has_crc32c() {
            return 0;
        }
        let crc = crc32c(crc32c(self.csum_seed, &sequence.to_be_bytes()), data);
        if self.csum == JournalCsum::V2 {
            crc & 0xFFFF
        } else {
            crc
        }
    }
}

/// Replaces the journal's magic number at the start of a data block by 0; returns whether it was
/// there. (A data block must not look like a journal block.)
pub fn escape(data: &mut [u8]) -> bool {
    let escaped = data.first_chunk() == Some(&JBD2_MAGIC.to_be_bytes());
    if escaped {
        data[..4].fill(0);
    }
    escaped
}

/// Restores the magic number.
pub fn unescape(data: &mut [u8]) {
    if let Some(magic) = data.first_chunk_mut() {
        *magic = JBD2_MAGIC.to_be_bytes();
    }
}
