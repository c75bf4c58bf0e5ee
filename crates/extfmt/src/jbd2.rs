//! The journal on disk: jbd2, all numbers big-endian.
//!
//! ```text
//! | superblock | descriptor, data ..., [descriptor, data ...] [revoke ...] commit | ... around to s_first
//! ```

pub mod log;

use std::mem::{offset_of, size_of};

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{CRC32C_INIT, crc32c};
use crate::error::ensure;
use crate::{Corrupt, Result};

/// `h_magic` of every block of the journal that is not data.
pub const JBD2_MAGIC: u32 = 0xC03B_3998;
/// Bytes of the superblock.
pub const JOURNAL_SUPERBLOCK_BYTES: usize = 1024;
/// Most file systems that share a journal.
pub const MAX_USERS: usize = 48;
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
    /// Lists blocks that are not to be replayed.
    Revoke = 5,
}

/// Head of every block of the journal that is not data.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct BlockHeader {
    pub h_magic: U32,
    pub h_blocktype: U32,
    pub h_sequence: U32,
}

/// The journal's superblock.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct JournalSuperblock {
    pub s_header: BlockHeader,
    pub s_blocksize: U32,
    pub s_maxlen: U32,
    pub s_first: U32,
    pub s_sequence: U32,
    pub s_start: U32,
    pub s_errno: U32,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
    pub s_nr_users: U32,
    pub s_dynsuper: U32,
    pub s_max_transaction: U32,
    pub s_max_trans_data: U32,
    pub s_checksum_type: u8,
    pub s_padding2: [u8; 3],
    pub s_num_fc_blks: U32,
    pub s_head: U32,
    pub s_padding: [U32; 40],
    pub s_checksum: U32,
    pub s_users: [u8; 16 * MAX_USERS],
}

/// A tag of a descriptor block, up to version 2 of checksums. Without `64bit` it ends before
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

/// A tag of a descriptor block with version 3 of checksums.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct BlockTag3 {
    pub t_blocknr: U32,
    pub t_flags: U32,
    pub t_blocknr_high: U32,
    pub t_checksum: U32,
}

/// Behind the tags or the records of a block, with version 2 or 3 of checksums.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct BlockTail {
    pub t_checksum: U32,
}

/// Head of a revoke block; `r_count` is in bytes, this head included.
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
    assert!(size_of::<JournalSuperblock>() == JOURNAL_SUPERBLOCK_BYTES);
    assert!(offset_of!(JournalSuperblock, s_uuid) == 0x30);
    assert!(offset_of!(JournalSuperblock, s_checksum_type) == 0x50);
    assert!(offset_of!(JournalSuperblock, s_checksum) == 0xFC);
    assert!(offset_of!(JournalSuperblock, s_users) == 0x100);
    assert!(size_of::<BlockTag>() == 12);
    assert!(size_of::<BlockTag3>() == 16);
    assert!(size_of::<RevokeHeader>() == 16);
    assert!(size_of::<CommitHeader>() == 60);
};

bitflags::bitflags! {
    /// `s_feature_compat` of the journal.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct JournalCompat: u32 {
        /// Commit blocks carry a crc32 of the transaction.
        const CHECKSUM = 1;
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// `s_feature_incompat` of the journal.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct JournalIncompat: u32 {
        /// Has revoke blocks.
        const REVOKE = 1;
        /// Block numbers of 64 bits.
        const BIT64 = 2;
        /// Commit blocks are written without waiting for the data before them.
        const ASYNC_COMMIT = 4;
        /// Checksums, version 2.
        const CSUM_V2 = 8;
        /// Checksums, version 3.
        const CSUM_V3 = 0x10;
        /// Has an area for fast commits.
        const FAST_COMMIT = 0x20;
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// `t_flags`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct TagFlags: u32 {
        /// The block starts with the journal's magic number, which was written as 0.
        const ESCAPE = 1;
        /// The same uuid as the tag before: no uuid follows.
        const SAME_UUID = 2;
        /// Deleted (unused).
        const DELETED = 4;
        /// The last tag of the block.
        const LAST_TAG = 8;
        const _ = !0;
    }
}

