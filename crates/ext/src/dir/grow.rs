//! Growing a directory: from nothing to a block, from one block to a hash tree, by a leaf, by an index block,
//! by a level.
//!
//! Every step takes one new block, and allocates it before it changes anything else; after each step the
//! directory is sound. An insertion repeats steps until there is room, so one that fails with `NoSpace`
//! leaves a directory with all its names.

use throughline_extfmt::dir::{self as format, DirEntry, DirFormat};
use throughline_extfmt::features::Incompat;
use throughline_extfmt::htree::{self, BLOCK_MASK, IndexNodeMut};
use throughline_extfmt::inode::{FileType, InodeFlags};
use throughline_extfmt::{FileBlock, FsBlock, InodeNumber};

use super::block::{DirBlock, DirBlocks};
use super::entry::{
    DOTDOT_OFFSET, DOTS_BYTES, FIRST, MAX_BYTES_SHORT, NewEntry, Room, Shape, shape,
};
use super::htree::{Path, Tree};
use super::split::{self, Item};
use super::wanted::Wanted;
use crate::balloc::GROUP_CREDITS;
use crate::error::{Error, Reason, Result};
use crate::handle::Handle;
use crate::inode::Inode;
use crate::map;
use crate::names::Names;

/// Maximum steps of one insertion: the conversion, a split on each level, a new level and the leaf, with some
/// to spare.
const MAX_STEPS: u32 = 16;

/// Blocks that adding a name may change, including the directory's inode: the path to its leaf through the
/// hash tree; a block and its bitmap for each step, and one for a directory that was inline; the mapping of
/// all these, whose nodes are split at most once.
pub(crate) const INSERT_CREDITS: u32 =
    5 + (MAX_STEPS + 1) * (1 + GROUP_CREDITS) + map::INSERT_CREDITS;

/// Adds a name to a directory that has no room for it.
pub(super) fn insert(
    fs: &Names,
    h: &mut Handle<'_>,
    dir: &Inode,
    entry: &NewEntry<'_>,
) -> Result<()> {
    for _ in 0..MAX_STEPS {
        if step(fs, h, dir, entry)? {
            return Ok(());
        }
    }
    Err(Error::corrupt("a hash tree has no room however it is split").in_inode(dir.ino))
}

/// Adds the name, or takes one step to make room for it (`false`).
fn step(fs: &Names, h: &mut Handle<'_>, dir: &Inode, entry: &NewEntry<'_>) -> Result<bool> {
    let blocks = DirBlocks::new(fs, dir)?;
    let wanted = Wanted::new(fs, dir, entry.name);
    if shape(fs, dir) == Shape::Hashed {
        let tree = Tree::open_to_change(&blocks)?;
        return match tree.room(&wanted)? {
            Room::Leaf(block, offset) => blocks.insert(h, (block, offset), entry),
            _ => tree.grow(h, tree.hash(entry.name)).map(|()| false),
        };
    }
    drop_stale_index(&blocks)?;
    let first = blocks.read(FIRST)?;
    if blocks.count == 1
        && let Room::Leaf(block, offset) = blocks.room_in(&first, &wanted)?
    {
        // It was converted from inline in this insertion.
        return blocks.insert(h, (block, offset), entry);
    }
    let flags = dir.raw.read().flags();
    if blocks.count == 1 && fs.hash_rules.indexes(flags) {
        return blocks.to_tree(h, &first).map(|()| false);
    }
    let (_, block) = blocks.append(h)?;
    blocks.fill_new(
        h,
        block,
        &[DirEntry {
            offset: 0,
            rec_len: 0,
            inode: entry.ino,
            name: entry.name,
            file_type: entry.code,
        }],
    )?;
    Ok(true)
}

