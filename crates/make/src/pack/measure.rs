//! What each node needs on a given kind of volume, independent of its place.

use std::collections::HashMap;
use std::ops::Range;

use throughline_extfmt::features::{Compat, Incompat, RoCompat};
use throughline_extfmt::indirect::IndirectGeometry;
use throughline_extfmt::inline_data::INLINE_MAIN_BYTES;
use throughline_extfmt::inode::{FAST_SYMLINK_MAX, FileType};
use throughline_extfmt::{Geometry, InodeImage, InodeNumber, Superblock, xattr};

use super::attributes::{self, Lists};
use super::directory::{Directories, Names};
use super::pointers;
use super::tree::{Kind, NodeId, ROOT};
use super::walk::Walk;
use crate::error::Result;
use crate::plan::build::EXTRA_ISIZE;
use crate::plan::files::{LOST_AND_FOUND, ORPHAN_FILE, lost_and_found_blocks};
use crate::request::Request;

/// Most names of a file, and most subdirectories of a directory without `dir_nlink`.
const LINKS_MAX: u32 = 65000;

/// The kind of volume.
pub(crate) struct Shape {
    pub(crate) geo: Geometry,
    pub(crate) directories: Directories,
    /// The number of the first inode in the walk's order.
    first: u32,
    body_bytes: usize,
}

/// What a node needs.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// The blocks of the file that are mapped, as runs.
    pub(crate) runs: Vec<Range<u32>>,
    /// Whether these are metadata, which is written after the data.
    pub(crate) is_metadata: bool,
    /// Blocks of pointers.
    pub(crate) pointers: u64,
    /// Whether it has a block of extended attributes.
    pub(crate) has_acl: bool,
    /// Whether the data is in the inode.
    pub(crate) is_inline: bool,
}

impl Needs {
    /// Mapped blocks.
    pub(crate) fn mapped(&self) -> u64 {
        self.runs
            .iter()
            .map(|run| u64::from(run.end - run.start))
            .sum()
    }
}

/// A walked tree, measured for a kind of volume.
pub(crate) struct Measured<'w> {
    pub(crate) walk: &'w Walk<'w>,
    pub(crate) shape: Shape,
    /// The owner of the root directory, if it is not the tree's.
    root_owner: Option<(u32, u32)>,
    /// Blocks of directories, where it is more than one.
    large: HashMap<NodeId, u32>,
    /// Blocks of directories, pointers, attributes, and long links.
    pub(crate) metadata_blocks: u64,
    /// Blocks of files.
    pub(crate) data_blocks: u64,
}

