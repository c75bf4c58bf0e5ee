//! Changes the size of a volume that is not open.
//!
//! ```text
//! recover ─► plan ─┬► grow      make::resize: new groups behind the end, then the superblock
//!                  └► shrink    ext::shrink moves files out of the way; then the superblock; the file is cut
//! ```
//!
//! The device stays locked from the first look to the end: what a crash left is completed, the volume is
//! opened once, which recovers it, and closed; then its counts are compared, and it is changed.

mod shrink;

use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use throughline_block::Disk;
use throughline_device::DeviceKind;
use throughline_ext::{Claim, Recovery, State};
use throughline_make::resize::{self, Resized};

use crate::error::Error;
use crate::open::{OpenOptions, located};
use crate::volume::Volume;

/// The size that a volume is to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NewSize {
    /// This many bytes, rounded down to whole blocks.
    Bytes(u64),
    /// As few as possible.
    Min,
    /// This many bytes more.
    More(u64),
    /// All of the device or of the file.
    Max,
}

/// Called with the number of bytes moved so far, and of all that are known to move.
type Show<'p> = &'p dyn Fn(u64, u64);

/// What was done to a volume, or would be.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ResizeReport {
    /// The size before and after.
    pub size: Resized,
    /// What was recovered first. Empty if only a plan was asked for.
    pub recovery: Recovery,
    /// Whether an earlier change of the size was interrupted, and has been completed.
    pub completed: bool,
}

impl ResizeReport {
    fn planned(size: Resized) -> ResizeReport {
        ResizeReport {
            size,
            recovery: Recovery::default(),
            completed: false,
        }
    }
}

/// Why the size of a volume was not changed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// The size is not possible. The text says what is. Nothing was written.
    #[error("{0}")]
    Size(String),
    /// The volume has to be checked by `e2fsck -f` first. The size was not changed.
    #[error("{0}")]
    NeedsCheck(String),
    /// The volume could not be opened, recovered, read or written.
    #[error(transparent)]
    Volume(#[from] Error),
}

impl From<throughline_ext::Error> for ResizeError {
    fn from(error: throughline_ext::Error) -> ResizeError {
        ResizeError::Volume(error.into())
    }
}

impl From<throughline_make::Error> for ResizeError {
    fn from(error: throughline_make::Error) -> ResizeError {
        use throughline_make::Error as E;
        match error {
            E::Device(device) => Error::Device(device).into(),
            E::Unsupported(why) => Error::Unsupported(why).into(),
            E::Damaged(why) => ResizeError::NeedsCheck(why),
            other => ResizeError::Size(other.to_string()),
        }
    }
}

impl From<throughline_block::Error> for ResizeError {
    fn from(error: throughline_block::Error) -> ResizeError {
        ResizeError::Volume(Error::Device(error))
    }
}

impl OpenOptions {
    /// Changes the size of the volume in the file or on the block device `path`, which is not in use. A
    /// regular file is lengthened if it is too short, and cut where the volume ends if it has become smaller
    /// or has the size that was asked for. In a partition, the volume keeps within it, and the table of
    /// partitions does not change. What needs recovery is recovered first.
    ///
    /// When the call returns, the volume has its new size durably. Interrupted at any moment, it leaves a
    /// volume with the old or the new size and with all files; the same call completes it, and so does
    /// `e2fsck -fy`. A last group that would hold little beside its metadata is left out, so the volume may
    /// be a little smaller than asked for.
    ///
    /// # Errors
    /// [`ResizeError`]; of [`OpenOptions::open`], for writing.
    pub fn resize(
        &self,
        path: impl AsRef<Path>,
        size: NewSize,
    ) -> Result<ResizeReport, ResizeError> {
        self.resize_showing(path, size, &|_, _| ())
    }

    /// As [`OpenOptions::resize`]; `progress` is called with the bytes moved so far, and all bytes that are
    /// known to move. Only files that are in the way of a smaller size move.
    ///
    /// # Errors
    /// As there.
    pub fn resize_showing(
        &self,
        path: impl AsRef<Path>,
        size: NewSize,
        progress: &dyn Fn(u64, u64),
    ) -> Result<ResizeReport, ResizeError> {
        let (options, disk) = to_resize(self, path.as_ref(), true)?;
        resize_on(&options, &disk, size, progress)
    }

