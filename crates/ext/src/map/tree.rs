//! The nodes of a mapping on a volume: metadata blocks, changed inside a handle.

use throughline_extfmt::extent::{self, Expect};
use throughline_extfmt::inode::{FileType, InodeFlags};
use throughline_extfmt::{FsBlock, InodeImage};
use throughline_journal::Block;

use super::store::{Nodes, NodesMut, Root};
use crate::balloc::Run;
use crate::error::{Error, Reason, Result};
use crate::handle::Handle;
use crate::inode::Inode;
use crate::inode::Inodes;

/// The mapping format of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// An extent tree.
    Extents,
    /// Direct and indirect pointers.
    Indirect,
    /// No mapping: inline data, a short symlink, a device.
    None,
}

impl Format {
    /// The format of an inode.
    pub(crate) fn of(raw: &InodeImage) -> Self {
        let flags = raw.flags();
        let mapped = match FileType::from_mode(raw.mode()) {
            Some(FileType::Symlink) => !raw.is_fast_symlink(),
            Some(FileType::Regular | FileType::Directory) | None => true,
            Some(_) => false,
        };
        if !mapped || flags.contains(InodeFlags::INLINE_DATA) {
            Self::None
        } else if flags.contains(InodeFlags::EXTENTS) {
            Self::Extents
        } else {
            Self::Indirect
        }
    }
}

/// A mapping opened for reading.
pub(super) struct View<'a> {
    pub(super) fs: &'a Inodes,
    pub(super) inode: &'a Inode,
    pub(super) format: Format,
}

impl<'a> View<'a> {
    pub(super) fn new(fs: &'a Inodes, inode: &'a Inode) -> Self {
        let format = Format::of(&inode.raw.read());
        Self { fs, inode, format }
    }
}

impl View<'_> {
    /// Checks a node of an extent tree when it is loaded.
    fn check_node(&self, bytes: &[u8]) -> throughline_extfmt::Result<()> {
        extent::verify_block_checksum(bytes, self.inode.csum_seed)?;
        extent::Node::new(bytes)?.check(&self.fs.geo, &Expect::ROOT)
    }
}

impl Nodes for View<'_> {
    type Node = Block;

    fn root(&self) -> Root {
        *self.inode.raw.read().i_block()
    }

    fn node(&self, block: FsBlock) -> Result<Block> {
        let node = match self.format {
            Format::Extents => self
                .fs
                .read_checked_of(self.inode.ino, block, |bytes| self.check_node(bytes)),
            _ => self.fs.read(block),
        };
        node.map_err(|e| e.in_block(block))
    }

    fn check_entries(&self, node: &[u8]) -> Result<()> {
        Ok(extent::Node::new(node)?.check(&self.fs.geo, &Expect::ROOT)?)
    }

    fn check_run(&self, block: FsBlock, len: u32) -> Result<()> {
        if self.fs.geo.holds_blocks(block, len.into()) {
            return Ok(());
        }
        Err(Error::corrupt(format!(
            "points to blocks {block} + {len}, outside the volume"
        )))
    }
}

/// A mapping opened for changes, with the inode's mapping lock held exclusively. The inode's image changes in
/// memory; the creator of the tree stores it once at the end.
pub(crate) struct Tree<'a, 'h> {
    view: View<'a>,
    h: &'a mut Handle<'h>,
    /// Blocks to use for nodes before allocating others.
    spare: Option<&'a mut Spare>,
}

/// Blocks for nodes: some claimed in advance, so that they are next to their data and certain to exist once
/// it is written, and some reserved for the file.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    run: Option<Run>,
    owed: u32,
    reserved: bool,
}

impl Spare {
    /// Takes claimed blocks, and the number of further blocks reserved for this change; the final holder
    /// releases the rest. With `reserved`, more blocks may be taken from the reservation for the file's
    /// mapping.
    pub(crate) fn new(run: Option<Run>, owed: u32, reserved: bool) -> Self {
        Self {
            run,
            owed,
            reserved,
        }
    }

    /// The remaining blocks.
    pub(crate) fn rest(self) -> (Option<Run>, u32) {
        (self.run, self.owed)
    }

    fn take(&mut self) -> Option<Run> {
        let run = self.run?;
        let rest = Run {
            start: FsBlock(run.start.0 + 1),
            len: run.len - 1,
        };
        self.run = (rest.len > 0).then_some(rest);
        Some(Run {
            start: run.start,
            len: 1,
        })
    }
}