/// On a volume without `dir_index`, a directory flagged as hashed is an ordinary one with a stale index:
/// names added to it would be missing from the index, so the flag is cleared. The caller stores the inode.
pub(super) fn drop_stale_index(blocks: &DirBlocks<'_>) -> Result<()> {
    if !blocks.indexed || shape(blocks.fs, blocks.dir) == Shape::Hashed {
        return Ok(());
    }
    if blocks.fs.geo.has_metadata_csum() {
        // Index blocks keep their checksum in another place than leaves, so they cannot be used as leaves.
        let what = "a hashed directory on a volume without dir_index";
        return Err(Error::corrupt(what).in_inode(blocks.dir.ino));
    }
    let mut raw = blocks.dir.raw.write();
    let flags = raw.flags() - InodeFlags::INDEX;
    raw.set_flags(flags);
    Ok(())
}

/// Gives a directory without blocks its first one, with `.`, `..` and `records`: complete inline records,
/// copied unchanged.
pub(super) fn first_block(
    fs: &Names,
    h: &mut Handle<'_>,
    dir: &Inode,
    parent: InodeNumber,
    records: &[u8],
) -> Result<()> {
    let held = map::hold::growth(fs, dir)?;
    let block = map::append_block(fs, h, dir)?;
    fs.store(h, dir)?;
    drop(held);
    let blocks = DirBlocks::new(fs, dir)?;
    let code = FileType::Directory.dir_code();
    let dot = |inode, name| DirEntry {
        offset: 0,
        rec_len: 0,
        inode,
        name,
        file_type: code,
    };
    let dots = [dot(dir.ino, b".".as_slice()), dot(parent, b"..")];
    let filled = h.create(block, |bytes| {
        let filled = format::fill(bytes, &blocks.format, &dots)
            && copy_after_dots(bytes, &blocks.format, records);
        format::update_checksum(bytes, dir.csum_seed);
        filled
    })?;
    blocks.must_fit(block, filled)
}

/// Copies records after `.` and `..`. The last one is extended to the end of the block.
fn copy_after_dots(block: &mut [u8], format: &DirFormat, records: &[u8]) -> bool {
    let Some(last) = format::entries(records, &format.inline()).last() else {
        return true;
    };
    let usable = format.usable(block.len());
    let (Ok(last), Some(place)) = (
        last,
        block
            .get_mut(..usable)
            .and_then(|b| b.get_mut(DOTS_BYTES..)?.get_mut(..records.len())),
    ) else {
        return false;
    };
    place.copy_from_slice(records);
    let last = DOTS_BYTES + last.offset;
    for (offset, rec_len) in [
        (DOTDOT_OFFSET, DOTS_BYTES - DOTDOT_OFFSET),
        (last, usable - last),
    ] {
        let rec_len = format::rec_len_to_disk(rec_len, format.block_bytes).to_le_bytes();
        block[offset + 4..offset + 6].copy_from_slice(&rec_len);
    }
    true
}

