//! The block allocator: blocks are claimed in memory, then allocated in the bitmaps inside a transaction.
//!
//! ```text
//!   claim ──► (data is written) ──► confirm     bit, counts and checksums, in the transaction of the mapping
//!     └───────────────┴───────────► release
//! ```
//!
//! Freed blocks are claimed again only when the transaction that freed them is durable ([`awaiting`]).
//!
//! Claims exist only in this process, so a crash drops them. Each group that is allocated from has a
//! [`map::BlockMap`] in memory: the blocks that its bitmap on disk shows as used, and those claimed or
//! waiting.
//!
//! With `bigalloc`, the unit of the bitmaps is a cluster of several blocks. Bits, maps and counts are in
//! clusters; the functions here take and return blocks, and round them outwards ([`Blocks::whole_clusters`]).
//! A claimed run consists of whole clusters, so it may be longer than what was wanted. Which clusters a file
//! has is decided above ([`crate::clusters`]). Without `bigalloc`, a cluster is a block.
//!
//! Invariants:
//! - A block is free, claimed, allocated or waiting. In the counts, `free` is what the bitmaps say; `claimed`
//!   and `awaiting` are parts of it.
//! - Blocks *reserved* for data not written yet (delayed allocation, [`Blocks::reserve`]) are only a number:
//!   no other claim may use that many of the free blocks.
//! - A bitmap changes only under its group's lock, with the group's map loaded, and the map changes with it.
//! - A search that was promised blocks finds that many, unless the counts on disk were wrong.

mod awaiting;
mod change;
mod counts;
mod exact;
pub(crate) mod host_room;
mod kept;
mod limit;
mod map;
mod search;
mod table;
#[cfg(test)]
mod tests;
mod trim;

use std::collections::HashSet;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use throughline_extfmt::{FsBlock, Geometry, GroupNumber, Superblock};
use throughline_locks::{Condvar, Mutex};

use crate::error::{Error, Reason, Result};
use crate::groups::Groups;
use crate::handle::Handle;
use crate::options::OpenOptions;
use awaiting::Awaiting;
use counts::Counts;
use kept::Kept;
use table::GroupTable;

/// Journal credits of [`Blocks::confirm`], for the bitmap and the descriptor. [`Blocks::free`] needs as many
/// per group.
pub(crate) const GROUP_CREDITS: u32 = 2;

/// Adjacent blocks in one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// First block.
    pub(crate) start: FsBlock,
    /// Number of blocks; never 0.
    pub(crate) len: u32,
}

/// What blocks are for. Decides which reserves a claim may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// A file's or a directory's blocks.
    Data,
    /// The same, of a caller who may use the blocks kept for root.
    DataOfRoot,
    /// Mapping blocks. Data that already has blocks cannot be mapped without them, so they may use the last
    /// free blocks.
    Metadata,
    /// Blocks reserved earlier with [`Blocks::reserve`].
    Reserved,
}

/// Which blocks of a volume are free, claimed or waiting: the layer above [`Groups`].
pub struct Blocks {
    groups: Groups,
    pub(crate) balloc: Balloc,
}

impl Blocks {
    pub(crate) fn new(groups: Groups, balloc: Balloc) -> Self {
        Self { groups, balloc }
    }
}

impl Deref for Blocks {
    type Target = Groups;

    fn deref(&self) -> &Groups {
        &self.groups
    }
}

/// The counts, and the groups in memory.
pub(crate) struct Balloc {
    counts: Mutex<Counts>,
    /// Notified when promised blocks become claimed or free again.
    search_ended: Condvar,
    kept: Kept,
    awaiting: Awaiting,
    groups: GroupTable,
    /// Damaged groups, and whether there are any.
    passed_over: Mutex<HashSet<GroupNumber>>,
    any_passed_over: AtomicBool,
    /// Freed blocks are discarded before they are reused ([`trim`]).
    discards: AtomicBool,
    /// Claimed blocks get room on the host ([`host_room`]).
    pub(crate) allocates: bool,
    /// No block from this one on is offered ([`limit`]).
    limit: OnceLock<limit::BlockLimit>,
}

