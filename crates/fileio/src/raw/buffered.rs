//! Buffered I/O on a raw file: the locks around [`crate::buffered`].

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use super::backing::{self, Cached};
use super::{RawFile, check_writable, total};
use crate::buffered;
use crate::cache::{Accepted, AddressSpace, Backing, PageCache};
use crate::error::{Reason, Result};
use crate::readahead::ReadStream;

/// Maximum length of a host file.
const MAX_BYTES: u64 = i64::MAX as u64;

impl RawFile {
    /// The file as the cache sees it. Enables caching for the file.
    pub fn cached(&self) -> Arc<dyn Backing> {
        Arc::clone(self.made_cached()) as Arc<dyn Backing>
    }

    /// Returned by reference: a cache hit must not write a reference count that all readers share.
    fn made_cached(&self) -> &Arc<Cached> {
        if let Some(cached) = self.cached.get() {
            return cached;
        }
        // Concurrent direct writes expect no cache, so create it under exclusion.
        self.gate.exclusive(|| {
            self.cached.get_or_init(|| {
                let disk = Arc::clone(self.disk());
                let unit = backing::unit_of(&disk);
                let cache = PageCache::new(disk, &self.options);
                Arc::new(Cached {
                    space: AddressSpace::new(cache, self.core.committed(), unit),
                    core: Arc::clone(&self.core),
                })
            })
        })
    }

    /// Reads through the cache, with readahead controlled by `stream`. Returns the number of bytes read, less
    /// than requested only at the end.
    ///
    /// # Errors
    /// Those of the device.
    pub fn read_buffered(
        &self,
        offset: u64,
        bufs: &mut [IoSliceMut<'_>],
        stream: &ReadStream,
    ) -> Result<usize> {
        let cached = self.made_cached();
        if let [one] = bufs
            && let Some(read) = cached.space.read_cached(offset, one)
        {
            return Ok(read);
        }
        let host = Arc::clone(cached) as Arc<dyn Backing>;
        let _beside_others = self.gate.shared();
        buffered::read(&host, offset, bufs, stream)
    }

    /// Writes into the cache at `at` or, if that is `None`, at the end. Returns the offset of the data and
    /// the number of bytes written: less than given only if an error or the device's end came after them.
    ///
    /// # Errors
    /// [`Reason::NoSpace`], [`Reason::TooLarge`], [`Reason::ReadOnly`]; errors of the device if a block is
    /// changed in part; errors of write-back if memory is full of data that it cannot write.
    pub fn write_buffered(&self, at: Option<u64>, bufs: &[IoSlice<'_>]) -> Result<(u64, usize)> {
        check_writable(self.disk())?;
        let host = self.cached();
        let (offset, accepted) = {
            let _beside_others = self.gate.shared();
            self.write_shared(&host, at, bufs)?
        };
        buffered::pause(&host, accepted);
        Ok((offset, accepted.bytes))
    }

    /// The caller holds the gate shared.
    fn write_shared(
        &self,
        host: &Arc<dyn Backing>,
        at: Option<u64>,
        bufs: &[IoSlice<'_>],
    ) -> Result<(u64, Accepted)> {
        let size = || host.space().size();
        let len = total(bufs);
        let ends_inside = |at: u64| at.checked_add(len).is_some_and(|end| end <= size());
        if let Some(at) = at.filter(|at| ends_inside(*at)) {
            return Ok((at, buffered::write(host, at, bufs)?));
        }
        let _extending = self.extend.lock();
        let at = at.unwrap_or_else(size);
        let (limit, past) = match self.core.can_grow() {
            true => (MAX_BYTES, Reason::TooLarge),
            false => (self.len(), Reason::NoSpace),
        };
        let left = limit.saturating_sub(at);
        if left == 0 && total(bufs) > 0 {
            return Err(past.into());
        }
        let bufs = within(left, bufs);
        Ok((at, buffered::write(host, at, &bufs)?))
    }

    /// Writes back the dirty blocks in the range and waits for them.
    ///
    /// # Errors
    /// The error that write-back met; returned by each call until the write succeeds.
    pub fn flush_range(&self, range: Range<u64>) -> Result<()> {
        match self.host() {
            Some(host) => buffered::flush(&host, range),
            None => Ok(()),
        }
    }

    /// Starts write-back of the dirty blocks in the range and does not wait.
    pub fn start_flush(&self, range: Range<u64>) {
        if let Some(host) = self.host() {
            buffered::start_flush(&host, range);
        }
    }
}

/// The first `left` bytes of the pieces of memory.
fn within<'b>(mut left: u64, bufs: &'b [IoSlice<'_>]) -> Vec<IoSlice<'b>> {
    let mut within = Vec::with_capacity(bufs.len());
    for buf in bufs {
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        within.push(IoSlice::new(&buf[..len]));
        left -= len as u64;
    }
    within
}
