//! Space reserved for delayed allocation: blocks for data that is only in memory, and for the mapping that
//! it will need.
//!
//! ```text
//!   reserve ──► units, nodes ──► lend ──► (data is written) ──► entered       the blocks are the file's
//!      └──► unreserve              └───────────┴──────────────► take_back     reserved again
//! ```
//!
//! Invariants:
//! - The blocks that the volume's allocator has reserved ([`crate::Blocks::reserve`]) are the sum of `units`
//!   and `nodes` over all inodes. With `bigalloc`, they are the clusters in `clusters` and a cluster for each
//!   of the `nodes`, and `units` only tell when none is needed: a hole in a cluster that the file has, or
//!   that is reserved or claimed for it, costs nothing.
//! - `nodes` and `lent` together cover the mapping blocks needed for all units not entered yet, wherever
//!   and in whatever order they are allocated. They may exceed that number only until the next
//!   [`Delayed::adjust_reservation`].
//! - The mapping of a file with reserved space changes only by write-back. Any other change (a direct
//!   write, `fallocate`) writes the file back first, or calls [`Delayed::renew`] afterwards.
//!
//! What the mapping of new blocks needs: in an indirect map, exactly the missing tables, which are tracked
//! individually; in an extent tree, the nodes for one extent per block at most. Unwritten blocks already
//! have their space, but converting one may split its extent in three, which adds two.

pub(crate) mod clusters;
pub(crate) mod state;
#[cfg(test)]
mod tests;

use throughline_extfmt::{FileBlock, InodeImage, InodeNumber};
use throughline_fileio::Holes;

use crate::caller::Caller;
use crate::error::{Reason, Result};
use crate::inode::Inode;
use crate::inode::Inodes;
use crate::map::{self, Format, Kind, TableName};
use crate::quota::charge;
pub(crate) use state::{Delayed, Lent, Pending};
use state::{Held, State};

/// What a range will need.
#[derive(Default)]
struct Needs {
    holes: Holes,
    units: u64,
    /// Extents that the holes become, with `bigalloc`.
    extents: u64,
    converts: u64,
    missing: Vec<TableName>,
}

impl Delayed {
    /// Reserves space for the holes in a range of file blocks. Returns the holes, in bytes. `dirty_blocks`
    /// is the number of the file's dirty blocks before the write; `again` means that part of the range is
    /// being written back.
    ///
    /// # Errors
    /// `NoSpace`, with nothing reserved; `TooLarge`; errors of reading the mapping.
    pub(crate) fn reserve(
        &self,
        fs: &Inodes,
        inode: &Inode,
        range: (u64, u64),
        (dirty_blocks, again): (u64, bool),
    ) -> Result<Holes> {
        let needs = Needs::of(fs, inode, range)?;
        if needs.units == 0 && needs.converts == 0 {
            return Ok(needs.holes);
        }
        let has_clusters = fs.geo.cluster_ratio_log > 0;
        // While it is held, no cluster passes from a claim to the mapping.
        let _map = has_clusters.then(|| inode.map_shared());
        let image = fs.quotas.any_limited().then(|| inode.image());
        let mut state = self.state.lock();
        if let Some(image) = image.as_ref().filter(|_| !has_clusters) {
            state.hold(fs, (inode.ino, image), needs.units)?;
        }
        let before = (state.converts, state.units, state.extents);
        // A block that was already dirty is counted twice; the limit keeps that from accumulating.
        state.converts = state.converts.min(dirty_blocks) + needs.converts;
        state.units += needs.units;
        let added: Vec<TableName> = needs
            .missing
            .into_iter()
            .filter(|table| state.missing.insert(*table))
            .collect();
        let mut clusters = Vec::new();
        let data = if has_clusters {
            state.extents += needs.extents;
            let reserved = self.reserve_clusters(fs, inode, &needs.holes, &mut clusters);
            reserved.and_then(|count| {
                let held = image.map(|image| state.hold(fs, (inode.ino, &image), count));
                held.unwrap_or(Ok(())).map(|()| count)
            })
        } else {
            Ok(needs.units)
        };
        let nodes = state.lacking(fs, inode);
        let done = data.and_then(|data| match data + nodes {
            0 => Ok(()),
            blocks => fs.reserve(blocks, data == 0),
        });
        match done {
            Ok(()) => {
                state.nodes += nodes;
                state.twice |= again && needs.units > 0;
            }
            Err(error) => {
                (state.converts, state.units, state.extents) = before;
                let mut known = self.clusters.lock();
                clusters.into_iter().for_each(|cluster| {
                    known.unreserve(cluster);
                });
                drop(known);
                added.iter().for_each(|table| {
                    state.missing.remove(table);
                });
                state.settle_hold(&self.clusters);
                return Err(error);
            }
        }
        Ok(needs.holes)
    }

