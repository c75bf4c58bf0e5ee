//! The size of a file, and its upper limit.

use throughline_extfmt::InodeImage;
use throughline_extfmt::features::{Incompat, RoCompat};
use throughline_extfmt::indirect::IndirectGeometry;
use throughline_extfmt::inode::{FileType, InodeFlags};

use super::extents;
use super::tree::Format;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::inode::Inodes;

/// The file size in bytes. Takes no lock if it is already known.
///
/// # Errors
/// `Corrupt` for an invalid size.
pub(crate) fn size(fs: &Inodes, inode: &Inode) -> Result<u64> {
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

/// Whether this is a regular file with its data in blocks. Takes no lock, but requires an earlier call of
/// [`size`].
pub(crate) fn is_plain(inode: &Inode) -> bool {
    inode.mapping.known_size().is_some()
}

fn plain(raw: &InodeImage) -> bool {
    FileType::from_mode(raw.mode()) == Some(FileType::Regular)
        && !raw.flags().contains(InodeFlags::INLINE_DATA)
}

/// Sets the size in memory; the caller stores the inode. This is the only way to change the size of an inode
/// in use.
pub(crate) fn set_size(inode: &Inode, size: u64) {
    let mut raw = inode.raw.write();
    raw.set_size_bytes(size);
    inode.mapping.set_known_size(plain(&raw).then_some(size));
}

/// The largest size in bytes that an indirect map supports.
pub(super) fn max_indirect(fs: &Inodes) -> u64 {
    let block_bytes = fs.geo.block_bytes;
    let huge_file = fs.geo.ro_compat.contains(RoCompat::HUGE_FILE);
    IndirectGeometry::new(block_bytes).max_file_bytes(block_bytes, huge_file)
}

/// The largest size in bytes that the file's format supports.
pub(crate) fn max_size(fs: &Inodes, inode: &Inode) -> u64 {
    let format = Format::of(&inode.raw.read());
    // A file without a mapping would get the volume's default format.
    let extents = format == Format::Extents
        || format == Format::None && fs.geo.incompat.contains(Incompat::EXTENTS);
    let block_bytes = fs.geo.block_bytes;
    let most = if extents {
        extents::END.saturating_mul(block_bytes.into())
    } else {
        max_indirect(fs)
    };
    // Revision 0 has no feature flags, so it cannot declare the high word of sizes.
    if fs.superblock.lock().is_rev0() {
        most.min(i32::MAX.unsigned_abs().into())
    } else {
        most
    }
}
