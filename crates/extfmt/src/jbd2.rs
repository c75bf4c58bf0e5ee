//! The journal on disk: jbd2, all numbers big-endian.
//!
//! ```text
//! | superblock | descriptor, data ..., [descriptor, data ...] [revoke ...] commit | ... around to s_first
//! ```

use std::mem::{offset_of, size_of};

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

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
