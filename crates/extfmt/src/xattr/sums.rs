//! Hashes and checksums of attributes.

use std::mem::{offset_of, size_of};

use zerocopy::FromBytes;

use super::{BLOCK, XattrEntry, XattrHeader, header, magic, padded};
use crate::Result;
use crate::checksum::crc32c;
use crate::error::ensure;
use crate::units::FsBlock;

/// `e_hash` of an entry in a block.
pub fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    let hash = name
        .iter()
        .fold(0u32, |hash, &byte| hash.rotate_left(5) ^ u32::from(byte));
    value.chunks(4).fold(hash, |hash, bytes| {
        let mut word = [0u8; 4];
        word.iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = *from);
        hash.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}

/// `h_hash` of a block: 0, never shared, if an entry has no hash.
pub(super) fn block_hash(block: &[u8]) -> u32 {
    let mut hash = 0u32;
    let mut rest = block.get(BLOCK.entries..).unwrap_or_default();
    while magic(rest) != Some(0)
        && let Ok((entry, _)) = XattrEntry::ref_from_prefix(rest)
    {
        if entry.e_hash.get() == 0 {
            return 0;
        }
        hash = hash.rotate_left(16) ^ entry.e_hash.get();
        let bytes = size_of::<XattrEntry>().saturating_add(padded(entry.e_name_len.into()));
        rest = rest.get(bytes..).unwrap_or_default();
    }
    hash
}

/// The correct checksum of the block at `place`.
fn checksum(block: &[u8], place: FsBlock, fs_seed: u32) -> u32 {
    const FIELD: usize = offset_of!(XattrHeader, h_checksum);
    let crc = crc32c(fs_seed, &place.0.to_le_bytes());
    let crc = crc32c(crc, block.get(..FIELD).unwrap_or_default());
    let crc = crc32c(crc, &[0; 4]);
    crc32c(
        crc,
        block.get(FIELD.saturating_add(4)..).unwrap_or_default(),
    )
}

/// Checks the checksum of the block at `place`; `fs_seed`: [`crate::Geometry::csum_seed`].
pub fn verify_checksum(block: &[u8], place: FsBlock, fs_seed: Option<u32>) -> Result<()> {
    let Some(seed) = fs_seed else {
        return Ok(());
    };
    let (found, right) = (
        header(block)?.h_checksum.get(),
        checksum(block, place, seed),
    );
    ensure!(
        found == right,
        "attribute block checksum is {found:#010x}, should be {right:#010x}"
    );
    Ok(())
}

/// Recomputes the checksum of the block at `place`, if the volume has checksums.
pub fn update_checksum(block: &mut [u8], place: FsBlock, fs_seed: Option<u32>) {
    let Some(seed) = fs_seed else {
        return;
    };
    let crc = checksum(block, place, seed);
    if let Ok((header, _)) = XattrHeader::mut_from_prefix(block) {
        header.h_checksum.set(crc);
    }
}
