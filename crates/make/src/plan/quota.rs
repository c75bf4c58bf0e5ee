//! The quota files of a new volume: what its own directories use.
//!
//! The blocks are in the order in which mke2fs writes them: with blocks of 1 KiB, the root of the tree, which
//! changes with each entry, comes last on the volume.

use std::collections::BTreeMap;
use std::ops::Range;

use throughline_extfmt::extent::{Extent, NodeMut};
use throughline_extfmt::features::{Compat, RoCompat};
use throughline_extfmt::inode::InodeFlags;
use throughline_extfmt::quota::{
    self as format, DiskEntry, LEAF_ENTRIES, LEVELS, LeafHeader, QUOTA_BLOCK_BYTES, QuotaHeader,
    QuotaKind, ROOT_BLOCK,
};
use throughline_extfmt::{FileBlock, FsBlock, InodeNumber};
use zerocopy::FromZeros;

use super::build::Build;
use crate::error::Result;
use crate::request::Request;

/// Seconds that a soft limit may be exceeded: a week.
const GRACE_S: u32 = 7 * 24 * 3600;
/// The first inode that is not reserved and not lost+found.
const FIRST_FREE: u32 = 12;

/// The kinds of quotas that a volume keeps.
pub(crate) fn kinds(request: &Request) -> Vec<QuotaKind> {
    if !request.features.ro_compat.contains(RoCompat::QUOTA) {
        return Vec::new();
    }
    let has = |kind: &QuotaKind| match request.quota_kinds {
        Some(kinds) => kinds.get(kind.index()) == Some(&true),
        // Without a choice: all that the volume supports.
        None => {
            *kind != QuotaKind::Project || request.features.ro_compat.contains(RoCompat::PROJECT)
        }
    };
    QuotaKind::ALL.into_iter().filter(has).collect()
}

/// The inode of a kind's file.
pub(crate) fn inode_of(kind: QuotaKind) -> InodeNumber {
    match kind {
        QuotaKind::User => InodeNumber::USER_QUOTA,
        QuotaKind::Group => InodeNumber::GROUP_QUOTA,
        QuotaKind::Project => InodeNumber(FIRST_FREE),
    }
}

/// The inode of the orphan file: it follows.
pub(crate) fn orphan_file(request: &Request) -> InodeNumber {
    let is_taken = kinds(request).contains(&QuotaKind::Project);
    InodeNumber(FIRST_FREE + u32::from(is_taken))
}

impl Build<'_> {
    /// Makes the quota files. All inodes that count are there.
    pub(crate) fn quota_files(&mut self) -> Result<()> {
        let kinds = kinds(self.request);
        let files: Vec<_> = kinds.iter().map(|kind| self.content_of(*kind)).collect();
        for (kind, content) in kinds.into_iter().zip(files) {
            self.quota_file(inode_of(kind), &content)?;
        }
        debug_assert!(
            !self.geo.compat.contains(Compat::ORPHAN_FILE)
                || !self.inodes.contains_key(&orphan_file(self.request).0)
        );
        Ok(())
    }

    fn content_of(&self, kind: QuotaKind) -> Vec<u8> {
        let mut usage: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for (ino, inode) in &self.inodes {
            let reserved = *ino < self.geo.first_ino.0 && *ino != InodeNumber::ROOT.0;
            if reserved {
                continue;
            }
            let id = match kind {
                QuotaKind::User => inode.uid(),
                QuotaKind::Group => inode.gid(),
                QuotaKind::Project => inode.projid(),
            };
            let sum = usage.entry(id).or_default();
            sum.0 += inode.blocks_512(&self.geo) * 512;
            sum.1 += 1;
        }
        let mut tree = Tree::new(kind);
        for (id, (bytes, inodes)) in usage {
            tree.add(id, bytes, inodes);
        }
        tree.finish()
    }

    fn quota_file(&mut self, ino: InodeNumber, content: &[u8]) -> Result<()> {
        let mut inode = self.inode(0o100_600, 1);
        let block_bytes = self.geo.block_bytes as usize;
        let count = content.len().div_ceil(block_bytes) as u64;
        let goal = self.geo.first_data_block.0;
        let gap = self.space.gap(goal, self.geo.blocks);
        let fits = gap.is_some_and(|gap| gap.end - gap.start >= count);
        let blocks: Vec<u64> = match self.has_extents() && fits && block_bytes == QUOTA_BLOCK_BYTES
        {
            true => {
                let run = self.take(goal, count)?;
                self.set_blocks(&mut inode, count)?;
                map_root_last(&mut inode, &run)?
            }
            false => {
                let runs = self.map(ino, &mut inode, count, goal)?;
                runs.into_iter().flatten().collect()
            }
        };
        for (block, bytes) in blocks.into_iter().zip(content.chunks(block_bytes)) {
            let mut bytes = bytes.to_vec();
            bytes.resize(block_bytes, 0);
            self.content.insert(block, bytes);
        }
        inode.base_mut().set_size_bytes(content.len() as u64);
        // So that no program changes it.
        let flags = inode.flags() | InodeFlags::IMMUTABLE;
        inode.set_flags(flags);
        self.add(ino, inode);
        Ok(())
    }
}