    /// Gives up the space for `units` data blocks, and for the mapping that they would have needed.
    pub(crate) fn unreserve(&self, fs: &Inodes, inode: &Inode, units: u64) {
        let mut state = self.state.lock();
        let (units, before) = (units.min(state.units), state.units + state.claimed);
        state.units -= units;
        state.scale_extents(before);
        let data = match fs.geo.cluster_ratio_log {
            0 => units,
            // Which clusters are not needed is not known until there is no data.
            _ => 0,
        };
        let blocks = data + self.surplus(&mut state, fs, inode);
        state.settle_hold(&self.clusters);
        if blocks > 0 {
            fs.unreserve(blocks);
        }
    }

    /// Records the clusters that the holes need as reserved, and adds them to `added`. Returns their number.
    /// The mapping lock is held.
    fn reserve_clusters(
        &self,
        fs: &Inodes,
        inode: &Inode,
        holes: &Holes,
        added: &mut Vec<u32>,
    ) -> Result<u64> {
        let mut known = self.clusters.lock();
        for (first, last) in each_hole(fs, holes) {
            for cluster in first..=last {
                // In the middle, the hole is all of the cluster.
                let is_edge = cluster == first || cluster == last;
                if is_edge
                    && !known.is_known(cluster)
                    && map::clusters::cluster_at(fs, inode, cluster)?.is_some()
                {
                    continue;
                }
                if known.reserve(cluster) {
                    added.push(cluster);
                }
            }
        }
        Ok(added.len() as u64)
    }

    /// The data of the file blocks in `from..to` was dropped from memory: clusters that are only there need
    /// no reservation.
    pub(crate) fn dropped(&self, fs: &Inodes, (from, to): (u64, u64)) {
        let log = fs.geo.cluster_ratio_log;
        if log == 0 {
            return;
        }
        let cluster = |at: u64| u32::try_from(at).unwrap_or(u32::MAX);
        let (first, end) = (from.div_ceil(1 << log), to >> log);
        let mut known = self.clusters.lock();
        let surplus = known.unreserve_range(cluster(first), cluster(end));
        drop(known);
        if surplus > 0 {
            self.state.lock().settle_hold(&self.clusters);
            fs.unreserve(surplus);
        }
    }

    /// Removes what is reserved beyond the need. Returns its number.
    fn surplus(&self, state: &mut State, fs: &Inodes, inode: &Inode) -> u64 {
        let clusters = match state.units + state.claimed {
            0 if fs.geo.cluster_ratio_log > 0 => self.clusters.lock().unreserve_all(),
            _ => 0,
        };
        clusters + state.surplus(fs, inode)
    }

    /// Records that the tables leading to a range of an indirect map exist.
    pub(crate) fn tables_made(&self, fs: &Inodes, range: (FileBlock, u32)) -> Result<()> {
        let mut state = self.state.lock();
        map::each_table(fs, range, |table| {
            state.missing.remove(&table);
        })
    }

    /// After a commit: gives up the space that the mapping can no longer need. Space is reserved again for
    /// `restored` of the blocks that were entered, since their data is still dirty.
    pub(crate) fn adjust_reservation(&self, fs: &Inodes, inode: &Inode, restored: u64) {
        let mut state = self.state.lock();
        if restored > 0 {
            state.units += restored;
            if fs.geo.cluster_ratio_log == 0 {
                fs.reserve_again(restored);
            }
        }
        let surplus = self.surplus(&mut state, fs, inode);
        state.settle_hold(&self.clusters);
        if surplus > 0 {
            fs.unreserve(surplus);
        }
    }

    /// After a change of the mapping other than by write-back: reserves the space that it made necessary.
    pub(crate) fn renew(&self, fs: &Inodes, inode: &Inode) {
        let mut state = self.state.lock();
        if state.is_idle() {
            return;
        }
        let lacking = state.lacking(fs, inode);
        if lacking > 0 {
            fs.reserve_again(lacking);
            state.nodes += lacking;
        }
    }

    /// The inode has other owners: they hold what the former ones held.
    pub(crate) fn hold_anew(&self, fs: &Inodes, inode: &Inode) {
        if !fs.quotas.any_limited() {
            return;
        }
        let image = inode.image();
        let mut state = self.state.lock();
        if state.held.take().is_some() {
            // Was checked before the change.
            let _any = Caller::ROOT.act();
            let count = match fs.geo.cluster_ratio_log {
                0 => state.units + state.claimed,
                _ => self.clusters.lock().pending(),
            };
            let _held = state.hold(fs, (inode.ino, &image), count);
        }
    }

