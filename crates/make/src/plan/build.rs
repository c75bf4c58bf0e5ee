//! A layout in the making: the blocks taken so far, the inodes, and the content of blocks that is not zero.

use std::collections::BTreeMap;
use std::ops::Range;

use throughline_extfmt::extent::{self, Extent, Index, MAX_LEN, NodeMut};
use throughline_extfmt::features::Incompat;
use throughline_extfmt::indirect::{self, IndirectGeometry};
use throughline_extfmt::inode::{InodeFlags, Time};
use throughline_extfmt::time::Timestamp;
use throughline_extfmt::{FileBlock, FsBlock, Geometry, InodeImage, InodeNumber};

use super::place::no_room;
use super::space::Space;
use crate::error::Result;
use crate::request::Request;

/// `i_extra_isize` of every inode with a name or a purpose.
pub(crate) const EXTRA_ISIZE: u16 = 32;
/// Extents that the inode itself holds.
const ROOT_EXTENTS: usize = 4;

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

    /// Maps by extents, as long as the format allows. Returns the runs, and the number of blocks of the tree.
    fn map_extents(
        &mut self,
        ino: InodeNumber,
        inode: &mut InodeImage,
        count: u64,
        goal: u64,
    ) -> Result<(Vec<Range<u64>>, u64)> {
        let mut runs = Vec::new();
        let mut extents = Vec::new();
        let (mut at, mut left) = (goal, count);
        while left > 0 {
            let run = self.take(at, left.min(u64::from(MAX_LEN)))?;
            let len = run.end - run.start;
            extents.push(Extent {
                block: FileBlock((count - left) as u32),
                len: len as u32,
                start: FsBlock(run.start),
                unwritten: false,
            });
            (at, left) = (run.end, left - len);
            runs.push(run);
        }
        inode.base_mut().set_flags(InodeFlags::EXTENTS);
        let own = self.write_tree(ino, inode, &extents)?;
        Ok((runs, own))
    }

    /// Writes the extents into the inode, or into leaves below it. Returns the number of leaves.
    fn write_tree(
        &mut self,
        ino: InodeNumber,
        inode: &mut InodeImage,
        extents: &[Extent],
    ) -> Result<u64> {
        let root = inode.base_mut().i_block_mut();
        if extents.len() <= ROOT_EXTENTS {
            let mut node = NodeMut::init(root, 0)?;
            for (at, extent) in extents.iter().enumerate() {
                let fits = node.insert_extent(at, *extent);
                debug_assert!(fits, "chunks are as long as a node");
            }
            return Ok(0);
        }
        let block_bytes = self.geo.block_bytes as usize;
        let capacity = usize::from(extent::capacity(block_bytes));
        let leaves: Vec<_> = extents.chunks(capacity).collect();
        if leaves.len() > ROOT_EXTENTS {
            return Err(no_room(&self.geo));
        }
        let mut indexes = Vec::new();
        let seed = self.geo.inode_seed(ino, 0);
        // Before the data if that block is free: so the tree does not divide the data.
        let first = extents.first().map_or(0, |extent| extent.start.0);
        let mut near = first.saturating_sub(1).max(self.geo.first_data_block.0);
        for leaf in leaves {
            let place = self.take(near, 1)?.start;
            near = place + 1;
            let mut block = vec![0; block_bytes];
            let mut node = NodeMut::init(&mut block, 0)?;
            for (at, extent) in leaf.iter().enumerate() {
                let fits = node.insert_extent(at, *extent);
                debug_assert!(fits, "chunks are as long as a node");
            }
            extent::update_block_checksum(&mut block, seed)?;
            self.content.insert(place, block);
            indexes.push(Index {
                block: leaf[0].block,
                child: FsBlock(place),
            });
        }
        let own = indexes.len() as u64;
        let mut node = NodeMut::init(inode.base_mut().i_block_mut(), 1)?;
        for (at, index) in indexes.into_iter().enumerate() {
            let fits = node.insert_index(at, index);
            debug_assert!(fits, "counted above");
        }
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
        let map = IndirectGeometry::new(self.geo.block_bytes);
        let mut runs: Vec<Range<u64>> = Vec::new();
        let (mut at, mut own) = (goal, 0);
        for number in 0..count {
            let block = FileBlock(number as u32);
            let path = map.path(block).ok_or_else(|| no_room(&self.geo))?;
            let indexes = path.indexes();
            // The block of pointers that the walk has reached; `None`: the inode.
            let mut parent = None;
            for (depth, &index) in indexes.iter().enumerate() {
                let found = self.pointer(inode, parent, index);
                let place = match found {
                    0 => {
                        let place = self.take(at, 1)?.start;
                        at = place + 1;
                        self.set_pointer(inode, parent, index, place)?;
                        let is_data = depth + 1 == indexes.len();
                        match (is_data, runs.last_mut()) {
                            (false, _) => {
                                let zeros = vec![0; self.geo.block_bytes as usize];
                                self.content.insert(place, zeros);
                                own += 1;
                            }
                            (true, Some(last)) if last.end == place => last.end += 1,
                            (true, _) => runs.push(place..place + 1),
                        }
                        place
                    }
                    found => u64::from(found),
                };
                parent = Some(place);
            }
        }
        Ok((runs, own))
    }

    fn pointer(&self, inode: &InodeImage, parent: Option<u64>, index: u32) -> u32 {
        match parent {
            None => inode.base().block_pointer(index as usize),
            Some(block) => self
                .content
                .get(&block)
                .map_or(0, |content| indirect::pointer(content, index)),
        }
    }

    fn set_pointer(
        &mut self,
        inode: &mut InodeImage,
        parent: Option<u64>,
        index: u32,
        place: u64,
    ) -> Result<()> {
        let pointer = u32::try_from(place).map_err(|_| no_room(&self.geo))?;
        match parent {
            None => inode.base_mut().set_block_pointer(index as usize, pointer),
            Some(block) => {
                if let Some(content) = self.content.get_mut(&block) {
                    indirect::set_pointer(content, index, pointer);
                }
            }
        }
        Ok(())
    }

    /// Adds a finished inode.
    pub(crate) fn add(&mut self, ino: InodeNumber, mut inode: InodeImage) {
        inode.update_checksum(&self.geo, ino);
        self.inodes.insert(ino.0, inode);
    }
}
