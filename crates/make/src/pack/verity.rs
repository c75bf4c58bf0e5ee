//! The hash tree of dm-verity, format 1 with SHA-256 and blocks of 4 KiB, as `veritysetup format` writes it.
//!
//! ```text
//! superblock (in a block) │ top level: 1 block │ … │ level 0: a hash for each block of data
//! ```
//! A block of hashes holds 128 of them, and zeros after the last; the root hash is that of the top block.
//! Every block is hashed after the salt.
//!
//! The data is read once, in order, and each level is written as it fills: memory is the same for any size.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::SeekFrom;
use sha2::{Digest, Sha256};

use throughline_extfmt::verity::{BLOCK_BYTES, MAGIC, SHA256, VeritySuperblock};
use zerocopy::{FromZeros, IntoBytes};

use crate::error::{Error, Result};

const HASH_BYTES: u64 = 32;
/// Hashes in a block.
const FAN_OUT: u64 = BLOCK_BYTES / HASH_BYTES;
/// Bytes that are read at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// A hash tree that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verity {
    /// What the tree is verified by.
    pub root_hash: [u8; 32],
    /// The salt of all hashes.
    pub salt: [u8; 32],
    /// Blocks of 4096 bytes that it covers.
    pub data_blocks: u64,
    /// Where the tree begins, its superblock first: in bytes from the start of the file system, or of its own
    /// file.
    pub hash_offset: u64,
}

/// A tree to be made.
pub(super) struct Request {
    pub(super) salt: [u8; 32],
    pub(super) uuid: [u8; 16],
    /// Where the data begins in its file.
    pub(super) data_at: u64,
    /// Bytes of data; a multiple of the block.
    pub(super) data_bytes: u64,
    /// Where the tree begins in its file.
    pub(super) hash_at: u64,
}

/// Blocks of each level, level 0 first.
fn levels(data_blocks: u64) -> Vec<u64> {
    let mut levels = Vec::new();
    let mut blocks = data_blocks;
    while blocks > 1 {
        blocks = blocks.div_ceil(FAN_OUT);
        levels.push(blocks);
    }
    levels
}

/// Bytes of the tree for so much data, with its superblock.
pub(crate) fn tree_bytes(data_bytes: u64) -> u64 {
    let levels = levels(data_bytes.div_ceil(BLOCK_BYTES));
    (1 + levels.iter().sum::<u64>()) * BLOCK_BYTES
}

