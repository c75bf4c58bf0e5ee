//! Reports the events of one pipeline or stream to listeners. Without listeners it does nothing and reads no
//! clock.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use throughline_device::Done;

use crate::bio::Bio;
use crate::events::{BioInfo, Event, Listener};
use crate::limits::SplitReason;

/// The listeners of one pipeline, and its bios in flight.
#[derive(Default)]
pub(crate) struct Trace(Option<Box<Listening>>);

struct Listening {
    to: Arc<Vec<Arc<dyn Listener>>>,
    in_flight: HashMap<u64, Sent>,
}

struct Sent {
    /// The listeners that got its submit event, and so get its completion.
    to: Arc<Vec<Arc<dyn Listener>>>,
    bio: BioInfo,
    opened_at: Instant,
    submitted_at: Instant,
}

impl Listening {
    fn notify(&self, event: Event) {
        for listener in self.to.iter() {
            listener.event(&event);
        }
    }
}

impl Trace {
    pub(crate) fn new(to: Option<Arc<Vec<Arc<dyn Listener>>>>) -> Self {
        Self(to.map(|to| {
            Box::new(Listening {
                to,
                in_flight: HashMap::new(),
            })
        }))
    }

    /// Sets the listeners for bios opened from now on. Bios in flight complete to the listeners that got
    /// their submit event.
    pub(crate) fn set_listeners(&mut self, to: Option<Arc<Vec<Arc<dyn Listener>>>>) {
        match (&mut self.0, to) {
            (None, None) => {}
            (none @ None, to) => *none = Trace::new(to).0,
            (Some(listening), Some(to)) => listening.to = to,
            (Some(listening), None) if !listening.in_flight.is_empty() => {
                listening.to = Arc::default();
            }
            (some, None) => *some = None,
        }
    }

    /// Whether there are listeners, or bios in flight that were reported to some.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn now(&self) -> Option<Instant> {
        self.0.as_ref().map(|_| Instant::now())
    }

    pub(crate) fn submit(&mut self, tag: u64, bio: &Bio<'_>) {
        let Some(listening) = &mut self.0 else { return };
        let submitted_at = Instant::now();
        let opened_at = bio.opened_at.unwrap_or(submitted_at);
        let bio = bio.info();
        listening.in_flight.insert(
            tag,
            Sent {
                to: Arc::clone(&listening.to),
                bio,
                opened_at,
                submitted_at,
            },
        );
        listening.notify(Event::Submit {
            bio,
            opened_at,
            submitted_at,
        });
    }

    pub(crate) fn complete(&mut self, done: &Done) {
        let Some(listening) = &mut self.0 else { return };
        let Some(sent) = listening.in_flight.remove(&done.tag) else {
            return;
        };
        let event = Event::Complete {
            bio: sent.bio,
            queue_time: sent.submitted_at.saturating_duration_since(sent.opened_at),
            service_time: sent.submitted_at.elapsed().max(Duration::from_nanos(1)),
            ok: done.result.is_ok(),
        };
        for listener in sent.to.iter() {
            listener.event(&event);
        }
    }

    pub(crate) fn split(&self, offset_bytes: u64, reason: SplitReason) {
        if let Some(listening) = &self.0 {
            listening.notify(Event::Split {
                offset_bytes,
                reason,
            });
        }
    }

    pub(crate) fn merge(&self, merged: Option<&Bio<'_>>) {
        if let (Some(listening), Some(bio)) = (&self.0, merged) {
            listening.notify(Event::Merge { bio: bio.info() });
        }
    }
}
