//! The time from a read or write of an image to its first I/O on the device, for `cp --stats`.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use throughline::{Event, Listener};

thread_local! {
    /// Start of this thread's current call on an image. Cleared when the call's first I/O is submitted.
    static CALL_BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Observes the I/O of a volume.
#[derive(Debug, Default)]
pub(super) struct FirstSubmits {
    nanos: AtomicU64,
    calls: AtomicU64,
}

impl FirstSubmits {
    /// The mean over all calls that submitted I/O.
    pub(super) fn mean(&self) -> Option<Duration> {
        let nanos = self.nanos.load(Ordering::Relaxed);
        nanos
            .checked_div(self.calls.load(Ordering::Relaxed))
            .map(Duration::from_nanos)
    }
}

impl Listener for FirstSubmits {
    fn event(&self, event: &Event) {
        let began = match event {
            Event::CallBegins => {
                CALL_BEGAN.set(Some(Instant::now()));
                return;
            }
            Event::CallEnds { .. } => {
                CALL_BEGAN.set(None);
                return;
            }
            Event::Submit { submitted_at, .. } => CALL_BEGAN.take().zip(Some(*submitted_at)),
            _ => None,
        };
        if let Some((began, submitted_at)) = began {
            let took = submitted_at.saturating_duration_since(began).as_nanos();
            self.nanos
                .fetch_add(u64::try_from(took).unwrap_or(u64::MAX), Ordering::Relaxed);
            self.calls.fetch_add(1, Ordering::Relaxed);
        }
    }
}