/// How the volume of a journal is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JournalCsum {
    /// Not at all.
    None,
    /// A crc32 of descriptors and data in the commit block.
    V1,
    /// crc32c in every block, 16 bits in tags.
    V2,
    /// crc32c in every block, 32 bits in tags.
    V3,
}

/// What is needed to read and write the blocks of a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalFormat {
    /// Block size, that of the volume.
    pub block_bytes: u32,
    /// Whether block numbers have 64 bits.
    pub bit64: bool,
    /// Which checksums there are.
    pub csum: JournalCsum,
    /// Seed of crc32c: of the uuid.
    pub csum_seed: u32,
    /// `s_uuid`, which follows the first tag of a descriptor.
    pub uuid: [u8; 16],
}

/// A journal's superblock, its numbers known to agree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalGeometry {
    /// How blocks are read.
    pub format: JournalFormat,
    /// First block of the log (block 0 is the superblock).
    pub first: u32,
    /// The block behind the last one of the log; fast commits have the rest.
    pub end: u32,
    /// Blocks of the area of fast commits, `end..end + fast_commit_blocks`.
    pub fast_commit_blocks: u32,
    /// Where the oldest transaction starts (`first..end`); `None`: there is nothing to replay.
    pub start: Option<u32>,
    /// Sequence number of the oldest transaction (or of the next, if there is none).
    pub sequence: u32,
    /// Feature words.
    pub compat: JournalCompat,
    /// Feature words.
    pub incompat: JournalIncompat,
    /// `s_errno`: an error that a user of the journal met.
    pub errno: i32,
}

/// Blocks of the area of fast commits where the superblock does not say.
const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;

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

    /// The type and sequence number of a block of the log; `None` if it is not one of jbd2's
    /// (the end of the log, usually).
    pub fn read(block: &[u8]) -> Option<(BlockType, u32)> {
        let (header, _) = Self::ref_from_prefix(block).ok()?;
        let kind = BlockType::from_disk(header.h_blocktype.get())?;
        (header.h_magic.get() == JBD2_MAGIC).then_some((kind, header.h_sequence.get()))
    }
}

impl JournalSuperblock {
    /// Copies the superblock out of the first block of a journal. Checks length, magic number
    /// and type only; see [`Self::validate`].
    pub fn read(block: &[u8]) -> Result<Self> {
        let (superblock, _) = Self::read_from_prefix(block)
            .map_err(|_| Corrupt::new("journal superblock is cut short"))?;
        let kind = BlockHeader::read(block).map(|(kind, _)| kind);
        ensure!(
            matches!(
                kind,
                Some(BlockType::SuperblockV1 | BlockType::SuperblockV2)
            ),
            "journal has no superblock"
        );
        Ok(superblock)
    }

    /// Whether there are features (and checksums): version 2.
    fn has_features(&self) -> bool {
        self.s_header.h_blocktype.get() == BlockType::SuperblockV2.to_disk()
    }

    /// `s_feature_compat`; empty in version 1.
    pub fn compat(&self) -> JournalCompat {
        let bits = if self.has_features() {
            self.s_feature_compat.get()
        } else {
            0
        };
        JournalCompat::from_bits_retain(bits)
    }

    /// `s_feature_incompat`; empty in version 1.
    pub fn incompat(&self) -> JournalIncompat {
        let bits = if self.has_features() {
            self.s_feature_incompat.get()
        } else {
            0
        };
        JournalIncompat::from_bits_retain(bits)
    }

    /// Sets `s_feature_incompat` (of a superblock of version 2).
    pub fn set_incompat(&mut self, incompat: JournalIncompat) {
        self.s_feature_incompat.set(incompat.bits());
    }

    fn csum(&self) -> Result<JournalCsum> {
        let (v2, v3) = (JournalIncompat::CSUM_V2, JournalIncompat::CSUM_V3);
        let both = self.incompat() & (v2 | v3);
        let v1 = self.compat().contains(JournalCompat::CHECKSUM);
        ensure!(both != v2 | v3, "journal has checksums of versions 2 and 3");
        ensure!(
            !v1 || both.is_empty(),
            "journal has checksums of version 1 and a later one"
        );
        Ok(if both == v3 {
            JournalCsum::V3
        } else if both == v2 {
            JournalCsum::V2
        } else if v1 {
            JournalCsum::V1
        } else {
            JournalCsum::None
        })
    }

