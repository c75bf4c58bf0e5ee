//! The superblock: 1024 bytes at byte 1024 of the volume, and at the start of backup groups.
//!
//! [`Superblock`] has the raw fields; [`Superblock::validate`] turns them into a
//! [`Geometry`] of consistent numbers.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::{CRC32C_INIT, crc32c};
use crate::error::ensure;
use crate::features::{Compat, Incompat, RoCompat};
use crate::geometry::GOOD_OLD_INODE_BYTES;
use crate::{Corrupt, Geometry, InodeNumber, Result};

mod steady;

pub use steady::MAX_LAST_MOUNTED;

/// Size of the superblock in bytes.
pub const SUPERBLOCK_BYTES: usize = 1024;
/// Byte offset of the primary superblock in the volume.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// `s_magic`.
pub const MAGIC: u16 = 0xEF53;
/// `s_rev_level` of the first revision: fixed inode size, no features.
pub const REV_GOOD_OLD: u32 = 0;
/// `s_rev_level` of all later volumes.
pub const REV_DYNAMIC: u32 = 1;
/// `s_checksum_type` of crc32c, the only one defined.
pub const CHECKSUM_CRC32C: u8 = 1;

bitflags::bitflags! {
    /// `s_state`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct State: u16 {
        /// Cleanly unmounted.
        const VALID = 1;
        /// Errors were found.
        const ERROR = 2;
        /// Orphans are being recovered.
        const ORPHAN = 4;
        /// Fast-commit replay is under way.
        const FC_REPLAY = 0x20;
        const _ = !0;
    }
}

bitflags::bitflags! {
    /// `s_flags`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Flags: u32 {
        /// Directory hashes treat bytes as signed.
        const SIGNED_HASH = 1;
        /// Directory hashes treat bytes as unsigned.
        const UNSIGNED_HASH = 2;
        /// For testing development code.
        const TEST_FILESYS = 4;
        const _ = !0;
    }
}

/// `s_errors`: the behaviour on damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum OnError {
    /// Go on.
    Continue = 1,
    /// No more changes.
    RemountRo = 2,
    /// The system panics.
    Panic = 3,
}

impl OnError {
    /// All, with their names in mke2fs and tune2fs.
    pub const NAMES: [(OnError, &str); 3] = [
        (OnError::Continue, "continue"),
        (OnError::RemountRo, "remount-ro"),
        (OnError::Panic, "panic"),
    ];

    /// The name.
    pub fn as_str(self) -> &'static str {
        let own = Self::NAMES.iter().find(|(known, _)| *known == self);
        own.map_or("", |(_, name)| name)
    }
}

/// `s_first_error_errcode` and `s_last_error_errcode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ErrorCode {
    /// A write or a read failed.
    Io = 2,
    /// A structure is invalid.
    Corrupted = 5,
}

/// An error as recorded in the superblock.
#[derive(Clone, Copy, Debug)]
pub struct ErrorRecord<'a> {
    /// The time, in seconds since 1970.
    pub seconds: u64,
    /// The inode concerned; 0 for none.
    pub ino: u32,
    /// The block concerned; 0 for none.
    pub block: u64,
    /// The function that found it; of a longer name, the last 32 bytes are stored.
    pub func: &'a str,
    /// The line in that function's source.
    pub line: u32,
    /// The kind of error.
    pub code: ErrorCode,
}

