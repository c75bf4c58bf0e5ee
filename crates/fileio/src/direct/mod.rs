//! Direct I/O between the caller's memory and the device, through a [`crate::Mapper`], without the page
//! cache.
//!
//! Any offset, length and memory address is accepted. Data that meets the device's alignment is transferred
//! directly; the rest (a head or tail that is not a whole block, memory at an odd address, pieces smaller
//! than a block) goes through a limited number of bounce buffers. The first bio is in flight while the next
//! range is looked up. The open bio is submitted before each mapper call, because that may block.
//!
//! ```text
//!  caller's memory  ▒▒|████████████████████|▒▒      ▒ bounced   █ direct
//!  device blocks   [    ][    ][    ][    ][    ]
//! ```
//!
//! # Locks held by the caller
//! - [`read()`] and [`write()`] need the file's truncation lock, shared.
//! - A write for which [`needs_exclusive`] returns true (called with the lock held) needs it exclusively: the
//!   write reads a block, changes part of it and writes it back. Two such writes, or one and a whole write of
//!   the same block, would lose data.

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

/// Whether a write of `len` bytes at `offset` changes a block only in part: at its own ends or, if it begins
/// past the end of the file, at the old end of the file. The caller must then exclude all other writers of
/// the file.
pub fn needs_exclusive(mapper: &dyn Map, offset: u64, len: u64) -> bool {
    let block = u64::from(mapper.block_bytes().max(1));
    !offset.is_multiple_of(block)
        || !offset.wrapping_add(len).is_multiple_of(block)
        || offset > mapper.size_bytes()
}
