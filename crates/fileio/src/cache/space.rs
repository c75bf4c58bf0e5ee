//! [`AddressSpace`]: the cached bytes of one file.

use std::ops::Range;
use std::sync::Arc;

use crate::cache::activity::{Frozen, Running};
use crate::cache::{DirtyRun, PageCache};
use crate::error::{Error, Result};

/// What is cached of one file. It lives in the file's object in memory and holds no reference to it.
pub struct AddressSpace {
    cache: Arc<PageCache>,
    /// The flusher's own.
    pub(crate) flushing: crate::writeback::FileState,
}

impl AddressSpace {
    /// For a file of `size` bytes whose allocation unit is `block_bytes` (a power of two, 512 to 64 KiB). Folios are
    /// kept in blocks of that, or of 4 KiB where it is smaller.
    pub fn new(cache: Arc<PageCache>, size: u64, block_bytes: u32) -> AddressSpace {
        let _ = (size, block_bytes);
        AddressSpace {
            cache,
            flushing: crate::writeback::FileState::default(),
        }
    }

    /// The cache it is part of.
    pub fn cache(&self) -> &Arc<PageCache> {
        &self.cache
    }

    /// Granularity in bytes of what is dirty and what is up to date.
    pub fn block_bytes(&self) -> u32 {
        todo!()
    }

    /// The file's size in bytes as every reader sees it: at least what is committed.
    pub fn size(&self) -> u64 {
        todo!()
    }

    /// The size changed otherwise than by a buffered write: a truncation, a direct write. Under the file's lock, exclusively.
    pub fn set_size(&self, bytes: u64) {
        let _ = bytes;
        todo!()
    }

    /// Bytes cached, dirty or under write-back of this file.
    pub fn cached_bytes(&self) -> u64 {
        todo!()
    }

    /// Bytes dirty or under write-back.
    pub fn dirty_bytes(&self) -> u64 {
        todo!()
    }

    /// Whether any byte of the range is dirty or under write-back.
    pub fn is_dirty(&self, range: Range<u64>) -> bool {
        let _ = range;
        todo!()
    }

    /// Whether anything at all is cached. Cheap: one load.
    pub fn is_empty(&self) -> bool {
        todo!()
    }

    /// Drops what is cached of the range: clean blocks, and dirty ones too, whose promises and dirty bytes are given back.
    /// Blocks only partly in the range are kept, with the bytes in the range made zero where `zero_edges` (the block is dirty
    /// then). The file's lock is held exclusively and the space is frozen, so nothing is filled or under write-back.
    pub fn discard(&self, host: &dyn crate::Backing, range: Range<u64>) {
        let _ = (host, range);
        todo!()
    }

    /// Drops clean folios of the range, as advice (`DONTNEED`); dirty ones stay.
    pub fn drop_clean(&self, range: Range<u64>) {
        let _ = range;
        todo!()
    }

    /// Keeps write-back and readahead out of the file, when those that run have ended. The file's lock is held exclusively.
    pub fn freeze(&self) -> Frozen<'_> {
        todo!()
    }

    // ---- for write-back (crate only)

    /// Enters background work on the file; `None` while it is frozen: come again.
    pub(crate) fn begin_background(&self) -> Option<Running> {
        todo!()
    }

    /// The first file byte at or behind `from` that is dirty (not only under write-back).
    pub(crate) fn next_dirty(&self, from: u64) -> Option<u64> {
        let _ = from;
        todo!()
    }

    /// Takes the first run of adjacent dirty blocks of the range, `most_bytes` at most (at least one block): they become clean and under write-back.
    /// `None` where nothing is dirty. The last piece may end at the file's size, rounded up to `unit_bytes`.
    pub(crate) fn take_dirty(
        &self,
        range: Range<u64>,
        most_bytes: u64,
        unit_bytes: u32,
    ) -> Option<DirtyRun> {
        let _ = (range, most_bytes, unit_bytes);
        todo!()
    }

    /// The folio that the last sequential writer is in, as file bytes; `None` where it has filled it.
    pub(crate) fn append_tail(&self) -> Option<Range<u64>> {
        todo!()
    }

    /// A run is on the device and committed (`ok`), or it is dirty again.
    pub(crate) fn write_back_ended(&self, host: &dyn crate::Backing, run: DirtyRun, ok: bool) {
        let _ = (host, run, ok);
        todo!()
    }

    /// Waits until nothing of the range is under write-back that was so when this was called.
    pub(crate) fn wait_written(&self, range: Range<u64>) {
        let _ = range;
        todo!()
    }

    /// Why the last write-back of the file failed; cleared by one of all of it that did not.
    pub(crate) fn error(&self) -> Option<Error> {
        todo!()
    }

    /// See [`AddressSpace::error`].
    pub(crate) fn set_error(&self, error: Option<Error>) -> Result<()> {
        let _ = error;
        todo!()
    }
}