    /// What [`OpenOptions::resize`] would do. Nothing is written.
    ///
    /// # Errors
    /// As of [`OpenOptions::resize`].
    pub fn plan_resize(
        &self,
        path: impl AsRef<Path>,
        size: NewSize,
    ) -> Result<ResizeReport, ResizeError> {
        let (options, disk) = to_plan(self, path.as_ref())?;
        if let Some(found) = interrupted(&disk)? {
            return completed(&found, &disk, size);
        }
        let options = &options;
        let as_found = as_found(options, &disk)?;
        let needed = as_found.fs().needs_recovery();
        if !needed {
            check(&as_found)?;
        }
        as_found.close()?;
        // Its counts are those of the last clean close, until it is recovered in place.
        let volume = options.open_on(Arc::clone(&disk))?;
        let superblock = volume.fs().superblock();
        check_state(&volume)?;
        if !needed {
            // What the journal holds may be what differs.
            check_backups(&disk)?;
        }
        let block_bytes = volume.block_bytes();
        let before = superblock.blocks_count();
        let blocks = target(&disk, size, before, block_bytes)?;
        if blocks.is_none_or(|blocks| blocks < before) {
            resize::refuse_hash_tree(&disk, volume.fs().geometry())?;
            let planned = shrink::plan(&volume, blocks)?;
            volume.close()?;
            return Ok(ResizeReport::planned(planned.size));
        }
        volume.close()?;
        let blocks = blocks.unwrap_or(before);
        let size = match needed {
            // What the journal holds is not in place.
            true => resize::grown(&superblock, blocks)?,
            false => resize::check(&disk, blocks)?,
        };
        Ok(ResizeReport::planned(size))
    }
}

/// As [`OpenOptions::resize`], on an open device.
pub(crate) fn resize_on(
    options: &OpenOptions,
    disk: &Arc<Disk>,
    new_size: NewSize,
    show: Show<'_>,
) -> Result<ResizeReport, ResizeError> {
    let found = interrupted(disk)?;
    let completed = found.is_some();
    if let Some(found) = found {
        let claim = Claim::take(disk)?;
        resize::finish(disk, found)?;
        claim.release()?;
    }
    let recovery = recover_first(options, disk)?;

    let superblock = throughline_ext::find_superblock(disk)?;
    check_backups(disk)?;
    let before = superblock.blocks_count();
    let block_bytes = 1024 << superblock.s_log_block_size.get();
    let blocks = target(disk, new_size, before, block_bytes)?;
    let is_smaller = blocks.is_none_or(|blocks| blocks < before);
    if is_smaller && let Some(size) = shrink_on(options, disk, blocks, show)? {
        return Ok(ResizeReport {
            size,
            recovery,
            completed,
        });
    }
    let blocks = blocks.unwrap_or(before).max(before);
    let claim = Claim::take(disk)?;
    let planned = resize::check(disk, blocks)?;
    let now = std::time::SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(superblock.wtime(), |since| since.as_secs());
    let file_bytes = disk.len_bytes();
    let grow = || {
        let is_zero = make_room(disk, before, planned.blocks, block_bytes)?;
        claim.check()?;
        Ok::<_, ResizeError>(resize::grow(disk, planned.blocks, is_zero, now)?)
    };
    let size = grow().inspect_err(|_| give_room_back(disk, before, file_bytes))?;
    // An interruption may have left them behind.
    resize::tidy(disk)?;
    claim.release()?;
    if size.blocks == size.blocks_before && matches!(new_size, NewSize::Bytes(_) | NewSize::Min) {
        // So may a volume that has just become smaller its file, and blocks of groups that are gone.
        shrink::finish(options, disk)?;
    }
    Ok(ResizeReport {
        size,
        recovery,
        completed,
    })
}