impl<'a, 'h> Tree<'a, 'h> {
    pub(super) fn new(
        fs: &'a Inodes,
        h: &'a mut Handle<'h>,
        inode: &'a Inode,
        spare: Option<&'a mut Spare>,
    ) -> Self {
        inode.mapping.changed();
        debug_assert!(
            !inode.emptied.is_some(),
            "a mapping changes while its truncation is still deferred"
        );
        Self {
            view: View::new(fs, inode),
            h,
            spare,
        }
    }

    pub(super) fn format(&self) -> Format {
        self.view.format
    }
}

impl Tree<'_, '_> {
    /// Allocates a block for a node: a claimed one, one reserved for this change or for the file's mapping,
    /// or any other.
    fn node_block(&mut self) -> Result<FsBlock> {
        let View { fs, inode, .. } = self.view;
        let goal = fs.goal_for(inode);
        let Some(spare) = self.spare.as_mut() else {
            return fs.alloc_block(self.h, goal);
        };
        if let Some(run) = spare.take() {
            return fs.confirm(self.h, run).map(|()| run.start);
        }
        if spare.owed > 0 {
            let block = fs.alloc_reserved(self.h, goal)?;
            spare.owed -= 1;
            return Ok(block);
        }
        if spare.reserved && inode.delayed.use_node() {
            let block = fs.alloc_reserved(self.h, goal);
            return block.inspect_err(|_| inode.delayed.keep_node());
        }
        fs.alloc_block(self.h, goal)
    }
}

impl Nodes for Tree<'_, '_> {
    type Node = Block;

    fn root(&self) -> Root {
        self.view.root()
    }

    fn node(&self, block: FsBlock) -> Result<Block> {
        self.view.node(block)
    }

    fn check_entries(&self, node: &[u8]) -> Result<()> {
        self.view.check_entries(node)
    }

    fn check_run(&self, block: FsBlock, len: u32) -> Result<()> {
        self.view.fs.check_data_range(block, len.into())
    }
}

impl NodesMut for Tree<'_, '_> {
    fn edit_root(&mut self, edit: impl FnOnce(&mut Root)) -> Result<()> {
        edit(self.view.inode.raw.write().i_block_mut());
        Ok(())
    }

    fn edit(&mut self, block: FsBlock, edit: impl FnOnce(&mut [u8])) -> Result<()> {
        let (format, seed) = (self.view.format, self.view.inode.csum_seed);
        let check = |bytes: &[u8]| match format {
            Format::Extents => self.view.check_node(bytes),
            _ => Ok(()),
        };
        self.h.modify_checked(block, check, |bytes| {
            edit(bytes);
            seal(format, bytes, seed)
        })??;
        Ok(())
    }

    fn create(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<FsBlock> {
        let View { fs, inode, format } = self.view;
        add_blocks(fs, inode, 1)?;
        let block = self.node_block();
        let block = block.or_else(|e| add_blocks(fs, inode, -1).and(Err(e)))?;
        self.h.create(block, |bytes| {
            fill(bytes);
            seal(format, bytes, inode.csum_seed)
        })??;
        Ok(block)
    }

    fn free(&mut self, block: FsBlock) -> Result<()> {
        self.h.forget(block);
        self.view.fs.free(self.h, block, 1)?;
        add_blocks(self.view.fs, self.view.inode, -1)
    }
}

fn seal(format: Format, bytes: &mut [u8], seed: Option<u32>) -> throughline_extfmt::Result<()> {
    match format {
        Format::Extents => extent::update_block_checksum(bytes, seed),
        _ => Ok(()),
    }
}

/// Adds clusters (blocks without `bigalloc`) to `i_blocks`, or subtracts them.
///
/// # Errors
/// `TooLarge` if the format cannot count that many; nothing has changed then.
pub(crate) fn add_blocks(fs: &Inodes, inode: &Inode, clusters: i64) -> Result<()> {
    let mut raw = inode.raw.write();
    let sectors = u64::from(fs.geo.block_bytes / 512) << fs.geo.cluster_ratio_log;
    let change = clusters.unsigned_abs().saturating_mul(sectors);
    let before = raw.blocks_512(&fs.geo);
    // An inode with too low a count must not prevent its blocks from being freed.
    let after = if clusters < 0 {
        before.saturating_sub(change)
    } else {
        before.saturating_add(change)
    };
    if raw.set_blocks_512(&fs.geo, after) {
        Ok(())
    } else {
        Err(Reason::TooLarge.into())
    }
}
