//! One pass over all inodes: who owns which block, compared with the bitmaps.
//!
//! A volume on which two inodes own a block, or one owns a free block, is refused before anything is written.
//! Blocks in use that nobody owns are found too: an interrupted change of the size may leave some.
//!
//! Memory: a bit for each block of a group with files in it, and a few bytes for each inode beyond the limit.

use std::collections::{BTreeMap, HashMap};

use throughline_extfmt::extent::Extent;
use throughline_extfmt::features::{Compat, Incompat};
use throughline_extfmt::inode::FileType;
use throughline_extfmt::xattr as format;
use throughline_extfmt::{FsBlock, GroupNumber, InodeNumber, bitmap};

use super::Limit;
use crate::error::{Error, Reason, Result};
use crate::fs::Fs;
use crate::inode::Inode;
use crate::map::{self, Piece};

/// The pointer of the resize inode to its double-indirect block.
const RESIZE_POINTER: usize = 13;

/// What is beyond the new end of a volume, and whose it is.
#[derive(Debug, Default)]
pub struct Tenants {
    /// Inodes with blocks beyond the limit.
    pub(super) with_blocks: Vec<InodeNumber>,
    /// How many blocks these have there.
    pub blocks: u64,
    /// Attribute blocks beyond it, with their users.
    pub(super) attributes: BTreeMap<u64, Vec<InodeNumber>>,
    /// Inodes whose numbers are beyond it. Ascending.
    pub(super) inodes: Vec<InodeNumber>,
    /// Runs of blocks that are in use, and that nobody owns.
    pub(super) ownerless: Vec<(u64, u64)>,
    /// The volume's own files with blocks beyond it: the journal, the orphan file.
    pub own_files: Vec<InodeNumber>,
    /// The double-indirect block of the resize inode is beyond it.
    pub resize_block: Option<FsBlock>,
    /// Blocks of the list of bad blocks beyond it.
    pub bad_blocks: u64,
    /// Runs of free blocks, all together.
    pub free_runs: u64,
    /// Metadata of the groups that remain, or the block of `mmp`, is beyond it.
    pub fixed: bool,
}

impl Tenants {
    /// Blocks in use that nobody owns.
    pub fn ownerless_blocks(&self) -> u64 {
        self.ownerless.iter().map(|(_, len)| len).sum()
    }

    /// Whether nothing of a file is beyond the limit, and all blocks in use have an owner.
    pub fn is_none(&self) -> bool {
        self.with_blocks.is_empty()
            && self.attributes.is_empty()
            && self.inodes.is_empty()
            && self.ownerless.is_empty()
    }
}

/// The blocks that have an owner, by group.
#[derive(Default)]
struct Owned(HashMap<u32, Box<[u8]>>);

struct Scan<'f> {
    fs: &'f Fs,
    limit: Limit,
    owned: Owned,
    /// Attribute blocks, and the users found so far.
    attributes: HashMap<u64, u32>,
    found: Tenants,
}

impl Fs {
    /// Looks at all inodes of a volume that is not changed meanwhile, to make it end before block `end`.
    ///
    /// # Errors
    /// `Corrupt` if files and bitmaps contradict each other; device errors.
    pub fn tenants(&self, end: u64) -> Result<Tenants> {
        let limit = Limit::new(self, end);
        let mut scan = Scan {
            fs: self,
            limit,
            owned: Owned::default(),
            attributes: HashMap::new(),
            found: Tenants::default(),
        };
        scan.multiple_mount()?;
        for group in (0..self.geo.groups).map(GroupNumber) {
            self.read_descriptors_ahead(group);
            if group.0 < limit.groups {
                let mut own = self.own_metadata(group)?;
                scan.found.fixed |= own.any(|(_, to)| to > end);
            }
            let bits = self.used_inodes(group)?;
            let mut at = 0;
            while let Some(index) = bitmap::find_set(&bits, at..self.geo.inodes_per_group) {
                scan.inode(self.geo.inode_at(group, index))?;
                at = index.saturating_add(1);
            }
        }
        scan.check_attributes()?;
        scan.compare()?;
        Ok(scan.found)
    }
}

impl Limit {
    pub(super) fn new(fs: &Fs, end: u64) -> Limit {
        let in_groups = end.saturating_sub(fs.geo.first_data_block.0);
        let groups = in_groups.div_ceil(u64::from(fs.geo.blocks_per_group).max(1));
        let groups = groups.min(fs.geo.groups.into()) as u32;
        Limit {
            block: FsBlock(end),
            groups,
            last: InodeNumber(groups.saturating_mul(fs.geo.inodes_per_group)),
        }
    }
}