/// What would be done after an interrupted change was completed.
fn completed(
    found: &resize::Interrupted,
    disk: &Arc<Disk>,
    size: NewSize,
) -> Result<ResizeReport, ResizeError> {
    let superblock = found.superblock();
    let block_bytes = 1024 << superblock.s_log_block_size.get();
    let before = superblock.blocks_count();
    let blocks = target(disk, size, before, block_bytes)?;
    let size = match blocks.filter(|blocks| *blocks >= before) {
        Some(blocks) => resize::grown(superblock, blocks)?,
        None => {
            let why = "a growth was interrupted: how far the volume can shrink is known once it is \
                       completed, by the same command without -n";
            return Err(ResizeError::Size(why.to_owned()));
        }
    };
    Ok(ResizeReport {
        completed: true,
        ..ResizeReport::planned(size)
    })
}

/// The options to open a volume with that is to be resized, and its locked device.
fn to_resize(
    options: &OpenOptions,
    path: &Path,
    write: bool,
) -> Result<(OpenOptions, Arc<Disk>), ResizeError> {
    let mut options = located(options, path)?;
    options.write(write);
    if options.offset_bytes != 0 && options.len_bytes.is_none() {
        let why = "resizing a volume that begins inside of a file or device: what is behind it would be \
                   overwritten. Attach it as a loop device (losetup --offset --sizelimit)";
        return Err(Error::Unsupported(why.to_owned()).into());
    }
    if path.is_file() {
        // Small writes into holes: through the host's cache, no write waits for the disk.
        options.direct(false);
    }
    let disk = options.disk(path)?;
    Ok((options, disk))
}

/// The options to read a volume with whose change of size is planned, and its device. What would prevent the
/// change is an error now: that the volume is mounted, or that the device cannot be written. Only to those
/// who may not write the file is the plan shown anyway.
fn to_plan(options: &OpenOptions, path: &Path) -> Result<(OpenOptions, Arc<Disk>), ResizeError> {
    let may_not = |error: &ResizeError| {
        let ResizeError::Volume(Error::Open { source, .. }) = error else {
            return false;
        };
        source.kind() == std::io::ErrorKind::PermissionDenied
    };
    let (mut options, disk) = match to_resize(options, path, true) {
        Err(error) if may_not(&error) => to_resize(options, path, false)?,
        found => found?,
    };
    options.write(false);
    Ok((options, disk))
}

/// Opens the volume for reading, without replaying its journal.
fn as_found(options: &OpenOptions, disk: &Arc<Disk>) -> crate::Result<Volume> {
    let mut options = options.clone();
    options.write(false).no_replay(true);
    options.open_on(Arc::clone(disk))
}

/// Recovers the volume if that is needed, and checks it. One that needs no recovery is not changed.
fn recover_first(options: &OpenOptions, disk: &Arc<Disk>) -> Result<Recovery, ResizeError> {
    let volume = as_found(options, disk)?;
    let needed = volume.fs().needs_recovery();
    let checked = match needed {
        true => check_features(&volume),
        false => check(&volume),
    };
    volume.close()?;
    checked?;
    if !needed {
        return Ok(Recovery::default());
    }
    let mut options = options.clone();
    options.write(true).no_replay(false);
    let volume = options.open_on(Arc::clone(disk))?;
    let recovery = volume.recovery().clone();
    let checked = check(&volume);
    volume.close()?;
    checked.map(|()| recovery)
}

/// Checks that this version writes all features of a volume, and resizes volumes with them.
fn check_features(volume: &Volume) -> Result<(), ResizeError> {
    match volume.fs().unresized_features() {
        None => Ok(()),
        Some(why) => Err(Error::Unsupported(format!("resizing: {why}")).into()),
    }
}

/// Checks that this version writes all features of an open volume, and that it is sound, as far as its state
/// and its counts tell.
fn check(volume: &Volume) -> Result<(), ResizeError> {
    check_state(volume)?;
    volume.fs().check_counts().map_err(|error| match error {
        throughline_ext::Error::Corrupt(corrupt) => ResizeError::NeedsCheck(corrupt.to_string()),
        other => other.into(),
    })
}

