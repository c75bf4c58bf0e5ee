//! [`Account`]: what the I/O path did, in one form for our engine and for the kernel's tracepoints, so that
//! the two can be shown side by side.
//!
//! Invariant: a figure that a source does not provide is empty, `None` or 0, and a note says so; no figure is
//! estimated.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What happened on the I/O path of one device, from the start of a command to its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Account {
    /// What was traced, such as `disk.img` or `loop0`: the column's heading.
    pub series: String,
    /// The command's duration in microseconds.
    pub wall_us: f64,
    /// What programs requested: calls of `read`, `write` and `sync`.
    pub asked: BTreeMap<String, Counted>,
    /// The part of these calls that reached the file system as direct I/O.
    pub direct: Counted,
    /// Bios by operation (`read`, `write`, `flush`, `discard`, `zero`) and content (`data`, `metadata`,
    /// `journal`), such as `write data`.
    pub bios: BTreeMap<String, Counted>,
    /// Sizes of read and write bios.
    pub bio_sizes: BTreeMap<String, Sizes>,
    /// Bios by submitter: `the command`, or the name of a thread that submitted for others.
    pub submitted_by: BTreeMap<String, u64>,
    /// Bios closed or split before the builder was done, by reason.
    pub splits: BTreeMap<String, u64>,
    /// Bios merged into another I/O, by kind of merge.
    pub merges: BTreeMap<String, u64>,
    /// Requests submitted to the device, if the source distinguishes them from bios.
    pub requests: BTreeMap<String, Counted>,
    /// Sizes of read and write requests.
    pub request_sizes: BTreeMap<String, Sizes>,
    /// Requests returned by the driver for another attempt.
    pub requeued: u64,
    /// Microseconds from the start of the command to its first bio.
    pub first_bio_us: Option<f64>,
    /// Time from the start of a call to its first bio, for calls that caused one.
    pub first_submit: Times,
    /// Time from opening a bio to submitting it to the device's queue.
    pub waiting: Times,
    /// Time from the submission of an I/O to its completion, by operation.
    pub latency: BTreeMap<String, Times>,
    /// I/Os that failed.
    pub failed: u64,
    /// I/Os in flight on the device.
    pub depth: Depth,
    /// Pauses of writers by the dirty throttle.
    pub pauses: Times,
    /// Waits of writers at the hard dirty limit.
    pub waits: Times,
    /// Page cache counts; `None` if unknown.
    pub cache: Option<Cache>,
    /// Write-back pieces: for our flusher, a run of adjacent dirty blocks; for the kernel, a chunk of one
    /// file.
    pub writeback: Counted,
    /// Sizes of those pieces.
    pub writeback_sizes: Sizes,
    /// Durations of journal commits.
    pub commits: Times,
    /// Lost events: if not 0, all counts above are too low.
    pub lost_events: u64,
    /// Notes that the reader needs to interpret the figures.
    pub notes: Vec<String>,
}

/// A number of events, and their bytes in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// The number of events.
    pub count: u64,
    /// Their bytes in total.
    pub bytes: u64,
}

impl Counted {
    pub(super) fn new(count: u64, bytes: u64) -> Counted {
        Counted { count, bytes }
    }

    /// Adds one event.
    pub(super) fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Sizes in bytes with the count of each, ascending.
pub type Sizes = Vec<(u64, u64)>;

/// Durations in microseconds; percentiles have three significant digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// The number of durations.
    pub count: u64,
    /// Their total.
    pub total_us: f64,
    /// Their median.
    pub p50_us: f64,
    /// Their 90th percentile.
    pub p90_us: f64,
    /// Their 99th percentile.
    pub p99_us: f64,
    /// The longest one.
    pub max_us: f64,
}

/// The number of I/Os in flight on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Depth {
    /// The maximum of I/Os in flight.
    pub most: u64,
    /// The mean while any was in flight.
    pub mean_busy: f64,
    /// The share of the command's duration with any I/O in flight, 0 to 1.
    pub busy: f64,
}

/// Reads through the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// Read calls that were fully cached.
    pub hits: u64,
    /// Bytes found in the cache.
    pub hit_bytes: u64,
    /// Read calls that had to load something.
    pub misses: u64,
    /// Bytes that readers loaded themselves.
    pub miss_bytes: u64,
}
