//! A complete request: every default is resolved.

use throughline_extfmt::superblock::OnError;

use crate::features::Features;

/// The number of inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InodeCount {
    /// One for so many bytes of the volume.
    BytesPer(u64),
    /// At least so many.
    AtLeast(u64),
}

/// The journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalRequest {
    /// MiB; `None`: by the size of the volume.
    pub(crate) size_mib: Option<u32>,
    /// KiB of the area for fast commits; `None`: 1/64 of the journal.
    pub(crate) fast_commit_kib: Option<u32>,
    /// The block where it begins; `None`: in the middle.
    pub(crate) location: Option<u64>,
}

/// A volume to be made.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) block_bytes: u32,
    /// Blocks of the target; the volume may have a few less.
    pub(crate) blocks: u64,
    pub(crate) inode_bytes: u16,
    pub(crate) inodes: InodeCount,
    pub(crate) features: Features,
    /// Revision 0: no features, inodes of 128 bytes.
    pub(crate) revision_0: bool,
    pub(crate) blocks_per_group: Option<u32>,
    pub(crate) groups_per_flex: u32,
    /// Percent of the blocks that are kept for root.
    pub(crate) reserved_percent: f64,
    pub(crate) journal: JournalRequest,
    /// The number of blocks to which the volume can be enlarged while it is mounted; `None`: 1024 times its
    /// own.
    pub(crate) resize_blocks: Option<u64>,
    pub(crate) stride: u32,
    pub(crate) stripe_width: u32,
    pub(crate) packed_meta_blocks: bool,
    /// With `sparse_super2`: 0 to 2.
    pub(crate) backups: u32,
    pub(crate) root_owner: (u32, u32),
    pub(crate) orphan_file_bytes: Option<u64>,
    /// Of users, groups and projects; `None`: by the features.
    pub(crate) quota_kinds: Option<[bool; 3]>,
    /// Whether the inode tables need not be zeroed.
    pub(crate) lazy_itable: bool,
    /// Whether the inode tables are known to be zero.
    pub(crate) itable_zeroed: bool,
    pub(crate) mmp_interval: u16,
    /// `s_encoding` and `s_encoding_flags`.
    pub(crate) encoding: (u16, u16),
    pub(crate) test_fs: bool,
    pub(crate) label: Vec<u8>,
    pub(crate) last_mounted: Vec<u8>,
    pub(crate) uuid: [u8; 16],
    pub(crate) hash_seed: [u8; 16],
    pub(crate) hash_version: u8,
    pub(crate) on_error: OnError,
    /// `s_default_mount_opts`.
    pub(crate) mount_options: u32,
    pub(crate) creator_os: u32,
    pub(crate) periodic_check: bool,
    /// Seconds since 1970, of everything that has a time.
    pub(crate) time: u64,
}