fn check_state(volume: &Volume) -> Result<(), ResizeError> {
    check_features(volume)?;
    let fs = volume.fs();
    if fs.superblock().state().contains(State::ERROR) {
        let why = "the volume has recorded errors";
        return Err(ResizeError::NeedsCheck(why.to_owned()));
    }
    if !fs.superblock().state().contains(State::VALID) || fs.recovery().unchecked {
        let why = "the volume was not closed cleanly, or tune2fs asks for a check; there is nothing to replay";
        return Err(ResizeError::NeedsCheck(why.to_owned()));
    }
    Ok(())
}

/// The change of size that a crash interrupted.
fn interrupted(disk: &Disk) -> Result<Option<resize::Interrupted>, ResizeError> {
    // First, because its error says by type that there is no volume.
    throughline_ext::find_superblock(disk)?;
    Ok(resize::interrupted(disk)?)
}

/// Checks that the superblock is as its backups, which are about to be overwritten.
fn check_backups(disk: &Disk) -> Result<(), ResizeError> {
    let superblock = throughline_ext::find_superblock(disk)?;
    throughline_ext::check_backups(disk, &superblock)
        .map_err(|error| ResizeError::NeedsCheck(error.to_string()))
}

/// Shrinks a closed volume. `None` if it cannot become smaller than it is.
fn shrink_on(
    options: &OpenOptions,
    disk: &Arc<Disk>,
    blocks: Option<u64>,
    show: Show<'_>,
) -> Result<Option<Resized>, ResizeError> {
    let volume = as_found(options, disk)?;
    resize::refuse_hash_tree(disk, volume.fs().geometry())?;
    let planned = shrink::plan(&volume, blocks)?;
    volume.close()?;
    if planned.size.blocks == planned.size.blocks_before {
        return Ok(None);
    }
    shrink::run(options, disk, &planned, show)?;
    Ok(Some(planned.size))
}

/// The number of blocks that a volume is to get; `None`: as few as possible.
fn target(
    disk: &Disk,
    size: NewSize,
    before: u64,
    block_bytes: u32,
) -> Result<Option<u64>, ResizeError> {
    let block_bytes = u64::from(block_bytes);
    let room = disk.len_bytes() / block_bytes;
    let blocks = match size {
        NewSize::Bytes(bytes) => bytes / block_bytes,
        NewSize::More(bytes) => before.saturating_add(bytes / block_bytes),
        NewSize::Max => room,
        NewSize::Min => return Ok(None),
    };
    let is_file = disk.is_resizable() && disk.info().kind == DeviceKind::RegularFile;
    if blocks > room && !is_file {
        return Err(ResizeError::Size(format!(
            "{} bytes do not fit the device, which has {}",
            blocks.saturating_mul(block_bytes),
            disk.len_bytes()
        )));
    }
    let fits = blocks
        .checked_mul(block_bytes)
        .is_some_and(|end| i64::try_from(end).is_ok());
    match fits {
        true => Ok(Some(blocks)),
        false => Err(ResizeError::Size(
            "a volume ends before byte 2^63".to_owned(),
        )),
    }
}

/// Lengthens a file that is too short. Returns whether the device reads as zeros beyond the old end.
fn make_room(disk: &Disk, before: u64, blocks: u64, block_bytes: u32) -> Result<bool, ResizeError> {
    let (old, end) = (
        before * u64::from(block_bytes),
        blocks * u64::from(block_bytes),
    );
    if disk.len_bytes() < end {
        disk.set_len(end)?;
        disk.flush()?;
    }
    let is_file = disk.info().kind == DeviceKind::RegularFile;
    Ok(is_file && disk.seek_data(old)?.is_none_or(|data| data >= end))
}

/// After an error: cuts a file to its old length, if the volume has not become larger. What was written
/// behind its end is of no use to a second run.
fn give_room_back(disk: &Disk, before: u64, file_bytes: u64) {
    let has_old_size =
        throughline_ext::find_superblock(disk).is_ok_and(|now| now.blocks_count() == before);
    if has_old_size && disk.len_bytes() > file_bytes {
        // The first error is the one to report.
        let _ = disk.set_len(file_bytes);
    }
}
