//! The primary superblock, accessed directly and not through the metadata cache: read before the cache
//! exists, and edited when no transaction can do it (before the first, after the last, and after a stop).
//!
//! It is 1 KiB and spans two sectors, with its checksum in the second. A power cut may leave one sector new
//! and the other old.
//!
//! Invariants:
//! - No write of ours changes both sectors ([`Superblock::steps_from`]), so none is torn.
//! - Others tear it. Everything important is in the first sector, so a superblock of which only the checksum
//!   is wrong is accepted, with a warning, if something else confirms it: on a volume with backups one that
//!   has the same constant fields, on one without ([`confirm`]) the checksums of the descriptors and of the
//!   volume's own inodes. Its counts are not used. A log that holds the superblock then replaces it.

mod confirm;

use throughline_block::{Disk, Purpose};
use throughline_extfmt::features::{Compat, Incompat, RoCompat};
use throughline_extfmt::geometry::GOOD_OLD_INODE_BYTES;
use throughline_extfmt::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};
use throughline_extfmt::{Geometry, InodeNumber, Superblock};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

use crate::error::{Error, NotExt, Reason, Result};

/// Backups to read before the primary counts as damaged.
const BACKUPS_ASKED: usize = 3;

/// The primary superblock and its geometry.
#[derive(Clone)]
pub(crate) struct Primary {
    pub(crate) superblock: Superblock,
    pub(crate) geo: Geometry,
    /// A power cut tore it: its counts may be outdated.
    pub(crate) torn: bool,
}

impl Primary {
    /// Validates the result of [`read`], including against the device's length.
    ///
    /// # Errors
    /// `Corrupt` if it contradicts itself or the volume extends past the device.
    pub(crate) fn check(disk: &Disk, superblock: Superblock) -> Result<Self> {
        let found = match superblock.validate() {
            Ok(geo) => Self {
                superblock,
                geo,
                torn: false,
            },
            Err(why) => mend_torn(disk, superblock).ok_or_else(|| Error::from(why))?,
        };
        check_length(disk, &found.geo)?;
        Ok(found)
    }
}

/// Reads the superblock of a device that may hold no volume; only its magic number is checked.
///
/// # Errors
/// [`Reason::NotExt`] if there is none; device errors.
pub fn find(disk: &Disk) -> Result<Superblock> {
    Ok(read_around(disk)?.0)
}

/// Reads the superblock of a volume; only its magic number is checked.
///
/// # Errors
/// `Corrupt` if it is no longer there; device errors.
pub(crate) fn read(disk: &Disk) -> Result<Superblock> {
    find(disk).map_err(as_damage)
}

/// The error of a superblock that must be there.
fn as_damage(error: Error) -> Error {
    match error {
        Error::Caller(Reason::NotExt(why)) => Error::corrupt(why.to_string()),
        other => other,
    }
}

/// Rejects a volume that extends past its device.
fn check_length(disk: &Disk, geo: &Geometry) -> Result<()> {
    let volume_bytes = geo.blocks.saturating_mul(geo.block_bytes.into());
    if volume_bytes > disk.len_bytes() {
        return Err(Error::corrupt(format!(
            "the volume has {volume_bytes} bytes, its device only {}: the image is truncated",
            disk.len_bytes()
        )));
    }
    Ok(())
}

/// Changes the superblock in place, durably. Nothing else may write it at the same time: neither a
/// transaction nor a checkpoint. Returns its checksum.
///
/// # Errors
/// Device errors; `Corrupt` if the superblock is no longer there.
pub(crate) fn edit(disk: &Disk, edit: impl FnOnce(&mut Superblock)) -> Result<U32> {
    let (mut last, mut bytes) = read_around(disk).map_err(as_damage)?;
    let mut edited = last;
    edit(&mut edited);
    let (start, at) = place(disk);
    let mut written = Ok(());
    for step in edited.steps_from(&last) {
        if step.as_bytes() != last.as_bytes()
            && let Some(place) = bytes.get_mut(at..at + SUPERBLOCK_BYTES)
        {
            place.copy_from_slice(step.as_bytes());
            // Also after an error, which may be one of an earlier flush: an error is to be recorded.
            let one = Purpose::Metadata.during(|| disk.write_at(start, &bytes, true));
            written = written.and(one);
            last = step;
        }
    }
    written?;
    Ok(last.s_checksum)
}

/// The first byte of the logical blocks that contain the superblock, and its offset in them.
fn place(disk: &Disk) -> (u64, usize) {
    let logical = disk.limits().logical_block_bytes.max(1) as usize;
    let start = SUPERBLOCK_OFFSET as usize / logical * logical;
    (start as u64, SUPERBLOCK_OFFSET as usize - start)
}

/// Reads the superblock and the logical blocks that contain it.
fn read_around(disk: &Disk) -> Result<(Superblock, Vec<u8>)> {
    let logical = disk.limits().logical_block_bytes.max(1) as usize;
    let (start, at) = place(disk);
    let bytes = (at + SUPERBLOCK_BYTES).next_multiple_of(logical);
    if disk.len_bytes() < start.saturating_add(bytes as u64) {
        let bytes = disk.len_bytes();
        return Err(Reason::NotExt(NotExt::TooShort { bytes }).into());
    }
    let mut bytes = vec![0; bytes];
    Purpose::Metadata.during(|| disk.read_at(start, &mut bytes))?;
    let there = bytes.get(at..).unwrap_or_default();
    let (superblock, _) = Superblock::read_from_prefix(there)
        .map_err(|_| Error::corrupt("superblock is cut short"))?;
    if !superblock.has_magic() {
        let found = superblock.s_magic.get();
        return Err(Reason::NotExt(NotExt::Magic { found }).into());
    }
    Ok((superblock, bytes))
}

