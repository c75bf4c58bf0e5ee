//! [`Account`]: what the I/O path did, in one form for our engine and for the kernel's tracepoints, so that the two can
//! stand side by side.
//!
//! Invariant: what a source cannot know is empty, `None` or 0, and a note says so; it is never guessed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What happened on the way of one device, from the start of a command to its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Account {
    /// Who was watched, such as `disk.img` or `loop0`: the head of its column.
    pub series: String,
    /// How long the command took, microseconds.
    pub wall_us: f64,
    /// What programs asked for: calls of `read`, `write` and `sync`.
    pub asked: BTreeMap<String, Counted>,
    /// The part of it that went to the file system as direct I/O.
    pub direct: Counted,
    /// Mappings from file to device that were looked up, with the bytes that they cover.
    pub mappings: Counted,
    /// Bios by what they are (`read`, `write`, `flush`, `discard`, `zero`) and whose bytes (`data`, `metadata`, `journal`),
    /// such as `write data`.
    pub bios: BTreeMap<String, Counted>,
    /// Sizes of reading and of writing bios.
    pub bio_sizes: BTreeMap<String, Sizes>,
    /// Bios by who gave them: `the command`, or the name of the thread that did it for others.
    pub submitted_by: BTreeMap<String, u64>,
    /// Times that a bio was closed, or cut, before its maker was done, by reason.
    pub splits: BTreeMap<String, u64>,
    /// Bios that became part of another I/O, by where.
    pub merges: BTreeMap<String, u64>,
    /// Requests given to the device, where they are something else than bios.
    pub requests: BTreeMap<String, Counted>,
    /// Sizes of reading and of writing requests.
    pub request_sizes: BTreeMap<String, Sizes>,
    /// Requests given back by the driver to be tried again.
    pub requeued: u64,
    /// Times that bios were held back to be merged.
    pub plugs: u64,
    /// Times that what was held back was let go.
    pub unplugs: u64,
    /// From the start of the command to its first bio, microseconds.
    pub first_bio_us: Option<f64>,
    /// From the begin of a call to its first bio, of the calls that came to one.
    pub first_submit: Times,
    /// From a bio's first byte to the device's queue.
    pub waiting: Times,
    /// From giving an I/O to the device to its completion, by operation.
    pub latency: BTreeMap<String, Times>,
    /// I/Os that failed.
    pub failed: u64,
    /// I/Os on the device at once.
    pub depth: Depth,
    /// Pauses of writers, by the throttle of dirty memory.
    pub pauses: Times,
    /// Waits of writers for room at the hard limit.
    pub waits: Times,
    /// What the page cache had; `None` where that is not known.
    pub cache: Option<Cache>,
    /// Write-back of dirty memory in pieces: of our flusher a run of adjacent blocks, of the kernel a chunk of one file.
    pub writeback: Counted,
    /// Sizes of those pieces.
    pub writeback_sizes: Sizes,
    /// Journal commits.
    pub commits: Times,
    /// Events that were lost: where it is not 0 every count above is too small.
    pub lost_events: u64,
    /// What a reader must know.
    pub notes: Vec<String>,
}

/// How many, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// How many.
    pub count: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl Counted {
    /// One more.
    pub(super) fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Sizes in bytes and how many had each, ascending.
pub type Sizes = Vec<(u64, u64)>;

/// How long things took, microseconds; percentiles to three digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// All of them together.
    pub total_us: f64,
    /// Half were no longer.
    pub p50_us: f64,
    /// Nine of ten were no longer.
    pub p90_us: f64,
    /// 99 of 100 were no longer.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// I/Os that the device had at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Depth {
    /// The most.
    pub most: u64,
    /// The mean while it had any.
    pub mean_busy: f64,
    /// The share of the command's time in which it had any, 0 to 1.
    pub busy: f64,
    /// Width of a slot of `over_time`, microseconds.
    pub slot_us: f64,
    /// The mean of each slot, from the start of the command on.
    pub over_time: Vec<f64>,
}

/// Reads through the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// Read calls that found everything.
    pub hits: u64,
    /// Bytes that readers found.
    pub hit_bytes: u64,
    /// Read calls that had something to bring.
    pub misses: u64,
    /// Bytes that readers had to bring themselves.
    pub miss_bytes: u64,
}

impl Account {
    /// Bios of every kind that carry bytes.
    pub fn bios_with_data(&self) -> Counted {
        let mut all = Counted::default();
        for bios in self.bios.values().filter(|bios| bios.bytes > 0) {
            all.count += bios.count;
            all.bytes += bios.bytes;
        }
        all
    }
}
