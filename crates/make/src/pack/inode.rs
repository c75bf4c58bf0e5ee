//! The inodes of a tree, and the blocks of metadata that are made when they are written.

use std::collections::HashMap;

use throughline_extfmt::features::Incompat;
use throughline_extfmt::inline_data::INLINE_MAIN_BYTES;
use throughline_extfmt::inode::{FAST_SYMLINK_MAX, InodeFlags, Time};
use throughline_extfmt::time::Timestamp;
use throughline_extfmt::{FsBlock, Geometry, InodeImage, InodeNumber, xattr};

use super::attributes;
use super::extents;
use super::place::Placed;
use super::tree::{Attributes, Kind, NodeId, ROOT};
use crate::error::{Error, Result};
use crate::plan::build::EXTRA_ISIZE;
use crate::write::Found;

/// The bytes of files that are in their inodes, by node.
pub(crate) type Inline = HashMap<NodeId, Vec<u8>>;

/// A block of a tree that is made when it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TreeBlock {
    /// A block of a directory.
    Directory(NodeId, u32),
    Attributes(NodeId),
    Link(NodeId),
}

/// The time of a node, at most `latest` if that is given.
pub(super) fn time_of(attributes: Attributes, latest: Option<u64>) -> Timestamp {
    match latest {
        Some(latest) if attributes.mtime_seconds >= latest as i64 => {
            Timestamp::from_seconds(latest as i64)
        }
        _ => Timestamp {
            seconds: attributes.mtime_seconds,
            nanoseconds: attributes.mtime_nanoseconds,
        },
    }
}

/// Whether inodes of that size can hold the time.
pub(super) fn holds(inode_bytes: u16, time: Timestamp) -> bool {
    let mut inode = InodeImage::new(inode_bytes, EXTRA_ISIZE);
    inode.set_time(Time::Modify, time);
    inode
        .time(Time::Modify)
        .is_some_and(|held| held.seconds == time.seconds)
}

