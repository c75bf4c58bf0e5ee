//! Blocks for a write: existing ones, or a run claimed from the allocator; and claims that end without a
//! commit.

use std::ops::RangeInclusive;

use throughline_extfmt::{FileBlock, FsBlock};
use throughline_fileio::{Claim, ClaimKind};

use super::{Call, FileMapper, Place, blocks_of};
use crate::balloc::Run;
use crate::delayed::Lent;
use crate::error::{Reason, Result};
use crate::given_up;
use crate::map::{self, Kind, Mapping, clusters};

/// Blocks claimed for one piece of a write.
#[derive(Clone, Copy)]
pub(super) struct Claimed {
    /// The first file block.
    pub(super) first: FileBlock,
    pub(super) data: Run,
    /// For tables.
    pub(super) spare: Option<Run>,
    /// Further blocks for tables, reserved but not claimed, since there was no room for them next to the
    /// data. They belong to this claim and not to a later one that may need the same table.
    pub(super) owed: u32,
    /// Tables that may be needed in addition, not reserved.
    pub(super) short: u32,
    /// Whether the blocks come from the file's reservation.
    pub(super) reserved: bool,
}

impl Claimed {
    /// The part of the reservation that it uses.
    pub(super) fn lent(&self) -> Lent {
        Lent {
            units: self.data.len,
            tables: self.spare.map_or(0, |spare| spare.len) + self.owed,
            short: self.short,
        }
    }
}

impl<P: Place> FileMapper<P> {
    pub(super) fn claim_blocks(&self, offset: u64, len: u64) -> Result<Claim> {
        let (fs, inode) = (self.fs(), self.inode());
        given_up::finish(fs)?;
        let (first, count) = blocks_of(fs, offset, len).ok_or(Reason::TooLarge)?;
        let mut found = map::lookup_cached(fs, inode, first, count)?;
        let mut call = self.call.lock();
        if !matches!(found.kind, Kind::Data(_)) && call.allocating.is_none() {
            let range = (first.0.into(), self.end.max(u64::from(first.0) + 1));
            inode.mapping.allocate(range);
            call.allocating = Some(range);
            // The thread that allocated here before may have changed it.
            found = map::lookup_cached(fs, inode, first, count)?;
        }
        match found.kind {
            Kind::Data(block) => self.overwrite(offset, len, first, block, found.len_blocks),
            Kind::Unwritten(block) => {
                fs.check_data_range(block, found.len_blocks.into())?;
                // If this was data before: do not overwrite what the committed state still shows.
                if let Some(tid) = inode.mapping.zeroed()
                    && tid.is_after(fs.journal.committed())
                {
                    fs.sync_through(tid)?;
                }
                Ok(self.units(first, block, found.len_blocks, ClaimKind::Convert, 0))
            }
            Kind::Hole => self.claim_new(&mut call, first, found),
        }
    }

    fn overwrite(
        &self,
        offset: u64,
        len: u64,
        first: FileBlock,
        block: FsBlock,
        count: u32,
    ) -> Result<Claim> {
        self.fs().check_data_range(block, count.into())?;
        let start = self.bytes(first.0.into());
        let end = start
            .saturating_add(self.bytes(count.into()))
            .min(offset.saturating_add(len));
        let device_offset = self.bytes(block.0) + (offset - start);
        Ok(Claim {
            file_offset: offset,
            len: end - offset,
            device_offset,
            kind: ClaimKind::Overwrite,
            id: 0,
        })
    }

    fn units(
        &self,
        first: FileBlock,
        block: FsBlock,
        count: u32,
        kind: ClaimKind,
        id: u64,
    ) -> Claim {
        let (file_offset, len) = (self.bytes(first.0.into()), self.bytes(count.into()));
        Claim {
            file_offset,
            len,
            device_offset: self.bytes(block.0),
            kind,
            id,
        }
    }

    /// Claims a run for the hole at `first`, preceded by blocks for tables if needed.
    fn claim_new(&self, call: &mut Call, first: FileBlock, hole: Mapping) -> Result<Claim> {
        let (fs, inode) = (self.fs(), self.inode());
        let want = hole.len_blocks.min(fs.geo.blocks_per_group);
        let goal = self.goal(call, first)?;
        let tables = map::tables_for(fs, inode, first, want)?;
        // Data that was accepted is written back whatever the limits.
        let (held, want) = match P::WRITE_BACK {
            true => (None, want),
            false => map::hold::blocks(fs, inode, first, want)?,
        };
        call.held.extend(held);
        let claimed = if fs.geo.cluster_ratio_log > 0 {
            self.claim_clustered(goal, first, want)?
        } else if let Some(claimed) = self.claim_reserved(goal, first, (want, tables))? {
            claimed
        } else {
            let run = fs.claim(goal, want.saturating_add(tables))?;
            divide(run, first, (want, tables), |over| fs.release(over))
        };
        let data = claimed.data;
        let next = (
            u64::from(first.0) + u64::from(data.len),
            FsBlock(data.start.0 + u64::from(data.len)),
        );
        call.last = Some(next);
        if P::WRITE_BACK {
            inode.delayed.ended(next.0, next.1);
        }
        let id = call.claimed.len() as u64;
        call.claimed.push(Some(claimed));
        Ok(self.units(first, data.start, data.len, ClaimKind::New, id))
    }

