//! [`OpenFile`], a regular file open for buffered I/O.
//!
//! - A read served from the cache takes no lock. Other reads, and writes within the file size, take the
//!   inode's I/O lock shared.
//! - A write that may extend the file, or an append, takes it shared too, and also the lock that serializes
//!   extensions.
//! - A file whose data is in its inode is read and written there and never cached.
//! - A write sets the times at most once per tick; write-back does not set them.

#[cfg(test)]
mod tests;
mod write_back;

use std::any::Any;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use throughline_fileio::{self as fileio, buffered};
use throughline_fileio::{Accepted, AddressSpace, Backing, ReadStream};

use crate::cached::CachedFile;
use crate::coherent;
use crate::data::Data;
use crate::error::{Error, Reason, Result};
use crate::fallocate::Fallocate;
use crate::file;
use crate::inline;
use crate::inode::Inode;
use crate::map::{self, Format};
use crate::regular::{self, is_inline};

/// A regular file open for buffered I/O, and for direct I/O too. Clones share the same open file; any number
/// of threads may use it. It keeps the volume ([`crate::Fs`]) alive; [`crate::Fs::shut_down`] closes that.
///
/// It does not keep an inode without names from being freed; use [`crate::Attrs::open_inode`] for that.
#[derive(Clone)]
pub struct OpenFile {
    host: Arc<dyn Backing>,
    fs: Arc<Data>,
    inode: Arc<Inode>,
    space: Arc<AddressSpace>,
}

impl OpenFile {
    /// A file of `fs`, which is a part of `volume`.
    ///
    /// # Errors
    /// As [`crate::Fs::open_file`].
    pub(crate) fn new(
        fs: &Arc<Data>,
        volume: Arc<dyn Any + Send + Sync>,
        inode: &Arc<Inode>,
    ) -> Result<Self> {
        let host = CachedFile::of(fs, volume, inode)?;
        let cached = inode.cached.get();
        let cached = cached.ok_or(Reason::Invalid("the file cannot be cached"))?;
        Ok(Self {
            host,
            fs: Arc::clone(fs),
            inode: Arc::clone(inode),
            space: Arc::clone(&cached.space),
        })
    }

    /// The file as the page cache sees it.
    pub fn host(&self) -> &Arc<dyn Backing> {
        &self.host
    }

    /// Its cached pages.
    pub fn space(&self) -> &AddressSpace {
        &self.space
    }

    fn fs(&self) -> &Data {
        &self.fs
    }

    fn inode(&self) -> &Inode {
        &self.inode
    }

    /// The file size in bytes, as readers see it.
    pub fn size(&self) -> u64 {
        self.space().size()
    }

    /// Fills `buf` from byte `offset` if the whole range up to the end of the file is cached; takes no lock
    /// and never waits. Returns the number of bytes read; `None` also if the volume was taken down.
    pub fn read_cached(&self, offset: u64, buf: &mut [u8]) -> Option<usize> {
        if self.fs().is_down() {
            return None;
        }
        self.space().read_cached(offset, buf)
    }

    /// See [`throughline_fileio::cached_pieces`]; `None` also if
    /// the volume was taken down.
    pub fn cached_pieces(&self, offset: u64, len: u64) -> Option<Vec<usize>> {
        let up = !self.fs().is_down();
        up.then(|| throughline_fileio::cached_pieces(self.space(), offset, len))?
    }

