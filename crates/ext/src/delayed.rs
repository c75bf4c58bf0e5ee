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
//!   and `nodes` over all inodes.
//! - `nodes` and `lent` together cover the mapping blocks needed for all units not entered yet, wherever
//!   and in whatever order they are allocated. They may exceed that number only until the next
//!   [`Delayed::adjust_reservation`].
//! - The mapping of a file with reserved space changes only by write-back. Any other change (a direct
//!   write, `fallocate`) writes the file back first, or calls [`Delayed::renew`] afterwards.
//!
//! What the mapping of new blocks needs: in an indirect map, exactly the missing tables, which are tracked
//! individually; in an extent tree, the nodes for one extent per block at most. Unwritten blocks already
//! have their space, but converting one may split its extent in three, which adds two.

pub(crate) mod state;
#[cfg(test)]
mod tests;

use throughline_extfmt::{FileBlock, InodeImage, InodeNumber};
use throughline_fileio::Holes;

use crate::error::{Reason, Result};
use crate::inode::Inode;
use crate::inode::Inodes;
use crate::map::{self, Format, Kind, TableName};
use crate::quota::charge;
use crate::quota::limit::with_limits;
use state::State;
pub(crate) use state::{Delayed, Lent, Pending};

/// What a range will need.
#[derive(Default)]
struct Needs {
    holes: Holes,
    units: u64,
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
        let image = fs.quotas.any_limited().then(|| inode.image());
        let mut state = self.state.lock();
        if let Some(image) = image {
            state.hold(fs, (inode.ino, &image), needs.units)?;
        }
        let before = (state.converts, state.units);
        // A block that was already dirty is counted twice; the limit keeps that from accumulating.
        state.converts = state.converts.min(dirty_blocks) + needs.converts;
        state.units += needs.units;
        let added: Vec<TableName> = needs
            .missing
            .into_iter()
            .filter(|table| state.missing.insert(*table))
            .collect();
        let nodes = state.lacking(fs, inode);
        let done = match needs.units + nodes {
            0 => Ok(()),
            blocks => fs.reserve(blocks, needs.units == 0),
        };
        match done {
            Ok(()) => {
                state.nodes += nodes;
                state.twice |= again && needs.units > 0;
            }
            Err(error) => {
                (state.converts, state.units) = before;
                added.iter().for_each(|table| {
                    state.missing.remove(table);
                });
                state.settle_hold();
                return Err(error);
            }
        }
        Ok(needs.holes)
    }

    /// Gives up the space for `units` data blocks, and for the mapping that they would have needed.
    pub(crate) fn unreserve(&self, fs: &Inodes, inode: &Inode, units: u64) {
        let mut state = self.state.lock();
        let units = units.min(state.units);
        state.units -= units;
        state.settle_hold();
        let blocks = units + state.surplus(fs, inode);
        if blocks > 0 {
            fs.unreserve(blocks);
        }
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
            fs.reserve_again(restored);
            state.settle_hold();
        }
        let surplus = state.surplus(fs, inode);
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
            let _any = with_limits(false);
            let (units, block) = (state.units + state.claimed, (inode.ino, &image));
            let _held = state.hold(fs, block, units);
        }
    }

    /// Called when nothing of the file is dirty or being written: no conversion is pending.
    pub(crate) fn all_clean(&self, fs: &Inodes, inode: &Inode) {
        let mut state = self.state.lock();
        state.converts = 0;
        let surplus = state.surplus(fs, inode);
        if surplus > 0 {
            fs.unreserve(surplus);
        }
    }
}

impl State {
    /// Holds quota for that many more data blocks, if limits are enforced.
    fn hold(&mut self, fs: &Inodes, inode: (InodeNumber, &InodeImage), units: u64) -> Result<()> {
        let bytes = units << fs.geo.block_log;
        match &mut self.held {
            Some((held, _)) => held.add(bytes, 0, fs.now().seconds.max(0).cast_unsigned()),
            None => {
                let hold = charge::hold_for(fs, inode, bytes, 0)?;
                self.held = hold.map(|hold| (hold, fs.geo.block_log));
                Ok(())
            }
        }
    }

    /// Blocks that the mapping may need.
    fn needed(&self, fs: &Inodes, inode: &Inode) -> u64 {
        let entries = (self.units + self.claimed).saturating_add(2 * self.converts);
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
            self.twice = false;
        }
        let over = (self.nodes + self.lent).saturating_sub(self.needed(fs, inode));
        let over = over.min(self.nodes);
        self.nodes -= over;
        over
    }
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
        Ok(needs)
    }

    fn add_hole(&mut self, offset: u64, len: u64) {
        match self.holes.runs.last_mut() {
            Some((last, bytes)) if *last + *bytes == offset => *bytes += len,
            _ => self.holes.runs.push((offset, len)),
        }
    }
}