    /// The preferred place of the block at `first`: after the previous claim of this call or of the file's
    /// write-back, else the mapping's suggestion.
    fn goal(&self, call: &Call, first: FileBlock) -> Result<FsBlock> {
        let last = call.last.filter(|(block, _)| *block == u64::from(first.0));
        let behind = match last {
            Some((_, goal)) => Some(goal),
            None if P::WRITE_BACK => self.inode().delayed.goal(first),
            None => None,
        };
        behind.map_or_else(|| map::goal(self.fs(), self.inode(), first), Ok)
    }

    /// Claims from the file's reservation; `None` if it is empty.
    fn claim_reserved(
        &self,
        goal: FsBlock,
        first: FileBlock,
        (want, tables): (u32, u32),
    ) -> Result<Option<Claimed>> {
        if !P::WRITE_BACK {
            return Ok(None);
        }
        let (fs, delayed) = (self.fs(), &self.inode().delayed);
        let lent = delayed.lend(want, tables);
        if lent.units == 0 {
            return Ok(None);
        }
        let run = fs
            .claim_reserved(goal, lent.units + lent.tables)
            .inspect_err(|_| delayed.take_back(lent))?;
        let claimed = divide(run, first, (lent.units, lent.tables), |over| {
            fs.release_to_reserve(over);
        });
        let claimed = Claimed {
            owed: lent.tables - claimed.lent().tables,
            short: lent.short,
            reserved: true,
            ..claimed
        };
        // The allocator has put the missing part back into the reservation.
        delayed.take_back(Lent {
            units: lent.units - claimed.data.len,
            ..Lent::default()
        });
        Ok(Some(claimed))
    }

    /// The blocks of a claim, which stays in the list.
    pub(super) fn claimed(&self, claim: &Claim) -> Option<Claimed> {
        let id = usize::try_from(claim.id).ok()?;
        self.call.lock().claimed.get(id).copied().flatten()
    }

    /// Updates a claim's blocks after tables used some of its spare blocks.
    pub(super) fn keep(&self, claim: &Claim, claimed: Claimed) {
        let mut call = self.call.lock();
        let place = usize::try_from(claim.id)
            .ok()
            .and_then(|id| call.claimed.get_mut(id));
        if let Some(place) = place {
            *place = Some(claimed);
        }
    }

    /// Removes a claim from the list and returns its blocks.
    pub(super) fn take_claim(&self, claim: &Claim) -> Option<Claimed> {
        let mut call = self.call.lock();
        usize::try_from(claim.id)
            .ok()
            .and_then(|id| call.claimed.get_mut(id))
            .and_then(Option::take)
    }

    /// Discards data that was written to blocks which will not be mapped. If the image is a sparse file on a
    /// full disk, they take up space that the volume's metadata needs. This is safe: no other file can have
    /// the blocks yet, and they were free on disk, so a crash cannot bring back an earlier owner.
    pub(super) fn discard(&self, run: Run) {
        let log = self.fs().geo.block_log;
        let discarded = self
            .fs()
            .disk
            .discard(run.start.0 << log, u64::from(run.len) << log);
        if let Err(error) = discarded {
            tracing::debug!(%error, "discarding blocks that were given back");
        }
    }

    pub(super) fn give_back(&self, claimed: Claimed) {
        let release = |run| {
            if claimed.reserved {
                self.fs().release_to_reserve(run);
            } else {
                self.fs().release(run);
            }
        };
        if self.fs().geo.cluster_ratio_log > 0 {
            self.clusters_given_back(&claimed);
        } else {
            release(claimed.data);
        }
        claimed.spare.into_iter().for_each(release);
        if claimed.reserved {
            self.inode().delayed.take_back(claimed.lent());
        }
    }
}