impl Scan<'_> {
    /// The block of `mmp` belongs to no file.
    fn multiple_mount(&mut self) -> Result<()> {
        if !self.fs.geo.incompat.contains(Incompat::MMP) {
            return Ok(());
        }
        let block = FsBlock(self.fs.superblock().s_mmp_block.get());
        self.found.fixed |= block >= self.limit.block;
        self.owned.add(self.fs, block, 1)
    }

    fn inode(&mut self, ino: InodeNumber) -> Result<()> {
        let fs = self.fs;
        let inode = match fs.inode(ino) {
            Err(Error::Caller(Reason::NotFound)) => {
                return Err(Error::corrupt("marked as used, and free").in_inode(ino));
            }
            found => found?,
        };
        if ino == InodeNumber::RESIZE && fs.geo.compat.contains(Compat::RESIZE_INODE) {
            return self.resize_inode(&inode);
        }
        let is_unused = ino < fs.geo.first_ino && inode.links_count() == 0 && inode.kind.is_none();
        let is_bad_list = ino == InodeNumber::BAD_BLOCKS;
        if is_unused && !is_bad_list {
            return Ok(());
        }
        if ino > self.limit.last {
            self.found.inodes.push(ino);
        }
        let (mut beyond, limit) = (0, self.limit.block);
        map::each_piece(fs, &inode, |piece| {
            let (start, len) = match piece {
                Piece::Data(Extent { start, len, .. }) => (start, len),
                Piece::Node(block) => (block, 1),
            };
            beyond += blocks_beyond(start, len, limit);
            self.owned.add(fs, start, len)
        })?;
        if beyond > 0 {
            if is_bad_list {
                self.found.bad_blocks = beyond;
            } else if fs.is_system_inode(ino) && inode.kind == Some(FileType::Regular) {
                self.found.own_files.push(ino);
            } else {
                self.found.with_blocks.push(ino);
                self.found.blocks = self.found.blocks.saturating_add(beyond);
            }
        }
        self.attributes_of(&inode)
    }

    fn attributes_of(&mut self, inode: &Inode) -> Result<()> {
        let fs = self.fs;
        let at = inode.raw.read().file_acl(&fs.geo);
        if at == FsBlock(0) {
            return Ok(());
        }
        let users = self.attributes.entry(at.0).or_default();
        *users = users.saturating_add(1);
        if *users == 1 {
            let owned = self.owned.add(fs, at, 1);
            owned.map_err(|e| e.in_inode(inode.ino))?;
        }
        if at >= self.limit.block {
            let users = self.found.attributes.entry(at.0).or_default();
            users.push(inode.ino);
        }
        Ok(())
    }

    /// Compares the users of attribute blocks with their counts.
    fn check_attributes(&self) -> Result<()> {
        for (at, users) in &self.attributes {
            let at = FsBlock(*at);
            let bytes = crate::xattr::read_block(self.fs, at)?;
            let counted = format::header(&bytes)?.h_refcount.get();
            if counted != *users {
                let what = format!("an attribute block counts {counted} users and has {users}");
                return Err(Error::corrupt(what).in_block(at));
            }
        }
        Ok(())
    }

    fn resize_inode(&mut self, inode: &Inode) -> Result<()> {
        let block = inode.raw.read().base().block_pointer(RESIZE_POINTER);
        let block = FsBlock(block.into());
        let owned = self.owned.add(self.fs, block, 1);
        owned.map_err(|e| e.in_inode(inode.ino))?;
        self.found.resize_block = Some(block).filter(|block| *block >= self.limit.block);
        Ok(())
    }

    /// Compares the owned blocks with the bitmaps.
    fn compare(&mut self) -> Result<()> {
        let fs = self.fs;
        for group in (0..fs.geo.groups).map(GroupNumber) {
            let first = fs.geo.group_first_block(group).0;
            let blocks = fs.geo.group_blocks(group);
            let mut rest = fs.block_bitmap(group)?;
            self.found.free_runs += bitmap::clear_runs(&rest, 0..blocks).count() as u64;
            if let Some(owned) = self.owned.0.get(&group.0) {
                for (bits, owned) in rest.iter_mut().zip(owned.iter()) {
                    if owned & !*bits != 0 {
                        let what = format!("a file has a block of group {group} that is free");
                        return Err(Error::corrupt(what));
                    }
                    *bits &= !owned;
                }
            }
            for (start, end) in fs
                .zones()?
                .within(first, first.saturating_add(blocks.into()))
            {
                let (start, end) = (start.max(first) - first, end.saturating_sub(first));
                bitmap::clear_range(&mut rest, start as u32..end.min(blocks.into()) as u32);
            }
            let mut at = 0;
            while let Some(start) = bitmap::find_set(&rest, at..blocks) {
                at = bitmap::find_clear(&rest, start..blocks).unwrap_or(blocks);
                let run = (first.saturating_add(start.into()), u64::from(at - start));
                self.found.ownerless.push(run);
            }
        }
        Ok(())
    }
}

/// How many blocks of a run are beyond the limit.
pub(super) fn blocks_beyond(start: FsBlock, len: u32, limit: FsBlock) -> u64 {
    let end = start.0.saturating_add(len.into());
    end.saturating_sub(start.0.max(limit.0))
}

impl Owned {
    /// Enters the owner of a run.
    ///
    /// # Errors
    /// `Corrupt` if a block has one already, or cannot belong to a file.
    fn add(&mut self, fs: &Fs, start: FsBlock, len: u32) -> Result<()> {
        fs.check_data_range(start, len.into())?;
        for (group, first, len) in fs.by_group(start, len.into()) {
            let empty = || vec![0; fs.geo.block_bytes as usize].into();
            let bits = self.0.entry(group.0).or_insert_with(empty);
            let range = first..first.saturating_add(len);
            if bitmap::find_set(bits, range.clone()).is_some() {
                let what = format!("{len} blocks from {start} belong to two files");
                return Err(Error::corrupt(what));
            }
            bitmap::set_range(bits, range);
        }
        Ok(())
    }
}