/// Maps a run: block 0, then blocks 2 and on, then block 1. Returns the blocks in file order.
fn map_root_last(inode: &mut throughline_extfmt::InodeImage, run: &Range<u64>) -> Result<Vec<u64>> {
    let count = (run.end - run.start) as u32;
    let extent = |block: u32, len: u32, start: u64| Extent {
        block: FileBlock(block),
        len,
        start: FsBlock(start),
        unwritten: false,
    };
    let extents = [
        extent(0, 1, run.start),
        extent(ROOT_BLOCK, 1, run.end - 1),
        extent(ROOT_BLOCK + 1, count - 2, run.start + 1),
    ];
    inode.base_mut().set_flags(InodeFlags::EXTENTS);
    let mut node = NodeMut::init(inode.base_mut().i_block_mut(), 0)?;
    for (at, extent) in extents.into_iter().enumerate() {
        let fits = node.insert_extent(at, extent);
        debug_assert!(fits, "an inode holds four extents");
    }
    let mut blocks = vec![run.start, run.end - 1];
    blocks.extend(run.start + 1..run.end - 1);
    Ok(blocks)
}

/// A quota file in the making.
struct Tree {
    header: QuotaHeader,
    blocks: Vec<Vec<u8>>,
}

impl Tree {
    fn new(kind: QuotaKind) -> Self {
        let mut header = QuotaHeader::new_zeroed();
        header.dqh_magic.set(kind.magic());
        header.dqh_version.set(1);
        header.dqi_bgrace.set(GRACE_S);
        header.dqi_igrace.set(GRACE_S);
        Self {
            header,
            // The header and the root.
            blocks: vec![vec![0; QUOTA_BLOCK_BYTES]; 2],
        }
    }

    fn new_block(&mut self) -> u32 {
        self.blocks.push(vec![0; QUOTA_BLOCK_BYTES]);
        (self.blocks.len() - 1) as u32
    }

    /// Adds an entry; its id is not there yet.
    fn add(&mut self, id: u32, bytes: u64, inodes: u64) {
        let mut entry = DiskEntry::default();
        entry.dqb_id.set(id);
        entry.dqb_curspace.set(bytes);
        entry.dqb_curinodes.set(inodes);
        let mut number = ROOT_BLOCK;
        for level in 0..LEVELS - 1 {
            let mut next = format::child(&self.blocks[number as usize], id, level);
            if next == 0 {
                next = self.new_block();
                format::set_child(&mut self.blocks[number as usize], id, level, next);
            }
            number = next;
        }
        let leaf = match self.header.dqi_free_entry.get() {
            0 => self.new_block(),
            leaf => leaf,
        };
        format::set_child(&mut self.blocks[number as usize], id, LEVELS - 1, leaf);
        let block = &mut self.blocks[leaf as usize];
        let used = format::entries(block)
            .filter(|(_, entry)| entry.is_some())
            .count()
            + 1;
        if let Some(at) = format::free_slot(block) {
            format::set_entry(block, at, Some(entry));
        }
        let mut leaf_header = LeafHeader::default();
        leaf_header.dqdh_entries.set(used as u16);
        format::set_leaf_header(block, leaf_header);
        let free = if used < LEAF_ENTRIES { leaf } else { 0 };
        self.header.dqi_free_entry.set(free);
    }

    fn finish(mut self) -> Vec<u8> {
        self.header.dqi_blocks.set(self.blocks.len() as u32);
        self.header.write(&mut self.blocks[0]);
        self.blocks.concat()
    }
}