/// With `bigalloc`: blocks in a cluster that the file has or that another claim has claimed for it, else in
/// new clusters ([`crate::map::clusters`]).
impl<P: Place> FileMapper<P> {
    /// Claims blocks for the beginning of the hole at `first`, of `want` blocks.
    pub(super) fn claim_clustered(
        &self,
        goal: FsBlock,
        first: FileBlock,
        want: u32,
    ) -> Result<Claimed> {
        let delayed = &self.inode().delayed;
        let want = clusters::fitting(self.fs(), first, want, u32::MAX);
        self.wait_for_unmapping(first)?;
        let lent = if P::WRITE_BACK {
            delayed.lend(want, 0)
        } else {
            Lent::default()
        };
        let is_reserved = lent.units > 0;
        let want = if is_reserved { lent.units } else { want };
        let data = self
            .in_clusters(goal, first, want)
            .inspect_err(|_| delayed.take_back(lent))?;
        delayed.take_back(Lent {
            units: lent.units.saturating_sub(data.len),
            ..Lent::default()
        });
        Ok(Claimed {
            first,
            data,
            spare: None,
            owed: 0,
            short: 0,
            reserved: is_reserved,
        })
    }

    /// Waits until no data is overwritten that the committed state still shows: that of a block that was
    /// unmapped while its cluster stayed.
    fn wait_for_unmapping(&self, first: FileBlock) -> Result<()> {
        let (fs, inode) = (self.fs(), self.inode());
        let committed = fs.journal.committed();
        let Some(tid) = inode.mapping.zeroed().filter(|tid| tid.is_after(committed)) else {
            return Ok(());
        };
        let has_cluster = {
            let _map = inode.map_shared();
            let cluster = first.0 >> fs.geo.cluster_ratio_log;
            clusters::cluster_at(fs, inode, cluster)?.is_some()
        };
        match has_cluster {
            true => fs.sync_through(tid),
            false => Ok(()),
        }
    }

    fn in_clusters(&self, goal: FsBlock, first: FileBlock, want: u32) -> Result<Run> {
        let (fs, inode) = (self.fs(), self.inode());
        let log = fs.geo.cluster_ratio_log;
        let (own, skip) = (first.0 >> log, first.0 & ((1 << log) - 1));
        let _map = inode.map_shared();
        let mut known = inode.delayed.clusters.lock();
        let at = match known.share(own) {
            Some(at) => Some(at),
            None => clusters::cluster_at(fs, inode, own)?,
        };
        if let Some(at) = at {
            if known.unreserve(own) {
                fs.unreserve(1);
            }
            return Ok(clusters::within(at, skip, want, 1 << log));
        }
        let most = clusters::new_clusters(fs, inode, first, want)?;
        let (count, is_reserved) = known.run(own, most);
        let run = match is_reserved {
            true => fs.claim_reserved(goal, count << log)?,
            false => fs.claim(goal, count << log)?,
        };
        known.claim(own, (run.start, run.len >> log), log);
        Ok(clusters::within(run.start, skip, want, run.len))
    }

    /// Ends a claim that is mapped now. The mapping lock is held exclusively.
    pub(super) fn clusters_entered(&self, claimed: &Claimed) {
        if let Some(clusters) = self.clusters_of(claimed) {
            self.inode().delayed.clusters.lock().entered(clusters);
        }
    }

    /// Ends a claim that is not mapped: releases the clusters that no other claim needs.
    pub(super) fn clusters_given_back(&self, claimed: &Claimed) {
        let Some(clusters) = self.clusters_of(claimed) else {
            return;
        };
        let fs = self.fs();
        let mut known = self.inode().delayed.clusters.lock();
        for released in known.given_back(clusters) {
            let run = Run {
                start: released.at,
                len: 1 << fs.geo.cluster_ratio_log,
            };
            match released.is_reserved {
                true => fs.release_to_reserve(run),
                false => fs.release(run),
            }
        }
    }

    /// The clusters of the file that a claim has blocks in; `None` without `bigalloc`.
    fn clusters_of(&self, claimed: &Claimed) -> Option<RangeInclusive<u32>> {
        let log = self.fs().geo.cluster_ratio_log;
        let last = claimed.first.0.saturating_add(claimed.data.len - 1);
        (log > 0).then(|| claimed.first.0 >> log..=last >> log)
    }
}

/// Splits a claimed run into `tables` blocks in front, if it is long enough for both, and up to `want` blocks
/// of data; passes the rest to `back`.
fn divide(
    run: Run,
    first: FileBlock,
    (want, tables): (u32, u32),
    back: impl FnOnce(Run),
) -> Claimed {
    // A run too short for both holds data only; tables then come from elsewhere.
    let tables = if run.len > tables { tables } else { 0 };
    let part = |from: u32, len: u32| Run {
        start: FsBlock(run.start.0 + u64::from(from)),
        len,
    };
    let data = part(tables, (run.len - tables).min(want));
    let over = run.len - tables - data.len;
    if over > 0 {
        back(part(tables + data.len, over));
    }
    Claimed {
        first,
        data,
        spare: (tables > 0).then(|| part(0, tables)),
        owed: 0,
        short: 0,
        reserved: false,
    }
}
