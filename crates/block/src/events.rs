//! Events of bios, calls and commits, reported to listeners.
//!
//! Without listeners a pipeline costs one relaxed load in its whole life and reads no clock: whether it
//! reports events is decided when it opens. A call and a commit cost one more load each.

use std::time::{Duration, Instant};

use throughline_device::Op;

use crate::limits::SplitReason;
use crate::purpose::Purpose;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A bio was submitted to the device's queue.
    Submit {
        /// The bio.
        bio: BioInfo,
        /// When the bio was opened, that is, got its first byte.
        opened_at: Instant,
        /// When it was submitted.
        submitted_at: Instant,
    },
    /// A bio was closed although its caller had more to add.
    Split {
        /// The device byte after the closed bio.
        offset_bytes: u64,
        /// Why it was closed.
        reason: SplitReason,
    },
    /// A plug appended a bio to the one before it.
    Merge {
        /// The merged bio.
        bio: BioInfo,
    },
    /// A bio completed.
    Complete {
        /// The bio.
        bio: BioInfo,
        /// From opening to submission.
        queue_time: Duration,
        /// From submission to reaping the completion.
        service_time: Duration,
        /// Whether it succeeded.
        ok: bool,
    },
    /// A program's call begins on this thread.
    CallBegins,
    /// The call has ended, on the same thread.
    CallEnds {
        /// [`Op::Read`], [`Op::Write`], or [`Op::Flush`] for a call that makes data durable.
        op: Op,
        /// Bytes read or written.
        bytes: u64,
    },
    /// A journal's transaction is durable.
    Committed {
        /// From the seal until the transaction was durable.
        took: Duration,
    },
}

/// A bio without its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BioInfo {
    /// The operation.
    pub op: Op,
    /// First byte on the device.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Number of memory segments.
    pub segments: usize,
    /// What it is for.
    pub purpose: Purpose,
}

/// Receives the events of every bio of a disk, and those that the layers above report
/// ([`crate::Disk::report`]).
///
/// Called synchronously on the submitting thread: it must be quick and must not do I/O on the same disk.
pub trait Listener: Send + Sync {
    /// Called just after `event` happened.
    fn event(&self, event: &Event);
}
