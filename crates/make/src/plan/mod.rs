//! The plan of a volume: every number and place, and every byte that is not zero, without any I/O.
//!
//! ```text
//! request ─► numbers   groups, inodes, descriptors, reserved descriptors
//!         ─► geometry  (extfmt: where superblocks and descriptors are)
//!         ─► place     bitmaps and inode tables
//!         ─► files     root, lost+found, reserved descriptors, journal, MMP, quota files, orphan file
//!         ─► counts    of each group and of the volume; which groups stay uninitialised
//! ```
//!
//! Invariants: no block is taken twice; what the descriptors and the superblock count is what `space` holds.

pub(crate) mod build;
mod counts;
pub(crate) mod files;
mod journal;
mod numbers;
pub(crate) mod place;
mod quota;
pub(crate) mod space;
mod superblock;

use std::collections::BTreeMap;
use std::ops::Range;

use throughline_extfmt::{
    Geometry, GroupDesc, GroupNumber, InodeImage, InodeNumber, Superblock, bitmap,
};

use self::build::Build;
use self::journal::JournalSize;
use self::numbers::Numbers;
use self::space::Space;
pub(crate) use self::superblock::of_journal_device;
use crate::error::{Error, Result};
use crate::journal_device;
use crate::pack::measure::Measured;
use crate::pack::place::{self as contents, Lacking, Placed};
use crate::request::Request;

/// A volume, ready to be written.
pub(crate) struct Plan<'w> {
    pub(crate) superblock: Superblock,
    pub(crate) geo: Geometry,
    /// The descriptors, without checksums of their own.
    pub(crate) descs: Vec<GroupDesc>,
    pub(crate) inodes: BTreeMap<u32, InodeImage>,
    pub(crate) content: BTreeMap<u64, Vec<u8>>,
    pub(crate) zeroed: Vec<Range<u64>>,
    pub(crate) journal: Option<JournalSize>,
    /// The files, if the volume is not to be empty.
    pub(crate) tree: Option<Placed<'w>>,
    space: Space,
    /// The highest inode in use; all below are.
    last_inode: u32,
}

impl<'w> Plan<'w> {
    /// Plans the empty volume of a request.
    ///
    /// # Errors
    /// What does not fit or does not go together, with what does.
    pub(crate) fn new(request: &Request) -> Result<Plan<'static>> {
        match Plan::build(request, None)? {
            Ok(plan) => Ok(plan),
            Err(_) => unreachable!("only a tree lacks blocks"),
        }
    }

    /// Plans the volume of a request with a tree in it. `Err` inside: the blocks that it lacks.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub(crate) fn with(
        request: &Request,
        tree: &'w Measured<'w>,
    ) -> Result<std::result::Result<Plan<'w>, Lacking>> {
        Plan::build(request, Some(tree))
    }

    fn build(
        request: &Request,
        tree: Option<&'w Measured<'w>>,
    ) -> Result<std::result::Result<Plan<'w>, Lacking>> {
        if journal_device::is_asked(request) {
            return Err(Error::invalid(
                "a journal device (-O journal_dev) holds no files",
            ));
        }
        let mut request = request.clone();
        let mut features = request.features;
        features.settle(&request)?;
        request.features = features;
        let numbers = Numbers::new(&request)?;
        request.features = numbers.features;
        let journal = journal::size(&request, numbers.blocks)?;
        if journal.is_none() {
            request.features.drop_journal();
        }
        let sb = superblock::initial(&request, &numbers);
        let geo = Geometry::new(&sb)?;
        let mut space = Space::default();
        let packed = request.packed_meta_blocks;
        let descs = place::place(&geo, 0, packed, request.stride, &mut space)?;
        let mut build = Build {
            geo,
            request: &request,
            space,
            inodes: BTreeMap::new(),
            content: BTreeMap::new(),
            zeroed: Vec::new(),
        };
        let static_blocks = build.space.count(0..build.geo.blocks);
        build.reserved_inodes()?;
        if tree.is_some() {
            build.inodes.remove(&InodeNumber::ROOT.0);
        }
        let has_own = |tree: &Measured<'_>| tree.walk.lost_and_found.is_some();
        build.directories(tree.is_none(), !tree.is_some_and(has_own))?;
        build.resize_inode()?;
        // A block before the first group is lost, too.
        let mut overhead = static_blocks + build.geo.first_data_block.0;
        if let Some(size) = journal {
            let goal = journal::goal(&build.geo, &request, &build.space);
            build.journal(size, goal)?;
            overhead += u64::from(size.blocks) + u64::from(size.fast_commit_blocks);
        }
        let mmp = build.mmp()?;
        let quotas = build.quota_files(tree)?;
        build.orphan_file()?;
        let tree = match tree
            .map(|tree| contents::place(&mut build, tree))
            .transpose()?
        {
            None => None,
            Some(Ok(placed)) => {
                build.count_usage(&quotas, &placed);
                Some(placed)
            }
            Some(Err(lacking)) => return Ok(Err(lacking)),
        };
        let last_inode = build.inodes.keys().next_back().copied().unwrap_or(0);
        let last_inode = last_inode.max(tree.as_ref().map_or(0, |tree| tree.measured.last_inode()));
        let mut plan = Plan {
            superblock: sb,
            geo: build.geo,
            descs,
            inodes: build.inodes,
            content: build.content,
            zeroed: build.zeroed,
            journal,
            tree,
            space: build.space,
            last_inode,
        };
        plan.count(&request);
        superblock::finish(&mut plan, &request, overhead, mmp);
        Ok(Ok(plan))
    }

    /// The block bitmap of a group.
    pub(crate) fn block_bitmap(&self, group: GroupNumber, bits: &mut [u8]) {
        self.space.bitmap(&self.geo, group, bits);
    }

    /// The inode bitmap of a group.
    pub(crate) fn inode_bitmap(&self, group: GroupNumber, bits: &mut [u8]) {
        self.geo.init_inode_bitmap(bits);
        bitmap::set_range(bits, 0..self.inodes_used(group));
    }

    /// The numbers of all inodes that are written, ascending.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        let first = self.geo.first_ino.0;
        let is_root = |ino: u32| self.tree.is_some() && ino == InodeNumber::ROOT.0;
        let own = (1..first).filter(move |ino| self.inodes.contains_key(ino) || is_root(*ino));
        own.chain(first..=self.last_inode)
    }

    /// The inodes of a group that are in use: the first ones.
    fn inodes_used(&self, group: GroupNumber) -> u32 {
        let before = group.0.saturating_mul(self.geo.inodes_per_group);
        self.last_inode
            .saturating_sub(before)
            .min(self.geo.inodes_per_group)
    }
}
