//! Listing a directory, from any position.
//!
//! Damage is read around: the readable names are listed, and the damage that was skipped is reported
//! ([`Listing::skipped`]).
//!
//! A position is the key of the next entry. Directories that are hashed, or can become so (one block, or
//! inline, on a volume with `dir_index`), are listed in hash order, which insertions and splits do not
//! disturb; all others in disk order, where entries never move. So a listing resumed at a position returns
//! every name that exists throughout exactly once. (Two names with the same 63-bit key share a position.)
//!
//! A hashed directory with a damaged index is also listed in disk order. Its positions lie after all hash
//! positions ([`DISK`]), so a resumed listing stays in the order that it began with.

use std::collections::HashSet;
use std::sync::Arc;

use throughline_extfmt::inode::FileType;
use throughline_extfmt::{FileBlock, FsBlock, InodeNumber, dir as format};

use super::block::DirBlocks;
use super::entry::{Shape, index_damaged, is_removed, shape};
use super::hash::NAMES;
use super::salvage::Readable;
use super::{htree, index_is_sound, inline, nokey};
use crate::error::{Corrupt, Error, Reason, Result};
use crate::inode::Inode;
use crate::names::Names;

/// Positions of `.` and `..` in hash order; names follow ([`NAMES`]).
const DOT: u64 = 0;
const DOTDOT: u64 = 1;
/// The first position for listing a hashed directory in disk order: no name's hash has all bits set. There is
/// one position per 4 bytes, within 63 bits.
const DISK: u64 = (0x7FFF_FFFF << 32) + 16;
/// The last position.
const MOST: u64 = i64::MAX.cast_unsigned();

/// One name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The inode it names.
    pub ino: InodeNumber,
    /// Its type, if the volume stores types in entries.
    pub file_type: Option<FileType>,
    /// The name, 1 to 255 bytes, including `.` and `..`. In an encrypted directory, the form shown without
    /// the key.
    pub name: Vec<u8>,
    /// The position after this entry, where a listing resumes. Fits 63 bits.
    pub next: u64,
}

/// Part of a directory's names, and the damage skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The names; empty at the end of the directory.
    pub names: Vec<DirEntry>,
    /// Damage that may hide further names.
    pub skipped: Vec<Corrupt>,
}

impl Listing {
    /// The names, or the first damage as an error.
    pub(crate) fn all(self) -> Result<Vec<DirEntry>> {
        match self.skipped.into_iter().next() {
            None => Ok(self.names),
            Some(damage) => Err(damage.into()),
        }
    }
}

