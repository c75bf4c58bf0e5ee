//! Space reserved for one file, and lent to claims: only counters, no mapping.

use std::collections::BTreeSet;

use throughline_extfmt::{FileBlock, FsBlock};
use throughline_locks::{Mutex, Rank};

use super::clusters::Clusters;
use crate::map::kind::TableName;
use crate::quota::limit::Hold;

/// See [`crate::delayed`].
pub(crate) struct Delayed {
    pub(super) state: Mutex<State>,
    /// With `bigalloc`.
    pub(crate) clusters: Mutex<Clusters>,
}

impl Default for Delayed {
    fn default() -> Self {
        Self {
            state: Mutex::ranked(Rank::Delayed, State::default()),
            clusters: Mutex::ranked(Rank::DelayedClusters, Clusters::default()),
        }
    }
}

#[derive(Default)]
pub(super) struct State {
    /// Reserved data blocks.
    pub(super) units: u64,
    /// Data blocks that were reserved and are now claimed.
    pub(super) claimed: u64,
    /// Reserved mapping blocks.
    pub(super) nodes: u64,
    /// Mapping blocks that were reserved and are now claimed.
    pub(super) lent: u64,
    /// Mapping blocks that claims may need beyond what they were lent. They take them from `nodes` when they
    /// are entered, so later claims leave that many there.
    pub(super) short: u64,
    /// With `bigalloc`: extents that `units` and `claimed` may need. An estimate: a cluster's blocks that are
    /// dirtied together become one extent.
    pub(super) extents: u64,
    /// Unwritten blocks to be converted.
    pub(super) converts: u64,
    /// Space was reserved again for blocks being written back: `units` may count blocks that are mapped by
    /// now.
    pub(super) twice: bool,
    /// Tables that an indirect map will need.
    pub(super) missing: BTreeSet<TableName>,
    /// The quota held for reserved and claimed data blocks, if limits are enforced; with `bigalloc`, for the
    /// clusters that the file does not have yet.
    pub(super) held: Option<Held>,
    /// Where the last claim ended, in the file and on the volume, so that the next one can follow it.
    pub(super) last: Option<(u64, FsBlock)>,
}

/// Held quota.
pub(super) struct Held {
    pub(super) hold: Hold,
    /// Of a block, or of a cluster.
    pub(super) unit_bytes: u64,
    /// Whether clusters are counted.
    pub(super) by_clusters: bool,
}

/// Reserved space that is lent to one claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lent {
    /// Data blocks.
    pub(crate) units: u32,
    /// Table blocks.
    pub(crate) tables: u32,
    /// Further tables that may be needed. They stay reserved for the first claim to be entered.
    pub(crate) short: u32,
}

/// What write-back will add to a file's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    /// Data blocks.
    pub(crate) units: u64,
    /// `units` is exact: write-back will add that many data blocks and no mapping blocks.
    pub(crate) is_exact: bool,
}

impl Pending {
    pub(crate) const NOTHING: Self = Self {
        units: 0,
        is_exact: true,
    };
}

impl Delayed {
    /// Lends space to one claim: up to `units` data blocks and `tables` table blocks, as far as they are
    /// reserved. Claims of a file are entered in the order in which they were made.
    pub(crate) fn lend(&self, units: u32, tables: u32) -> Lent {
        let mut state = self.state.lock();
        let units = u64::from(units).min(state.units);
        let wanted = if units == 0 { 0 } else { u64::from(tables) };
        let tables = wanted.min(state.nodes.saturating_sub(state.short));
        let short = wanted - tables;
        state.short += short;
        state.units -= units;
        state.claimed += units;
        state.nodes -= tables;
        state.lent += tables;
        Lent {
            units: units as u32,
            tables: tables as u32,
            short: short as u32,
        }
    }

    /// Takes lent space back: it is reserved again.
    pub(crate) fn take_back(&self, lent: Lent) {
        let mut state = self.state.lock();
        let (units, tables) = (u64::from(lent.units), u64::from(lent.tables));
        state.claimed = state.claimed.saturating_sub(units);
        state.units += units;
        state.lent = state.lent.saturating_sub(tables);
        state.nodes += tables;
        state.short = state.short.saturating_sub(lent.short.into());
        state.settle_hold(&self.clusters);
    }

    /// Ends a loan: the file owns the blocks.
    pub(crate) fn entered(&self, lent: Lent) {
        let mut state = self.state.lock();
        let before = state.units + state.claimed;
        state.claimed = state.claimed.saturating_sub(lent.units.into());
        state.scale_extents(before);
        state.lent = state.lent.saturating_sub(lent.tables.into());
        state.short = state.short.saturating_sub(lent.short.into());
        state.settle_hold(&self.clusters);
    }

    /// Records that `blocks` unwritten blocks were converted.
    pub(crate) fn converted(&self, blocks: u64) {
        let mut state = self.state.lock();
        state.converts = state.converts.saturating_sub(blocks);
    }

    /// Takes the space for one node, if any is left.
    pub(crate) fn use_node(&self) -> bool {
        let mut state = self.state.lock();
        let there = state.nodes > 0;
        state.nodes -= u64::from(there);
        there
    }

    /// Returns the space of a node that was not used.
    pub(crate) fn keep_node(&self) {
        self.state.lock().nodes += 1;
    }

    /// What write-back will add to the file's blocks.
    pub(crate) fn pending(&self, ratio_log: u32) -> Pending {
        let state = self.state.lock();
        let is_exact = !state.twice && state.nodes + state.lent == 0;
        if ratio_log == 0 {
            return Pending {
                units: state.units + state.claimed,
                is_exact,
            };
        }
        let clusters = self.clusters.lock().pending();
        Pending {
            units: clusters << ratio_log,
            // More may be reserved than is needed.
            is_exact: is_exact && clusters == 0,
        }
    }

    /// Whether write-back will leave the mapping unchanged.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.lock().is_idle()
    }

    /// The best place for `first`, if it directly follows the last claim in the file.
    pub(crate) fn goal(&self, first: FileBlock) -> Option<FsBlock> {
        let last = self.state.lock().last;
        last.filter(|(block, _)| *block == u64::from(first.0))
            .map(|(_, goal)| goal)
    }

    /// Records where a claim ended.
    pub(crate) fn ended(&self, block: u64, goal: FsBlock) {
        self.state.lock().last = Some((block, goal));
    }
}

impl State {
    /// Holds no more and no less than what is reserved or claimed for data.
    pub(super) fn settle_hold(&mut self, clusters: &Mutex<Clusters>) {
        let Some(held) = &mut self.held else {
            return;
        };
        let count = match held.by_clusters {
            true => clusters.lock().pending(),
            false => self.units + self.claimed,
        };
        let bytes = count.saturating_mul(held.unit_bytes);
        if bytes == 0 {
            self.held = None;
        } else if bytes != held.hold.bytes() {
            held.hold.set_bytes(bytes);
        }
    }

    /// Reduces the number of extents in proportion to the data blocks, of which there were `before`.
    pub(super) fn scale_extents(&mut self, before: u64) {
        let left = self.units + self.claimed;
        if self.extents > 0 && left < before {
            self.extents = self.extents.saturating_mul(left).div_ceil(before);
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.units + self.claimed + self.converts == 0
    }
}