impl Balloc {
    /// Starts from the superblock's counts.
    pub(crate) fn new(sb: &Superblock, geo: &Geometry, options: &OpenOptions) -> Self {
        Self {
            counts: Mutex::new(Counts {
                free: sb.free_blocks_count().min(geo.blocks) >> geo.cluster_ratio_log,
                ..Counts::default()
            }),
            search_ended: Condvar::new(),
            kept: Kept::new(sb, geo, options),
            awaiting: Awaiting::default(),
            groups: GroupTable::new(geo.block_bytes),
            passed_over: Mutex::default(),
            any_passed_over: AtomicBool::new(false),
            discards: AtomicBool::new(false),
            allocates: options.allocate,
            limit: OnceLock::new(),
        }
    }

    /// From now on, discards freed blocks before they are reused.
    pub(crate) fn set_discards(&self) {
        self.discards.store(true, Ordering::Release);
    }

    pub(crate) fn discards(&self) -> bool {
        self.discards.load(Ordering::Acquire)
    }
}

impl Blocks {
    /// Claims up to `want` blocks for data, as one run: at the goal if that is free, else a long run near it.
    /// The claim is in memory only; [`Blocks::confirm`] or [`Blocks::release`] ends it. A handle and mapping
    /// locks may be held; a caller that holds neither should call this inside [`crate::Data::with_room`].
    ///
    /// # Errors
    /// `NoSpace` exactly when nothing is left for this caller (freed blocks that wait do not count); errors
    /// of reading bitmaps.
    pub(crate) fn claim(&self, goal: FsBlock, want: u32) -> Result<Run> {
        self.claim_for(Purpose::Data, goal, want)
    }

    /// As [`Blocks::claim`], for mapping blocks: may use the very last blocks.
    ///
    /// # Errors
    /// As [`Blocks::claim`].
    pub(crate) fn claim_metadata(&self, goal: FsBlock, want: u32) -> Result<Run> {
        self.claim_for(Purpose::Metadata, goal, want)
    }

    /// As [`Blocks::claim`], from reserved blocks, of which there must be enough.
    ///
    /// # Errors
    /// As [`Blocks::claim`].
    pub(crate) fn claim_reserved(&self, goal: FsBlock, want: u32) -> Result<Run> {
        self.claim_for(Purpose::Reserved, goal, want)
    }

    fn claim_for(&self, purpose: Purpose, goal: FsBlock, want: u32) -> Result<Run> {
        self.check_writable()?;
        self.release_durable();
        let ratio_log = self.geo.cluster_ratio_log;
        let clusters = want.max(1).div_ceil(1 << ratio_log);
        let mut promise = self.balloc.promise(clusters, purpose)?;
        let found = self.find_run(goal, promise.clusters);
        promise.claimed = found.as_ref().map_or(0, |run| run.len >> ratio_log);
        drop(promise);
        let run = self.note_damage(found)?;
        match self.balloc.allocates && purpose != Purpose::Reserved {
            true => host_room::for_run(self, run),
            false => Ok(run),
        }
    }

    /// Allocates a claimed run, or a part of one ([`GROUP_CREDITS`]).
    ///
    /// # Errors
    /// Errors of the journal; `Corrupt` if the bitmap on disk shows a block as in use.
    pub(crate) fn confirm(&self, h: &mut Handle<'_>, run: Run) -> Result<()> {
        let (group, first, len) = self.bits_of(run)?;
        let result = self.change_group(h, group, |change| change.allocate(first, len));
        self.note_damage(result)?;
        self.balloc.confirmed(len);
        Ok(())
    }

    /// Ends the claim of a run, or of a part of one.
    pub(crate) fn release(&self, run: Run) {
        if let Some(clusters) = self.unclaim(run) {
            self.balloc.released(clusters, 0);
        }
    }

    /// Returns a claimed run, or a part of one, to the reserved blocks.
    pub(crate) fn release_to_reserve(&self, run: Run) {
        if let Some(clusters) = self.unclaim(run) {
            self.balloc.released(clusters, clusters);
        }
    }

