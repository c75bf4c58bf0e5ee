//! The orphan file: blocks of inode numbers that were unlinked while open.
//!
//! Each block is an array of 32-bit inode numbers (0: free slot) and a tail of 8 bytes.

use std::mem::size_of;

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::crc32c;
use crate::error::ensure;
use crate::units::{FsBlock, InodeNumber};
use crate::{Corrupt, Result};

/// `ob_magic`.
pub const ORPHAN_MAGIC: u32 = 0x0B10_CA04;

/// The tail of a block.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct OrphanTail {
    pub ob_magic: U32,
    pub ob_checksum: U32,
}

const _: () = assert!(size_of::<OrphanTail>() == 8);

/// The number of slots in a block.
pub fn slots(block_bytes: u32) -> u32 {
    block_bytes.saturating_sub(size_of::<OrphanTail>() as u32) / 4
}

/// Splits a block into its slots and its tail.
fn split(block: &[u8]) -> Result<(&[U32], &OrphanTail)> {
    let (rest, tail) = OrphanTail::ref_from_suffix(block)
        .map_err(|_| Corrupt::new("orphan file block is cut short"))?;
    let magic = tail.ob_magic.get();
    ensure!(
        magic == ORPHAN_MAGIC,
        "orphan file block magic is {magic:#010x}"
    );
    let slots = <[U32]>::ref_from_bytes(rest)
        .map_err(|_| Corrupt::new("orphan file block has no whole number of slots"))?;
    Ok((slots, tail))
}

/// The correct checksum of a block at `place`; `inode_seed` is that of the orphan file.
fn checksum(slots: &[U32], place: FsBlock, inode_seed: u32) -> u32 {
    crc32c(crc32c(inode_seed, &place.0.to_le_bytes()), slots.as_bytes())
}

/// Checks magic number and checksum of the block at `place`, and that slots refer to inodes of the
/// volume (at most `inodes`). `inode_seed`: [`crate::Geometry::inode_seed`] of the orphan file.
pub fn check(block: &[u8], place: FsBlock, inodes: u32, inode_seed: Option<u32>) -> Result<()> {
    let (slots, tail) = split(block)?;
    if let Some(seed) = inode_seed {
        let (found, right) = (tail.ob_checksum.get(), checksum(slots, place, seed));
        ensure!(
            found == right,
            "orphan block checksum is {found:#010x}, should be {right:#010x}"
        );
    }
    for (slot, inode) in slots.iter().enumerate() {
        ensure!(
            inode.get() <= inodes,
            "orphan slot {slot} names inode {inode} of {inodes}"
        );
    }
    Ok(())
}

/// The used slots of a block: slot number and inode.
pub fn orphans(block: &[u8]) -> Result<impl Iterator<Item = (usize, InodeNumber)>> {
    let (slots, _) = split(block)?;
    let numbered = slots
        .iter()
        .map(|inode| InodeNumber(inode.get()))
        .enumerate();
    Ok(numbered.filter(|&(_, inode)| inode != InodeNumber::NONE))
}

/// The first free slot of a block.
pub fn free_slot(block: &[u8]) -> Result<Option<usize>> {
    Ok(split(block)?.0.iter().position(|inode| inode.get() == 0))
}

/// Sets a slot ([`InodeNumber::NONE`] frees it) and updates the checksum of the block at `place`.
pub fn set_slot(
    block: &mut [u8],
    slot: usize,
    inode: InodeNumber,
    place: FsBlock,
    inode_seed: Option<u32>,
) -> Result<()> {
    split(block)?;
    let (rest, tail) = OrphanTail::mut_from_suffix(block)
        .map_err(|_| Corrupt::new("orphan file block is cut short"))?;
    let slots = <[U32]>::mut_from_bytes(rest)
        .map_err(|_| Corrupt::new("orphan file block has no whole number of slots"))?;
    let count = slots.len();
    let to = slots
        .get_mut(slot)
        .ok_or_else(|| Corrupt::new(format!("orphan slot {slot} of {count}")))?;
    to.set(inode.0);
    if let Some(seed) = inode_seed {
        tail.ob_checksum.set(checksum(slots, place, seed));
    }
    Ok(())
}

/// Makes an empty block of an orphan file at `place`.
pub fn init(block: &mut [u8], place: FsBlock, inode_seed: Option<u32>) {
    block.fill(0);
    if let Ok((rest, tail)) = OrphanTail::mut_from_suffix(block) {
        tail.ob_magic.set(ORPHAN_MAGIC);
        if let (Some(seed), Ok(slots)) = (inode_seed, <[U32]>::ref_from_bytes(rest)) {
            tail.ob_checksum.set(checksum(slots, place, seed));
        }
    }
}
