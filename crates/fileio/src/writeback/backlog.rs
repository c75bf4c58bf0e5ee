//! The backlog of a stream: how much of it may be dirty or in flight while other streams are written too.
//!
//! Writers fill memory faster than the device takes it, so a backlog grows up to the limit of dirty memory.
//! A single stream may have all of it. Of several, the one that runs most takes most, and all of them fill
//! memory that has long left the CPU's caches. So while several long streams are written at once, each
//! is held: its writer waits while the bytes one backlog behind its end are not on the device.
//!
//! Invariants:
//! - A wait is bounded, holds no lock of a file, and waits only for bytes that the flusher was told of. The
//!   device has work meanwhile.
//! - Nothing is held on a device that would need long for the backlog: there, memory is for absorbing
//!   bursts, and the throttle's limits apply.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::cache::Accepted;

/// Minimum length of a run to be a long stream, in bytes.
pub(crate) const LONG_BYTES: u64 = 8 << 20;

/// A stream is looked at each time it passes a multiple of this.
const STEP_BYTES: u64 = 1 << 20;

/// Minimum backlog of a stream, in bytes.
const MIN_BYTES: u64 = 4 << 20;

/// Backlog of all streams together, in bytes, or half of the limit of dirty memory if that is less.
const ALL_BYTES: u64 = 64 << 20;

/// The device must write the backlog of all streams in this time.
const WRITTEN_IN: Duration = Duration::from_millis(100);

/// A writer begins no wait after this time. One wait lasts at most 100 ms: together no longer than a pause of
/// the throttle.
pub(super) const LONGEST: Duration = Duration::from_millis(100);

/// Counts the writers of long streams.
#[derive(Default)]
pub(super) struct Backlog {
    /// Calls in progress. A writer that copies all the time is nearly always in a call; one that writes file
    /// after file is in one call at a time.
    in_call: CachePadded<AtomicUsize>,
}

/// A call that writes to a long stream or is held for it, until dropped.
#[must_use = "the call has ended when this is dropped"]
pub(crate) struct InCall<'a>(&'a Backlog);

impl Drop for InCall<'_> {
    fn drop(&mut self) {
        self.0.in_call.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Backlog {
    /// Begins a call.
    pub(super) fn enter(&self) -> InCall<'_> {
        self.in_call.fetch_add(1, Ordering::Relaxed);
        InCall(self)
    }

    /// The backlog of each stream in bytes; `None` if none is held. This call has been entered.
    pub(super) fn each_bytes(&self, limit_bytes: u64, bandwidth_bytes_per_s: u64) -> Option<u64> {
        let count = self.in_call.load(Ordering::Relaxed) as u64;
        let all = ALL_BYTES.min(limit_bytes / 2);
        let written = bandwidth_bytes_per_s as f64 * WRITTEN_IN.as_secs_f64();
        (count > 1 && written >= all as f64).then(|| (all / count).max(MIN_BYTES))
    }
}

/// Whether the stream that a call continues is looked at after it.
pub(super) fn is_looked_at(accepted: &Accepted) -> bool {
    let (start, end) = accepted.run;
    let before = end.saturating_sub(accepted.bytes as u64);
    end.saturating_sub(start) >= LONG_BYTES && before / STEP_BYTES < end / STEP_BYTES
}

/// The last step of the stream that must be on the device if its backlog is `each_bytes`.
pub(super) fn due(accepted: &Accepted, each_bytes: u64) -> Option<Range<u64>> {
    let (start, end) = accepted.run;
    let behind = end.saturating_sub(each_bytes);
    let due = behind.saturating_sub(STEP_BYTES).max(start)..behind;
    (!due.is_empty()).then_some(due)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const FAST: u64 = 2 << 30;

    #[test]
    fn calls_at_the_same_time_share_the_backlog() {
        let backlog = Backlog::default();
        let first = backlog.enter();
        assert_eq!(backlog.each_bytes(1 << 30, FAST), None, "alone");
        drop(backlog.enter());
        assert_eq!(
            backlog.each_bytes(1 << 30, FAST),
            None,
            "one file after another"
        );
        let second = backlog.enter();
        assert_eq!(backlog.each_bytes(1 << 30, FAST), Some(32 * MIB));
        let more: Vec<_> = (2..8).map(|_| backlog.enter()).collect();
        assert_eq!(backlog.each_bytes(1 << 30, FAST), Some(8 * MIB));
        drop((more, second, first));
        assert_eq!(backlog.each_bytes(1 << 30, FAST), None);
    }

    #[test]
    fn the_backlog_follows_the_limit_and_the_device() {
        let backlog = Backlog::default();
        let _calls = (backlog.enter(), backlog.enter());
        assert_eq!(backlog.each_bytes(64 * MIB, FAST), Some(16 * MIB));
        assert_eq!(backlog.each_bytes(256 << 10, FAST), Some(MIN_BYTES));
        assert_eq!(backlog.each_bytes(1 << 40, FAST), Some(32 * MIB));
        assert_eq!(
            backlog.each_bytes(1 << 30, 100_000_000),
            None,
            "a slow device"
        );
        assert_eq!(backlog.each_bytes(16 * MIB, 100_000_000), Some(4 * MIB));
    }

    #[test]
    fn a_stream_waits_for_the_step_behind_its_backlog() {
        let call = |start, end, bytes: u64| Accepted {
            bytes: bytes as usize,
            dirtied_bytes: bytes,
            run: (start, end),
        };
        assert!(is_looked_at(&call(0, 8 * MIB, MIB)));
        assert!(is_looked_at(&call(0, 9 * MIB + 1, 4096)));
        assert!(!is_looked_at(&call(0, 9 * MIB + 4097, 4096)), "no step");
        assert!(!is_looked_at(&call(0, 7 * MIB, MIB)), "not long");
        let due = |start, end| due(&call(start, end, MIB), 8 * MIB);
        assert_eq!(due(0, 32 * MIB), Some(23 * MIB..24 * MIB));
        assert_eq!(due(23 * MIB + 7, 32 * MIB), Some(23 * MIB + 7..24 * MIB));
        assert_eq!(due(24 * MIB, 32 * MIB), None);
        assert_eq!(due(0, 3 * MIB), None);
    }
}