    /// The number of clusters whose claim ends.
    fn unclaim(&self, run: Run) -> Option<u32> {
        let (group, first, len) = self.bits_of(run).ok()?;
        // A group with claims is in memory, so this reads nothing and cannot fail.
        self.with_map(group, |map| map.release(first, len)).ok()?;
        Some(len)
    }

    /// Reserves clusters for data not written yet: only [`Blocks::claim_reserved`] can claim them. With
    /// `map_only`, they are for the mapping of data that already has blocks, and may use the last free
    /// clusters.
    ///
    /// # Errors
    /// `NoSpace`; nothing is reserved then.
    pub(crate) fn reserve(&self, clusters: u64, map_only: bool) -> Result<()> {
        self.check_writable()?;
        let purpose = if map_only {
            Purpose::Metadata
        } else {
            Purpose::Data
        };
        self.release_durable();
        self.balloc.reserve(clusters, purpose)
    }

    /// Makes reserved clusters available again.
    pub(crate) fn unreserve(&self, clusters: u64) {
        self.balloc.unreserve(clusters);
    }

    /// Reserves again as many clusters as were just allocated from the reserve, without checking that others
    /// are left.
    pub(crate) fn reserve_again(&self, clusters: u64) {
        self.balloc.reserve_again(clusters);
    }

    /// Frees the clusters of allocated blocks; they can be reused once this is durable. The range may cross
    /// group borders ([`GROUP_CREDITS`] per group). The handle must have forgotten any metadata blocks in it.
    /// If a group's bitmap or descriptor is damaged, its blocks stay in use until `e2fsck` repairs it, as in
    /// the kernel's ext4; the file is freed nonetheless.
    ///
    /// # Errors
    /// `Corrupt`, with nothing changed, if the range is outside the volume, in its fixed metadata, or already
    /// free; errors of the journal.
    pub(crate) fn free(&self, h: &mut Handle<'_>, start: FsBlock, len: u64) -> Result<()> {
        let result = self.free_checked(h, start, len);
        self.note_damage(result)
    }

    fn free_checked(&self, h: &mut Handle<'_>, start: FsBlock, len: u64) -> Result<()> {
        let (start, len) = self.whole_clusters(start, len);
        self.check_data_range(start, len)?;
        // The change of a group checks it first, so only a change of several must check them beforehand.
        if self.by_group(start, len).nth(1).is_some() {
            self.check_all_allocated(start, len)?;
        }
        for (group, first, len) in self.by_group(start, len) {
            if !self.has_valid_bitmap(group)? {
                continue;
            }
            self.change_group(h, group, |change| change.free(first, len))?;
            self.balloc.freed(len);
            let len = limit::withhold_freed(self, group, first, len)?;
            if len > 0 {
                self.balloc.awaiting.push(h, group, first, len);
            }
        }
        self.release_durable();
        Ok(())
    }

    /// Loads and checks what [`Blocks::free`] will need, so that errors show before anything has changed.
    ///
    /// # Errors
    /// As [`Blocks::free`], except those of the journal.
    pub(crate) fn check_freeable(&self, start: FsBlock, len: u64) -> Result<()> {
        let checked = self
            .check_data_range(start, len)
            .and_then(|()| self.check_all_allocated(start, len));
        self.note_damage(checked)
    }

    fn check_all_allocated(&self, start: FsBlock, len: u64) -> Result<()> {
        self.by_group(start, len)
            .try_for_each(|(group, first, len)| {
                if self.has_valid_bitmap(group)? {
                    self.check_allocated(group, first, len)?;
                }
                Ok(())
            })
    }

    /// Whether a group's bitmap is valid. If not, nothing in the group is allocated or freed.
    fn has_valid_bitmap(&self, group: GroupNumber) -> Result<bool> {
        let found = self.with_map(group, |_| ());
        Ok(self.change_around_damage(found)?.is_some())
    }

