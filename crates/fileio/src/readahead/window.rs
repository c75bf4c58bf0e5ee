//! Windows: what to read ahead of a reader, from nothing but what its reads miss and the marks they meet. Pure state, no I/O.
//!
//! ```text
//!        read by the reader itself     sent for            sent for when the mark is met
//!   miss ├──────────────────────┤▼─────────────────────┤▼───────────────────────────────┤
//!        ╰───────── first window: mark ────────────────╯╰── next window: mark, ×4, ×2 … max
//! ```
//!
//! A window begins where a stream is recognised: at the start of the file, or where an earlier miss ended. Any other miss is random:
//! exactly what was asked is read, and nothing changes but the short list of where misses ended. So streams that
//! take turns on one handle are told apart by where each goes on, and a reader that goes backwards never goes on anywhere.
//!
//! Invariants:
//! - Nothing changes on a hit: all state here is behind a lock that hits never take.
//! - A plan lies in whole blocks, and ends at the file's end at the latest.
//! - A window is never larger than [`Rules::max_bytes`], however large the read is; the read itself is not cut.
//! - A plan that could not be carried out is taken back with [`Windows::reached`]: the stream goes on from where it is.

use std::ops::Range;

/// Streams that are told apart on one handle.
const STREAMS: usize = 16;
/// Ends of random misses that are remembered.
const RECENT: usize = 16;

/// What windows go by at the moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The cache's block in bytes; not 0.
    pub(crate) block_bytes: u64,
    /// The largest window in bytes; less than a block: nothing is read ahead.
    pub(crate) max_bytes: u64,
    /// So much of a window the reader reads itself, in bytes: it costs little more than the read it has to do anyway.
    pub(crate) own_bytes: u64,
    /// The file's size in bytes.
    pub(crate) size_bytes: u64,
}

/// What a miss leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// What the reader reads itself, now. Holds at least the first block of what it missed.
    pub(crate) own: Range<u64>,
    /// What is sent for, from the end of `own` on, the mark at its start; may be empty.
    pub(crate) ahead: Range<u64>,
}

/// One stream's window.
#[derive(Clone, Copy, Debug)]
struct Window {
    start: u64,
    end: u64,
    /// What the next one's size follows from: the window's size before it was cut at a boundary.
    size_bytes: u64,
}

/// The streams of one handle.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    /// The one touched last comes first.
    streams: Vec<Window>,
    /// Where random misses ended, the last first.
    recent: Vec<u64>,
}

impl Rules {
    /// The largest window in whole blocks.
    fn max(&self) -> u64 {
        self.max_bytes - self.max_bytes % self.block_bytes
    }

    fn down(&self, at: u64) -> u64 {
        at - at % self.block_bytes
    }

    fn up(&self, at: u64) -> u64 {
        at.checked_next_multiple_of(self.block_bytes)
            .unwrap_or_else(|| self.down(u64::MAX))
    }

    /// What a read that missed at `at` needs from there on, in whole blocks: one at least, none behind the file's last.
    pub(crate) fn exact(&self, read: &Range<u64>, at: u64) -> Range<u64> {
        let first = self.down(at);
        let end = self.up(read.end.min(self.size_bytes));
        first..end.max(first + self.block_bytes)
    }

    /// The first window for a request of `asked` bytes.
    fn first_size(&self, asked: u64) -> u64 {
        let max = self.max();
        let Some(size) = asked.checked_next_power_of_two().filter(|size| *size < max) else {
            return max;
        };
        let times = match size {
            size if size <= max / 32 => 4,
            size if size <= max / 4 => 2,
            _ => 1,
        };
        self.up(size * times).min(max)
    }

    /// The window after one of `size`.
    fn next_size(&self, size: u64) -> u64 {
        let max = self.max();
        match self.up(size.max(1)) {
            size if size < max / 16 => size * 4,
            size if size <= max / 2 => size * 2,
            _ => max,
        }
    }

