//! A user-defined workload: what to do ([`Workload`], read from a TOML file), the targets ([`TargetSpec`]),
//! and its run ([`run()`]), with all targets interleaved. [`fio`] runs the jobs of fio on the same targets.
//!
//! Invariants:
//! - Every [`Workload`] is valid, whatever the file contained: each number is in range, and each combination
//!   is possible.
//! - All targets of a run perform the same operations in the same order of rounds, from the same memory.
//! - Data that existed before is overwritten only if requested ([`Plan::overwrite`]). Everything that was
//!   created is removed.

pub(crate) mod durations;
mod file;
pub mod fio;
mod run;
mod spec;
mod targets;
mod work;

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Deserialize;

pub use crate::mounts::System;
pub use file::EXAMPLE;
pub use run::{Plan, run};
pub use spec::{MadeSpec, TargetKind, TargetSpec};

/// The name of a workload whose file gives none.
pub const UNNAMED: &str = "workload";
/// Maximum of threads times queue depth: each worker is a system thread.
pub const MAX_WORKERS: u32 = 1024;
/// The length of one operation, in bytes.
pub const BLOCK_BYTES: RangeInclusive<u64> = 1..=(256 << 20);
/// Maximum total size of all workers' buffers.
pub const MAX_BUFFERS_BYTES: u64 = 2 << 30;
/// Maximum end of the range: offset plus size.
pub const MAX_END_BYTES: u64 = 1 << 60;
/// Maximum number of rounds, and of warm-up rounds.
pub const MAX_ROUNDS: u32 = 100_000;

/// Whether operations read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// All operations read.
    Read,
    /// All operations write.
    Write,
    /// Each operation reads with this probability in percent (0 to 100), and otherwise writes.
    Mixed(u8),
}

impl Direction {
    /// Whether it may write.
    pub fn writes(self) -> bool {
        self != Direction::Read
    }
}

/// When written data is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum SyncPolicy {
    /// Not within the measured time.
    Never,
    /// One fsync per thread after its last write, included in the measured time.
    End,
    /// An fsync after this many writes of a thread, at least 1.
    Every(u64),
    /// Every write is durable when it returns (`O_DSYNC`).
    Dsync,
}

/// The state of the file when a round starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Fully written once before the first round, so that all blocks are allocated.
    Written,
    /// Empty, so that every round allocates. Targets of fixed length, such as devices, keep their data.
    Empty,
}

/// What is done in each round.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Its name, for the result and for file names: letters, digits, `-`, `_`, `.`.
    pub name: String,
    /// Whether operations read or write.
    pub direction: Direction,
    /// Whether offsets are random (each block equally likely, repeats included) instead of ascending.
    pub random: bool,
    /// Bytes per operation.
    pub block_bytes: u64,
    /// Number of bytes that all threads together work on. One pass moves this many.
    pub size_bytes: u64,
    /// Where the range starts in the file or device.
    pub offset_bytes: u64,
    /// The number of threads. In sequential workloads each has an equal part of the file; in random ones, the
    /// whole file.
    pub threads: u32,
    /// Number of concurrent operations per thread. Each is a further thread with one call in flight.
    pub queue_depth: u32,
    /// Whether each thread has its own file, as long as its part.
    pub file_per_thread: bool,
    /// Whether to bypass the caches.
    pub direct: bool,
    /// When written data is made durable.
    pub sync: SyncPolicy,
    /// The state of the file when a round starts.
    pub layout: Layout,
    /// The maximum time of a round.
    pub runtime: Option<Duration>,
    /// Whether a round repeats its pass until [`Workload::runtime`] is over.
    pub time_based: bool,
    /// Whether cached data of the file is dropped before each round.
    pub cold: bool,
    /// Seed for the offsets, the read/write mix and the data written.
    pub seed: u64,
    /// Number of rounds that are not counted.
    pub warm_up: u32,
    /// Number of counted rounds.
    pub rounds: u32,
    /// The targets; the others are compared with the first.
    pub targets: Vec<TargetSpec>,
}

impl Workload {
    /// Parses the text of a workload file.
    ///
    /// # Errors
    /// Names the line, the key and what is allowed.
    pub fn parse(text: &str) -> crate::Result<Workload> {
        file::parse(text)
    }

    /// Renames the workload; characters not allowed in a name are replaced.
    pub fn rename(&mut self, name: &str) {
        self.name = file::plain_name(name);
    }

    /// Number of system threads that work concurrently.
    pub fn workers(&self) -> u32 {
        self.threads * self.queue_depth
    }

    /// Number of bytes that one thread works on, out of [`Workload::size_bytes`].
    pub fn part_bytes(&self) -> u64 {
        self.size_bytes / u64::from(self.threads) / self.block_bytes * self.block_bytes
    }

    /// Length that each file needs.
    pub fn file_bytes(&self) -> u64 {
        match self.file_per_thread {
            true => self.offset_bytes + self.part_bytes(),
            false => self.file_end(),
        }
    }

    /// The end of the range in a target that consists of a single file.
    pub fn file_end(&self) -> u64 {
        self.offset_bytes + self.size_bytes
    }

    /// The number of files.
    pub fn files(&self) -> u32 {
        match self.file_per_thread {
            true => self.threads,
            false => 1,
        }
    }

    /// The text of an equivalent workload file, without default values.
    pub fn to_toml(&self) -> String {
        file::to_toml(self)
    }
}

/// As written in the file: `random-read`.
impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.random {
            true => "random-",
            false => "sequential-",
        })?;
        f.write_str(match self.direction {
            Direction::Read => "read",
            Direction::Write => "write",
            Direction::Mixed(_) => "mixed",
        })
    }
}

/// As written in the file: `every 8`.
impl fmt::Display for SyncPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SyncPolicy::Never => f.write_str("none"),
            SyncPolicy::End => f.write_str("end"),
            SyncPolicy::Every(writes) => write!(f, "every {writes}"),
            SyncPolicy::Dsync => f.write_str("dsync"),
        }
    }
}
