//! A layout in the making: the blocks taken so far, the inodes, and the content of blocks that is not zero.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::{iter, slice};

use throughline_extfmt::extent::{Extent, MAX_LEN};
use throughline_extfmt::features::Incompat;
use throughline_extfmt::indirect::IndirectGeometry;
use throughline_extfmt::inode::{InodeFlags, Time};
use throughline_extfmt::time::Timestamp;
use throughline_extfmt::{FileBlock, FsBlock, Geometry, InodeImage, InodeNumber};

use super::place::no_room;
use super::space::Space;
use crate::error::Result;
use crate::pack::{extents, pointers};
use crate::request::Request;

/// `i_extra_isize` of every inode with a name or a purpose.
pub(crate) const EXTRA_ISIZE: u16 = 32;

/// A layout in the making.
pub(crate) struct Build<'r> {
    pub(crate) geo: Geometry,
    pub(crate) request: &'r Request,
    pub(crate) space: Space,
    /// The inodes that are not all zero.
    pub(crate) inodes: BTreeMap<u32, InodeImage>,
    /// The blocks that are not all zero.
    pub(crate) content: BTreeMap<u64, Vec<u8>>,
    /// Blocks that must read as zeros.
    pub(crate) zeroed: Vec<Range<u64>>,
}

impl Build<'_> {
    /// An inode of this type and these permissions, with the time of the request.
    pub(crate) fn inode(&self, mode: u16, links: u16) -> InodeImage {
        let mut inode = InodeImage::new(self.geo.inode_bytes, EXTRA_ISIZE);
        inode.base_mut().set_mode(mode);
        inode.base_mut().set_links_count(links);
        let time = Timestamp::from_seconds(self.request.time as i64);
        for which in [Time::Access, Time::Change, Time::Modify, Time::Create] {
            inode.set_time(which, time);
        }
        inode
    }

    /// Whether files are mapped by extents.
    pub(crate) fn has_extents(&self) -> bool {
        self.geo.incompat.contains(Incompat::EXTENTS)
    }

    /// Takes the first free run at or after `goal`, of at most `most` blocks; after the end, the search
    /// begins anew.
    pub(crate) fn take(&mut self, goal: u64, most: u64) -> Result<Range<u64>> {
        let first = self.geo.first_data_block.0;
        let gap = self
            .space
            .gap(goal, self.geo.blocks)
            .or_else(|| self.space.gap(first, goal))
            .ok_or_else(|| no_room(&self.geo))?;
        let run = gap.start..gap.end.min(gap.start + most);
        self.space.add(run.clone());
        Ok(run)
    }

    /// The blocks that are not taken, ascending.
    pub(crate) fn free(&self) -> Vec<Range<u64>> {
        let (mut free, mut at) = (Vec::new(), self.geo.first_data_block.0);
        while let Some(gap) = self.space.gap(at, self.geo.blocks) {
            at = gap.end;
            free.push(gap);
        }
        free
    }

    /// Gives an inode `count` blocks from `goal` on, and the size of all of them. Returns the runs of the
    /// blocks in file order.
    pub(crate) fn map(
        &mut self,
        ino: InodeNumber,
        inode: &mut InodeImage,
        count: u64,
        goal: u64,
    ) -> Result<Vec<Range<u64>>> {
        let (runs, own) = match self.has_extents() {
            true => self.map_extents(ino, inode, count, goal)?,
            false => self.map_indirect(inode, count, goal)?,
        };
        let bytes = count * u64::from(self.geo.block_bytes);
        inode.base_mut().set_size_bytes(bytes);
        self.set_blocks(inode, count + own)?;
        Ok(runs)
    }

    /// Sets `i_blocks` to a number of blocks.
    pub(crate) fn set_blocks(&self, inode: &mut InodeImage, count: u64) -> Result<()> {
        let sectors = count << (self.geo.block_log - 9);
        match inode.base_mut().set_blocks_512(&self.geo, sectors) {
            true => Ok(()),
            false => Err(no_room(&self.geo)),
        }
    }

    /// Takes `count` blocks from `goal` on, in runs of at most `longest`, in file order.
    fn take_all(&mut self, goal: u64, count: u64, longest: u64) -> Result<Vec<Range<u64>>> {
        let mut runs = Vec::new();
        let (mut at, mut left) = (goal, count);
        while left > 0 {
            let run = self.take(at, left.min(longest))?;
            (at, left) = (run.end, left - (run.end - run.start));
            runs.push(run);
        }
        Ok(runs)
    }

    /// Maps by extents, as long as the format allows. Returns the runs, and the number of blocks of the tree.
    fn map_extents(
        &mut self,
        ino: InodeNumber,
        inode: &mut InodeImage,
        count: u64,
        goal: u64,
    ) -> Result<(Vec<Range<u64>>, u64)> {
        let runs = self.take_all(goal, count, MAX_LEN.into())?;
        let own = self.write_tree(ino, inode, runs.iter().cloned())?;
        Ok((runs, own))
    }

    /// Writes extents for these runs into the inode, or into leaves below it. Returns the number of leaves.
    pub(super) fn write_tree(
        &mut self,
        ino: InodeNumber,
        inode: &mut InodeImage,
        runs: impl Iterator<Item = Range<u64>>,
    ) -> Result<u64> {
        let mut block = 0;
        let extent = |run: Range<u64>| {
            let len = (run.end - run.start) as u32;
            block += len;
            Extent {
                block: FileBlock(block - len),
                len,
                start: FsBlock(run.start),
                unwritten: false,
            }
        };
        let extents: Vec<Extent> = runs.map(extent).collect();
        let own = extents::count(extents.len(), self.geo.block_bytes);
        if own > extents::ROOT_ENTRIES as u64 {
            return Err(no_room(&self.geo));
        }
        // Before the data if that block is free: so the tree does not divide the data.
        let first = extents.first().map_or(0, |extent| extent.start.0);
        let near = first.saturating_sub(1).max(self.geo.first_data_block.0);
        let places = self.take_all(near, own, 1)?;
        let seed = self.geo.inode_seed(ino, 0);
        let places = places.into_iter().flatten();
        let tree = extents::write(&extents, self.geo.block_bytes, places, seed)?;
        inode.base_mut().set_flags(InodeFlags::EXTENTS);
        *inode.base_mut().i_block_mut() = tree.root;
        self.content.extend(tree.nodes);
        Ok(own)
    }

    /// Maps by pointers: each block of pointers lies before the first block that it leads to. Returns the
    /// runs, and the number of blocks of pointers.
    fn map_indirect(
        &mut self,
        inode: &mut InodeImage,
        count: u64,
        goal: u64,
    ) -> Result<(Vec<Range<u64>>, u64)> {
        let block_bytes = self.geo.block_bytes;
        let map = IndirectGeometry::new(block_bytes);
        let end = u32::try_from(count).map_err(|_| no_room(&self.geo))?;
        if end > 0 && map.path(FileBlock(end - 1)).is_none() {
            return Err(no_room(&self.geo));
        }
        let own = map.pointer_blocks(count);
        let taken = self.take_all(goal, count + own, u64::MAX)?;
        if taken.iter().any(|run| run.end > 1 << 32) {
            return Err(no_room(&self.geo));
        }
        let next = RefCell::new(taken.into_iter().flatten());
        let mut runs: Vec<Range<u64>> = Vec::new();
        let places = iter::from_fn(|| {
            let place = next.borrow_mut().next()?;
            match runs.last_mut() {
                Some(last) if last.end == place => last.end += 1,
                _ => runs.push(place..place + 1),
            }
            Some(place)
        });
        let tables = iter::from_fn(|| next.borrow_mut().next());
        let map = pointers::write(slice::from_ref(&(0..end)), block_bytes, places, tables);
        *inode.base_mut().i_block_mut() = map.root;
        self.content.extend(map.tables);
        Ok((runs, own))
    }

    /// Adds a finished inode.
    pub(crate) fn add(&mut self, ino: InodeNumber, mut inode: InodeImage) {
        inode.update_checksum(&self.geo, ino);
        self.inodes.insert(ino.0, inode);
    }
}
