//! Adds entries to the tree of a quota file, and removes them.
//!
//! An owner gets its entry in a transaction of its own, before the operation that charges it. A crash in
//! between leaves an entry of zeros, which is sound. Entries of zeros are removed when the volume is closed.

use std::sync::Arc;

use throughline_extfmt::quota::{
    self as format, LEAF_ENTRIES, LEVELS, LeafHeader, QUOTA_BLOCK_BYTES, QuotaHeader,
};
use throughline_extfmt::{FileBlock, FsBlock};

use super::file::QuotaFile;
use super::find::{self, Path, located};
use super::find_owner;
use super::owner::{EntryPlace, Owner};
use super::setup::MAX_BLOCKS;
use crate::balloc::GROUP_CREDITS;
use crate::error::{Error, Reason, Result};
use crate::handle::Handle;
use crate::inode::{INODE_CREDITS, Inode, Inodes};
use crate::map::{self, INSERT_CREDITS};

/// Blocks that adding or removing an entry may change: the header, the blocks of the path, and two
/// neighbours in the list of leaves with room.
const TREE_CREDITS: u32 = 1 + LEVELS + 1 + 2;
/// Blocks that growing a file by one block may change.
const GROW_CREDITS: u32 = INSERT_CREDITS + GROUP_CREDITS + 1 + INODE_CREDITS;

/// Adds the entries that these owners lack. No handle may be open, and no mapping lock held.
///
/// # Errors
/// `NoSpace`; device errors. Damage of a quota file is recorded, and is no error.
pub(crate) fn ensure(fs: &Inodes, ids: [u32; 3]) -> Result<()> {
    if !fs.quotas.is_on() {
        return Ok(());
    }
    let kinds: Vec<_> = fs.quotas.kinds().collect();
    for kind in kinds {
        let id = ids.get(kind.index()).copied().unwrap_or(0);
        let owner = find_owner(fs, kind, id)?;
        if owner.is_unplaced() {
            place(fs, &owner)?;
        }
    }
    Ok(())
}

