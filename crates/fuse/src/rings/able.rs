//! [`Able`]: what the rings need, and how many entries they have.

use std::io;

use throughline_device::{FuseReserve, PAYLOAD_AT, allow_fuse_threads, possible_processors};

use crate::turns::MAX_TURNS;
use crate::workers::{MAX_THREADS, STACK_BYTES};

/// The number of entries of all queues, unless [`QUEUE_ENTRIES`] requires more or less.
const ALL_ENTRIES: usize = 512;
/// The smallest and largest number of entries of one queue.
const QUEUE_ENTRIES: (usize, usize) = (16, MAX_THREADS);
const _: () = assert!(QUEUE_ENTRIES.0 > 2 * MAX_TURNS);

/// Whether root has switched the transport on in the kernel.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// What the transport needs, made before it is negotiated with the kernel.
pub(crate) struct Able {
    pub(super) reserve: FuseReserve,
    pub(super) processors: Vec<u16>,
    /// The number of entries of each CPU's queue.
    pub(super) entries: usize,
}

impl Able {
    /// Makes what this process needs to use the transport.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub(crate) fn new() -> io::Result<Able> {
        // Where there is no switch, the kernel says in INIT whether it has the transport.
        if std::fs::read_to_string(SWITCH).is_ok_and(|text| text.trim() == "N") {
            return Err(io::Error::other(format!("{SWITCH} is off")));
        }
        let processors = possible_processors()?;
        let (least, most) = QUEUE_ENTRIES;
        let entries = (ALL_ENTRIES / processors.len()).clamp(least, most);
        allow_fuse_threads(MAX_THREADS)?;
        Ok(Able {
            reserve: FuseReserve::new(processors.len() * entries, MAX_THREADS)?,
            processors,
            entries,
        })
    }

    /// The address space of the entries and of the threads that get them, in bytes.
    pub(crate) fn reserved_bytes(&self, payload_bytes: usize) -> usize {
        let entries = self.processors.len() * self.entries;
        entries * (payload_bytes + PAYLOAD_AT) + MAX_THREADS * STACK_BYTES
    }
}