impl DirBlocks<'_> {
    /// Appends a block and stores the inode. The caller fills the block.
    fn append(&self, h: &mut Handle<'_>) -> Result<(FileBlock, FsBlock)> {
        let block_bytes = u64::from(self.fs.geo.block_bytes);
        let at = FileBlock(self.count);
        let size = u64::from(at.0)
            .saturating_add(1)
            .saturating_mul(block_bytes);
        let long = self.fs.geo.incompat.contains(Incompat::LARGE_DIR);
        if at.0 > BLOCK_MASK || size > MAX_BYTES_SHORT && !long {
            return Err(Reason::NoSpace.into());
        }
        let _held = map::hold::growth(self.fs, self.dir)?;
        let block = map::append_block(self.fs, h, self.dir)?;
        self.fs.store(h, self.dir)?;
        Ok((at, block))
    }

    /// Initializes a new block as a leaf with these names.
    fn fill_new(&self, h: &mut Handle<'_>, block: FsBlock, names: &[DirEntry<'_>]) -> Result<()> {
        let filled = h.create(block, |bytes| {
            let filled = format::fill(bytes, &self.format, names);
            format::update_checksum(bytes, self.dir.csum_seed);
            filled
        })?;
        self.must_fit(block, filled)
    }

    /// Rewrites a leaf with these names.
    fn refill(&self, h: &mut Handle<'_>, block: FsBlock, names: &[DirEntry<'_>]) -> Result<()> {
        let filled = self.modify_leaf(h, block, |bytes, format| {
            Ok(format::fill(bytes, format, names))
        })?;
        self.must_fit(block, filled)
    }

    fn must_fit(&self, block: FsBlock, filled: bool) -> Result<()> {
        if filled {
            return Ok(());
        }
        Err(Error::corrupt("names do not fit the block they were in")
            .in_inode(self.dir.ino)
            .in_block(block))
    }

    /// The entries in use in a leaf.
    fn names<'b>(&self, leaf: &'b DirBlock) -> Result<Vec<DirEntry<'b>>> {
        format::entries(&leaf.bytes, &leaf.format)
            .filter(|entry| !entry.as_ref().is_ok_and(|entry| !entry.is_used()))
            .collect::<core::result::Result<_, _>>()
            .map_err(|what| self.damage(leaf.block, what))
    }

    /// Converts a full one-block directory into a tree with one leaf.
    fn to_tree(&self, h: &mut Handle<'_>, first: &DirBlock) -> Result<()> {
        let parent = self.dotdot()?.0;
        let mut names = self.names(first)?;
        // `.` and `..` stay in the root.
        names.drain(..2);
        let (at, leaf) = self.append(h)?;
        self.fill_new(h, leaf, &names)?;
        let code = self.fs.hash_rules.default_code();
        self.modify_index(h, first.block, true, |bytes| {
            let dots = (self.dir.ino, parent);
            IndexNodeMut::init_root(bytes, &self.tree, dots, code, self.format.filetype, at)
                .map(drop)
        })?;
        {
            let mut raw = self.dir.raw.write();
            let flags = raw.flags() | InodeFlags::INDEX;
            raw.set_flags(flags);
        }
        self.fs.store(h, self.dir)
    }
}

