//! Regular files, in blocks or inline: type checks, size and times in the inode, and zeroing past the end.

use std::io::IoSlice;
use std::sync::atomic::Ordering;

use throughline_extfmt::features::RoCompat;
use throughline_extfmt::inode::{FileType, InodeFlags, Time};
use throughline_extfmt::{FileBlock, FsBlock};

use crate::error::{Reason, Result};
use crate::handle::Handle;
use crate::inode::{Inode, Inodes};
use crate::map::{self, Kind};

/// Minimum interval between two changes of the times.
const TICK_NS: u128 = 4_000_000;

/// Fails unless the inode is a regular file.
pub(crate) fn check_regular(inode: &Inode) -> Result<()> {
    match inode.kind {
        Some(FileType::Regular) => Ok(()),
        Some(FileType::Directory) => Err(Reason::IsDir.into()),
        _ => Err(Reason::Invalid("not a regular file").into()),
    }
}

/// Whether the file's data is in the inode.
pub(crate) fn is_inline(inode: &Inode) -> bool {
    !map::is_plain(inode) && inode.raw.read().flags().contains(InodeFlags::INLINE_DATA)
}

/// Grows the file to `size` in memory, if it is smaller; the caller stores the inode.
pub(crate) fn grow_to(fs: &Inodes, h: &mut Handle<'_>, inode: &Inode, size: u64) -> Result<()> {
    if size <= map::size(fs, inode)? {
        return Ok(());
    }
    if size > i32::MAX.unsigned_abs().into() {
        note_large_file(fs, h)?;
    }
    map::set_size(inode, size);
    Ok(())
}

/// Sets `large_file` on the volume with the first file whose size needs its high word.
fn note_large_file(fs: &Inodes, h: &mut Handle<'_>) -> Result<()> {
    if fs.geo.ro_compat.contains(RoCompat::LARGE_FILE)
        || fs.superblock().ro_compat().contains(RoCompat::LARGE_FILE)
    {
        return Ok(());
    }
    fs.update_super(h, |sb| {
        sb.make_dynamic();
        let flags = sb.s_feature_ro_compat.get() | RoCompat::LARGE_FILE.bits();
        sb.s_feature_ro_compat.set(flags);
    })
}

/// Sets the times of a content change, in memory; the caller stores the inode.
pub(crate) fn touch(fs: &Inodes, inode: &Inode) {
    inode.mapping.touched.store(tick(fs), Ordering::Relaxed);
    let now = fs.now();
    let mut raw = inode.raw.write();
    raw.set_time(Time::Modify, now);
    raw.set_time(Time::Change, now);
}

/// The current time in ticks, counted from 1; 0 means no time.
pub(crate) fn tick(fs: &Inodes) -> u64 {
    let since = fs.clock.since_epoch();
    (since.as_nanos() / TICK_NS) as u64 + 1
}

/// Zeroes file bytes `from..to`, in place, as far as they are in the block of `from` and that block has data.
/// The bytes are at or past the end of the file, and the I/O lock is held exclusively. If the committed size
/// still covers them, the block was already replaced ([`crate::edge`]).
pub(crate) fn zero_in_block(fs: &Inodes, inode: &Inode, from: u64, to: u64) -> Result<()> {
    let log = fs.geo.block_log;
    let block_start = from >> log << log;
    let to = to.min(block_start.saturating_add(fs.geo.block_bytes.into()));
    let Ok(block) = u32::try_from(from >> log) else {
        return Ok(());
    };
    if from >= to {
        return Ok(());
    }
    let Kind::Data(at) = map::lookup(fs, inode, FileBlock(block), 1)?.kind else {
        return Ok(());
    };
    fs.check_data_range(at, 1)
        .map_err(|e| e.in_inode(inode.ino))?;
    zero_on_disk(fs, at, from - block_start, to - block_start)
}

/// Zeroes bytes `from..to` of a block, unless they are zero already.
fn zero_on_disk(fs: &Inodes, block: FsBlock, from: u64, to: u64) -> Result<()> {
    let unit = u64::from(fs.disk.limits().logical_block_bytes.max(1));
    let (first, last) = (from - from % unit, to.next_multiple_of(unit));
    let device = (block.0 << fs.geo.block_log) + first;
    let mut bytes = vec![0; (last - first) as usize];
    fs.disk.read_at(device, &mut bytes)?;
    let part = &mut bytes[(from - first) as usize..(to - first) as usize];
    if part.iter().all(|b| *b == 0) {
        return Ok(());
    }
    part.fill(0);
    Ok(fs.disk.write_at(device, &bytes, false)?)
}

/// Total length of the buffers.
pub(crate) fn total(bufs: &[IoSlice<'_>]) -> u64 {
    bufs.iter().map(|b| b.len() as u64).sum()
}
