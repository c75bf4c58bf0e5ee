//! A hash tree of dm-verity behind a volume: whether one is there, and whether it fits the data.

use throughline_block::Disk;
use throughline_extfmt::Geometry;
use throughline_extfmt::verity::{BLOCK_BYTES, SHA256, VeritySuperblock, place_behind};

use crate::error::Result;
use crate::pack::verity::{Tree, tree_bytes};
use crate::writer::read_bytes;

/// Bytes of data that are read at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// A hash tree behind a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundHashTree {
    /// Where it begins, its superblock first: in bytes from the start of the volume.
    pub hash_offset: u64,
    /// What it and the data were verified by; `None` for a tree of another format, algorithm or block size
    /// than [`pack`](crate::pack) makes, which is not verified.
    pub root_hash: Option<[u8; 32]>,
    /// Whether each hash is that of its block. What is written to the volume makes it `false`.
    pub fits: Option<bool>,
}

/// The superblock of a hash tree behind the volume, and its place.
///
/// # Errors
/// Of the device.
pub(crate) fn superblock(disk: &Disk, geo: &Geometry) -> Result<Option<(u64, VeritySuperblock)>> {
    let Some(place) = place_behind(geo, disk.len_bytes()) else {
        return Ok(None);
    };
    let block = read_bytes(disk, place, BLOCK_BYTES as usize)?;
    Ok(VeritySuperblock::read(&block).map(|found| (place, found)))
}

/// The hash tree behind the volume on a device, if there is one. All data is read and hashed.
///
/// # Errors
/// Of the device.
pub fn behind(disk: &Disk, geo: &Geometry) -> Result<Option<FoundHashTree>> {
    let Some((place, found)) = superblock(disk, geo)? else {
        return Ok(None);
    };
    let mut tree = FoundHashTree {
        hash_offset: place,
        root_hash: None,
        fits: None,
    };
    let Some(salt) = known_salt(&found) else {
        return Ok(Some(tree));
    };
    let data_bytes = found.data_blocks.get().saturating_mul(BLOCK_BYTES);
    // The tree is of all that is before it, and all of it is there.
    let end = place.saturating_add(tree_bytes(data_bytes.min(place)));
    if data_bytes != place || end > disk.len_bytes() {
        tree.fits = Some(false);
        return Ok(Some(tree));
    }
    let (root_hash, fits) = verified(disk, data_bytes, salt)?;
    tree.root_hash = Some(root_hash);
    tree.fits = Some(fits);
    Ok(Some(tree))
}

/// The salt of a tree such as we make.
fn known_salt(found: &VeritySuperblock) -> Option<&[u8]> {
    let blocks = [found.data_block_bytes, found.hash_block_bytes];
    let (name, rest) = found.algorithm.split_at(SHA256.len());
    let is_known = (found.version.get(), found.hash_type.get()) == (1, 1)
        && name == SHA256
        && rest.iter().all(|byte| *byte == 0)
        && blocks
            .iter()
            .all(|bytes| u64::from(bytes.get()) == BLOCK_BYTES);
    let salt = found.salt.get(..usize::from(found.salt_bytes.get()));
    salt.filter(|_| is_known)
}

/// The root hash of the stored tree, and whether that tree is the one of the data before it.
fn verified(disk: &Disk, data_bytes: u64, salt: &[u8]) -> Result<([u8; 32], bool)> {
    let mut fits = true;
    let mut compare = |block: &[u8], at: u64| -> Result<()> {
        fits &= read_bytes(disk, at, block.len())? == block;
        Ok(())
    };
    let mut tree = Tree::new(&mut compare, salt, data_bytes, data_bytes);
    let mut at = 0;
    while at < data_bytes {
        let len = CHUNK_BYTES.min(data_bytes - at);
        for block in read_bytes(disk, at, len as usize)?.chunks(BLOCK_BYTES as usize) {
            let sum = tree.hash(block);
            tree.push(0, sum)?;
        }
        at += len;
    }
    // A single block of data has no hashes above it.
    let top = (data_bytes > BLOCK_BYTES)
        .then(|| read_bytes(disk, data_bytes + BLOCK_BYTES, BLOCK_BYTES as usize))
        .transpose()?
        .map(|top| tree.hash(&top));
    let root = tree.finish()?;
    Ok((top.unwrap_or(root), fits))
}
