//! The runs of one file that are under write-back.

use std::collections::BTreeMap;
use std::ops::Range;

use throughline_locks::Mutex;

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Runs {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next_id: u64,
    under_way: BTreeMap<u64, Range<u64>>,
    failed: u64,
}

impl Runs {
    /// Begins write-back of a run; returns its id.
    pub(crate) fn begin(&self, range: Range<u64>) -> u64 {
        let mut state = self.state.lock();
        let id = state.next_id;
        state.next_id += 1;
        state.under_way.insert(id, range);
        id
    }

    /// Extends the run to `end`.
    pub(crate) fn extend(&self, id: u64, end: u64) {
        if let Some(run) = self.state.lock().under_way.get_mut(&id) {
            run.end = end;
        }
    }

    /// Ends the run. If it failed (not `ok`), its blocks must already be dirty again.
    pub(crate) fn end(&self, id: u64, ok: bool) {
        let mut state = self.state.lock();
        state.under_way.remove(&id);
        if state.under_way.is_empty() {
            // An empty map may keep a node allocated, and there is one map per open file.
            state.under_way = BTreeMap::new();
        }
        state.failed += u64::from(!ok);
    }

    /// Number of failed runs so far.
    pub(crate) fn failed(&self) -> u64 {
        self.state.lock().failed
    }

    /// Whether a run that overlaps `range` is under way.
    pub(crate) fn overlap(&self, range: &Range<u64>) -> bool {
        let state = self.state.lock();
        let mut runs = state.under_way.values();
        runs.any(|run| run.start < range.end && range.start < run.end)
    }
}