/// Part of the names, and where to continue.
pub(super) struct Batch {
    /// The names, sorted by key. [`DirEntry::next`] holds the key plus one.
    pub(super) entries: Vec<DirEntry>,
    /// Where the next batch starts; `None` at the end.
    pub(super) next: Option<u64>,
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

/// Names from position `from` on, including `.` and `..`; none at the end. The directory's lock is held.
pub(crate) fn list(fs: &Names, dir: &Inode, from: u64) -> Result<Listing> {
    if is_removed(fs, dir) {
        return Ok(Listing::default());
    }
    if shape(fs, dir) == Shape::Inline {
        return Ok(inline_names(fs, dir, from));
    }
    let blocks = DirBlocks::to_read(fs, dir)?;
    let names = names_from(&blocks, from)?;
    Ok(Listing {
        names,
        skipped: blocks.take_skipped(),
    })
}

fn inline_names(fs: &Names, dir: &Inode, from: u64) -> Listing {
    let (mut names, skipped) = inline::readable_entries(fs, dir);
    if fs.hash_rules.indexes(dir.raw.read().flags()) {
        order_by_hash(fs, dir, &mut names);
    }
    names.retain(|entry| entry.next > from);
    Listing { names, skipped }
}

fn names_from(blocks: &DirBlocks<'_>, mut from: u64) -> Result<Vec<DirEntry>> {
    loop {
        let batch = batch(blocks, from)?;
        let mut entries = batch.entries;
        entries.retain(|entry| entry.next > from);
        match batch.next {
            Some(next) if entries.is_empty() && next > from => from = next,
            _ => return Ok(entries),
        }
    }
}

fn batch(blocks: &DirBlocks<'_>, from: u64) -> Result<Batch> {
    let (fs, dir) = (blocks.fs, blocks.dir);
    if shape(fs, dir) == Shape::Hashed {
        return hashed(blocks, from);
    }
    if fs.hash_rules.indexes(dir.raw.read().flags()) && blocks.count == 1 {
        let mut entries = in_block(blocks, 0)?.entries;
        order_by_hash(fs, dir, &mut entries);
        return Ok(Batch {
            entries,
            next: None,
        });
    }
    in_block(blocks, from)
}

/// Names of a hashed directory, in hash order if its index is sound.
fn hashed(blocks: &DirBlocks<'_>, from: u64) -> Result<Batch> {
    let (fs, dir) = (blocks.fs, blocks.dir);
    if from >= DISK {
        return in_order_of_disk(blocks, from);
    }
    if from == 0 && !index_is_sound(fs, dir)? {
        blocks.note_skipped(index_damaged(dir));
        return in_order_of_disk(blocks, DISK);
    }
    let names = match htree::Tree::open(blocks) {
        Ok(None) => return in_block(blocks, from),
        Ok(Some(tree)) => in_tree(blocks, &tree, from),
        Err(error) => Err(error),
    };
    // The index was damaged since the listing began: the next listing will not use it.
    if let Err(Error::Corrupt(_)) = names {
        dir.index.set_damaged();
    }
    fs.note_damage(names)
}

/// As [`in_block`], with positions after those of hashes.
fn in_order_of_disk(blocks: &DirBlocks<'_>, from: u64) -> Result<Batch> {
    let mut batch = in_block(blocks, (from - DISK).saturating_mul(4))?;
    let position = |byte: u64| DISK.saturating_add(byte / 4);
    for entry in &mut batch.entries {
        entry.next = position(entry.next - 1).saturating_add(1);
    }
    // A listing ends where positions would exceed 63 bits.
    batch.entries.retain(|entry| entry.next <= MOST);
    batch.next = batch.next.map(position).filter(|&next| next <= MOST);
    Ok(batch)
}

/// Puts names into the order that they will have once the directory is hashed.
fn order_by_hash(fs: &Names, dir: &Inode, entries: &mut [DirEntry]) {
    let hashing = fs.hash_rules.hashing(dir.raw.read().flags());
    for entry in &mut *entries {
        let key = match entry.name.as_slice() {
            b"." => DOT,
            b".." => DOTDOT,
            name => hashing.key(name),
        };
        entry.next = key.saturating_add(1);
    }
    sort(entries);
}

/// Names with the same key are sorted by their bytes, so that the order does not depend on the disk.
fn sort(entries: &mut [DirEntry]) {
    entries.sort_by(|a, b| (a.next, &a.name).cmp(&(b.next, &b.name)));
}

/// The names of the block that holds byte `from` of the directory.
fn in_block(blocks: &DirBlocks<'_>, from: u64) -> Result<Batch> {
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
    let start = u64::from(at) * block_bytes;
    let (mut entries, mut len) = (Vec::new(), 1);
    match blocks.readable_part(FileBlock(at))? {
        Readable::Nothing(blocks) => len = blocks.max(1),
        Readable::Block(block) => {
            let left = blocks.readable_entries(&block);
            entries.extend(left.map(|found| entry(&found, start + found.offset as u64)));
            if at == 0 {
                blocks.check_dots(&block, &entries);
            }
        }
    }
    Ok(Batch {
        entries,
        next: Some(start + u64::from(len) * block_bytes),
    })
}

/// The names of the leaf for a key, and of the leaves in which its last hash continues.
fn in_tree(blocks: &DirBlocks<'_>, tree: &htree::Tree<'_>, from: u64) -> Result<Batch> {
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

impl Names {
    /// Names of a directory from position `from` on (0: the start), including `.` and `..`; none at the end.
    /// Positions come from [`DirEntry::next`] and stay valid while names are added and removed. Damage is
    /// read around.
    ///
    /// # Errors
    /// `NotDir`; device errors; `Corrupt` for damage that appeared during the listing.
    pub fn list_dir_around_damage(&self, dir: &Inode, from: u64) -> Result<Listing> {
        if !dir.is_dir() {
            return Err(Reason::NotDir.into());
        }
        let listing = {
            let _held = dir.dir_shared();
            let mut listing = list(self, dir, from)?;
            if self.is_encrypted(dir) {
                nokey::show(self, dir, &mut listing.names)?;
            }
            listing
        };
        self.note_access(dir);
        Ok(listing)
    }

    /// As [`Names::list_dir_around_damage`], but any damage is an error.
    ///
    /// # Errors
    /// As [`Names::list_dir_around_damage`]; `Corrupt` for any damage.
    pub fn list_dir(&self, dir: &Inode, from: u64) -> Result<Vec<DirEntry>> {
        self.list_dir_around_damage(dir, from)?.all()
    }

    /// All names of a directory except `.` and `..`, read on demand.
    pub fn read_dir<'a>(&'a self, dir: &Arc<Inode>) -> ReadDir<'a> {
        ReadDir {
            fs: self,
            dir: Arc::clone(dir),
            batch: Vec::new().into_iter(),
            skipped: Vec::new().into_iter(),
            reported: HashSet::new(),
            next: Some(0),
        }
    }
}

/// The names of a directory; see [`Names::read_dir`]. Skipped damage is returned as an error among them; any
/// other error ends the iteration.
pub struct ReadDir<'a> {
    fs: &'a Names,
    dir: Arc<Inode>,
    batch: std::vec::IntoIter<DirEntry>,
    skipped: std::vec::IntoIter<Corrupt>,
    /// Damaged places already reported.
    reported: HashSet<(Option<InodeNumber>, Option<FsBlock>)>,
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
            // A listing resumed in the middle of a block finds its damage again.
            let reported = &mut self.reported;
            if let Some(damage) = self.skipped.find(|damage| reported.insert(damage.place())) {
                return Some(Err(damage.into()));
            }
            match self.fs.list_dir_around_damage(&self.dir, self.next?) {
                Ok(listing) => {
                    self.next = listing.names.last().map(|entry| entry.next);
                    self.batch = listing.names.into_iter();
                    self.skipped = listing.skipped.into_iter();
                }
                Err(error) => {
                    self.next = None;
                    return Some(Err(error));
                }
            }
        }
    }
}
