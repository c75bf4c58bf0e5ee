//! The runs of one file that are under write-back, for those who wait for them.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::sync::{Condvar, Mutex};

/// See the module.
#[derive(Default)]
pub(crate) struct Runs {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    next_id: u64,
    under_way: BTreeMap<u64, Range<u64>>,
}

impl State {
    fn is_any(&self, before: u64, range: &Range<u64>) -> bool {
        self.under_way
            .range(..before)
            .any(|(_, run)| run.start < range.end && range.start < run.end)
    }
}

impl Runs {
    /// A run of write-back of `range` begins: its number.
    pub(crate) fn begin(&self, range: Range<u64>) -> u64 {
        let mut state = self.state.lock();
        let id = state.next_id;
        state.next_id += 1;
        state.under_way.insert(id, range);
        id
    }

    /// The run is taken further, to `end`.
    pub(crate) fn extend(&self, id: u64, end: u64) {
        if let Some(run) = self.state.lock().under_way.get_mut(&id) {
            run.end = end;
        }
    }

    pub(crate) fn end(&self, id: u64) {
        self.state.lock().under_way.remove(&id);
        self.ended.notify_all();
    }

    /// Whether a run that overlaps `range` is under way.
    pub(crate) fn overlap(&self, range: &Range<u64>) -> bool {
        self.state.lock().is_any(u64::MAX, range)
    }

    /// Waits for those that overlap `range` and have begun by now; not for those that begin meanwhile, so it ends.
    pub(crate) fn wait(&self, range: &Range<u64>) {
        let mut state = self.state.lock();
        let before = state.next_id;
        while state.is_any(before, range) {
            self.ended.wait(&mut state);
        }
    }
}
