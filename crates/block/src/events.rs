//! What happens to bios, and around them, told to whoever listens.
//!
//! When nobody listens a pipeline pays one relaxed load for its whole life and reads no clock: whether it reports is
//! decided when it opens. A call and a commit pay one more each.

use std::time::{Duration, Instant};

use throughline_device::Op;

use crate::limits::SplitReason;
use crate::purpose::Purpose;

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A bio was given to the device's queue.
    Submit {
        /// The bio.
        bio: BioInfo,
        /// When the bio was opened: its first byte was added.
        opened_at: Instant,
        /// When it was given to the queue.
        submitted_at: Instant,
    },
    /// A bio was closed although its caller had more.
    Split {
        /// The device byte behind the closed bio.
        offset_bytes: u64,
        /// Why.
        reason: SplitReason,
    },
    /// A plug appended a bio to the one before it.
    Merge {
        /// The bio as merged.
        bio: BioInfo,
    },
    /// A bio completed.
    Complete {
        /// The bio.
        bio: BioInfo,
        /// From opening it to giving it to the device's queue.
        queue_time: Duration,
        /// From giving it to the device's queue to reaping its completion.
        service_time: Duration,
        /// Whether the device did it.
        ok: bool,
    },
    /// A program's call begins, on this thread.
    CallBegins,
    /// It has ended, on the same thread.
    CallEnds {
        /// Reading, writing, or making durable ([`Op::Flush`]).
        op: Op,
        /// Bytes that it moved.
        bytes: u64,
    },
    /// A journal's transaction is durable.
    Committed {
        /// From taking it up to that.
        took: Duration,
    },
}

/// What a bio is, without its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BioInfo {
    /// What the device is to do.
    pub op: Op,
    /// First byte on the device.
    pub offset_bytes: u64,
    /// Bytes.
    pub len_bytes: u64,
    /// Pieces of memory.
    pub segments: usize,
    /// What it is for.
    pub purpose: Purpose,
}

/// Hears of every bio of a disk, and of what the layers above tell ([`crate::Disk::tell`]).
///
/// Called on the submitting thread, on the path itself: be quick, and do no I/O on the same disk.
pub trait Listener: Send + Sync {
    /// `event` has just happened.
    fn event(&self, event: &Event);
}
