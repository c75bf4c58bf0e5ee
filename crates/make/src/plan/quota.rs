//! The quota files of a new volume: what its own directories use, and the tree in it.
//!
//! The owners are known first, and so the size of the files. What the files of a tree use is known once these
//! have their places; then it is filled in.
//!
//! The blocks of a small file are in the order in which mke2fs writes them: with blocks of 1 KiB, the root of
//! the tree lies behind the blocks of the first entry.

use std::collections::BTreeMap;
use std::ops::Range;

use throughline_extfmt::features::{Compat, RoCompat};
use throughline_extfmt::inode::InodeFlags;
use throughline_extfmt::quota::{
    self as format, DiskEntry, LEAF_ENTRIES, LEVELS, LeafHeader, QUOTA_BLOCK_BYTES, QuotaHeader,
    QuotaKind, ROOT_BLOCK,
};
use throughline_extfmt::{InodeImage, InodeNumber, indirect};
use zerocopy::FromZeros;

use super::build::Build;
use crate::error::{Error, Result};
use crate::pack::measure::Measured;
use crate::pack::place::Placed;
use crate::pack::tree::NodeId;
use crate::request::Request;

/// Seconds that a soft limit may be exceeded: a week.
const GRACE_S: u32 = 7 * 24 * 3600;
/// Blocks of a file that are laid out as by mke2fs: those that an inode points to directly.
const MOST_PLACED: u64 = indirect::DIRECT as u64;
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

/// Bytes and inodes by the number of the owner, for each kind of owner.
#[derive(Clone, Debug, Default)]
struct Usage([BTreeMap<u32, (u64, u64)>; 3]);

impl Usage {
    /// Counts an inode for its user, group and project.
    fn add(&mut self, owners: [u32; 3], bytes: u64) {
        for (usage, owner) in self.0.iter_mut().zip(owners) {
            let sum = usage.entry(owner).or_default();
            *sum = (sum.0 + bytes, sum.1 + 1);
        }
    }

    /// The content of a kind's file.
    fn content(&self, kind: QuotaKind) -> Vec<u8> {
        let mut tree = Tree::new(kind);
        for (id, (bytes, inodes)) in &self.0[kind.index()] {
            tree.add(*id, *bytes, *inodes);
        }
        tree.finish()
    }
}

/// The quota files of a volume in the making.
pub(crate) struct QuotaFiles {
    /// The blocks of each, in file order.
    places: Vec<(QuotaKind, Vec<u64>)>,
    /// What the volume's own inodes use.
    own: Usage,
}

/// The owners of a node: user, group, project.
fn owners(tree: &Measured<'_>, node: NodeId) -> [u32; 3] {
    let (uid, gid) = tree.owner(node);
    [uid, gid, 0]
}

impl Build<'_> {
    /// Makes the quota files. All own inodes that count are there. Those of a tree count without bytes.
    pub(crate) fn quota_files(&mut self, tree: Option<&Measured<'_>>) -> Result<QuotaFiles> {
        let mut files = QuotaFiles {
            places: Vec::new(),
            own: Usage::default(),
        };
        let kinds = kinds(self.request);
        if kinds.is_empty() {
            return Ok(files);
        }
        for (ino, inode) in &self.inodes {
            let is_reserved = *ino < self.geo.first_ino.0 && *ino != InodeNumber::ROOT.0;
            if !is_reserved {
                let owners = [inode.uid(), inode.gid(), inode.projid()];
                files.own.add(owners, inode.blocks_512(&self.geo) * 512);
            }
        }
        let mut all = files.own.clone();
        for (tree, node) in tree
            .iter()
            .flat_map(|it| it.walk.nodes().map(move |node| (it, node)))
        {
            all.add(owners(tree, node), 0);
        }
        for kind in kinds {
            let blocks = self.quota_file(inode_of(kind), &all.content(kind))?;
            files.places.push((kind, blocks));
        }
        debug_assert!(
            !self.geo.compat.contains(Compat::ORPHAN_FILE)
                || !self.inodes.contains_key(&orphan_file(self.request).0)
        );
        Ok(files)
    }

    /// Fills in what the files of a tree use.
    pub(crate) fn count_usage(&mut self, files: &QuotaFiles, placed: &Placed<'_>) {
        if files.places.is_empty() {
            return;
        }
        let mut all = files.own.clone();
        for node in placed.measured.walk.nodes() {
            let bytes = placed.blocks_of(node) << self.geo.block_log;
            all.add(owners(placed.measured, node), bytes);
        }
        for (kind, blocks) in &files.places {
            self.fill(blocks, &all.content(*kind));
        }
    }

    fn fill(&mut self, blocks: &[u64], content: &[u8]) {
        let block_bytes = self.geo.block_bytes as usize;
        for (block, bytes) in blocks.iter().zip(content.chunks(block_bytes)) {
            let mut bytes = bytes.to_vec();
            bytes.resize(block_bytes, 0);
            self.content.insert(*block, bytes);
        }
    }

    /// Returns the blocks, in file order.
    fn quota_file(&mut self, ino: InodeNumber, content: &[u8]) -> Result<Vec<u64>> {
        let mut inode = self.inode(0o100_600, 1);
        let block_bytes = self.geo.block_bytes as usize;
        let count = content.len().div_ceil(block_bytes) as u64;
        let goal = self.geo.first_data_block.0;
        let gap = self.space.gap(goal, self.geo.blocks);
        let fits = gap.is_some_and(|gap| gap.end - gap.start >= count);
        // The order is that of blocks of this size.
        let is_plain = !fits || block_bytes != QUOTA_BLOCK_BYTES || count > MOST_PLACED;
        let blocks: Vec<u64> = match is_plain {
            true => {
                let runs = self.map(ino, &mut inode, count, goal)?;
                runs.into_iter().flatten().collect()
            }
            false => {
                let run = self.take(goal, count)?;
                self.set_blocks(&mut inode, count)?;
                let blocks = with_root_behind(&run);
                match self.has_extents() {
                    true => {
                        let runs = blocks.chunk_by(|one, next| one + 1 == *next);
                        let runs = runs.map(|run| run[0]..run[0] + run.len() as u64);
                        self.write_tree(ino, &mut inode, runs)?;
                    }
                    false => map_pointers(&mut inode, &blocks)?,
                }
                blocks
            }
        };
        self.fill(&blocks, content);
        inode.base_mut().set_size_bytes(content.len() as u64);
        // So that no program changes it.
        let flags = inode.flags() | InodeFlags::IMMUTABLE;
        inode.set_flags(flags);
        self.add(ino, inode);
        Ok(blocks)
    }
}

/// The blocks of a run in file order, if the root lies behind the first entry and what leads to that.
fn with_root_behind(run: &Range<u64>) -> Vec<u64> {
    let first_entry = ROOT_BLOCK as usize..ROOT_BLOCK as usize + LEVELS as usize;
    let mut blocks: Vec<u64> = run.clone().collect();
    if let Some(part) = blocks.get_mut(first_entry.start..first_entry.end + 1) {
        part.rotate_right(1);
    }
    blocks
}

/// Maps blocks that an inode points to directly.
fn map_pointers(inode: &mut InodeImage, blocks: &[u64]) -> Result<()> {
    for (at, block) in blocks.iter().enumerate() {
        let pointer = u32::try_from(*block);
        let pointer = pointer.map_err(|_| Error::invalid("blocks beyond 2^32 need extents"))?;
        inode.base_mut().set_block_pointer(at, pointer);
    }
    Ok(())
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
