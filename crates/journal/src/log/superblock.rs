//! The journal's superblock while the log is in use: where the oldest live transaction starts.
//!
//! Invariants:
//! - It is written whole, with its checksum, and durable before [`Superblock::point_to`] returns. If that
//!   fails, memory has what it had before, so that a repetition writes it again.
//! - Features are changed only while the log is empty.

use throughline_block::{Disk, Purpose};
use throughline_device::AlignedBuf;
use throughline_extfmt::jbd2::{
    BlockType, CHECKSUM_CRC32C, JOURNAL_SUPERBLOCK_BYTES, JournalCompat, JournalGeometry,
    JournalIncompat, JournalSuperblock,
};
use throughline_locks::{Mutex, Rank};
use zerocopy::IntoBytes;

use super::LogOptions;
use crate::error::{Error, Result};
use crate::features;
use crate::map::LogMap;
use crate::tid::Tid;

/// See the head of this file.
pub(crate) struct Superblock {
    offset: u64,
    state: Mutex<State>,
}

struct State {
    superblock: JournalSuperblock,
    /// The block that contains it.
    block: AlignedBuf,
}

impl Superblock {
    /// Reads and checks the superblock, sets the features that writing needs, and returns the log's geometry.
    ///
    /// # Errors
    /// `Caller` for a log that is not empty; `Unsupported` for unknown features and for a log that is too
    /// small; `Corrupt` for a damaged one; device errors. Nothing is written then.
    pub(crate) fn open(
        disk: &Disk,
        map: &LogMap,
        block_bytes: u32,
        options: &LogOptions,
    ) -> Result<(Self, JournalGeometry)> {
        let offset = map.offset(0)?;
        let align_bytes = disk.limits().memory_align_bytes.max(1) as usize;
        let mut block = AlignedBuf::zeroed(block_bytes as usize, align_bytes);
        Purpose::Journal.during(|| disk.read_at(offset, &mut block))?;
        let corrupt = |what| Error::Corrupt { block: None, what };
        let mut superblock = JournalSuperblock::read(&block).map_err(corrupt)?;
        let geometry = superblock
            .validate(block_bytes, map.blocks().into())
            .map_err(corrupt)?;
        features::check(&superblock)?;
        if geometry.start.is_some() {
            return Err(Error::Caller("the journal holds transactions"));
        }
        let changed = set_features(&mut superblock, options);
        superblock.update_checksum();
        let geometry = superblock
            .validate(block_bytes, map.blocks().into())
            .map_err(corrupt)?;
        let this = Self {
            offset,
            state: Mutex::ranked(Rank::JournalSuper, State { superblock, block }),
        };
        features::check_size(&geometry)?;
        if changed {
            this.write(disk, |_| ())?;
        }
        Ok((this, geometry))
    }

    /// Sets the start of the oldest live transaction (`None` for an empty log) and its number (that of the
    /// next one for an empty log).
    pub(crate) fn point_to(&self, disk: &Disk, start: Option<u32>, tid: Tid) -> Result<()> {
        self.write(disk, |superblock| {
            superblock.s_start.set(start.unwrap_or(0));
            superblock.s_sequence.set(tid.0);
        })
    }

    /// Whether it marks the log as empty.
    pub(crate) fn is_marked_empty(&self) -> bool {
        self.state.lock().superblock.s_start.get() == 0
    }

    /// Records an error (a positive errno), to be found when the journal is next opened.
    pub(crate) fn record_error(&self, disk: &Disk, errno: u32) -> Result<()> {
        self.write(disk, |superblock| {
            superblock.s_errno.set(errno.wrapping_neg());
        })
    }

    fn write(&self, disk: &Disk, change: impl FnOnce(&mut JournalSuperblock)) -> Result<()> {
        let State { superblock, block } = &mut *self.state.lock();
        let mut new = *superblock;
        change(&mut new);
        new.update_checksum();
        block[..JOURNAL_SUPERBLOCK_BYTES].copy_from_slice(new.as_bytes());
        Purpose::Journal.during(|| disk.write_at(self.offset, block, true))?;
        *superblock = new;
        Ok(())
    }
}

/// Sets the features that `options` and our log format need. An existing checksum version is kept. Returns
/// whether something changed.
fn set_features(superblock: &mut JournalSuperblock, options: &LogOptions) -> bool {
    let before = *superblock;
    if !superblock.has_features() {
        superblock
            .s_header
            .h_blocktype
            .set(BlockType::SuperblockV2.to_disk());
        superblock.s_feature_compat.set(0);
        superblock.s_feature_incompat.set(0);
        superblock.s_feature_ro_compat.set(0);
        superblock.s_num_fc_blks.set(0);
    }
    let mut incompat = superblock.incompat() | JournalIncompat::REVOKE;
    // We write no fast commits, so the log may use their area. With that area in use, `e2fsck` 1.47 and the
    // kernel disagree on where the log wraps around. The kernel sets the feature again when it mounts.
    incompat.remove(JournalIncompat::ASYNC_COMMIT | JournalIncompat::FAST_COMMIT);
    if options.bit64 {
        incompat |= JournalIncompat::BIT64;
    }
    let sums = JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3;
    if options.checksums && !incompat.intersects(sums) {
        incompat |= JournalIncompat::CSUM_V3;
        let compat = superblock.compat() - JournalCompat::CHECKSUM;
        superblock.s_feature_compat.set(compat.bits());
    }
    if incompat.intersects(sums) {
        superblock.s_checksum_type = CHECKSUM_CRC32C;
    }
    superblock.set_incompat(incompat);
    before.as_bytes() != superblock.as_bytes()
}