    /// As [`Blocks::alloc_block`], from reserved blocks.
    ///
    /// # Errors
    /// As [`Blocks::alloc_block`].
    pub(crate) fn alloc_reserved(&self, h: &mut Handle<'_>, goal: FsBlock) -> Result<FsBlock> {
        let run = self.claim_reserved(goal, 1)?;
        if let Err(error) = self.confirm(h, run) {
            self.release_to_reserve(run);
            return Err(error);
        }
        Ok(run.start)
    }

    /// Claims and confirms one mapping block. The caller fills it with [`Handle::create`]. An operation that
    /// has already changed something must have claimed its blocks beforehand, so that a full volume does not
    /// leave it half done.
    ///
    /// # Errors
    /// As [`Blocks::claim`] and [`Blocks::confirm`].
    pub(crate) fn alloc_block(&self, h: &mut Handle<'_>, goal: FsBlock) -> Result<FsBlock> {
        let run = self.claim_metadata(goal, 1)?;
        if let Err(error) = self.confirm(h, run) {
            self.release(run);
            return Err(error);
        }
        Ok(run.start)
    }

    /// Free blocks, and how many of them an ordinary user cannot use: for `df`.
    pub(crate) fn free_and_kept(&self, sb: &Superblock) -> (u64, u64) {
        let ratio_log = self.geo.cluster_ratio_log;
        (
            self.balloc.free_after_commit() << ratio_log,
            sb.r_blocks_count()
                .saturating_add(self.balloc.kept.for_maps() << ratio_log),
        )
    }

    /// Checks that a range named by a mapping may belong to a file: inside the volume and outside its fixed
    /// metadata. Must be called before such a range is written or freed.
    ///
    /// # Errors
    /// `Corrupt` if not; on the first call, errors of reading the descriptors.
    pub(crate) fn check_data_range(&self, start: FsBlock, len: u64) -> Result<()> {
        if len == 0 || !self.geo.holds_blocks(start, len) {
            return Err(Error::corrupt(format!(
                "{len} blocks from {start} are outside the volume"
            )));
        }
        match self
            .zones()?
            .within(start.0, start.0.saturating_add(len))
            .next()
        {
            None => Ok(()),
            Some((zone, end)) => Err(Error::corrupt(format!(
                "{len} blocks from {start} hold the volume's own structures ({zone} to {end})"
            ))),
        }
    }

    /// The smallest range of whole clusters that contains a range of blocks.
    pub(crate) fn whole_clusters(&self, start: FsBlock, len: u64) -> (FsBlock, u64) {
        let log = self.geo.cluster_ratio_log;
        if log == 0 {
            return (start, len);
        }
        let first = start.0 >> log;
        let end = start.0.saturating_add(len).div_ceil(1 << log);
        (FsBlock(first << log), end.saturating_sub(first) << log)
    }

    /// The group of a run, the run's first bit there, and the number of its bits.
    fn bits_of(&self, run: Run) -> Result<(GroupNumber, u32, u32)> {
        let mut parts = self.by_group(run.start, run.len.into());
        match (parts.next(), parts.next()) {
            (Some(bits), None) => Ok(bits),
            _ => Err(Reason::Invalid("a run of blocks that is not in one group").into()),
        }
    }

    /// Splits a range of the volume, rounded to whole clusters, by group: group, first bit, number of bits.
    pub(crate) fn by_group(
        &self,
        start: FsBlock,
        len: u64,
    ) -> impl Iterator<Item = (GroupNumber, u32, u32)> + '_ {
        let ratio_log = self.geo.cluster_ratio_log;
        let (FsBlock(mut at), len) = self.whole_clusters(start, len);
        let end = at.saturating_add(len);
        std::iter::from_fn(move || {
            let group = self.geo.group_of_block(FsBlock(at)).filter(|_| at < end)?;
            let group_start = self.geo.group_first_block(group).0;
            let group_end = group_start.saturating_add(self.geo.group_blocks(group).into());
            let part = (
                group,
                ((at - group_start) >> ratio_log) as u32,
                (end.min(group_end) - at).div_ceil(1 << ratio_log) as u32,
            );
            at = group_end;
            Some(part)
        })
    }
}
