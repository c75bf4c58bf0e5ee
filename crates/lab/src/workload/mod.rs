//! A person's own workload: what is done ([`Workload`], read from a TOML file), to whom ([`TargetSpec`]), and the run of it
//! ([`run()`]), all targets interleaved. Job files of other tools become workloads in [`import`].
//!
//! Invariants:
//! - A [`Workload`] that exists is sound: every number is within its range, every combination can be done, whatever was in the file.
//! - All targets of a run do the same operations in the same order of rounds, from the same memory.
//! - Nothing that was there before is overwritten unless that was said ([`Plan::overwrite`]), and nothing that was made stays.

mod durations;
mod file;
pub mod import;
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
pub use spec::{TargetKind, TargetSpec};

/// What a workload is called whose file does not say.
pub const UNNAMED: &str = "workload";
/// Threads times queue depth: each is a thread of the system.
pub const MAX_WORKERS: u32 = 1024;
/// The length of one operation.
pub const BLOCK_BYTES: RangeInclusive<u64> = 1..=(256 << 20);
/// What all workers' buffers may take together.
pub const MAX_BUFFERS_BYTES: u64 = 2 << 30;
/// No file that anybody measures is longer; offset and size together stay below it.
pub const MAX_END_BYTES: u64 = 1 << 60;
/// Rounds, and rounds of warming up.
pub const MAX_ROUNDS: u32 = 100_000;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// All operations read.
    Read,
    /// All operations write.
    Write,
    /// Each operation reads with a chance of so many percent (0 to 100), and else writes.
    Mixed(u8),
}

impl Direction {
    /// Whether it may write.
    pub fn writes(self) -> bool {
        self != Direction::Read
    }
}

/// When what was written is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Not within the measured time.
    Never,
    /// One fsync of each thread behind its last write, measured with it.
    End,
    /// An fsync after so many writes of a thread, at least 1.
    Every(u64),
    /// Every write is durable when it returns (`O_DSYNC`).
    Dsync,
}

/// What the file is like when a round begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Written out once before the first round: all blocks are there.
    Written,
    /// Empty: every round's writes allocate. What has no length of its own, a device, is left as it is.
    Empty,
}

/// What is done in each round.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// For the result and the names of files: letters, digits, `-`, `_`, `.`.
    pub name: String,
    /// Reading, writing.
    pub direction: Direction,
    /// Whether offsets are drawn at random (each block as likely as any other, repeats included) instead of ascending.
    pub random: bool,
    /// Bytes of an operation.
    pub block_bytes: u64,
    /// Bytes that are worked on, of all threads together: a pass moves so many.
    pub size_bytes: u64,
    /// Where they begin in the file, or the device.
    pub offset_bytes: u64,
    /// How many threads. Sequential ones have equal parts of the file, random ones all of it.
    pub threads: u32,
    /// Operations of a thread at once: each is a further thread with one call under way.
    pub queue_depth: u32,
    /// Whether each thread has a file of its own, as long as its part.
    pub file_per_thread: bool,
    /// Past the caches.
    pub direct: bool,
    /// When what was written is made durable.
    pub sync: SyncPolicy,
    /// What a round finds.
    pub layout: Layout,
    /// A round ends after this time at the latest.
    pub runtime: Option<Duration>,
    /// With [`Workload::runtime`]: a round goes on from the start until the time is over.
    pub time_based: bool,
    /// What the caches hold of the file is dropped before each round.
    pub cold: bool,
    /// Of the offsets, the mix and the bytes written.
    pub seed: u64,
    /// Rounds that are not counted.
    pub warm_up: u32,
    /// Rounds that are.
    pub rounds: u32,
    /// Who is measured; the first one is what the others are held against.
    pub targets: Vec<TargetSpec>,
}

impl Workload {
    /// Reads a workload file's text.
    ///
    /// # Errors
    /// Line, key and what is allowed.
    pub fn parse(text: &str) -> crate::Result<Workload> {
        file::parse(text)
    }

    /// Calls it so, as far as a name may be so.
    pub fn rename(&mut self, name: &str) {
        self.name = file::plain_name(name);
    }

    /// Threads of the system that work at once.
    pub fn workers(&self) -> u32 {
        self.threads * self.queue_depth
    }

    /// Bytes that one thread works on, of [`Workload::size_bytes`].
    pub fn part_bytes(&self) -> u64 {
        self.size_bytes / u64::from(self.threads) / self.block_bytes * self.block_bytes
    }

    /// Bytes that each file needs.
    pub fn file_bytes(&self) -> u64 {
        match self.file_per_thread {
            true => self.offset_bytes + self.part_bytes(),
            false => self.file_end(),
        }
    }

    /// Where the worked-on bytes end in a target that is one file only.
    pub fn file_end(&self) -> u64 {
        self.offset_bytes + self.size_bytes
    }

    /// How many files there are.
    pub fn files(&self) -> u32 {
        match self.file_per_thread {
            true => self.threads,
            false => 1,
        }
    }

    /// The text of a workload file that says this; what is as if it were not said is left out.
    pub fn to_toml(&self) -> String {
        file::to_toml(self)
    }
}

/// As the file says it: `random-read`.
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

/// As the file says it: `every 8`.
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