    /// Checks the checksum, where there is one, and every number: the journal has `blocks`
    /// blocks of `block_bytes` bytes. Unknown features are the caller's matter.
    pub fn validate(&self, block_bytes: u32, blocks: u64) -> Result<JournalGeometry> {
        let csum = self.csum()?;
        if matches!(csum, JournalCsum::V2 | JournalCsum::V3) {
            ensure!(
                self.s_checksum_type == CHECKSUM_CRC32C,
                "journal checksum type is {}, not crc32c",
                self.s_checksum_type
            );
            let (found, right) = (self.s_checksum.get(), self.checksum());
            ensure!(
                found == right,
                "journal superblock checksum is {found:#010x}, should be {right:#010x}"
            );
        }
        let (incompat, size) = (self.incompat(), self.s_blocksize.get());
        ensure!(
            size == block_bytes,
            "journal has blocks of {size} bytes, not {block_bytes}"
        );
        let (first, maxlen) = (self.s_first.get(), self.s_maxlen.get());
        ensure!(
            u64::from(maxlen) <= blocks,
            "journal claims {maxlen} blocks, its inode has {blocks}"
        );
        let fast_commit_blocks = match self.s_num_fc_blks.get() {
            _ if !incompat.contains(JournalIncompat::FAST_COMMIT) => 0,
            0 => DEFAULT_FAST_COMMIT_BLOCKS,
            count => count,
        };
        let end = maxlen.saturating_sub(fast_commit_blocks);
        ensure!(
            first >= 1 && first < end,
            "journal log is blocks {first} to {end}"
        );
        let start = self.s_start.get();
        ensure!(
            start == 0 || (first..end).contains(&start),
            "journal starts at block {start}, outside {first} to {end}"
        );
        let format = JournalFormat {
            block_bytes,
            bit64: incompat.contains(JournalIncompat::BIT64),
            csum,
            csum_seed: crc32c(CRC32C_INIT, &self.s_uuid),
            uuid: self.s_uuid,
        };
        Ok(JournalGeometry {
            format,
            first,
            end,
            fast_commit_blocks,
            start: (start != 0).then_some(start),
            sequence: self.s_sequence.get(),
            compat: self.compat(),
            incompat,
            errno: self.s_errno.get() as i32,
        })
    }

    /// The checksum these bytes should carry.
    pub fn checksum(&self) -> u32 {
        let mut zeroed = *self;
        zeroed.s_checksum.set(0);
        crc32c(CRC32C_INIT, zeroed.as_bytes())
    }

    /// Recomputes the checksum, where there is one; call before writing.
    pub fn update_checksum(&mut self) {
        if self
            .incompat()
            .intersects(JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3)
        {
            self.s_checksum.set(self.checksum());
        }
    }
}

impl JournalFormat {
    /// Whether blocks end in a [`BlockTail`] and tags hold crc32c sums.
    pub fn has_crc32c(&self) -> bool {
        matches!(self.csum, JournalCsum::V2 | JournalCsum::V3)
    }

    /// Bytes of a block that tags or records may use.
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

    /// Sets the tail of a descriptor or revoke block, where there is one.
    fn update_tail(&self, block: &mut [u8]) {
        if self.has_crc32c() {
            let crc = self.tail_checksum(block);
            if let Ok((_, tail)) = BlockTail::mut_from_suffix(block) {
                tail.t_checksum.set(crc);
            }
        }
    }

    /// The checksum of a data block in its tag: of the block as it is in the journal
    /// (escaped). 0 where tags have none; 16 bits with version 2.
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

/// Replaces the journal's magic number at the start of a data block by 0; whether it was there.
/// (A data block must not look like one of the journal's.)
pub fn escape(data: &mut [u8]) -> bool {
    let escaped = data.first_chunk() == Some(&JBD2_MAGIC.to_be_bytes());
    if escaped {
        data[..4].fill(0);
    }
    escaped
}

/// Puts the magic number back.
pub fn unescape(data: &mut [u8]) {
    if let Some(magic) = data.first_chunk_mut() {
        *magic = JBD2_MAGIC.to_be_bytes();
    }
}
