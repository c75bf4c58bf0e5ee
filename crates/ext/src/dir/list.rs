//! Listing a directory, from any position.
//!
//! A position is the key of the next entry to come. Directories that are hashed, or that can become so (one block, or
//! inline, on a volume with `dir_index`), are listed in the order of their hashes, which no insertion and no split
//! disturbs; all others in the order of the disk, where entries never move. So a listing that goes on at a position gives
//! every name that was there all the time exactly once. (Two names whose 63-bit keys are equal share a position.)

use std::sync::Arc;

use throughline_extfmt::inode::FileType;
use throughline_extfmt::{FileBlock, InodeNumber, dir as format};

use super::block::Blocks;
use super::{Shape, htree, inline, is_removed, shape};
use crate::error::{Error, Reason, Result};
use crate::fs::Fs;
use crate::inode::Inode;

/// The keys of `.` and `..` in the order of hashes, and the first of names.
const DOT: u64 = 0;
const DOTDOT: u64 = 1;
const NAMES: u64 = 2;

/// One name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The inode it means.
    pub ino: InodeNumber,
    /// Its type, where the volume's entries tell it.
    pub file_type: Option<FileType>,
    /// The name, 1 to 255 bytes; `.` and `..` too.
    pub name: Vec<u8>,
    /// The position behind it: where a listing that stops here goes on. Fits 63 bits.
    pub next: u64,
}

/// Some names, and where to go on.
pub(super) struct Batch {
    /// The names, sorted by key; keys are in [`DirEntry::next`], less one.
    pub(super) entries: Vec<DirEntry>,
    /// Where the next batch starts; `None` at the end.
    pub(super) next: Option<u64>,
}

/// The key of a name, by its hash.
pub(super) fn key(hash: throughline_extfmt::hash::NameHash, name: &[u8], legacy: bool) -> u64 {
    // The legacy hash has no minor part; any function of the name tells names of one hash apart.
    let minor = if legacy {
        throughline_extfmt::checksum::crc32c(!0, name)
    } else {
        hash.minor
    };
    NAMES.saturating_add(u64::from(hash.major >> 1) << 32 | u64::from(minor))
}

/// The major hash of a key.
fn major(key: u64) -> u32 {
    ((key.saturating_sub(NAMES) >> 32) as u32) << 1
}

pub(super) fn entry(found: &format::DirEntry<'_>, key: u64) -> DirEntry {
    DirEntry {
        ino: found.inode,
        file_type: FileType::from_dir_code(found.file_type),
        name: found.name.to_vec(),
        next: key.saturating_add(1),
    }
}

/// Names from position `from` on, `.` and `..` included: some, and none at the end. The directory's lock is held.
pub(crate) fn list(fs: &Fs, dir: &Inode, from: u64) -> Result<Vec<DirEntry>> {
    if is_removed(dir) {
        return Ok(Vec::new());
    }
    let mut from = from;
    loop {
        let batch = batch(fs, dir, from)?;
        let mut entries = batch.entries;
        entries.retain(|entry| entry.next > from);
        match batch.next {
            Some(next) if entries.is_empty() && next > from => from = next,
            _ => return Ok(entries),
        }
    }
}

fn batch(fs: &Fs, dir: &Inode, from: u64) -> Result<Batch> {
    let hashes = fs.hash_rules.indexes(dir.raw.read().flags());
    match shape(fs, dir) {
        Shape::Inline => {
            let mut entries = inline::entries(fs, dir)?;
            if hashes {
                order_by_hash(fs, &mut entries);
            }
            Ok(Batch {
                entries,
                next: None,
            })
        }
        Shape::Linear => {
            let blocks = Blocks::new(fs, dir)?;
            if hashes && blocks.count == 1 {
                let mut entries = in_block(&blocks, 0)?.entries;
                order_by_hash(fs, &mut entries);
                return Ok(Batch {
                    entries,
                    next: None,
                });
            }
            in_block(&blocks, from)
        }
        Shape::Hashed => {
            let blocks = Blocks::new(fs, dir)?;
            match htree::Tree::open(&blocks)? {
                Some(tree) => in_tree(&blocks, &tree, from),
                None => in_block(&blocks, from),
            }
        }
    }
}

/// The order that these names will have once the directory is hashed.
fn order_by_hash(fs: &Fs, entries: &mut [DirEntry]) {
    for entry in &mut *entries {
        let key = match entry.name.as_slice() {
            b"." => DOT,
            b".." => DOTDOT,
            name => fs.hash_rules.key(name),
        };
        entry.next = key.saturating_add(1);
    }
    sort(entries);
}

