//! Listing a directory, from any position.
//!
//! Damage is read around: what is left of the names is listed, and what was passed over is told ([`Listing::left_out`]).
//!
//! A position is the key of the next entry to come. Directories that are hashed, or that can become so (one block, or
//! inline, on a volume with `dir_index`), are listed in the order of their hashes, which no insertion and no split
//! disturbs; all others in the order of the disk, where entries never move. So a listing that goes on at a position gives
//! every name that was there all the time exactly once. (Two names whose 63-bit keys are equal share a position.)
//!
//! A hashed directory whose index is damaged is listed in the order of the disk, too. Its positions are behind all those of
//! hashes ([`DISK`]), so a listing knows what it began with.

use std::collections::HashSet;
use std::sync::Arc;

use throughline_extfmt::inode::FileType;
use throughline_extfmt::{FileBlock, FsBlock, InodeNumber, dir as format};

use super::block::DirBlocks;
use super::entry::{Shape, index_damaged, is_removed, shape};
use super::hash::NAMES;
use super::salvage::Left;
use super::{htree, index_is_sound, inline, nokey};
use crate::error::{Corrupt, Error, Reason, Result};
use crate::inode::Inode;
use crate::names::Names;

/// The keys of `.` and `..` in the order of hashes; names are behind them ([`NAMES`]).
const DOT: u64 = 0;
const DOTDOT: u64 = 1;
/// The first position in the order of the disk of a directory that is hashed: no hash of a name has all bits. There are
/// positions for each 4 bytes, as far as 63 bits reach.
const DISK: u64 = (0x7FFF_FFFF << 32) + 16;
/// The last position.
const MOST: u64 = i64::MAX.cast_unsigned();

/// One name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The inode it means.
    pub ino: InodeNumber,
    /// Its type, where the volume's entries tell it.
    pub file_type: Option<FileType>,
    /// The name, 1 to 255 bytes; `.` and `..` too. Of an encrypted directory as it is shown without the key.
    pub name: Vec<u8>,
    /// The position behind it: where a listing that stops here goes on. Fits 63 bits.
    pub next: u64,
}

/// Some names of a directory, and what was passed over to get them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The names; none at the end.
    pub names: Vec<DirEntry>,
    /// The damage behind which there may have been more of them.
    pub left_out: Vec<Corrupt>,
}

impl Listing {
    /// The names, if nothing was passed over.
    pub(crate) fn all(self) -> Result<Vec<DirEntry>> {
        match self.left_out.into_iter().next() {
            None => Ok(self.names),
            Some(damage) => Err(damage.into()),
        }
    }
}

/// Some names, and where to go on.
pub(super) struct Batch {
    /// The names, sorted by key; keys are in [`DirEntry::next`], less one.
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

/// Names from position `from` on, `.` and `..` included: some, and none at the end. The directory's lock is held.
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
        left_out: blocks.take_left_out(),
    })
}

fn inline_names(fs: &Names, dir: &Inode, from: u64) -> Listing {
    let (mut names, left_out) = inline::entries_left(fs, dir);
    if fs.hash_rules.indexes(dir.raw.read().flags()) {
        order_by_hash(fs, &mut names);
    }
    names.retain(|entry| entry.next > from);
    Listing { names, left_out }
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
        order_by_hash(fs, &mut entries);
        return Ok(Batch {
            entries,
            next: None,
        });
    }
    in_block(blocks, from)
}

/// Names of a hashed directory, in the order of hashes where its index is sound.
fn hashed(blocks: &DirBlocks<'_>, from: u64) -> Result<Batch> {
    let (fs, dir) = (blocks.fs, blocks.dir);
    if from >= DISK {
        return in_order_of_disk(blocks, from);
    }
    if from == 0 && !index_is_sound(fs, dir)? {
        blocks.leave_out(index_damaged(dir));
        return in_order_of_disk(blocks, DISK);
    }
    let names = match htree::Tree::open(blocks) {
        Ok(None) => return in_block(blocks, from),
        Ok(Some(tree)) => in_tree(blocks, &tree, from),
        Err(error) => Err(error),
    };
    // What was sound when the listing began: the next one will know.
    if let Err(Error::Corrupt(_)) = names {
        dir.index.set_damaged();
    }
    fs.note_damage(names)
}

/// As [`in_block`], with positions behind those of hashes.
fn in_order_of_disk(blocks: &DirBlocks<'_>, from: u64) -> Result<Batch> {
    let mut batch = in_block(blocks, (from - DISK).saturating_mul(4))?;
    let position = |byte: u64| DISK.saturating_add(byte / 4);
    for entry in &mut batch.entries {
        entry.next = position(entry.next - 1).saturating_add(1);
    }
    // Behind what 63 bits can tell, a listing ends.
    batch.entries.retain(|entry| entry.next <= MOST);
    batch.next = batch.next.map(position).filter(|&next| next <= MOST);
    Ok(batch)
}

/// The order that these names will have once the directory is hashed.
fn order_by_hash(fs: &Names, entries: &mut [DirEntry]) {
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
    match blocks.left_of(FileBlock(at))? {
        Left::Nothing(blocks) => len = blocks.max(1),
        Left::Block(block) => {
            let left = blocks.entries_left(&block);
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

/// The names of the leaf that a key belongs to, and of those that its last hash goes on in.
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
    /// Names of a directory from position `from` on (0: the start), `.` and `..` included; none at the end. Positions are
    /// in [`DirEntry::next`] and stay good while names come and go. Damage is read around.
    ///
    /// # Errors
    /// `NotDir`; those of the device; `Corrupt` where damage came while it was listed.
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

    /// As [`Names::list_dir_around_damage`], for those who need all names.
    ///
    /// # Errors
    /// As there; `Corrupt` for any damage.
    pub fn list_dir(&self, dir: &Inode, from: u64) -> Result<Vec<DirEntry>> {
        self.list_dir_around_damage(dir, from)?.all()
    }

    /// All names of a directory, without `.` and `..`, read as they are asked for.
    pub fn read_dir<'a>(&'a self, dir: &Arc<Inode>) -> ReadDir<'a> {
        ReadDir {
            fs: self,
            dir: Arc::clone(dir),
            batch: Vec::new().into_iter(),
            left_out: Vec::new().into_iter(),
            told: HashSet::new(),
            next: Some(0),
        }
    }
}

/// The names of a directory; see [`Names::read_dir`]. Damage that was passed over is an error among them; it ends after any other.
pub struct ReadDir<'a> {
    fs: &'a Names,
    dir: Arc<Inode>,
    batch: std::vec::IntoIter<DirEntry>,
    left_out: std::vec::IntoIter<Corrupt>,
    /// Places of damage that was told.
    told: HashSet<(Option<InodeNumber>, Option<FsBlock>)>,
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
            // A listing that goes on in the middle of a block meets its damage again.
            let told = &mut self.told;
            if let Some(damage) = self.left_out.find(|damage| told.insert(damage.place())) {
                return Some(Err(damage.into()));
            }
            match self.fs.list_dir_around_damage(&self.dir, self.next?) {
                Ok(listing) => {
                    self.next = listing.names.last().map(|entry| entry.next);
                    self.batch = listing.names.into_iter();
                    self.left_out = listing.left_out.into_iter();
                }
                Err(error) => {
                    self.next = None;
                    return Some(Err(error));
                }
            }
        }
    }
}
