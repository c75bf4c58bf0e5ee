//! Readahead windows, determined only by the misses of reads and the marks they meet. Pure state, no I/O.
//!
//! ```text
//!        read by the reader itself     queued              queued when the mark is met
//!   miss ├──────────────────────┤▼─────────────────────┤▼───────────────────────────────┤
//!        ╰───────── first window: mark ────────────────╯╰── next window: mark, ×4, ×2 … max
//! ```
//!
//! A window begins where a stream is recognized: at the start of the file, or where an earlier miss ended.
//! Any other miss is random: exactly the requested bytes are read, and only the list of recent miss ends
//! changes. So interleaved streams on one handle are told apart by where each continues, and a backward
//! reader is never taken for a stream.
//!
//! Invariants:
//! - Hits change nothing: the state is behind a lock that hits never take.
//! - A plan consists of whole blocks and ends at the end of the file at the latest.
//! - A window never exceeds [`Rules::max_bytes`], however large the read is; the read itself is not
//!   shortened.
//! - A plan that could not be carried out is corrected with [`Windows::reached`]: the stream continues from
//!   there.

use std::ops::Range;

/// Maximum number of streams per handle.
const STREAMS: usize = 16;
/// Number of random miss ends remembered.
const RECENT: usize = 16;

/// Parameters of the window sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The cache's block in bytes; not 0.
    pub(crate) block_bytes: u64,
    /// The largest window in bytes. Less than a block: no readahead.
    pub(crate) max_bytes: u64,
    /// The part of a window that the reader reads itself, in bytes: it costs little more than the read it
    /// must do anyway.
    pub(crate) own_bytes: u64,
    /// The file's size in bytes.
    pub(crate) size_bytes: u64,
}

/// The result of a miss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// To be read by the reader itself, now. Contains at least the first block it missed.
    pub(crate) own: Range<u64>,
    /// To be queued, from the end of `own` on, with the mark at its start; may be empty.
    pub(crate) ahead: Range<u64>,
}

/// One stream's window.
#[derive(Clone, Copy, Debug)]
struct Window {
    start: u64,
    end: u64,
    /// The window's size before it was aligned; determines the next one's size.
    size_bytes: u64,
}

/// The streams of one handle.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    /// Most recently used first.
    streams: Vec<Window>,
    /// Ends of random misses, latest first.
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

    /// What a read that missed at `at` still needs, in whole blocks: at least one, none past the file's last.
    pub(crate) fn exact(&self, read: &Range<u64>, at: u64) -> Range<u64> {
        let first = self.down(at);
        let end = self.up(read.end.min(self.size_bytes));
        first..end.max(first + self.block_bytes)
    }

    /// Size of the first window for a request of `asked` bytes.
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

    /// Size of the window after one of `size`.
    fn next_size(&self, size: u64) -> u64 {
        let max = self.max();
        match self.up(size.max(1)) {
            size if size < max / 16 => size * 4,
            size if size <= max / 2 => size * 2,
            _ => max,
        }
    }

    /// The end of a window at `start`: aligned down to a multiple of its size if at least half of it remains,
    /// else to half its size. So windows become naturally aligned as they grow, and folios with them.
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
    /// Handles a read of `read` that missed at byte `at`: returns what the reader reads itself and what to
    /// queue.
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
        // If the request covers most of the window, the device would idle while the data is copied out.
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

    /// Handles a read that met the mark of the folio at `at`: returns the window to queue; empty at the end
    /// of the file.
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
            // A window of another handle or of a forgotten stream. The access is sequential; cached blocks
            // are skipped.
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

    /// Records that the latest plan was carried out only up to `end`, for lack of memory or of threads.
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

    /// Whether a random miss ended at `first`; removes it from the list.
    fn forget_recent(&mut self, first: u64) -> bool {
        let found = self.recent.iter().position(|end| *end == first);
        found.map(|index| self.recent.remove(index)).is_some()
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
