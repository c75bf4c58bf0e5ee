//! The table from (space, span number) to span, for concurrent lookups.
//!
//! A lookup writes nothing that other threads read: no reference count, no lock. `benches/cache.rs` measures
//! its cost.

use std::sync::Arc;

use foldhash::fast::FixedState;

use crate::cache::space::Core;
use crate::cache::span::Span;

type Key = (u64, u64);

/// See the module documentation.
pub(crate) struct Table {
    spans: papaya::HashMap<Key, Arc<Span>, FixedState>,
}

impl Table {
    pub(crate) fn new() -> Table {
        Table {
            spans: papaya::HashMap::with_hasher(FixedState::default()),
        }
    }

    /// Calls `f` with the span, if it exists.
    pub(crate) fn look<R>(&self, space: u64, number: u64, f: impl FnOnce(&Span) -> R) -> Option<R> {
        let spans = self.spans.pin();
        spans.get(&(space, number)).map(|span| f(span))
    }

    pub(crate) fn get(&self, space: u64, number: u64) -> Option<Arc<Span>> {
        self.spans.pin().get(&(space, number)).map(Arc::clone)
    }

    /// The span, created if needed. It may be gone by the time it is locked; the caller then calls again.
    pub(crate) fn get_or_insert(&self, space: &Arc<Core>, number: u64) -> Arc<Span> {
        let spans = self.spans.pin();
        let new = || Arc::new(Span::new(Arc::clone(space), number));
        Arc::clone(spans.get_or_insert_with((space.id, number), new))
    }

    /// Removes the span. Called with its state locked and known to be in the table.
    pub(crate) fn remove(&self, space: u64, number: u64) {
        self.spans.pin().remove(&(space, number));
    }
}
