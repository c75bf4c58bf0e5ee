//! The tail of a directory's leaf block: the block's checksum, in the form of a free entry.

use std::mem::size_of;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::crc32c;
use crate::error::ensure;
use crate::{Corrupt, Result};

/// `det_reserved_ft`: the "file type" that marks the tail.
pub const TAIL_FILE_TYPE: u8 = 0xDE;
/// Bytes of the tail.
pub const TAIL_BYTES: usize = 12;

/// The tail of a leaf block with `metadata_csum`: an unused entry that holds the checksum.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct DirTail {
    pub det_reserved_zero1: U32,
    pub det_rec_len: U16,
    pub det_reserved_zero2: u8,
    pub det_reserved_ft: u8,
    pub det_checksum: U32,
}

const _: () = assert!(size_of::<DirTail>() == TAIL_BYTES);

/// The correct checksum of a leaf block with a tail.
fn checksum(block: &[u8], inode_seed: u32) -> u32 {
    let (entries, _) = block.split_at(block.len().saturating_sub(TAIL_BYTES));
    crc32c(inode_seed, entries)
}

/// The tail of a leaf block; an error if it is not one.
pub fn tail(block: &[u8]) -> Result<&DirTail> {
    let (_, tail) = DirTail::ref_from_suffix(block)
        .map_err(|_| Corrupt::new("directory block is cut short"))?;
    ensure!(
        tail.det_reserved_zero1.get() == 0
            && usize::from(tail.det_rec_len.get()) == TAIL_BYTES
            && tail.det_reserved_zero2 == 0
            && tail.det_reserved_ft == TAIL_FILE_TYPE,
        "directory block has no checksum tail"
    );
    Ok(tail)
}

/// Checks the checksum of a leaf block. `inode_seed`: [`Geometry::inode_seed`](crate::Geometry::inode_seed)
/// of the directory; `None`: the volume has no checksums.
pub fn verify_checksum(block: &[u8], inode_seed: Option<u32>) -> Result<()> {
    let Some(seed) = inode_seed else {
        return Ok(());
    };
    let (found, right) = (tail(block)?.det_checksum.get(), checksum(block, seed));
    ensure!(
        found == right,
        "directory block checksum is {found:#010x}, should be {right:#010x}"
    );
    Ok(())
}

/// Recomputes the checksum of a leaf block, if the volume has checksums.
pub fn update_checksum(block: &mut [u8], inode_seed: Option<u32>) {
    let Some(seed) = inode_seed else {
        return;
    };
    let crc = checksum(block, seed);
    if let Ok((_, tail)) = DirTail::mut_from_suffix(block) {
        tail.det_checksum.set(crc);
    }
}