/// The superblock on disk.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct Superblock {
    pub s_inodes_count: U32,
    pub s_blocks_count_lo: U32,
    pub s_r_blocks_count_lo: U32,
    pub s_free_blocks_count_lo: U32,
    pub s_free_inodes_count: U32,
    pub s_first_data_block: U32,
    pub s_log_block_size: U32,
    pub s_log_cluster_size: U32,
    pub s_blocks_per_group: U32,
    pub s_clusters_per_group: U32,
    pub s_inodes_per_group: U32,
    pub s_mtime: U32,
    pub s_wtime: U32,
    pub s_mnt_count: U16,
    pub s_max_mnt_count: U16,
    pub s_magic: U16,
    pub s_state: U16,
    pub s_errors: U16,
    pub s_minor_rev_level: U16,
    pub s_lastcheck: U32,
    pub s_checkinterval: U32,
    pub s_creator_os: U32,
    pub s_rev_level: U32,
    pub s_def_resuid: U16,
    pub s_def_resgid: U16,
    pub s_first_ino: U32,
    pub s_inode_size: U16,
    pub s_block_group_nr: U16,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
    pub s_volume_name: [u8; 16],
    pub s_last_mounted: [u8; 64],
    pub s_algorithm_usage_bitmap: U32,
    pub s_prealloc_blocks: u8,
    pub s_prealloc_dir_blocks: u8,
    pub s_reserved_gdt_blocks: U16,
    pub s_journal_uuid: [u8; 16],
    pub s_journal_inum: U32,
    pub s_journal_dev: U32,
    pub s_last_orphan: U32,
    pub s_hash_seed: [U32; 4],
    pub s_def_hash_version: u8,
    pub s_jnl_backup_type: u8,
    pub s_desc_size: U16,
    pub s_default_mount_opts: U32,
    pub s_first_meta_bg: U32,
    pub s_mkfs_time: U32,
    pub s_jnl_blocks: [U32; 17],
    pub s_blocks_count_hi: U32,
    pub s_r_blocks_count_hi: U32,
    pub s_free_blocks_count_hi: U32,
    pub s_min_extra_isize: U16,
    pub s_want_extra_isize: U16,
    pub s_flags: U32,
    pub s_raid_stride: U16,
    pub s_mmp_interval: U16,
    pub s_mmp_block: U64,
    pub s_raid_stripe_width: U32,
    pub s_log_groups_per_flex: u8,
    pub s_checksum_type: u8,
    pub s_encryption_level: u8,
    pub s_reserved_pad: u8,
    pub s_kbytes_written: U64,
    pub s_snapshot_inum: U32,
    pub s_snapshot_id: U32,
    pub s_snapshot_r_blocks_count: U64,
    pub s_snapshot_list: U32,
    pub s_error_count: U32,
    pub s_first_error_time: U32,
    pub s_first_error_ino: U32,
    pub s_first_error_block: U64,
    pub s_first_error_func: [u8; 32],
    pub s_first_error_line: U32,
    pub s_last_error_time: U32,
    pub s_last_error_ino: U32,
    pub s_last_error_line: U32,
    pub s_last_error_block: U64,
    pub s_last_error_func: [u8; 32],
    pub s_mount_opts: [u8; 64],
    pub s_usr_quota_inum: U32,
    pub s_grp_quota_inum: U32,
    pub s_overhead_clusters: U32,
    pub s_backup_bgs: [U32; 2],
    pub s_encrypt_algos: [u8; 4],
    pub s_encrypt_pw_salt: [u8; 16],
    pub s_lpf_ino: U32,
    pub s_prj_quota_inum: U32,
    pub s_checksum_seed: U32,
    pub s_wtime_hi: u8,
    pub s_mtime_hi: u8,
    pub s_mkfs_time_hi: u8,
    pub s_lastcheck_hi: u8,
    pub s_first_error_time_hi: u8,
    pub s_last_error_time_hi: u8,
    pub s_first_error_errcode: u8,
    pub s_last_error_errcode: u8,
    pub s_encoding: U16,
    pub s_encoding_flags: U16,
    pub s_orphan_file_inum: U32,
    pub s_reserved: [U32; 94],
    pub s_checksum: U32,
}