/// Whether all attributes and long links fit the blocks and inodes of a volume.
///
/// # Errors
/// Those of the tree.
pub(crate) fn fits_blocks(walk: &Walk<'_>, request: &Request) -> Result<bool> {
    if walk.longest_target >= request.block_bytes as usize {
        return Ok(false);
    }
    if !walk.has_xattrs {
        return Ok(true);
    }
    let body_bytes = body_bytes(request.inode_bytes);
    for node in walk.nodes() {
        let list = attributes::read(walk, node)?;
        if attributes::divide(list, body_bytes, request.block_bytes as usize).is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The room for attributes in an inode.
fn body_bytes(inode_bytes: u16) -> usize {
    InodeImage::new(inode_bytes, EXTRA_ISIZE).xattr_area().len()
}

impl Shape {
    fn new(geo: &Geometry, sb: &Superblock) -> Shape {
        let has_orphans = geo.compat.contains(Compat::ORPHAN_FILE);
        let has_projects = sb.s_prj_quota_inum.get() != 0;
        Shape {
            directories: Directories::new(geo, sb),
            first: LOST_AND_FOUND.0 + 1 + u32::from(has_orphans) + u32::from(has_projects),
            body_bytes: body_bytes(geo.inode_bytes),
            geo: geo.clone(),
        }
    }
}

impl<'w> Measured<'w> {
    /// Measures a tree for the kind of a volume, of which only the features and the sizes of blocks and
    /// inodes count.
    ///
    /// # Errors
    /// What such a volume cannot hold, with its path.
    pub(crate) fn new(
        walk: &'w Walk<'w>,
        geo: &Geometry,
        sb: &Superblock,
        root_owner: Option<(u32, u32)>,
    ) -> Result<Measured<'w>> {
        let mut measured = Measured {
            walk,
            shape: Shape::new(geo, sb),
            root_owner,
            large: HashMap::new(),
            metadata_blocks: 0,
            data_blocks: 0,
        };
        for node in walk.nodes() {
            if walk.tree.kind(node) == Kind::Directory {
                measured.measure_directory(node)?;
            }
            measured.check_links(node)?;
            let needs = measured.needs(node)?;
            measured.metadata_blocks += needs.pointers + u64::from(needs.has_acl);
            match needs.is_metadata {
                true => measured.metadata_blocks += needs.mapped(),
                false => measured.data_blocks += needs.mapped(),
            }
        }
        Ok(measured)
    }

    fn measure_directory(&mut self, node: NodeId) -> Result<()> {
        let mut names = self.names(node);
        let blocks = self.shape.directories.blocks(&mut names);
        let mut blocks = blocks.ok_or_else(|| {
            self.walk
                .refused(node, "has more names than a hashed directory holds")
        })?;
        if self.number(node) == LOST_AND_FOUND && !self.shape.directories.is_hashed(&names) {
            blocks = blocks.max(lost_and_found_blocks(self.shape.geo.block_bytes));
        }
        if blocks > 1 {
            self.large.insert(node, blocks);
        }
        Ok(())
    }

    fn check_links(&self, node: NodeId) -> Result<()> {
        let links = self.walk.links(node);
        let is_counted = self.walk.tree.kind(node) != Kind::Directory
            || !self.shape.geo.ro_compat.contains(RoCompat::DIR_NLINK);
        match is_counted && links > LINKS_MAX {
            true => Err(self
                .walk
                .refused(node, &format!("has {links} links; at most {LINKS_MAX} fit"))),
            false => Ok(()),
        }
    }

    /// `i_links_count`.
    pub(crate) fn links(&self, node: NodeId) -> u16 {
        match self.walk.links(node) {
            // A directory with more than fit is one that is not counted.
            links if links > LINKS_MAX => 1,
            links => links as u16,
        }
    }

    /// User and group.
    pub(crate) fn owner(&self, node: NodeId) -> (u32, u32) {
        let attributes = self.walk.tree.attributes(node);
        match self.root_owner.filter(|_| node == ROOT) {
            Some(owner) => owner,
            None => (attributes.uid, attributes.gid),
        }
    }

    /// The inode number of a node.
    pub(crate) fn number(&self, node: NodeId) -> InodeNumber {
        match self.walk.place(node) {
            _ if node == ROOT => InodeNumber::ROOT,
            None => LOST_AND_FOUND,
            Some(place) => InodeNumber(self.shape.first + place),
        }
    }

    /// The node of an inode number.
    pub(crate) fn node(&self, ino: InodeNumber) -> Option<NodeId> {
        if ino == InodeNumber::ROOT {
            return Some(ROOT);
        }
        if ino == LOST_AND_FOUND {
            return self.walk.lost_and_found;
        }
        let place = ino.0.checked_sub(self.shape.first)?;
        self.walk.order.get(place as usize).copied()
    }

    /// The highest inode number; all below are in use.
    pub(crate) fn last_inode(&self) -> u32 {
        self.shape.first - 1 + self.walk.order.len() as u32
    }

    /// The names of a directory. The root has a lost+found that the tree need not have.
    pub(crate) fn names(&self, directory: NodeId) -> Names<'w> {
        let has_own = directory != ROOT || self.walk.lost_and_found.is_some();
        let mut names: Names<'w> = self
            .walk
            .tree
            .entries(directory)
            .into_iter()
            .filter(|entry| has_own || entry.name != super::walk::LOST_AND_FOUND)
            .map(|entry| {
                (
                    entry.name,
                    self.number(entry.node),
                    self.walk.tree.kind(entry.node).file_type(),
                )
            })
            .collect();
        if !has_own {
            let name = super::walk::LOST_AND_FOUND;
            names.insert(0, (name, LOST_AND_FOUND, FileType::Directory));
        }
        names
    }

    /// The subdirectories that the root's link count has beside the tree's.
    pub(crate) fn more_links(&self, node: NodeId) -> u16 {
        u16::from(node == ROOT && self.walk.lost_and_found.is_none())
    }

    /// The blocks of a directory.
    pub(crate) fn directory_blocks(&self, node: NodeId) -> u32 {
        self.large.get(&node).copied().unwrap_or(1)
    }

    /// The attributes of a node, and where they go; `inline`: the data of a file that stays in its inode.
    ///
    /// # Errors
    /// If they do not fit.
    pub(crate) fn lists(&self, node: NodeId) -> Result<Lists> {
        let list = attributes::read(self.walk, node)?;
        if list.is_empty() {
            return Ok(Lists::default());
        }
        let block_bytes = self.shape.geo.block_bytes as usize;
        attributes::divide(list, self.shape.body_bytes, block_bytes).ok_or_else(|| {
            self.walk.refused(
                node,
                &format!(
                    "has more extended attributes than fit its inode and a block of {block_bytes} bytes; \
                     larger blocks (-b) or inodes (-I) hold more"
                ),
            )
        })
    }

    /// What a node needs.
    ///
    /// # Errors
    /// What does not fit, with its path.
    pub(crate) fn needs(&self, node: NodeId) -> Result<Needs> {
        let geo = &self.shape.geo;
        let mut needs = Needs {
            is_metadata: true,
            ..Needs::default()
        };
        let lists = self.lists(node)?;
        needs.has_acl = !lists.block.is_empty();
        match self.walk.tree.kind(node) {
            Kind::Directory => needs.runs.push(0..self.directory_blocks(node)),
            Kind::Symlink { target } if target.len() > FAST_SYMLINK_MAX => {
                if target.len() >= geo.block_bytes as usize || target.len() > 4095 {
                    return Err(self
                        .walk
                        .refused(node, "leads to a path that is too long for a link"));
                }
                needs.runs.push(0..1);
            }
            Kind::File { size } => {
                needs.is_metadata = false;
                needs.is_inline = self.is_inline(size, &lists);
                if !needs.is_inline {
                    needs.runs = self.file_runs(node, size)?;
                }
            }
            _ => {}
        }
        if !geo.incompat.contains(Incompat::EXTENTS) {
            needs.pointers = pointers::count(&needs.runs, geo.block_bytes);
        }
        Ok(needs)
    }

    fn is_inline(&self, size: u64, lists: &Lists) -> bool {
        let geo = &self.shape.geo;
        if size == 0
            || size > u64::from(geo.inode_bytes)
            || !geo.incompat.contains(Incompat::INLINE_DATA)
        {
            return false;
        }
        let rest = (size as usize).saturating_sub(INLINE_MAIN_BYTES);
        let mut body = vec![attributes::inline(&vec![0; rest])];
        body.extend(lists.body.iter().cloned());
        lists.block.is_empty() && xattr::ibody_fits(&body, self.shape.body_bytes)
    }

    /// The blocks of a file that hold data.
    fn file_runs(&self, node: NodeId, size: u64) -> Result<Vec<Range<u32>>> {
        let geo = &self.shape.geo;
        let bytes = u64::from(geo.block_bytes);
        let most = match geo.incompat.contains(Incompat::EXTENTS) {
            true => u64::from(u32::MAX) * bytes,
            false => IndirectGeometry::new(geo.block_bytes)
                .max_file_bytes(geo.block_bytes, geo.ro_compat.contains(RoCompat::HUGE_FILE)),
        };
        if size > most {
            let why = format!("has {size} bytes; a file of this file system holds at most {most}");
            return Err(self.walk.refused(node, &why));
        }
        let mut runs: Vec<Range<u32>> = Vec::new();
        for data in self.walk.tree.data(node) {
            let run = (data.start / bytes) as u32..data.end.div_ceil(bytes) as u32;
            match runs.last_mut() {
                _ if run.is_empty() => {}
                Some(before) if before.end >= run.start => before.end = before.end.max(run.end),
                _ => runs.push(run),
            }
        }
        Ok(runs)
    }

    /// The checksum seed of a node's blocks, on a volume with these parameters.
    pub(crate) fn seed(&self, geo: &Geometry, node: NodeId) -> Option<u32> {
        geo.inode_seed(self.number(node), 0)
    }

    /// Blocks that the tree needs at least; large files need some for their extents, too.
    pub(crate) fn blocks(&self) -> u64 {
        self.metadata_blocks + self.data_blocks
    }

    /// Inodes that are in use with this tree.
    pub(crate) fn inodes(&self) -> u64 {
        u64::from(self.last_inode().max(ORPHAN_FILE.0))
    }
}
