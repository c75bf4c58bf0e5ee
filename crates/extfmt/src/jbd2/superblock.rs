//! The journal's superblock: the location of the log, the start of its oldest transaction, its features.

use std::mem::{offset_of, size_of};

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BlockHeader, BlockType, CHECKSUM_CRC32C, JournalCsum, JournalFormat};
use crate::checksum::{CRC32C_INIT, crc32c};
use crate::error::ensure;
use crate::{Corrupt, Result};

/// Bytes of the superblock.
pub const JOURNAL_SUPERBLOCK_BYTES: usize = 1024;
/// The maximum number of file systems that share a journal.
pub const MAX_USERS: usize = 48;

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

const _: () = {
    assert!(size_of::<JournalSuperblock>() == JOURNAL_SUPERBLOCK_BYTES);
    assert!(offset_of!(JournalSuperblock, s_uuid) == 0x30);
    assert!(offset_of!(JournalSuperblock, s_checksum_type) == 0x50);
    assert!(offset_of!(JournalSuperblock, s_checksum) == 0xFC);
    assert!(offset_of!(JournalSuperblock, s_users) == 0x100);
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
        /// Commit blocks are written without waiting for the blocks before them.
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

/// A journal's superblock with consistent numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalGeometry {
    /// The parameters of its blocks.
    pub format: JournalFormat,
    /// First block of the log (block 0 is the superblock).
    pub first: u32,
    /// The end of the log, exclusive; the area of fast commits starts here.
    pub end: u32,
    /// Blocks of the area of fast commits, `end..end + fast_commit_blocks`.
    pub fast_commit_blocks: u32,
    /// The start of the oldest transaction (`first..end`); `None`: there is nothing to replay.
    pub start: Option<u32>,
    /// Sequence number of the oldest transaction (or of the next, if there is none).
    pub sequence: u32,
    /// Feature words.
    pub compat: JournalCompat,
    /// Feature words.
    pub incompat: JournalIncompat,
    /// `s_errno`: an error recorded by a user of the journal.
    pub errno: i32,
}

/// Blocks of the area of fast commits if the superblock has no size.
const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;

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

    /// Whether it is version 2, with features and checksums.
    pub fn has_features(&self) -> bool {
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

    /// `s_feature_ro_compat`; 0 in version 1. No feature of it is defined.
    pub fn ro_compat(&self) -> u32 {
        if self.has_features() {
            self.s_feature_ro_compat.get()
        } else {
            0
        }
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

    /// Checks the checksum, if there is one, and every number: the journal has `blocks`
    /// blocks of `block_bytes` bytes. The caller must check for unknown features.
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

    /// The correct checksum of these bytes.
    pub fn checksum(&self) -> u32 {
        let mut zeroed = *self;
        zeroed.s_checksum.set(0);
        crc32c(CRC32C_INIT, zeroed.as_bytes())
    }

    /// Recomputes the checksum, if there is one; call before writing.
    pub fn update_checksum(&mut self) {
        if self
            .incompat()
            .intersects(JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3)
        {
            self.s_checksum.set(self.checksum());
        }
    }
}