const _: () = {
    assert!(size_of::<Superblock>() == SUPERBLOCK_BYTES);
    assert!(offset_of!(Superblock, s_magic) == 0x38);
    assert!(offset_of!(Superblock, s_first_ino) == 0x54);
    assert!(offset_of!(Superblock, s_uuid) == 0x68);
    assert!(offset_of!(Superblock, s_last_mounted) == 0x88);
    assert!(offset_of!(Superblock, s_reserved_gdt_blocks) == 0xCE);
    assert!(offset_of!(Superblock, s_hash_seed) == 0xEC);
    assert!(offset_of!(Superblock, s_desc_size) == 0xFE);
    assert!(offset_of!(Superblock, s_jnl_blocks) == 0x10C);
    assert!(offset_of!(Superblock, s_blocks_count_hi) == 0x150);
    assert!(offset_of!(Superblock, s_mmp_block) == 0x168);
    assert!(offset_of!(Superblock, s_log_groups_per_flex) == 0x174);
    assert!(offset_of!(Superblock, s_kbytes_written) == 0x178);
    assert!(offset_of!(Superblock, s_error_count) == 0x194);
    assert!(offset_of!(Superblock, s_last_error_func) == 0x1E0);
    assert!(offset_of!(Superblock, s_usr_quota_inum) == 0x240);
    assert!(offset_of!(Superblock, s_backup_bgs) == 0x24C);
    assert!(offset_of!(Superblock, s_checksum_seed) == 0x270);
    assert!(offset_of!(Superblock, s_encoding) == 0x27C);
    assert!(offset_of!(Superblock, s_orphan_file_inum) == 0x280);
    assert!(offset_of!(Superblock, s_checksum) == 0x3FC);
};