/// Adds the entries of owners that were charged without having one: those of inodes whose owner the quota
/// file did not list.
///
/// # Errors
/// As [`ensure`].
pub(crate) fn place_all(fs: &Inodes) -> Result<()> {
    if !fs.quotas.take_unplaced() {
        return Ok(());
    }
    for owner in fs.quotas.in_memory() {
        if !owner.is_unplaced() {
            continue;
        }
        match place(fs, &owner) {
            // Later, then.
            Err(Error::Caller(Reason::NoSpace)) => fs.quotas.note_unplaced(),
            Err(error) => {
                fs.quotas.note_unplaced();
                return Err(error);
            }
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Removes the entries of owners in memory that use nothing and have no limits. The volume is being closed:
/// nothing else is in progress.
///
/// # Errors
/// Device errors. Damage of a quota file is recorded, and is no error.
pub(crate) fn remove_idle(fs: &Inodes) -> Result<()> {
    for owner in fs.quotas.in_memory() {
        let (place, is_idle) = {
            let state = owner.state();
            (state.place, state.entry.is_idle())
        };
        let (Some(place), true) = (place, is_idle) else {
            continue;
        };
        let Some(file) = fs.quotas.file(owner.kind) else {
            continue;
        };
        let removed = fs.transact(TREE_CREDITS, |h| {
            let _tree = file.tree();
            remove(fs, h, file, (owner.id, place))
        });
        if fs.change_around_damage(removed)?.is_some() {
            owner.state().place = None;
        }
    }
    Ok(())
}

/// Gives an owner its entry.
fn place(fs: &Inodes, owner: &Arc<Owner>) -> Result<()> {
    let Some(file) = fs.quotas.file(owner.kind) else {
        return Ok(());
    };
    let placed = grow_for(fs, file, owner.id).and_then(|()| {
        fs.transact(TREE_CREDITS, |h| {
            let _tree = file.tree();
            match owner.is_unplaced() {
                true => insert(fs, h, file, owner),
                false => Ok(()),
            }
        })
    });
    match placed {
        Err(Error::Corrupt(_)) if fs.stopped().is_none() => {
            owner.state().is_lost = true;
            Ok(())
        }
        done => done,
    }
}

/// Makes the file large enough for all blocks that an entry may need, one block of the volume at a time.
fn grow_for(fs: &Inodes, file: &QuotaFile, id: u32) -> Result<()> {
    let inode = fs.inode(file.ino)?;
    let step = |h: &mut Handle<'_>| {
        let _tree = file.tree();
        let header = file.header();
        let path = find::path(fs, file, id)?;
        let missing = path.inner.iter().filter(|number| **number == 0).count() as u64;
        let leaf = u64::from(header.dqi_free_entry.get() == 0);
        // Free blocks of the file may turn out to be unusable, so they do not count.
        let needed = u64::from(header.dqi_blocks.get()) + missing + leaf;
        let bytes = needed.saturating_mul(QUOTA_BLOCK_BYTES as u64);
        if needed > file.room_blocks() {
            return grow(fs, h, file, &inode).map(|()| true);
        }
        if bytes > map::size(fs, &inode)? {
            // The file ended within its last block.
            return extend(fs, h, file, &inode).map(|()| true);
        }
        Ok(false)
    };
    while fs.transact(GROW_CREDITS, step)? {}
    Ok(())
}

fn grow(fs: &Inodes, h: &mut Handle<'_>, file: &QuotaFile, inode: &Inode) -> Result<()> {
    let count = file.len_blocks();
    if count as u64 >= MAX_BLOCKS {
        return Err(Reason::NoSpace.into());
    }
    let block = {
        let _map = inode.map_exclusive();
        map::add_block(fs, h, inode, FileBlock(count as u32))?
    };
    h.create(block, |_| ())?;
    file.push(block);
    extend(fs, h, file, inode)
}

/// Makes the size of the file that of its blocks.
fn extend(fs: &Inodes, h: &mut Handle<'_>, file: &QuotaFile, inode: &Inode) -> Result<()> {
    let blocks = file.len_blocks() as u64;
    map::set_size(inode, blocks << fs.geo.block_log);
    fs.store(h, inode)
}

/// Adds an entry. Everything is checked before the first change.
fn insert(fs: &Inodes, h: &mut Handle<'_>, file: &QuotaFile, owner: &Owner) -> Result<()> {
    let mut change = Change::new(fs, file);
    let path = find::path(fs, file, owner.id)?;
    if path.leaf != 0 {
        return Err(file.corrupt(format!("id {} has a leaf already", owner.id)));
    }
    let leaf = change.leaf_with_room()?;
    let mut inner = path.inner;
    for number in &mut inner {
        if *number == 0 {
            *number = change.take_block()?;
        }
    }
    let place = file.place(leaf.number)?;
    let at = EntryPlace {
        block: place.block,
        offset: place.offset + leaf.slot,
    };
    // From here on, only the device can fail. Blocks are filled before others name them.
    change.enter_leaf(h, &leaf)?;
    {
        let mut state = owner.state();
        let entry = state.entry;
        h.modify(at.block, |bytes| {
            format::set_entry(bytes, at.offset, Some(entry));
        })?;
        state.place = Some(at);
    }
    let mut below = leaf.number;
    for level in (0..LEVELS as usize).rev() {
        let number = inner[level];
        let is_new = path.inner[level] == 0;
        change.modify(h, number, |block| {
            if is_new {
                block.fill(0);
            }
            format::set_child(block, owner.id, level as u32, below);
        })?;
        if !is_new {
            break;
        }
        below = number;
    }
    change.finish(h)
}

/// Removes an entry, and the blocks that become empty. Everything is checked before the first change.
fn remove(
    fs: &Inodes,
    h: &mut Handle<'_>,
    file: &QuotaFile,
    (id, at): (u32, EntryPlace),
) -> Result<()> {
    let mut change = Change::new(fs, file);
    let path = find::path(fs, file, id)?;
    let leaf = change.leaf(path.leaf)?;
    let slot = at.offset.checked_sub(leaf.place_offset);
    let slot = slot.filter(|_| leaf.place_block == at.block);
    let (Some(slot), 1..) = (slot, leaf.header.dqdh_entries.get()) else {
        return Err(file.corrupt(format!("the entry of id {id} is not in its leaf")));
    };
    let emptied = emptied_levels(fs, file, &path, id)?;
    change.leave_leaf(h, &leaf, slot)?;
    for level in (0..LEVELS as usize).rev() {
        let number = path.inner[level];
        change.modify(h, number, |block| {
            format::set_child(block, id, level as u32, 0);
        })?;
        if level == 0 || level < emptied {
            break;
        }
        change.give_block(h, number)?;
    }
    change.finish(h)
}

/// The highest level from which on the path's blocks name nothing but the path; the root stays.
fn emptied_levels(fs: &Inodes, file: &QuotaFile, path: &Path, id: u32) -> Result<usize> {
    let mut emptied = LEVELS as usize;
    for level in (1..LEVELS as usize).rev() {
        let (bytes, place) = find::block(fs, file, path.inner[level])?;
        let mut block = place.of(&bytes).to_vec();
        format::set_child(&mut block, id, level as u32, 0);
        if !format::is_empty(&block) {
            break;
        }
        emptied = level;
    }
    Ok(emptied)
}

/// A leaf as it was found.
struct Leaf {
    number: u32,
    header: LeafHeader,
    /// The byte offset of the first free slot in the quota block.
    slot: usize,
    /// It was taken from the free blocks.
    is_new: bool,
    place_block: FsBlock,
    place_offset: usize,
}

/// A change of a file's tree, with the header as it will be.
struct Change<'a> {
    fs: &'a Inodes,
    file: &'a QuotaFile,
    header: QuotaHeader,
}

impl<'a> Change<'a> {
    fn new(fs: &'a Inodes, file: &'a QuotaFile) -> Self {
        let header = file.header();
        Self { fs, file, header }
    }

    /// Takes a free block, or one past the end.
    fn take_block(&mut self) -> Result<u32> {
        let free = self.header.dqi_free_blk.get();
        if free != 0 {
            let (bytes, place) = find::block(self.fs, self.file, free)?;
            let damaged = |e| located(self.file, e, place.block);
            let found = format::leaf_header(place.of(&bytes)).map_err(damaged)?;
            let next = found.dqdh_next_free.get();
            if next != 0 {
                self.header.check_block(next).map_err(damaged)?;
            }
            if found.dqdh_entries.get() != 0 || next == free {
                let what = format!("quota block {free} is in the list of free blocks");
                return Err(self.file.corrupt(what).in_block(place.block));
            }
            self.header.dqi_free_blk.set(next);
            return Ok(free);
        }
        let number = self.header.dqi_blocks.get();
        if u64::from(number) >= self.file.room_blocks() {
            return Err(Reason::NoSpace.into());
        }
        self.header.dqi_blocks.set(number + 1);
        Ok(number)
    }

    /// Puts a block, named by no other any more, into the list of free blocks.
    fn give_block(&mut self, h: &mut Handle<'_>, number: u32) -> Result<()> {
        let mut free = LeafHeader::default();
        free.dqdh_next_free.set(self.header.dqi_free_blk.get());
        self.modify(h, number, |block| {
            block.fill(0);
            format::set_leaf_header(block, free);
        })?;
        self.header.dqi_free_blk.set(number);
        Ok(())
    }

    /// Reads a leaf.
    fn leaf(&self, number: u32) -> Result<Leaf> {
        self.header
            .check_block(number)
            .map_err(|e| Error::from(e).in_inode(self.file.ino))?;
        let (bytes, place) = find::block(self.fs, self.file, number)?;
        let block = place.of(&bytes);
        let damaged = |e| located(self.file, e, place.block);
        let header = format::leaf_header(block).map_err(damaged)?;
        let used = format::entries(block)
            .filter(|(_, entry)| entry.is_some())
            .count();
        if used != usize::from(header.dqdh_entries.get()) {
            let what = format!(
                "quota leaf {number} counts {} entries and has {used}",
                header.dqdh_entries
            );
            return Err(self.file.corrupt(what).in_block(place.block));
        }
        for neighbour in [header.dqdh_next_free.get(), header.dqdh_prev_free.get()] {
            if neighbour != 0 {
                self.header.check_block(neighbour).map_err(damaged)?;
            }
        }
        Ok(Leaf {
            number,
            header,
            slot: format::free_slot(block).unwrap_or(0),
            is_new: false,
            place_block: place.block,
            place_offset: place.offset,
        })
    }

    /// A leaf with a free slot: the first of the list, or a new one.
    fn leaf_with_room(&mut self) -> Result<Leaf> {
        let first = self.header.dqi_free_entry.get();
        if first != 0 {
            let leaf = self.leaf(first)?;
            if leaf.slot == 0 || leaf.header.dqdh_prev_free.get() != 0 {
                let what = format!("quota leaf {first} is not the first leaf with room");
                return Err(self.file.corrupt(what).in_block(leaf.place_block));
            }
            return Ok(leaf);
        }
        let number = self.take_block()?;
        let place = self.file.place(number)?;
        Ok(Leaf {
            number,
            header: LeafHeader::default(),
            slot: size_of::<LeafHeader>(),
            is_new: true,
            place_block: place.block,
            place_offset: place.offset,
        })
    }

    /// Counts one more entry in a leaf.
    fn enter_leaf(&mut self, h: &mut Handle<'_>, leaf: &Leaf) -> Result<()> {
        let mut header = leaf.header;
        let entries = header.dqdh_entries.get() + 1;
        header.dqdh_entries.set(entries);
        if leaf.is_new {
            self.header.dqi_free_entry.set(leaf.number);
        }
        if usize::from(entries) == LEAF_ENTRIES {
            self.unlink(h, &mut header)?;
        }
        self.modify(h, leaf.number, |block| {
            if leaf.is_new {
                block.fill(0);
            }
            format::set_leaf_header(block, header);
        })
    }

    /// Makes a slot of a leaf free; an empty leaf becomes a free block.
    fn leave_leaf(&mut self, h: &mut Handle<'_>, leaf: &Leaf, slot: usize) -> Result<()> {
        let mut header = leaf.header;
        let entries = header.dqdh_entries.get() - 1;
        header.dqdh_entries.set(entries);
        let was_full = usize::from(entries) + 1 == LEAF_ENTRIES;
        if entries == 0 {
            self.unlink(h, &mut header)?;
            return self.give_block(h, leaf.number);
        }
        if was_full {
            let first = self.header.dqi_free_entry.get();
            if first != 0 {
                self.edit_links(h, first, |other| other.dqdh_prev_free.set(leaf.number))?;
            }
            header.dqdh_next_free.set(first);
            header.dqdh_prev_free.set(0);
            self.header.dqi_free_entry.set(leaf.number);
        }
        self.modify(h, leaf.number, |block| {
            format::set_entry(block, slot, None);
            format::set_leaf_header(block, header);
        })
    }

    /// Takes a leaf out of the list of leaves with room.
    fn unlink(&mut self, h: &mut Handle<'_>, header: &mut LeafHeader) -> Result<()> {
        let (next, previous) = (header.dqdh_next_free.get(), header.dqdh_prev_free.get());
        if next != 0 {
            self.edit_links(h, next, |other| other.dqdh_prev_free.set(previous))?;
        }
        if previous != 0 {
            self.edit_links(h, previous, |other| other.dqdh_next_free.set(next))?;
        } else {
            self.header.dqi_free_entry.set(next);
        }
        header.dqdh_next_free.set(0);
        header.dqdh_prev_free.set(0);
        Ok(())
    }

    fn edit_links(
        &self,
        h: &mut Handle<'_>,
        number: u32,
        edit: impl FnOnce(&mut LeafHeader),
    ) -> Result<()> {
        self.modify(h, number, |block| {
            if let Ok(mut header) = format::leaf_header(block) {
                edit(&mut header);
                format::set_leaf_header(block, header);
            }
        })
    }

    /// Changes a quota block.
    fn modify(
        &self,
        h: &mut Handle<'_>,
        number: u32,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        let place = self.file.place(number)?;
        h.modify(place.block, |bytes| change(place.of_mut(bytes)))
            .map_err(|e| e.in_inode(self.file.ino).in_block(place.block))
    }

    /// Writes the header.
    fn finish(self, h: &mut Handle<'_>) -> Result<()> {
        let header = self.header;
        self.modify(h, 0, |block| header.write(block))?;
        self.file.set_header(header);
        Ok(())
    }
}
