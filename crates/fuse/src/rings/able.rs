//! [`Able`]: what the rings need, and how many entries they have.

use std::io;

use throughline_device::{FuseReserve, PAYLOAD_AT, possible_processors};

use super::STACK_BYTES;
use crate::turns::MAX_TURNS;

/// The number of entries of all queues, unless the minimum of [`QUEUE_ENTRIES`] requires more.
const ALL_ENTRIES: usize = 128;
/// The smallest and largest number of entries of one queue.
const QUEUE_ENTRIES: (usize, usize) = (8, 16);
const _: () = assert!(QUEUE_ENTRIES.0 > MAX_TURNS + 1);
/// The maximum number of entries that are added for threads that wait for a turn. In a sandbox, the rings for
/// them are made ahead.
pub(super) const WAITING: usize = 256;

/// Whether root has switched the transport on in the kernel.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// What the transport needs, determined before it is negotiated with the kernel.
pub(crate) struct Able {
    pub(super) reserve: FuseReserve,
    pub(super) processors: Vec<u16>,
    /// The number of entries of each processor's queue, without those of threads that wait for a turn.
    pub(super) entries: usize,
}

impl Able {
    /// Determines whether this process can use the transport.
    ///
    /// # Errors
    /// The reason why not.
    pub(crate) fn new() -> io::Result<Able> {
        // Where there is no switch, the kernel says in INIT whether it has the transport.
        if std::fs::read_to_string(SWITCH).is_ok_and(|text| text.trim() == "N") {
            return Err(io::Error::other(format!("{SWITCH} is off")));
        }
        let processors = possible_processors()?;
        let (least, most) = QUEUE_ENTRIES;
        let entries = (ALL_ENTRIES / processors.len()).clamp(least, most);
        Ok(Able {
            reserve: FuseReserve::new(processors.len() * entries)?,
            processors,
            entries,
        })
    }

    /// The address space of the entries that the kernel has from the start, and of their threads, in bytes.
    pub(crate) fn reserved_bytes(&self, payload_bytes: usize) -> usize {
        let of_each = payload_bytes + PAYLOAD_AT + STACK_BYTES;
        self.processors.len() * self.entries * of_each
    }

    /// The number of entries of all queues that suffices, with room for threads that wait for a turn.
    pub(crate) fn max_entries(&self) -> usize {
        self.processors.len() * self.entries + WAITING
    }
}