    /// Where a window from `start` on ends: on a multiple of its size where half of it is left then, else of half its size.
    /// So windows become naturally aligned as they grow, and folios with them.
    fn window_end(&self, start: u64, size: u64) -> u64 {
        let end_of_file = self.up(self.size_bytes);
        let end = start.saturating_add(size);
        if end >= end_of_file {
            return end_of_file;
        }
        let unit = (1 << size.max(1).ilog2()).max(self.block_bytes);
        let whole = end - end % unit;
        let half = end - end % (unit / 2).max(self.block_bytes);
        match whole.saturating_sub(start) >= size / 2 {
            true => whole,
            false if half > start => half,
            false => end,
        }
    }
}

impl Windows {
    /// A read of `read` missed at byte `at` of it. What the reader should read itself, and what should be sent for.
    pub(crate) fn missed(&mut self, read: Range<u64>, at: u64, rules: &Rules) -> Plan {
        let Range { start: first, end } = rules.exact(&read, at);
        let asked = end - first;
        let exact = Plan {
            own: first..end,
            ahead: end..end,
        };
        if rules.max() == 0 {
            return exact;
        }
        let size = match self.streams.iter().position(|window| window.end == first) {
            Some(index) => {
                let next = rules.next_size(self.streams.remove(index).size_bytes);
                next.max(rules.first_size(asked))
            }
            None if first == 0 || self.forget_recent(first) => {
                self.streams.retain(|w| !(w.start..w.end).contains(&first));
                rules.first_size(asked)
            }
            None => {
                self.recent.truncate(RECENT - 1);
                self.recent.insert(0, end);
                return exact;
            }
        };
        // A request that takes up most of the window leaves the device nothing to do while it is copied out.
        let least = if asked >= size / 2 {
            end.saturating_add(size / 2)
        } else {
            end
        };
        let window_end = rules.window_end(first, size);
        let window_end = match window_end < least {
            true => rules.window_end(end, size).max(end),
            false => window_end,
        };
        let own_end = end.max(window_end.min(rules.down(first + rules.own_bytes)));
        self.put(Window {
            start: first,
            end: window_end,
            size_bytes: size,
        });
        Plan {
            own: first..own_end,
            ahead: own_end..window_end,
        }
    }

    /// A read met the mark of the folio at `at`: the window to be sent for, the mark at its start; empty at the end of the file.
    pub(crate) fn marked(&mut self, at: u64, rules: &Rules) -> Range<u64> {
        let at = rules.down(at);
        if rules.max() == 0 {
            return at..at;
        }
        let within = |window: &Window| (window.start..window.end).contains(&at);
        let (start, size) = match self.streams.iter().position(within) {
            Some(index) => {
                let window = self.streams.remove(index);
                (window.end, rules.next_size(window.size_bytes))
            }
            // Another handle's window, or one of a stream long ago. Somebody streams here; what is already there is skipped.
            None => (at, rules.up(rules.max() / 4)),
        };
        let end = rules.window_end(start, size).max(start);
        self.put(Window {
            start,
            end,
            size_bytes: size,
        });
        start..end
    }

    /// The plan made last could be carried out up to `end` only: for want of memory, or of readers.
    pub(crate) fn reached(&mut self, end: u64) {
        if let Some(window) = self.streams.first_mut().filter(|window| end < window.end) {
            window.end = end.max(window.start);
            window.size_bytes = window.size_bytes.min(window.end - window.start);
        }
    }

    /// Forgets all streams.
    pub(crate) fn clear(&mut self) {
        self.streams.clear();
        self.recent.clear();
    }

    fn put(&mut self, window: Window) {
        self.streams.truncate(STREAMS - 1);
        self.streams.insert(0, window);
    }

    /// Whether a random miss ended at `first`; it is then no random one, and is taken off the list.
    fn forget_recent(&mut self, first: u64) -> bool {
        let found = self.recent.iter().position(|end| *end == first);
        found.map(|index| self.recent.remove(index)).is_some()
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
