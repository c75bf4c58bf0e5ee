//! The time from a read or write of an image to its first I/O on the device, for `cp --stats`.
//!
//! All threads that copy are counted. I/O of a thread that is in no call, such as the flusher's, is the first
//! of the call that has waited longest for one. A call that ends before any I/O, because the cache served it,
//! does not count.

use std::collections::HashMap;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use throughline::{Event, Listener};
use throughline_locks::Mutex;

/// Observes the I/O of one volume.
#[derive(Debug, Default)]
pub(super) struct FirstSubmits(Mutex<Calls>);

#[derive(Debug, Default)]
struct Calls {
    /// Calls under way, by their threads: when each began, until its first I/O.
    under_way: HashMap<ThreadId, Option<Instant>>,
    total: Duration,
    count: u32,
}

impl FirstSubmits {
    /// The mean over all calls of these volumes that did I/O.
    pub(super) fn mean<'a>(of: impl Iterator<Item = &'a FirstSubmits>) -> Option<Duration> {
        let (mut total, mut count) = (Duration::ZERO, 0);
        for calls in of {
            let calls = calls.0.lock();
            total += calls.total;
            count += calls.count;
        }
        total.checked_div(count)
    }
}

impl Calls {
    fn submitted(&mut self, at: Instant) {
        let waiting = match self.under_way.get_mut(&thread::current().id()) {
            Some(own) => Some(own),
            None => {
                let waiting = self.under_way.values_mut();
                waiting.filter(|began| began.is_some()).min()
            }
        };
        if let Some(began) = waiting.and_then(Option::take) {
            self.total += at.saturating_duration_since(began);
            self.count += 1;
        }
    }
}

impl Listener for FirstSubmits {
    fn event(&self, event: &Event) {
        let mut calls = self.0.lock();
        let own = thread::current().id();
        match event {
            Event::CallBegins => {
                calls.under_way.insert(own, Some(Instant::now()));
            }
            Event::CallEnds { .. } => {
                calls.under_way.remove(&own);
            }
            Event::Submit { submitted_at, .. } => calls.submitted(*submitted_at),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use throughline::{BioInfo, Op, Purpose};

    const END: Event = Event::CallEnds {
        op: Op::Write,
        bytes: 1,
    };

    fn submit(after: Duration) -> Event {
        // A second more: the event is made before the call begins.
        let submitted_at = Instant::now() + after + Duration::from_secs(1);
        Event::Submit {
            bio: BioInfo {
                op: Op::Write,
                offset_bytes: 0,
                len_bytes: 4096,
                segments: 1,
                purpose: Purpose::Data,
            },
            opened_at: submitted_at,
            submitted_at,
        }
    }

    /// How many calls were counted, and whether their mean is at least this many seconds.
    fn counted(seen: &FirstSubmits, seconds: u64) -> (u32, bool) {
        let mean = FirstSubmits::mean([seen].into_iter());
        let count = seen.0.lock().count;
        (count, mean.is_some_and(|mean| mean.as_secs() >= seconds))
    }

    #[test]
    fn each_call_counts_once_whichever_thread_submits() {
        let seen = FirstSubmits::default();
        let hour = Duration::from_secs(3600);
        let beside = |events: &[Event]| {
            thread::scope(|scope| {
                scope.spawn(|| events.iter().for_each(|event| seen.event(event)));
            });
        };
        seen.event(&Event::CallBegins);
        // Another call, with I/O of its own.
        beside(&[Event::CallBegins, submit(3 * hour), submit(hour), END]);
        assert_eq!(counted(&seen, 3 * 3600), (1, true));
        // A thread in no call submits for the call of this thread.
        beside(&[submit(hour), submit(hour)]);
        assert_eq!(counted(&seen, 2 * 3600), (2, true));
        seen.event(&submit(hour));
        seen.event(&END);
        // Served by the cache.
        seen.event(&Event::CallBegins);
        seen.event(&END);
        beside(&[submit(hour)]);
        assert_eq!(counted(&seen, 0), (2, true));
    }
}
