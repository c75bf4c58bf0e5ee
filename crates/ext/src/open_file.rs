//! [`OpenFile`], a regular file open for buffered I/O.
//!
//! - A read of what is cached takes no lock. Any other, and a write within the size, shares the inode's I/O lock.
//! - A write that may end behind the size, or that appends, shares it too and is alone among those.
//! - A file whose bytes are in its inode is read and written there, and never cached.
//! - A write call sets the times, at most once in a tick; write-back does not.

#[cfg(test)]
mod tests;

use std::any::Any;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use throughline_fileio::buffered;
use throughline_fileio::{Accepted, AddressSpace, Backing, ReadStream, Wait};

use crate::cached::CachedFile;
use crate::coherent;
use crate::data::Data;
use crate::error::{Error, Reason, Result};
use crate::file;
use crate::inline;
use crate::inode::Inode;
use crate::map;
use crate::regular::{self, is_inline};

/// A regular file open for buffered I/O, with direct I/O beside it. Clones are the same open file; all threads may use it
/// at once. It keeps the volume ([`crate::Fs`]) in memory: whoever opened that ends it with [`crate::Fs::shut_down`].
///
/// It does not count as an open file for what happens to inodes without names: that is [`crate::Attrs::open_inode`]'s.
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
        let cached = cached.ok_or(Reason::Invalid("a file that is not cached"))?;
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

    /// What is cached of it.
    pub fn space(&self) -> &AddressSpace {
        &self.space
    }

    fn fs(&self) -> &Data {
        &self.fs
    }

    fn inode(&self) -> &Inode {
        &self.inode
    }

    /// Its size in bytes, as every reader sees it.
    pub fn size(&self) -> u64 {
        self.space().size()
    }

    /// Fills `buf` from byte `offset` on, if all of it up to the file's end is cached: no lock, no wait. How many bytes
    /// there were; `None` too where the volume was taken down.
    pub fn read_cached(&self, offset: u64, buf: &mut [u8]) -> Option<usize> {
        if self.fs().is_down() {
            return None;
        }
        self.space().read_cached(offset, buf)
    }

    /// Reads from byte `offset` on, through the cache or past it. Answers how many bytes there were: fewer than asked only
    /// at the end.
    ///
    /// # Errors
    /// `Corrupt`; those of the device. A direct read writes back what it must see, and answers what that met.
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

    /// Writes at byte `at`, or at the end; through the cache or past it. Answers where the bytes are, and how many were
    /// taken: fewer than given only where an error came later, which the next call meets. A buffered write is in memory
    /// then, and its room on the volume is put by.
    ///
    /// # Errors
    /// `NoSpace`, `TooLarge`, `ReadOnly`, `Permission` for an immutable file;
    /// `WouldBlock` where it would have to wait for dirty memory, or to pause for what was written before, and may not;
    /// `Corrupt`; those of the device.
    pub fn write(
        &self,
        buffered: bool,
        at: Option<u64>,
        bufs: &[IoSlice<'_>],
        wait: Wait,
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
        if wait == Wait::No && fs.cache.throttle().would_pause(0).is_some() {
            return Err(Reason::WouldBlock.into());
        }
        let (offset, accepted) = match self.write_once(at, bufs, wait) {
            // What is put by may be more than will be needed: it is known when it is written.
            Err(Error::Caller(Reason::NoSpace)) if wait == Wait::Yes && self.others_are_dirty() => {
                // What it meets is for those to hear whose data it is.
                let _ = fs.cache.flush_all();
                self.write_once(at, bufs, wait)?
            }
            Err(Error::Caller(Reason::NoSpace))
                if wait == Wait::No && self.space().dirty_bytes() > 0 =>
            {
                self.start_flush(coherent::ALL);
                return Err(Reason::WouldBlock.into());
            }
            other => other?,
        };
        match wait {
            Wait::Yes => buffered::pause(&*self.host, accepted),
            Wait::No => fs.cache.throttle().owe(accepted.dirtied_bytes),
        }
        fs.data_changed(inode)?;
        Ok((offset, accepted.bytes))
    }

    fn others_are_dirty(&self) -> bool {
        self.fs().cache.throttle().dirty_bytes() > 0
    }

    fn write_once(
        &self,
        at: Option<u64>,
        bufs: &[IoSlice<'_>],
        wait: Wait,
    ) -> Result<(u64, Accepted)> {
        let inode = self.inode();
        loop {
            let done = match at {
                Some(offset) => self.write_within(offset, bufs, wait)?,
                None => None,
            };
            let done = match done {
                Some(done) => Some(done),
                None => {
                    file::settle_tail(self.fs(), inode)?;
                    self.write_behind(at, bufs, wait)?
                }
            };
            if let Some(done) = done {
                return Ok(done);
            }
            // Its bytes are in the inode. If they outgrow that they are in blocks when this returns.
            let _io = inode.io_exclusive();
            if let Some(done) = self.write_inline(at, bufs)? {
                return Ok(done);
            }
        }
    }

    /// Writes within the size; `None` where that is not so.
    fn write_within(
        &self,
        offset: u64,
        bufs: &[IoSlice<'_>],
        wait: Wait,
    ) -> Result<Option<(u64, Accepted)>> {
        let (fs, inode) = (self.fs(), self.inode());
        let end = offset.checked_add(regular::total(bufs));
        let _io = inode.io_shared();
        if end.is_none_or(|end| end > self.size()) || is_inline(inode) {
            return Ok(None);
        }
        let accepted = buffered::write(&self.host, offset, bufs, wait)?;
        fs.touch_if_due(inode)?;
        Ok(Some((offset, accepted)))
    }

    /// Writes behind the size, or wherever; `None` where the bytes are in the inode.
    fn write_behind(
        &self,
        at: Option<u64>,
        bufs: &[IoSlice<'_>],
        wait: Wait,
    ) -> Result<Option<(u64, Accepted)>> {
        let (fs, inode) = (self.fs(), self.inode());
        let _io = inode.io_shared();
        if is_inline(inode) {
            return Ok(None);
        }
        let _extend = inode.extend();
        let offset = at.unwrap_or_else(|| self.size());
        let accepted = if Data::is_within_all_limits(offset.saturating_add(regular::total(bufs))) {
            buffered::write(&self.host, offset, bufs, wait)?
        } else {
            let bufs = fs.within_limit(inode, offset, bufs)?;
            buffered::write(&self.host, offset, &bufs, wait)?
        };
        fs.touch_if_due(inode)?;
        Ok(Some((offset, accepted)))
    }

    /// Writes where the bytes are, in the inode, if they fit; else they are in blocks afterwards. The I/O lock is held
    /// exclusively.
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
            };
            return Ok(Some((offset, accepted)));
        }
        let _frozen = coherent::freeze(inode);
        inline::spill(fs, inode)?;
        Ok(None)
    }

    /// Writes back what is dirty in the range, and waits for it: it is on the device then, not yet safe from a crash.
    ///
    /// # Errors
    /// What write-back met, again at each call until it can be done.
    pub fn flush_range(&self, range: Range<u64>) -> Result<()> {
        Ok(buffered::flush(&self.host, range)?)
    }

    /// Starts writing back what is dirty in the range, and does not wait.
    pub fn start_flush(&self, range: Range<u64>) {
        buffered::start_flush(&self.host, range);
    }

    /// Returns when data, size and name survive a crash; with `data_only`, times need not.
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
