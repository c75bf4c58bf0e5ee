//! Copying bytes from one open file to another.

use throughline_device::AlignedBuf;
use throughline_ext::Reason;

use crate::error::Result;
use crate::handle::Handle;

/// Buffer size of a copy, and its largest read or write, in bytes.
const CHUNK_BYTES: u64 = 4 << 20;
/// Enough alignment for any device.
const ALIGN_BYTES: usize = 4096;

impl Handle {
    /// Copies `len` bytes from `offset` to byte `to_offset` of `to`, which may be in another volume, a raw
    /// file, or this file if the ranges do not overlap. Returns the number of bytes copied. It is less than
    /// `len` only if this file ends, or if an error followed the copied bytes; the next call then returns the
    /// error. Holes are copied as zeros. Uses at most 4 MiB of memory, whatever the length.
    ///
    /// **Until it is synced, a change is lost if the process ends or the machine fails**
    /// ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::Invalid`] if the ranges are of one file and overlap; errors of reading this file and of
    /// writing the other, with nothing copied.
    pub fn copy_range(&self, offset: u64, to: &Handle, to_offset: u64, len: u64) -> Result<u64> {
        let len = len.min(self.size()?.saturating_sub(offset));
        let end = to_offset.checked_add(len).ok_or(Reason::TooLarge)?;
        if self.is_same_file(to) && offset < end && to_offset < offset.saturating_add(len) {
            return Err(Reason::Invalid("the ranges of the copy overlap").into());
        }
        // The buffer need not be larger than the range.
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