    /// See [`throughline_fileio::lend_cached`]; `None` also if the
    /// volume was taken down.
    pub fn lend_cached(
        &self,
        offset: u64,
        len: u64,
        lend: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Option<usize> {
        let up = !self.fs().is_down();
        up.then(|| throughline_fileio::lend_cached(self.space(), offset, len, lend))?
    }

    /// Reads from byte `offset`, through the cache or directly. Returns the number of bytes read, which is
    /// short only at the end.
    ///
    /// # Errors
    /// `Corrupt`; device errors. A direct read writes back dirty data in its range first, and returns errors
    /// of that.
    pub fn read(
        &self,
        buffered: bool,
        offset: u64,
        bufs: &mut [IoSliceMut<'_>],
        stream: &ReadStream,
    ) -> Result<usize> {
        let (fs, inode) = (self.fs(), self.inode());
        if !buffered {
            return fs.read_at(inode, offset, bufs);
        }
        if let [buf] = bufs
            && let Some(done) = self.read_cached(offset, buf)
        {
            return Ok(done);
        }
        fs.check_up()?;
        let _io = inode.io_shared();
        map::size(fs, inode)?;
        if is_inline(inode) {
            return inline::read_vectored(fs, inode, offset, bufs);
        }
        Ok(buffered::read(&self.host, offset, bufs, stream)?)
    }

    /// Writes at byte `at`, or at the end; through the cache or directly. Returns the offset written to and
    /// the number of bytes written. The number is short only if an error followed; the next call then returns
    /// the error. A buffered write returns with the data in memory and space on the volume reserved.
    ///
    /// # Errors
    /// `NoSpace`, `TooLarge`, `ReadOnly`, `Permission` for an immutable file; `Corrupt`; device errors.
    pub fn write(
        &self,
        buffered: bool,
        at: Option<u64>,
        bufs: &[IoSlice<'_>],
    ) -> Result<(u64, usize)> {
        let (fs, inode) = (self.fs(), self.inode());
        if !buffered {
            return match at {
                Some(offset) => Ok((offset, fs.write_at(inode, offset, bufs)?)),
                None => fs.append(inode, bufs),
            };
        }
        fs.check_may_write(inode)?;
        if regular::total(bufs) == 0 {
            return Ok((at.unwrap_or_else(|| self.size()), 0));
        }
        if fs.balloc.allocates {
            self.take_blocks(at, regular::total(bufs))?;
        }
        let put = |at: u64, bufs: &[IoSlice<'_>]| buffered::write(&self.host, at, bufs);
        let (offset, accepted) = match self.write_once(at, bufs, put) {
            // Reservations may exceed the need, which is known once the data is written back.
            Err(Error::Caller(Reason::NoSpace)) if self.others_are_dirty() => {
                // Write-back errors are reported to the owners of the data.
                let _ = fs.cache.flush_all();
                self.write_once(at, bufs, put)?
            }
            other => other?,
        };
        buffered::pause(&self.host, accepted);
        fs.data_changed(inode)?;
        Ok((offset, accepted.bytes))
    }

    /// Allocates what a write will need, so that the host has room for it. A file that is rewritten after its
    /// truncation keeps its old blocks until then.
    fn take_blocks(&self, at: Option<u64>, bytes: u64) -> Result<()> {
        let (fs, inode) = (self.fs(), self.inode());
        if inode.emptied.is_some() || Format::of(&inode.raw.read()) != Format::Extents {
            return Ok(());
        }
        let offset = at.unwrap_or_else(|| self.size());
        fs.fallocate(inode, Fallocate::KeepSize, offset, bytes)
    }

    fn others_are_dirty(&self) -> bool {
        self.fs().cache.throttle().promised_bytes() > 0
    }

    /// Writes by `put`, under the locks that the place of the bytes requires.
    fn write_once<R: From<Accepted>>(
        &self,
        at: Option<u64>,
        bufs: &[IoSlice<'_>],
        put: impl Fn(u64, &[IoSlice<'_>]) -> fileio::Result<R>,
    ) -> Result<(u64, R)> {
        let inode = self.inode();
        loop {
            let done = match at {
                Some(offset) => self.write_within(offset, bufs, &put)?,
                None => None,
            };
            let done = match done {
                Some(done) => Some(done),
                None => self.write_extending(at, bufs, &put)?,
            };
            if let Some(done) = done {
                return Ok(done);
            }
            // The data is in the inode. If it no longer fits, it is in blocks after this.
            let _io = inode.io_exclusive();
            if let Some((offset, done)) = self.write_inline(at, bufs)? {
                return Ok((offset, R::from(done)));
            }
        }
    }

    /// Writes within the file size; `None` if the write does not fit or the data is in the inode.
    fn write_within<R>(
        &self,
        offset: u64,
        bufs: &[IoSlice<'_>],
        put: &impl Fn(u64, &[IoSlice<'_>]) -> fileio::Result<R>,
    ) -> Result<Option<(u64, R)>> {
        let (fs, inode) = (self.fs(), self.inode());
        let end = offset.checked_add(regular::total(bufs));
        let _io = inode.io_shared();
        if end.is_none_or(|end| end > self.size()) || is_inline(inode) {
            return Ok(None);
        }
        let accepted = put(offset, bufs)?;
        fs.touch_written(inode);
        Ok(Some((offset, accepted)))
    }

    /// Writes at any offset, including past the end; `None` if the data is in the inode.
    fn write_extending<R>(
        &self,
        at: Option<u64>,
        bufs: &[IoSlice<'_>],
        put: &impl Fn(u64, &[IoSlice<'_>]) -> fileio::Result<R>,
    ) -> Result<Option<(u64, R)>> {
        let (fs, inode) = (self.fs(), self.inode());
        let _io = loop {
            file::zero_tail_once(fs, inode)?;
            let io = inode.io_shared();
            // After a truncation in between, the rest of the last block must be checked again before the
            // file is extended.
            if inode.tail_is_zero.load(Ordering::Relaxed) {
                break io;
            }
        };
        if is_inline(inode) {
            return Ok(None);
        }
        let _extend = inode.extend();
        let offset = at.unwrap_or_else(|| self.size());
        let accepted = if Data::is_within_all_limits(offset.saturating_add(regular::total(bufs))) {
            put(offset, bufs)?
        } else {
            let bufs = fs.within_limit(inode, offset, bufs)?;
            put(offset, &bufs)?
        };
        fs.touch_written(inode);
        Ok(Some((offset, accepted)))
    }

    /// Writes to data that is in the inode. If the result does not fit, moves the data to blocks and returns
    /// `None`. The I/O lock is held exclusively.
    fn write_inline(
        &self,
        at: Option<u64>,
        bufs: &[IoSlice<'_>],
    ) -> Result<Option<(u64, Accepted)>> {
        let (fs, inode) = (self.fs(), self.inode());
        if !is_inline(inode) {
            return Ok(None);
        }
        let offset = at.unwrap_or(map::size(fs, inode)?);
        if let Some(bytes) = inline::write(fs, inode, offset, bufs)? {
            coherent::resized(inode, map::size(fs, inode)?);
            let accepted = Accepted {
                bytes,
                dirtied_bytes: 0,
                run: (offset, offset),
            };
            return Ok(Some((offset, accepted)));
        }
        let _frozen = coherent::freeze(inode);
        inline::spill(fs, inode)?;
        Ok(None)
    }

    /// Writes back dirty data in the range and waits: the data is then on the device, but may not survive a
    /// power loss.
    ///
    /// # Errors
    /// Write-back errors, on every call until write-back succeeds.
    pub fn flush_range(&self, range: Range<u64>) -> Result<()> {
        Ok(buffered::flush(&self.host, range)?)
    }

    /// Starts writing back dirty data in the range; does not wait.
    pub fn start_flush(&self, range: Range<u64>) {
        buffered::start_flush(&self.host, range);
    }

    /// Returns when data, size and name survive a crash; with `data_only`, times are not included.
    ///
    /// # Errors
    /// As [`Data::sync_file`].
    pub fn sync(&self, data_only: bool) -> Result<()> {
        if data_only {
            self.fs().sync_data(self.inode())
        } else {
            self.fs().sync_file(self.inode())
        }
    }
}