impl Tree<'_> {
    /// One step towards room for a name with `hash`: splits its leaf, or the index block above it that must
    /// be split first.
    fn grow(&self, h: &mut Handle<'_>, hash: u32) -> Result<()> {
        let path = self.path(hash)?;
        let mut full = Vec::with_capacity(path.levels.len());
        for level in &path.levels {
            full.push(self.view(&level.node, level.at)?.is_full());
        }
        // Finds the lowest index block with room, and splits its child on the path.
        match full.iter().rposition(|&full| !full) {
            Some(last) if last + 1 == full.len() => self.split_leaf(h, &path),
            Some(above) => self.split_node(h, &path, above),
            None => self.add_level(h, &path),
        }
    }

    /// Moves the half of a leaf's names with the higher hashes to a new leaf.
    fn split_leaf(&self, h: &mut Handle<'_>, path: &Path) -> Result<()> {
        let blocks = self.blocks;
        let leaf = blocks.read(path.leaf)?;
        let mut names: Vec<_> = blocks
            .names(&leaf)?
            .into_iter()
            .map(|entry| (self.hash(entry.name), entry))
            .collect();
        names.sort_by_key(|&(hash, _)| hash);
        let items: Vec<_> = names
            .iter()
            .map(|(hash, entry)| Item {
                hash: *hash,
                len_bytes: entry.needs(),
            })
            .collect();
        let room_bytes = blocks.format.usable(blocks.fs.geo.block_bytes as usize);
        let cut = split::cut(&items, room_bytes).ok_or_else(|| {
            Error::corrupt("a leaf of a hash tree is full with one name")
                .in_inode(blocks.dir.ino)
                .in_block(leaf.block)
        })?;
        let names: Vec<_> = names.into_iter().map(|(_, entry)| entry).collect();
        let (stay, go) = names.split_at(cut.keep);
        let (at, block) = blocks.append(h)?;
        blocks.fill_new(h, block, go)?;
        blocks.refill(h, leaf.block, stay)?;
        self.insert_index(
            h,
            path,
            path.levels.len() - 1,
            cut.hash | u32::from(cut.continued),
            at,
        )
    }

    /// Moves half of the entries of the index block below `above` to a new one.
    fn split_node(&self, h: &mut Handle<'_>, path: &Path, above: usize) -> Result<()> {
        let blocks = self.blocks;
        let Some(level) = path.levels.get(above + 1) else {
            return Err(Error::corrupt("a hash tree ends too early").in_inode(blocks.dir.ino));
        };
        let middle = self.view(&level.node, level.at)?.count() / 2;
        if middle == 0 {
            return Err(Error::corrupt("a full index block has one entry").in_inode(blocks.dir.ino));
        }
        let (at, block) = blocks.append(h)?;
        let mut rest = level.node.bytes.to_vec();
        let hash = self.new_node(h, block, |new| {
            let mut old = IndexNodeMut::node(&mut rest, &blocks.tree)?;
            Ok(old.split_off(middle, new))
        })?;
        blocks.modify_index(h, level.node.block, false, |bytes| {
            bytes.copy_from_slice(&rest);
            Ok(())
        })?;
        self.insert_index(h, path, above, hash, at)
    }

    /// All index blocks on the path are full: moves all entries of the root to a new index block below it.
    fn add_level(&self, h: &mut Handle<'_>, path: &Path) -> Result<()> {
        let blocks = self.blocks;
        let levels = self.indirect_levels + 1;
        let (Some(root), true) = (path.levels.first(), levels < blocks.tree.max_levels) else {
            // The index is as deep as the format allows (`large_dir` allows one more level).
            return Err(Reason::NoSpace.into());
        };
        let (at, block) = blocks.append(h)?;
        let mut rest = root.node.bytes.to_vec();
        self.new_node(h, block, |new| {
            IndexNodeMut::root(&mut rest, &blocks.tree)?.push_down(new, at);
            Ok(())
        })?;
        blocks.modify_index(h, root.node.block, true, |bytes| {
            bytes.copy_from_slice(&rest);
            htree::set_indirect_levels(bytes, levels)
        })
    }

    /// Initializes a new block as an index block.
    fn new_node<R>(
        &self,
        h: &mut Handle<'_>,
        block: FsBlock,
        fill: impl FnOnce(&mut IndexNodeMut<'_>) -> core::result::Result<R, throughline_extfmt::Corrupt>,
    ) -> Result<R> {
        let blocks = self.blocks;
        let filled = h.create(block, |bytes| {
            let mut node = IndexNodeMut::init_node(bytes, &blocks.tree, FIRST)?;
            let result = fill(&mut node)?;
            htree::update_checksum(bytes, &blocks.tree, false, blocks.dir.csum_seed)?;
            Ok(result)
        })?;
        filled.map_err(|what| blocks.damage(block, what))
    }

    /// Inserts a new block into the index block at `level` of the path, after the entry that the path takes
    /// there.
    fn insert_index(
        &self,
        h: &mut Handle<'_>,
        path: &Path,
        level: usize,
        hash: u32,
        block: FileBlock,
    ) -> Result<()> {
        let level = &path.levels[level];
        let is_root = level.at == FIRST;
        let tree = &self.blocks.tree;
        let inserted = self
            .blocks
            .modify_index(h, level.node.block, is_root, |bytes| {
                let node = if is_root {
                    IndexNodeMut::root(bytes, tree)
                } else {
                    IndexNodeMut::node(bytes, tree)
                };
                Ok(node?.insert(level.index + 1, hash, block))
            })?;
        if inserted {
            return Ok(());
        }
        Err(Error::corrupt("an index block has no room for a new entry")
            .in_inode(self.blocks.dir.ino)
            .in_block(level.node.block))
    }
}
