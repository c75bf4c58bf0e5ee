//! Direct I/O: between the caller's memory and the device, through a [`crate::Mapper`], with nothing in between.
//!
//! Any offset, any length, any memory. What is aligned as the device needs it goes straight; the rest (a head or tail
//! that is not a whole block, memory at an odd address, pieces smaller than a block) goes through a bounded number of
//! bounce buffers. The first bio is on the device while the next range is looked up; the open bio is given to the
//! device before the mapper is asked, since that may block.
//!
//! ```text
//!  caller's memory  ▒▒|████████████████████|▒▒      ▒ bounced   █ straight
//!  device blocks   [    ][    ][    ][    ][    ]
//! ```
//!
//! # The caller's lock
//! - [`read()`] and [`write()`] need the file's lock against truncation, shared.
//! - A write for which [`needs_exclusive`] answers true (asked with the lock held) needs it exclusive: such a write reads
//!   a block, changes a part of it and writes it back, and two of these, or one and a whole write of the same block,
//!   would lose bytes.

mod bounce;
mod many;
mod memory;
mod read;
mod write;

pub use many::{NewFile, write_new};
pub(crate) use memory::{ReadMemory, WriteMemory};
pub use read::read;
pub use write::write;

use crate::Map;

/// Whether a write of `len` bytes at `offset` changes a block only in part, at its own ends or, when it begins behind
/// the file's end, at that end; its caller must then keep all other writers of the file away while it runs.
pub fn needs_exclusive(mapper: &dyn Map, offset: u64, len: u64) -> bool {
    let block = u64::from(mapper.block_bytes().max(1));
    !offset.is_multiple_of(block)
        || !offset.wrapping_add(len).is_multiple_of(block)
        || offset > mapper.size_bytes()
}