impl Placed<'_> {
    /// The inode of a number on a volume; `None`: it is not the tree's.
    ///
    /// # Errors
    /// Those of the tree.
    pub(crate) fn inode(
        &self,
        geo: &Geometry,
        ino: InodeNumber,
        found: &Found,
    ) -> Result<Option<InodeImage>> {
        let Some(node) = self.measured.node(ino) else {
            return Ok(None);
        };
        let tree = self.measured.walk.tree;
        let kind = tree.kind(node);
        let attributes = tree.attributes(node);
        let mut inode = InodeImage::new(geo.inode_bytes, EXTRA_ISIZE);
        let mode = kind.file_type().mode_bits() | attributes.permissions & 0o7777;
        inode.base_mut().set_mode(mode);
        let (uid, gid) = self.measured.owner(node);
        inode.base_mut().set_uid(uid);
        inode.base_mut().set_gid(gid);
        let links = self.measured.links(node) + self.measured.more_links(node);
        inode.base_mut().set_links_count(links);
        let time = time_of(attributes, found.clamp);
        for which in [Time::Access, Time::Change, Time::Modify, Time::Create] {
            inode.set_time(which, time);
        }
        let data = found.inline.get(&node).map(Vec::as_slice);
        self.content(geo, node, kind, &mut inode, data)?;
        self.attributes(node, &mut inode, data)?;
        self.count_blocks(geo, node, &mut inode)?;
        inode.update_checksum(geo, ino);
        Ok(Some(inode))
    }

    /// Size and map.
    fn content(
        &self,
        geo: &Geometry,
        node: NodeId,
        kind: Kind<'_>,
        inode: &mut InodeImage,
        inline: Option<&[u8]>,
    ) -> Result<()> {
        match kind {
            Kind::CharDevice { major, minor } | Kind::BlockDevice { major, minor } => {
                let fits = inode.base_mut().set_device_number(major, minor);
                return match fits {
                    true => Ok(()),
                    false => Err(self
                        .measured
                        .walk
                        .refused(node, "has too large a device number")),
                };
            }
            Kind::Symlink { target } if target.len() <= FAST_SYMLINK_MAX => {
                inode.base_mut().i_block_mut()[..target.len()].copy_from_slice(target);
                inode.base_mut().set_size_bytes(target.len() as u64);
                return Ok(());
            }
            Kind::Symlink { target } => inode.base_mut().set_size_bytes(target.len() as u64),
            Kind::File { size } => inode.base_mut().set_size_bytes(size),
            Kind::Directory => {
                let blocks = u64::from(self.measured.directory_blocks(node));
                inode.base_mut().set_size_bytes(blocks << geo.block_log);
            }
            Kind::Fifo | Kind::Socket => return Ok(()),
        }
        if let Some(data) = inline {
            let len = data.len().min(INLINE_MAIN_BYTES);
            inode.base_mut().i_block_mut()[..len].copy_from_slice(&data[..len]);
            inode.base_mut().set_flags(InodeFlags::INLINE_DATA);
            return Ok(());
        }
        let mut flags = InodeFlags::empty();
        if kind == Kind::Directory {
            let names = self.measured.names(node);
            flags.set(
                InodeFlags::INDEX,
                self.measured.shape.directories.is_hashed(&names),
            );
        }
        let has_extents = geo.incompat.contains(Incompat::EXTENTS);
        flags.set(InodeFlags::EXTENTS, has_extents);
        inode.base_mut().set_flags(flags);
        match self.deep(node) {
            Some(deep) => *inode.base_mut().i_block_mut() = deep.root,
            None if has_extents => {
                let tree = extents::write(
                    self.extents(node),
                    geo.block_bytes,
                    std::iter::empty(),
                    None,
                )?;
                *inode.base_mut().i_block_mut() = tree.root;
            }
            None => {}
        }
        Ok(())
    }

    fn attributes(
        &self,
        node: NodeId,
        inode: &mut InodeImage,
        inline: Option<&[u8]>,
    ) -> Result<()> {
        let mut body = self.measured.lists(node)?.body;
        if let Some(data) = inline {
            let rest = data.get(INLINE_MAIN_BYTES..).unwrap_or_default();
            body.insert(0, attributes::inline(rest));
        }
        let fits = body.is_empty() || xattr::write_ibody(inode.xattr_area_mut(), &body);
        debug_assert!(fits, "measured before");
        Ok(())
    }

    /// Blocks that count for a node: those of its data, of its map and of its attributes.
    pub(crate) fn blocks_of(&self, node: NodeId) -> u64 {
        let mapped = self.extents(node).iter();
        let mapped: u64 = mapped.map(|extent| u64::from(extent.len)).sum();
        mapped + self.deep(node).map_or(0, |deep| deep.own) + u64::from(self.acl(node).is_some())
    }

    fn count_blocks(&self, geo: &Geometry, node: NodeId, inode: &mut InodeImage) -> Result<()> {
        if let Some(block) = self.acl(node) {
            inode.base_mut().set_file_acl(geo, FsBlock(block));
        }
        match inode
            .base_mut()
            .set_blocks_512(geo, self.blocks_of(node) << (geo.block_log - 9))
        {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "{}: is too large without the feature huge_file",
                self.measured.walk.path(node)
            ))),
        }
    }

    /// The blocks that [`Placed::render`] makes, and where they are.
    pub(crate) fn blocks(&self) -> Vec<(u64, TreeBlock)> {
        let mut blocks = Vec::new();
        for node in self.measured.walk.nodes() {
            if let Some(at) = self.acl(node) {
                blocks.push((at, TreeBlock::Attributes(node)));
            }
            let kind = self.measured.walk.tree.kind(node);
            let is_made = matches!(kind, Kind::Directory | Kind::Symlink { .. });
            for extent in self.extents(node).iter().filter(|_| is_made) {
                for (at, place) in
                    (extent.block.0..).zip(extent.start.0..extent.start.0 + u64::from(extent.len))
                {
                    let block = match kind {
                        Kind::Directory => TreeBlock::Directory(node, at),
                        _ => TreeBlock::Link(node),
                    };
                    blocks.push((place, block));
                }
            }
        }
        blocks
    }

    /// Makes all blocks of a directory.
    ///
    /// # Errors
    /// Those of the tree.
    pub(crate) fn directory(&self, geo: &Geometry, node: NodeId) -> Result<Vec<u8>> {
        let measured = self.measured;
        let parent = match node {
            ROOT => ROOT,
            _ => measured.walk.parent(node),
        };
        let ids = (measured.number(node), measured.number(parent));
        let mut names = measured.names(node);
        let blocks = measured.directory_blocks(node);
        let seed = measured.seed(geo, node);
        measured
            .shape
            .directories
            .render(ids, &mut names, blocks, seed)
    }

    /// Makes the block of attributes of a node.
    ///
    /// # Errors
    /// Those of the tree.
    pub(crate) fn attribute_block(
        &self,
        geo: &Geometry,
        node: NodeId,
        block: &mut [u8],
    ) -> Result<()> {
        block.fill(0);
        let lists = self.measured.lists(node)?;
        let fits = xattr::write_block(block, &lists.block);
        debug_assert!(fits, "measured before");
        if let Some(at) = self.acl(node) {
            xattr::update_checksum(block, FsBlock(at), geo.csum_seed);
        }
        Ok(())
    }

    /// Makes the block of a long symbolic link.
    pub(crate) fn link_block(&self, node: NodeId, block: &mut [u8]) {
        block.fill(0);
        if let Kind::Symlink { target } = self.measured.walk.tree.kind(node) {
            block[..target.len()].copy_from_slice(target);
        }
    }

    /// The directories in the inodes of a range.
    pub(crate) fn directories(&self, inodes: std::ops::Range<u32>) -> usize {
        let nodes = inodes.filter_map(|ino| self.measured.node(InodeNumber(ino)));
        nodes
            .filter(|node| self.measured.walk.tree.kind(*node) == Kind::Directory)
            .count()
    }
}