    /// Called when nothing of the file is dirty or being written: no conversion is pending.
    pub(crate) fn all_clean(&self, fs: &Inodes, inode: &Inode) {
        let mut state = self.state.lock();
        state.converts = 0;
        let surplus = self.surplus(&mut state, fs, inode);
        state.settle_hold(&self.clusters);
        if surplus > 0 {
            fs.unreserve(surplus);
        }
    }
}

impl State {
    /// Holds quota for that many more data blocks, or clusters with `bigalloc`, if limits are enforced.
    fn hold(&mut self, fs: &Inodes, inode: (InodeNumber, &InodeImage), count: u64) -> Result<()> {
        let bytes = fs.cluster_bytes(count);
        match &mut self.held {
            Some(held) => held
                .hold
                .add(bytes, 0, fs.now().seconds.max(0).cast_unsigned()),
            None => {
                let hold = charge::hold_for(fs, inode, bytes, 0)?;
                self.held = hold.map(|hold| Held {
                    hold,
                    unit_bytes: fs.cluster_bytes(1),
                    by_clusters: fs.geo.cluster_ratio_log > 0,
                });
                Ok(())
            }
        }
    }

    /// Blocks that the mapping may need.
    fn needed(&self, fs: &Inodes, inode: &Inode) -> u64 {
        let blocks = self.units + self.claimed;
        let extents = match fs.geo.cluster_ratio_log {
            0 => blocks,
            _ => blocks.min(self.extents),
        };
        let entries = extents.saturating_add(2 * self.converts);
        map::nodes_needed(fs, inode, entries).saturating_add(self.missing.len() as u64)
    }

    /// Needed mapping blocks that are not reserved yet.
    fn lacking(&self, fs: &Inodes, inode: &Inode) -> u64 {
        self.needed(fs, inode)
            .saturating_sub(self.nodes + self.lent)
    }

    /// Removes the excess over the need from `nodes`. Returns it.
    fn surplus(&mut self, fs: &Inodes, inode: &Inode) -> u64 {
        if self.units + self.claimed == 0 {
            self.missing.clear();
            self.extents = 0;
            self.twice = false;
        }
        let over = (self.nodes + self.lent).saturating_sub(self.needed(fs, inode));
        let over = over.min(self.nodes);
        self.nodes -= over;
        over
    }
}

/// The first and last cluster of each hole.
fn each_hole<'h>(fs: &Inodes, holes: &'h Holes) -> impl Iterator<Item = (u32, u32)> + use<'h> {
    let log = fs.geo.block_log + fs.geo.cluster_ratio_log;
    let runs = holes.runs.iter().filter(|(_, len)| *len > 0);
    runs.map(move |(at, len)| ((at >> log) as u32, ((at + len - 1) >> log) as u32))
}

impl Needs {
    fn of(fs: &Inodes, inode: &Inode, (from, to): (u64, u64)) -> Result<Self> {
        let mut needs = Self::default();
        let log = fs.geo.block_log;
        let has_tables = Format::of(&inode.raw.read()) == Format::Indirect;
        let mut at = from;
        while at < to {
            let block = u32::try_from(at).ok().filter(|b| *b < u32::MAX);
            let block = FileBlock(block.ok_or(Reason::TooLarge)?);
            let left = u32::try_from(to - at).unwrap_or(u32::MAX);
            let found = map::lookup_cached(fs, inode, block, left)?;
            let len = u64::from(found.len_blocks);
            match found.kind {
                Kind::Hole => {
                    needs.units += len;
                    needs.add_hole(at << log, len << log);
                    if has_tables {
                        let hole = (block, found.len_blocks);
                        map::each_missing_table(fs, inode, hole, |t| needs.missing.push(t))?;
                    }
                }
                Kind::Unwritten(_) => needs.converts += len,
                Kind::Data(_) => {}
            }
            at += len;
        }
        let holes = each_hole(fs, &needs.holes);
        needs.extents = holes.map(|(first, last)| u64::from(last - first) + 1).sum();
        Ok(needs)
    }

    fn add_hole(&mut self, offset: u64, len: u64) {
        match self.holes.runs.last_mut() {
            Some((last, bytes)) if *last + *bytes == offset => *bytes += len,
            _ => self.holes.runs.push((offset, len)),
        }
    }
}
