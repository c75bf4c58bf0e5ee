//! The size of a file: what it is, and how large it may get.

use throughline_extfmt::InodeImage;
use throughline_extfmt::features::{Incompat, RoCompat};
use throughline_extfmt::inode::{FileType, InodeFlags};

use super::tree::Format;
use super::{extents, indirect};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::inode::Inode;

/// The file's size in bytes, without taking a lock where it was asked for before.
///
/// # Errors
/// `Corrupt` for a size that cannot be.
pub(crate) fn size(fs: &Fs, inode: &Inode) -> Result<u64> {
    if let Some(size) = inode.mapping.known_size() {
        return Ok(size);
    }
    let raw = inode.raw.read();
    let size = raw
        .size_bytes(&fs.geo)
        .map_err(|e| Error::from(e).in_inode(inode.ino))?;
    inode.mapping.set_known_size(plain(&raw).then_some(size));
    Ok(size)
}

/// Whether the file is an ordinary one: its bytes in blocks, and free to change. Answered without taking a lock, once
/// [`size`] was asked for.
pub(crate) fn is_plain(inode: &Inode) -> bool {
    inode.mapping.known_size().is_some()
}

fn plain(raw: &InodeImage) -> bool {
    FileType::from_mode(raw.mode()) == Some(FileType::Regular)
        && !raw
            .flags()
            .intersects(InodeFlags::INLINE_DATA | InodeFlags::IMMUTABLE | InodeFlags::APPEND)
}

/// Sets the size in the inode in memory; the caller stores it. The only way the size of an inode in use changes.
pub(crate) fn set_size(inode: &Inode, size: u64) {
    let mut raw = inode.raw.write();
    raw.set_size_bytes(size);
    inode.mapping.set_known_size(plain(&raw).then_some(size));
}

/// The largest size in bytes that the file's format can have.
pub(crate) fn max_size(fs: &Fs, inode: &Inode) -> u64 {
    let format = Format::of(&inode.raw.read());
    let block_bytes = fs.geo.block_bytes;
    let blocks = match format {
        Format::Extents => extents::END,
        // A file in the inode turns into one of these.
        Format::None if fs.geo.incompat.contains(Incompat::EXTENTS) => extents::END,
        Format::Indirect | Format::None => indirect_blocks(fs),
    };
    let most = blocks
        .saturating_mul(block_bytes.into())
        .min(i64::MAX.unsigned_abs());
    // Revision 0 has no features, so nothing could say that a size has a high word.
    if fs.superblock.lock().is_rev0() {
        most.min(i32::MAX.unsigned_abs().into())
    } else {
        most
    }
}

/// Blocks that an indirect map can hold, its tables counted into `i_blocks`, which has 32 bits without `huge_file`.
fn indirect_blocks(fs: &Fs) -> u64 {
    let block_bytes = fs.geo.block_bytes;
    let most = indirect::capacity(block_bytes);
    if fs.geo.ro_compat.contains(RoCompat::HUGE_FILE) {
        return most;
    }
    let countable = u64::from(u32::MAX) / u64::from(block_bytes / 512);
    let fits = |blocks: u64| blocks + indirect::tables_of(blocks, block_bytes) <= countable;
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) {
            low = middle
        } else {
            high = middle - 1
        }
    }
    low
}
