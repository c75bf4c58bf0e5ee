//! A span: 2 MiB of a file, naturally aligned, with the folios in it. The unit of look-up and of locking.

use std::ops::Range;
use std::sync::Arc;

use throughline_device::Pages;

/// Bytes of the file that one span covers.
pub(crate) const SPAN_BYTES: u64 = 2 << 20;

/// Adjacent bytes of a file in one folio, on their way to the device.
#[derive(Debug)]
pub(crate) struct DirtyPiece {
    /// First byte in the file.
    pub(crate) file_offset: u64,
    /// The folio's memory, not to be changed while this is held.
    pub(crate) pages: Arc<Pages>,
    /// Which bytes of it.
    pub(crate) range: Range<usize>,
}

/// Adjacent dirty pieces that were taken for write-back together.
#[derive(Debug)]
pub(crate) struct DirtyRun {
    /// The file bytes from the first piece's first to the last one's last.
    pub(crate) range: Range<u64>,
    /// Ascending, each where the one before ended.
    pub(crate) pieces: Vec<DirtyPiece>,
    /// The file's size when it was taken.
    pub(crate) file_size: u64,
    /// Allocation units of it for which room was promised.
    pub(crate) reserved_units: u64,
}
