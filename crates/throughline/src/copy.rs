//! Copying bytes from one open file to another.

use throughline_device::AlignedBuf;
use throughline_ext::Reason;

use crate::error::Result;
use crate::handle::Handle;

/// Memory of one copy, and its largest call, in bytes.
const CHUNK_BYTES: u64 = 4 << 20;
/// As much alignment as any device wants.
const ALIGN_BYTES: usize = 4096;

impl Handle {
    /// Copies `len` bytes from `offset` on to byte `to_offset` of `to`, which may be another volume's or a raw file (or
    /// this one, where the ranges do not overlap). Returns how many: fewer than asked only where this file ends, or where an
    /// error came after them, which the next call meets. Holes are copied as zeros. Needs 4 MiB of memory, however long the
    /// range is.
    ///
    /// **Until a sync, what it accepts is lost if the process or the machine ends** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::Invalid`] for ranges of one file that overlap; those of reading this file and of writing the other, with
    /// nothing copied.
    pub fn copy_range(&self, offset: u64, to: &Handle, to_offset: u64, len: u64) -> Result<u64> {
        let len = len.min(self.size()?.saturating_sub(offset));
        let end = to_offset.checked_add(len).ok_or(Reason::TooLarge)?;
        if self.is_same_file(to) && offset < end && to_offset < offset.saturating_add(len) {
            return Err(Reason::Invalid("the ranges of the copy overlap").into());
        }
        // Nothing is worth a buffer larger than the range.
        let most = len.min(CHUNK_BYTES).next_multiple_of(ALIGN_BYTES as u64);
        let mut buf = AlignedBuf::zeroed(most as usize, ALIGN_BYTES);
        let mut copied = 0;
        while copied < len {
            let here = (len - copied).min(CHUNK_BYTES) as usize;
            let (from, at) = (offset + copied, to_offset + copied);
            let moved = self
                .read_at(&mut buf[..here], from)
                .and_then(|read| to.write_at(&buf[..read], at));
            match moved {
                Ok(0) => break,
                Ok(moved) => copied += moved as u64,
                Err(_) if copied > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(copied)
    }
}