/// Names of one key by their bytes, so that the order never depends on the disk's.
fn sort(entries: &mut [DirEntry]) {
    entries.sort_by(|a, b| (a.next, &a.name).cmp(&(b.next, &b.name)));
}

/// The names of the block that holds byte `from` of the directory.
fn in_block(blocks: &Blocks<'_>, from: u64) -> Result<Batch> {
    let block_bytes = u64::from(blocks.fs.geo.block_bytes);
    let Some(at) = u32::try_from(from / block_bytes)
        .ok()
        .filter(|&at| at < blocks.count)
    else {
        return Ok(Batch {
            entries: Vec::new(),
            next: None,
        });
    };
    let block = blocks.read(FileBlock(at))?;
    let start = u64::from(at) * block_bytes;
    let mut entries = Vec::new();
    for found in format::entries(&block.bytes, &block.format) {
        let found = found.map_err(|what| blocks.damage(block.block, what))?;
        if found.is_used() {
            entries.push(entry(&found, start + found.offset as u64));
        }
    }
    Ok(Batch {
        entries,
        next: Some(start + block_bytes),
    })
}

/// The names of the leaf that a key belongs to, and of those that its last hash goes on in.
fn in_tree(blocks: &Blocks<'_>, tree: &htree::Tree<'_>, from: u64) -> Result<Batch> {
    let leaves = tree.leaves_of(major(from))?;
    let mut entries = Vec::new();
    if from <= DOTDOT {
        let dots = [
            (b"." as &[u8], blocks.dir.ino, DOT),
            (b"..", blocks.dotdot()?.0, DOTDOT),
        ];
        entries.extend(dots.map(|(name, ino, key)| DirEntry {
            ino,
            file_type: Some(FileType::Directory),
            name: name.to_vec(),
            next: key + 1,
        }));
    }
    let next = leaves
        .next
        .map(|hash| NAMES.saturating_add(u64::from(hash >> 1) << 32));
    for leaf in leaves.blocks {
        let block = blocks.read(leaf)?;
        for found in format::entries(&block.bytes, &block.format) {
            let found = found.map_err(|what| blocks.damage(block.block, what))?;
            if !found.is_used() {
                continue;
            }
            let key = tree.key(found.name);
            if next.is_some_and(|next| key >= next) {
                let what = format!(
                    "the name at byte {} is in the wrong leaf of the hash tree",
                    found.offset
                );
                return Err(Error::corrupt(what)
                    .in_inode(blocks.dir.ino)
                    .in_block(block.block));
            }
            entries.push(entry(&found, key));
        }
    }
    sort(&mut entries);
    Ok(Batch { entries, next })
}

impl Fs {
    /// Names of a directory from position `from` on (0: the start), `.` and `..` included; none at the end. Positions are
    /// in [`DirEntry::next`] and stay good while names come and go.
    ///
    /// # Errors
    /// `NotDir`; `Corrupt`; those of the device.
    pub fn list_dir(&self, dir: &Inode, from: u64) -> Result<Vec<DirEntry>> {
        if !dir.is_dir() {
            return Err(Reason::NotDir.into());
        }
        let names = {
            let _held = dir.dir_shared();
            list(self, dir, from)?
        };
        self.note_access(dir);
        Ok(names)
    }

    /// All names of a directory, without `.` and `..`, read as they are asked for.
    pub fn read_dir<'a>(&'a self, dir: &Arc<Inode>) -> ReadDir<'a> {
        ReadDir {
            fs: self,
            dir: Arc::clone(dir),
            batch: Vec::new().into_iter(),
            next: Some(0),
        }
    }
}

/// The names of a directory; see [`Fs::read_dir`]. It ends after an error.
pub struct ReadDir<'a> {
    fs: &'a Fs,
    dir: Arc<Inode>,
    batch: std::vec::IntoIter<DirEntry>,
    next: Option<u64>,
}

impl Iterator for ReadDir<'_> {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self
                .batch
                .find(|entry| !matches!(entry.name.as_slice(), b"." | b".."))
            {
                return Some(Ok(entry));
            }
            match self.fs.list_dir(&self.dir, self.next?) {
                Ok(batch) => {
                    self.next = batch.last().map(|entry| entry.next);
                    self.batch = batch.into_iter();
                }
                Err(error) => {
                    self.next = None;
                    return Some(Err(error));
                }
            }
        }
    }
}