/// Fixes the checksum of a superblock if only that is wrong and the rest is confirmed.
fn mend_torn(disk: &Disk, found: Superblock) -> Option<Primary> {
    let mut superblock = found;
    superblock.update_checksum();
    let geo = superblock.validate().ok()?;
    // May change in use, but only within bounds that e2fsck checks.
    if superblock.r_blocks_count() > geo.blocks / 2 {
        return None;
    }
    let has_backups = geo.superblock_groups().nth(1).is_some();
    let known = match has_backups {
        true => backups(disk, &geo).any(|backup| is_same_volume(&superblock, &backup)),
        false => confirm::agrees(disk, &found, &superblock, &geo),
    };
    if known {
        tracing::warn!("the superblock's checksum is wrong: a power cut tore its last write");
    }
    known.then_some(Primary {
        superblock,
        geo,
        torn: true,
    })
}

/// Compares the fields of the primary superblock that never change while a volume is in use with those of the
/// backups. To be called before the backups are overwritten: they are what repairs a damaged primary.
///
/// # Errors
/// `Corrupt` if there are readable backups and all of them differ.
pub fn check_backups(disk: &Disk, superblock: &Superblock) -> Result<()> {
    let geo = superblock.validate()?;
    let mut found = backups(disk, &geo).peekable();
    if found.peek().is_none() || found.any(|backup| is_same_volume(superblock, &backup)) {
        return Ok(());
    }
    Err(Error::corrupt(
        "the superblock and its backups differ in fields that never change",
    ))
}

/// The first backups that can be read.
fn backups(disk: &Disk, geo: &Geometry) -> impl Iterator<Item = Superblock> {
    let groups = geo.superblock_groups().skip(1).take(BACKUPS_ASKED);
    groups.into_iter().filter_map(|group| {
        let block = geo.superblock_block(group)?;
        read_backup(disk, block.byte_offset(geo.block_bytes)?)
    })
}

fn read_backup(disk: &Disk, offset: u64) -> Option<Superblock> {
    let logical = disk.limits().logical_block_bytes.max(1) as usize;
    let mut bytes = vec![0; SUPERBLOCK_BYTES.next_multiple_of(logical)];
    Purpose::Metadata
        .during(|| disk.read_at(offset, &mut bytes))
        .ok()?;
    let backup = Superblock::read(&bytes).ok()?;
    backup.validate().ok().map(|_| backup)
}

/// Features that the kernel adds to the primary superblock alone, when the first file needs them.
const ADDED_IN_USE: (Compat, Incompat, RoCompat) = (
    Compat::EXT_ATTR.union(Compat::DIR_INDEX),
    Incompat::RECOVER,
    RoCompat::LARGE_FILE
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::ORPHAN_PRESENT),
);

/// Whether all fields that never change while a volume is in use are equal.
fn is_same_volume(a: &Superblock, b: &Superblock) -> bool {
    let fixed = |sb: &Superblock| {
        // The first feature that is used makes revision 1 of revision 0, in the primary superblock alone.
        let (first_ino, inode_bytes) = match sb.is_rev0() {
            true => (InodeNumber::GOOD_OLD_FIRST.0, GOOD_OLD_INODE_BYTES.into()),
            false => (sb.s_first_ino.get(), sb.s_inode_size.get().into()),
        };
        let numbers = [
            sb.s_inodes_count.get(),
            sb.s_first_data_block.get(),
            sb.s_log_block_size.get(),
            sb.s_log_cluster_size.get(),
            sb.s_blocks_per_group.get(),
            sb.s_clusters_per_group.get(),
            sb.s_inodes_per_group.get(),
            first_ino,
            inode_bytes,
            sb.s_desc_size.get().into(),
            sb.s_reserved_gdt_blocks.get().into(),
            sb.s_first_meta_bg.get(),
            sb.s_journal_inum.get(),
            sb.s_checksum_seed.get(),
            sb.s_orphan_file_inum.get(),
            sb.s_mkfs_time.get(),
            sb.s_creator_os.get(),
            sb.s_def_hash_version.into(),
            sb.s_log_groups_per_flex.into(),
        ];
        let (compat, incompat, ro_compat) = ADDED_IN_USE;
        let features = (
            sb.compat().difference(compat),
            sb.incompat().difference(incompat),
            sb.ro_compat().difference(ro_compat),
        );
        let journal = (sb.s_journal_uuid, sb.s_journal_dev.get());
        let words = (sb.s_hash_seed, sb.s_backup_bgs);
        let words = (words.0.map(U32::get), words.1.map(U32::get));
        (
            numbers,
            sb.blocks_count(),
            sb.s_uuid,
            features,
            journal,
            words,
        )
    };
    fixed(a) == fixed(b)
}

#[cfg(test)]
mod tests;