/// The most data, in whole blocks, that fits `room` bytes together with its tree.
pub(super) fn data_within(room: u64) -> u64 {
    let fits = |blocks: u64| {
        let data = blocks * BLOCK_BYTES;
        data + tree_bytes(data) <= room
    };
    let (mut low, mut high) = (0, room / BLOCK_BYTES);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match fits(middle) {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    low * BLOCK_BYTES
}

/// Reads the data and writes the tree. Returns the root hash.
///
/// # Errors
/// Those of the files.
pub(super) fn write(data: &Path, hashes: &Path, request: &Request) -> Result<[u8; 32]> {
    let failed = Error::open;
    let from = File::open(data).map_err(failed(data))?;
    let to = File::options()
        .write(true)
        .open(hashes)
        .map_err(failed(hashes))?;
    let mut put = |block: &[u8], at: u64| to.write_all_at(block, at);
    let mut tree = Tree::new(&mut put, &request.salt, request.data_bytes, request.hash_at);
    let zero = tree.hash(&[0; BLOCK_BYTES as usize]);
    let mut chunk = vec![0; CHUNK_BYTES as usize];
    let mut at = 0;
    while at < request.data_bytes {
        let skipped = hole(&from, request, at).map_err(failed(data))?;
        if skipped > 0 {
            for _ in 0..skipped / BLOCK_BYTES {
                tree.push(0, zero).map_err(failed(hashes))?;
            }
            at += skipped;
            continue;
        }
        let len = CHUNK_BYTES.min(request.data_bytes - at) as usize;
        from.read_exact_at(&mut chunk[..len], request.data_at + at)
            .map_err(failed(data))?;
        for block in chunk[..len].chunks(BLOCK_BYTES as usize) {
            let sum = tree.hash(block);
            tree.push(0, sum).map_err(failed(hashes))?;
        }
        at += len as u64;
    }
    let root = tree.finish().map_err(failed(hashes))?;
    let written = to.write_all_at(&superblock(request), request.hash_at);
    written
        .and_then(|()| to.sync_all())
        .map_err(failed(hashes))?;
    Ok(root)
}

/// Bytes in whole blocks from `at` on that are a hole.
fn hole(file: &File, request: &Request, at: u64) -> io::Result<u64> {
    let left = request.data_bytes - at;
    let start = request.data_at + at;
    match rustix::fs::seek(file, SeekFrom::Data(start)) {
        Ok(next) => Ok((next - start).min(left) / BLOCK_BYTES * BLOCK_BYTES),
        Err(rustix::io::Errno::NXIO) => Ok(left),
        // This file system does not know.
        Err(rustix::io::Errno::INVAL) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// A level in the making.
struct Level {
    /// Where its next block goes.
    at: u64,
    hashes: Vec<u8>,
}

/// Takes a block of hashes, and its place.
type Put<'p, E> = dyn FnMut(&[u8], u64) -> std::result::Result<(), E> + 'p;

/// The hashes of data that comes in order. Each block of them is passed on when it is complete, with its
/// place.
pub(crate) struct Tree<'p, E> {
    put: &'p mut Put<'p, E>,
    salted: Sha256,
    /// Level 0 first.
    levels: Vec<Level>,
    root: [u8; 32],
}

impl<'p, E> Tree<'p, E> {
    /// The tree of so much data, with its superblock at `hash_at`.
    pub(crate) fn new(
        put: &'p mut Put<'p, E>,
        salt: &[u8],
        data_bytes: u64,
        hash_at: u64,
    ) -> Tree<'p, E> {
        let blocks = levels(data_bytes / BLOCK_BYTES);
        let mut at = hash_at + BLOCK_BYTES;
        let mut levels: Vec<Level> = Vec::new();
        // The top one is the first.
        for count in blocks.iter().rev() {
            let hashes = Vec::with_capacity(BLOCK_BYTES as usize);
            levels.push(Level { at, hashes });
            at += count * BLOCK_BYTES;
        }
        levels.reverse();
        Tree {
            put,
            salted: Sha256::new_with_prefix(salt),
            levels,
            root: [0; 32],
        }
    }

    pub(crate) fn hash(&self, block: &[u8]) -> [u8; 32] {
        self.salted.clone().chain_update(block).finalize().into()
    }

    /// Adds a hash to a level; beyond the last, it is the root.
    pub(crate) fn push(&mut self, level: usize, sum: [u8; 32]) -> std::result::Result<(), E> {
        let Some(to) = self.levels.get_mut(level) else {
            self.root = sum;
            return Ok(());
        };
        to.hashes.extend_from_slice(&sum);
        match to.hashes.len() as u64 == BLOCK_BYTES {
            true => self.complete(level),
            false => Ok(()),
        }
    }

    /// Passes on the block of a level, and hashes it into the next. As deep as there are levels.
    fn complete(&mut self, level: usize) -> std::result::Result<(), E> {
        let to = &mut self.levels[level];
        to.hashes.resize(BLOCK_BYTES as usize, 0);
        (self.put)(&to.hashes, to.at)?;
        to.at += BLOCK_BYTES;
        let block = std::mem::take(&mut to.hashes);
        let sum = self.hash(&block);
        self.levels[level].hashes = block;
        self.levels[level].hashes.clear();
        self.push(level + 1, sum)
    }

    /// The root hash.
    pub(crate) fn finish(mut self) -> std::result::Result<[u8; 32], E> {
        for level in 0..self.levels.len() {
            if !self.levels[level].hashes.is_empty() {
                self.complete(level)?;
            }
        }
        Ok(self.root)
    }
}

/// The superblock of a tree, in a block of its own.
fn superblock(request: &Request) -> Vec<u8> {
    let mut made = VeritySuperblock::new_zeroed();
    made.signature = MAGIC;
    made.version.set(1);
    made.hash_type.set(1);
    made.uuid = request.uuid;
    made.algorithm[..SHA256.len()].copy_from_slice(SHA256);
    made.data_block_bytes.set(BLOCK_BYTES as u32);
    made.hash_block_bytes.set(BLOCK_BYTES as u32);
    made.data_blocks.set(request.data_bytes / BLOCK_BYTES);
    made.salt_bytes.set(request.salt.len() as u16);
    made.salt[..request.salt.len()].copy_from_slice(&request.salt);
    let mut block = made.as_bytes().to_vec();
    block.resize(BLOCK_BYTES as usize, 0);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_narrow_to_one_block() {
        assert!(levels(1).is_empty());
        assert_eq!(levels(2), [1]);
        assert_eq!(levels(128), [1]);
        assert_eq!(levels(129), [2, 1]);
        assert_eq!(levels(128 * 128 + 1), [129, 2, 1]);
    }

    #[test]
    fn data_and_its_tree_fill_what_there_is() {
        for room in [0, 4096, 3 * 4096, 131 * 4096, 132 * 4096 + 5, 1 << 30] {
            let data = data_within(room);
            assert!(data == 0 || data + tree_bytes(data) <= room, "{room}");
            let more = data + BLOCK_BYTES;
            assert!(more + tree_bytes(more) > room, "{room}");
        }
    }
}
