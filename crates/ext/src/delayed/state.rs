//! The space reserved for one file and lent to claims: counters only, no mapping.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use throughline_extfmt::{FileBlock, FsBlock};

use crate::map::kind::TableName;

/// See the module.
#[derive(Default)]
pub(crate) struct Delayed {
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    /// Blocks of data put by.
    pub(super) units: u64,
    /// Blocks of data that were put by and are claimed now.
    pub(super) claimed: u64,
    /// Blocks of the mapping put by.
    pub(super) nodes: u64,
    /// Blocks of the mapping that were put by and are claimed now.
    pub(super) lent: u64,
    /// Blocks of the mapping that claims may need beyond what they were lent: they find them in `nodes` when they are
    /// entered, so later claims leave as many there.
    pub(super) short: u64,
    /// Unwritten blocks that are to be converted.
    pub(super) converts: u64,
    /// Blocks that are being written were put by again: `units` may count what the mapping has by now.
    pub(super) twice: bool,
    /// Tables that an indirect map will need.
    pub(super) missing: BTreeSet<TableName>,
    /// Where the last claim ended, in the file and on the volume: the next one goes behind it.
    pub(super) last: Option<(u64, FsBlock)>,
}

/// Blocks taken out of what is put by, for one claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lent {
    /// For data.
    pub(crate) units: u32,
    /// For tables.
    pub(crate) tables: u32,
    /// Tables beyond these that may be needed, and stay put by for whoever is entered first.
    pub(crate) short: u32,
}

/// What write-back will add to the blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ToCome {
    /// Blocks of data.
    pub(crate) units: u64,
    /// It will be just that: no block of the mapping besides, nor fewer.
    pub(crate) is_sure: bool,
}

impl ToCome {
    pub(crate) const NOTHING: Self = Self {
        units: 0,
        is_sure: true,
    };
}

impl Delayed {
    /// Takes room out for one claim: up to so many blocks of data and tables, as far as it was put by. Claims of a file are
    /// entered in the order in which they were made.
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

    /// What was lent is promised again.
    pub(crate) fn take_back(&self, lent: Lent) {
        let mut state = self.state.lock();
        let (units, tables) = (u64::from(lent.units), u64::from(lent.tables));
        state.claimed = state.claimed.saturating_sub(units);
        state.units += units;
        state.lent = state.lent.saturating_sub(tables);
        state.nodes += tables;
        state.short = state.short.saturating_sub(lent.short.into());
    }

    /// What was lent is the file's.
    pub(crate) fn entered(&self, lent: Lent) {
        let mut state = self.state.lock();
        state.claimed = state.claimed.saturating_sub(lent.units.into());
        state.lent = state.lent.saturating_sub(lent.tables.into());
        state.short = state.short.saturating_sub(lent.short.into());
    }

    /// So many unwritten blocks are converted.
    pub(crate) fn converted(&self, blocks: u64) {
        let mut state = self.state.lock();
        state.converts = state.converts.saturating_sub(blocks);
    }

    /// Takes the room for one node, if there is any.
    pub(crate) fn use_node(&self) -> bool {
        let mut state = self.state.lock();
        let there = state.nodes > 0;
        state.nodes -= u64::from(there);
        there
    }

    /// The room of a node that was not used after all.
    pub(crate) fn keep_node(&self) {
        self.state.lock().nodes += 1;
    }

    /// What write-back will add to the blocks of the file.
    pub(crate) fn to_come(&self) -> ToCome {
        let state = self.state.lock();
        ToCome {
            units: state.units + state.claimed,
            is_sure: !state.twice && state.nodes + state.lent == 0,
        }
    }

    /// Whether write-back will change the mapping.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.lock().is_idle()
    }

    /// Where the block behind the last claim is best, if `first` is behind it.
    pub(crate) fn goal(&self, first: FileBlock) -> Option<FsBlock> {
        let last = self.state.lock().last;
        last.filter(|(block, _)| *block == u64::from(first.0))
            .map(|(_, goal)| goal)
    }

    /// Remembers where a claim ended.
    pub(crate) fn ended(&self, block: u64, goal: FsBlock) {
        self.state.lock().last = Some((block, goal));
    }
}

impl State {
    pub(super) fn is_idle(&self) -> bool {
        self.units + self.claimed + self.converts == 0
    }
}