impl Superblock {
    /// Copies the superblock out of `bytes` (at least 1024). Checks the length and the magic
    /// number only; see [`Self::validate`].
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let (superblock, _) =
            Self::read_from_prefix(bytes).map_err(|_| Corrupt::new("superblock is cut short"))?;
        ensure!(
            superblock.has_magic(),
            "superblock magic is {:#06x}, not {MAGIC:#06x}",
            superblock.s_magic.get()
        );
        Ok(superblock)
    }

    /// Whether the magic number is that of ext2, ext3 or ext4.
    pub fn has_magic(&self) -> bool {
        self.s_magic.get() == MAGIC
    }

    /// Checks the checksum, if the volume has one, and the consistency of all numbers.
    pub fn validate(&self) -> Result<Geometry> {
        self.verify_checksum()?;
        Geometry::new(self)
    }

    /// `s_feature_compat`; empty in revision 0.
    pub fn compat(&self) -> Compat {
        Compat::from_bits_retain(if self.is_rev0() {
            0
        } else {
            self.s_feature_compat.get()
        })
    }

    /// `s_feature_incompat`; empty in revision 0.
    pub fn incompat(&self) -> Incompat {
        Incompat::from_bits_retain(if self.is_rev0() {
            0
        } else {
            self.s_feature_incompat.get()
        })
    }

    /// `s_feature_ro_compat`; empty in revision 0.
    pub fn ro_compat(&self) -> RoCompat {
        RoCompat::from_bits_retain(if self.is_rev0() {
            0
        } else {
            self.s_feature_ro_compat.get()
        })
    }

    /// Whether this is revision 0: no features, and inodes of 128 bytes.
    pub fn is_rev0(&self) -> bool {
        self.s_rev_level.get() == REV_GOOD_OLD
    }

    /// Upgrades revision 0 to 1, which can have features, with the same sizes and no features.
    pub fn make_dynamic(&mut self) {
        if !self.is_rev0() {
            return;
        }
        self.s_rev_level.set(REV_DYNAMIC);
        self.s_first_ino.set(InodeNumber::GOOD_OLD_FIRST.0);
        self.s_inode_size.set(GOOD_OLD_INODE_BYTES);
        self.s_feature_compat.set(0);
        self.s_feature_incompat.set(0);
        self.s_feature_ro_compat.set(0);
    }

    /// `s_state`.
    pub fn state(&self) -> State {
        State::from_bits_retain(self.s_state.get())
    }

    /// Sets `s_state`.
    pub fn set_state(&mut self, state: State) {
        self.s_state.set(state.bits());
    }

    /// `s_flags`.
    pub fn flags(&self) -> Flags {
        Flags::from_bits_retain(self.s_flags.get())
    }

    /// The number of blocks of the volume, not validated.
    pub fn blocks_count(&self) -> u64 {
        self.wide(self.s_blocks_count_lo, self.s_blocks_count_hi)
    }

    /// Blocks reserved for root.
    pub fn r_blocks_count(&self) -> u64 {
        self.wide(self.s_r_blocks_count_lo, self.s_r_blocks_count_hi)
    }

    /// Free blocks, as last written (blocks with `bigalloc`, too; descriptors count clusters).
    pub fn free_blocks_count(&self) -> u64 {
        self.wide(self.s_free_blocks_count_lo, self.s_free_blocks_count_hi)
    }

    /// Sets the number of free blocks; the high half only with `64bit`.
    pub fn set_free_blocks_count(&mut self, count: u64) {
        self.s_free_blocks_count_lo.set(count as u32);
        if self.incompat().contains(Incompat::BIT64) {
            self.s_free_blocks_count_hi.set((count >> 32) as u32);
        }
    }

    fn wide(&self, lo: U32, hi: U32) -> u64 {
        let hi = if self.incompat().contains(Incompat::BIT64) {
            hi.get()
        } else {
            0
        };
        u64::from(hi) << 32 | u64::from(lo.get())
    }

    /// Time of the last write, seconds since 1970 (40 bits).
    pub fn wtime(&self) -> u64 {
        u64::from(self.s_wtime_hi) << 32 | u64::from(self.s_wtime.get())
    }

    /// Time of the last mount, seconds since 1970 (40 bits).
    pub fn mtime(&self) -> u64 {
        u64::from(self.s_mtime_hi) << 32 | u64::from(self.s_mtime.get())
    }

    /// Time the volume was made, seconds since 1970 (40 bits).
    pub fn mkfs_time(&self) -> u64 {
        u64::from(self.s_mkfs_time_hi) << 32 | u64::from(self.s_mkfs_time.get())
    }

    /// Time of the last check, seconds since 1970 (40 bits).
    pub fn lastcheck(&self) -> u64 {
        u64::from(self.s_lastcheck_hi) << 32 | u64::from(self.s_lastcheck.get())
    }

    /// Sets the time of the last write.
    pub fn set_wtime(&mut self, seconds: u64) {
        self.s_wtime.set(seconds as u32);
        self.s_wtime_hi = (seconds >> 32) as u8;
    }

    /// Sets the time of the last mount.
    pub fn set_mtime(&mut self, seconds: u64) {
        self.s_mtime.set(seconds as u32);
        self.s_mtime_hi = (seconds >> 32) as u8;
    }

    /// `s_errors`; 0 and unknown values mean [`OnError::Continue`], as in the kernel.
    pub fn on_error(&self) -> OnError {
        match self.s_errors.get() {
            2 => OnError::RemountRo,
            3 => OnError::Panic,
            _ => OnError::Continue,
        }
    }

    /// Counts an error and records it as the last one, and as the first if there was none since the last
    /// check. Sets `ERROR_FS` in `s_state`.
    pub fn record_error(&mut self, error: &ErrorRecord<'_>) {
        self.set_state(self.state() | State::ERROR);
        let func = name_field(error.func);
        let (low, high) = (error.seconds as u32, (error.seconds >> 32) as u8);
        if self.s_error_count.get() == 0 || self.s_first_error_time.get() == 0 {
            self.s_first_error_time.set(low);
            self.s_first_error_time_hi = high;
            self.s_first_error_ino.set(error.ino);
            self.s_first_error_block.set(error.block);
            self.s_first_error_func = func;
            self.s_first_error_line.set(error.line);
            self.s_first_error_errcode = error.code as u8;
        }
        self.s_last_error_time.set(low);
        self.s_last_error_time_hi = high;
        self.s_last_error_ino.set(error.ino);
        self.s_last_error_block.set(error.block);
        self.s_last_error_func = func;
        self.s_last_error_line.set(error.line);
        self.s_last_error_errcode = error.code as u8;
        self.s_error_count
            .set(self.s_error_count.get().saturating_add(1));
    }

    /// Copies the error fields from another copy of this superblock.
    pub fn copy_errors(&mut self, from: &Self) {
        self.set_state(self.state() | (from.state() & State::ERROR));
        self.s_error_count = from.s_error_count;
        self.s_first_error_time = from.s_first_error_time;
        self.s_first_error_time_hi = from.s_first_error_time_hi;
        self.s_first_error_ino = from.s_first_error_ino;
        self.s_first_error_block = from.s_first_error_block;
        self.s_first_error_func = from.s_first_error_func;
        self.s_first_error_line = from.s_first_error_line;
        self.s_first_error_errcode = from.s_first_error_errcode;
        self.s_last_error_time = from.s_last_error_time;
        self.s_last_error_time_hi = from.s_last_error_time_hi;
        self.s_last_error_ino = from.s_last_error_ino;
        self.s_last_error_block = from.s_last_error_block;
        self.s_last_error_func = from.s_last_error_func;
        self.s_last_error_line = from.s_last_error_line;
        self.s_last_error_errcode = from.s_last_error_errcode;
    }

    /// The label, up to its first NUL byte.
    pub fn volume_name(&self) -> &[u8] {
        until_nul(&self.s_volume_name)
    }

    /// Where the volume was last mounted, up to the first NUL byte.
    pub fn last_mounted(&self) -> &[u8] {
        until_nul(&self.s_last_mounted)
    }

    /// `s_hash_seed` as the directory hashes use it.
    pub fn hash_seed(&self) -> [u32; 4] {
        self.s_hash_seed.map(U32::get)
    }

    /// The correct checksum of these bytes.
    pub fn checksum(&self) -> u32 {
        let covered = offset_of!(Superblock, s_checksum);
        crc32c(CRC32C_INIT, &self.as_bytes()[..covered])
    }

    /// Checks `s_checksum` if the volume has `metadata_csum`.
    pub fn verify_checksum(&self) -> Result<()> {
        if !self.ro_compat().contains(RoCompat::METADATA_CSUM) {
            return Ok(());
        }
        ensure!(
            self.s_checksum_type == CHECKSUM_CRC32C,
            "superblock checksum type is {}, not crc32c",
            self.s_checksum_type
        );
        let (found, right) = (self.s_checksum.get(), self.checksum());
        ensure!(
            found == right,
            "superblock checksum is {found:#010x}, should be {right:#010x}"
        );
        Ok(())
    }

    /// Recomputes `s_checksum` if the volume has `metadata_csum`; call before writing. A superblock that is
    /// written over another one keeps its checksum instead: [`Superblock::steps_from`].
    pub fn update_checksum(&mut self) {
        if self.ro_compat().contains(RoCompat::METADATA_CSUM) {
            self.s_checksum.set(self.checksum());
        }
    }
}

impl std::fmt::Debug for Superblock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Superblock")
            .field("s_blocks_count", &self.blocks_count())
            .field("s_inodes_count", &self.s_inodes_count.get())
            .field("s_log_block_size", &self.s_log_block_size.get())
            .field("compat", &self.compat().to_string())
            .field("incompat", &self.incompat().to_string())
            .field("ro_compat", &self.ro_compat().to_string())
            .finish_non_exhaustive()
    }
}

/// The last bytes of a text that fit a field of 32 bytes.
fn name_field(text: &str) -> [u8; 32] {
    let mut field = [0; 32];
    let end = text
        .as_bytes()
        .get(text.len().saturating_sub(field.len())..)
        .unwrap_or_default();
    field.iter_mut().zip(end).for_each(|(to, from)| *to = *from);
    field
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}
