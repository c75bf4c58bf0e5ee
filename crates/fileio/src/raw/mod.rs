//! [`RawFile`]: a whole device, or a plain file of the host, as a file. Its mapping is the identity.
//!
//! ```text
//!  RawFile ── Core: disk, committed length, space on the host's file system
//!     │  └─── gate, extend: the file's locks
//!     └─ Cached (from the first buffered access on): the pages, and the file as the page cache sees it
//! ```
//!
//! Invariants:
//! - Threads that use only direct I/O share only read-only data: no reference count per inode, no lock that
//!   another thread's I/O writes (founding report 2). A block device cannot shrink, so reads take no lock.
//!   Writes take the [`Gate`], because a write of part of a block must be exclusive.
//! - From the first buffered access on, the file stays [`Cached`] until it is closed, and the rules of
//!   [`crate::coherence`] apply: I/O holds the gate shared; direct writes and all changes of the length hold
//!   it exclusively, with background work excluded.
//! - No other process may change the length of a plain file meanwhile.
//! - Space for accepted buffered writes is reserved on the host's file system, if that supports reservation
//!   ([`room`]).
//! - Write-back writes whole blocks, so the host's file may be longer than the data, by zeros, until the file
//!   is synced or closed. The exact length is set only while no write-back is running.

mod backing;
mod buffered;
mod identity;
mod resize;
mod room;

use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use throughline_block::Disk;
use throughline_locks::{Mutex, Rank};

use crate::cache::{Backing, CacheOptions, PageCache};
use crate::error::{Error, Reason, Result};
use crate::gate::Gate;
use crate::{coherence, direct};
use backing::{Cached, Core};
use identity::Identity;

/// A block device or plain file, for direct and buffered I/O at any offset, of any length, with any memory.
/// Writing past the end extends a plain file, but not a device.
///
/// Dropping it writes back dirty data; [`RawFile::close`] does the same and returns errors.
pub struct RawFile {
    core: Arc<Core>,
    /// The file's truncation lock.
    gate: Gate,
    /// Held by buffered writes that end past the size. Acquired inside the gate.
    extend: Mutex<()>,
    /// End of the space that the caller asked to keep allocated past the end. Changed with the gate held
    /// exclusively.
    kept_until: Mutex<u64>,
    options: CacheOptions,
    /// Created with the gate held exclusively.
    cached: OnceLock<Arc<Cached>>,
    /// Whether nothing is left to do on drop.
    closed: AtomicBool,
}

impl RawFile {
    /// The file that covers all of `disk`. A cache, if used, gets default options.
    pub fn new(disk: Arc<Disk>) -> Self {
        Self::with_cache(disk, CacheOptions::default())
    }

    /// As [`RawFile::new`], with `options` for the cache, which is created on first use.
    pub fn with_cache(disk: Arc<Disk>, options: CacheOptions) -> Self {
        Self {
            core: Arc::new(Core::new(disk)),
            gate: Gate::default(),
            extend: Mutex::ranked(Rank::RawExtend, ()),
            kept_until: Mutex::new(0),
            options,
            cached: OnceLock::new(),
            closed: AtomicBool::new(false),
        }
    }

    /// The disk.
    pub fn disk(&self) -> &Arc<Disk> {
        &self.core.disk
    }

    /// The page cache, if it is in use.
    pub fn cache(&self) -> Option<&Arc<PageCache>> {
        self.cached.get().map(|cached| cached.space.cache())
    }

    /// Length in bytes, as readers see it.
    pub fn len(&self) -> u64 {
        let committed = self.core.committed();
        match self.cached.get() {
            Some(cached) => cached.space.size().max(committed),
            None => committed,
        }
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` from byte `offset` on, bypassing the cache. Returns the number of bytes read, less than
    /// requested only at the end.
    ///
    /// # Errors
    /// Those of the device and of write-back; the contents of `buf` are then undefined.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read_vectored_at(offset, &mut [IoSliceMut::new(buf)])
    }

    /// As [`RawFile::read_at`], into several buffers in order.
    ///
    /// # Errors
    /// As [`RawFile::read_at`].
    pub fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let Some(host) = self.host() else {
            return direct::read(self.disk(), &self.identity(), offset, bufs);
        };
        let _shared = self.gate.shared();
        let len = bufs
            .iter()
            .fold(0_u64, |sum, buf| sum.saturating_add(buf.len() as u64));
        coherence::before_direct_read(&host, offset..offset.saturating_add(len))?;
        direct::read(self.disk(), &self.identity(), offset, bufs)
    }

    /// Writes `buf` at byte `offset`, bypassing the cache. Returns the number of bytes written, less than
    /// given only if an error or the device's end came after them.
    ///
    /// # Errors
    /// [`Reason::NoSpace`] at the end of a device and on a full host, [`Reason::ReadOnly`], errors of the
    /// device and of write-back.
    pub fn write_at(&self, offset: u64, buf: &[u8]) -> Result<usize> {
        self.write_vectored_at(offset, &[IoSlice::new(buf)])
    }

    /// As [`RawFile::write_at`], from several buffers in order.
    ///
    /// # Errors
    /// As [`RawFile::write_at`].
    pub fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<usize> {
        check_writable(self.disk())?;
        let len = total(bufs);
        let end = offset.checked_add(len).ok_or(Reason::TooLarge)?;
        if len == 0 {
            return Ok(0);
        }
        if !direct::needs_exclusive(&self.identity(), offset, len) {
            let _shared = self.gate.shared();
            if self.cached.get().is_none() && !self.grows(end) {
                return host_result(direct::write(self.disk(), &self.identity(), offset, bufs));
            }
        }
        self.gate
            .exclusive(|| self.write_exclusive(bufs, offset, end))
    }

    /// Writes at the end, bypassing the cache. Returns the offset of the data and the number of bytes
    /// written. Concurrent appends never overlap.
    ///
    /// # Errors
    /// As [`RawFile::write_at`].
    pub fn append(&self, bufs: &[IoSlice<'_>]) -> Result<(u64, usize)> {
        check_writable(self.disk())?;
        let len = total(bufs);
        self.gate.exclusive(|| {
            let offset = self.len();
            if len == 0 {
                return Ok((offset, 0));
            }
            let end = offset.checked_add(len).ok_or(Reason::TooLarge)?;
            Ok((offset, self.write_exclusive(bufs, offset, end)?))
        })
    }

    /// The caller holds the gate exclusively.
    fn write_exclusive(&self, bufs: &[IoSlice<'_>], offset: u64, end: u64) -> Result<usize> {
        let host = self.host();
        let _frozen = match &host {
            // From the old end on: a hole between it and the write changes how the last block reads.
            Some(host) => {
                let from = offset.min(self.len());
                Some(coherence::before_direct_write(host, from..end)?)
            }
            None => None,
        };
        if self.grows(end) {
            return self.write_growing(bufs, offset, end);
        }
        host_result(direct::write(self.disk(), &self.identity(), offset, bufs))
    }

    /// Whether a write up to `end` extends a plain file or touches its incomplete last block. The result is
    /// stable while the gate is held and no write-back is running.
    fn grows(&self, end: u64) -> bool {
        let block = u64::from(identity::logical_bytes(self.disk()));
        self.core.can_grow()
            && end
                .checked_next_multiple_of(block)
                .is_none_or(|end| end > self.len())
    }

    /// Writes up to `end`, exclusively. The device writes whole blocks, which would round the file's length
    /// up, so the exact length is set afterwards; only then do readers see the new length.
    fn write_growing(&self, bufs: &[IoSlice<'_>], offset: u64, end: u64) -> Result<usize> {
        let before = self.len();
        if end > before {
            self.disk().set_len(end).map_err(room::host_error)?;
        }
        let written = host_result(direct::write(self.disk(), &self.identity(), offset, bufs));
        let len = match &written {
            Ok(bytes) => before.max(offset.saturating_add(*bytes as u64)),
            Err(_) => before,
        };
        let trimmed = self.set_len_exclusive(len);
        let written = written?;
        trimmed?;
        Ok(written)
    }

    /// Makes everything written before, and the length, durable.
    ///
    /// # Errors
    /// Those of write-back and of the device; returned by each call until the write succeeds. After a failed
    /// flush every call fails: the device may have dropped what was written.
    pub fn sync_all(&self) -> Result<()> {
        self.write_back()?;
        Ok(self.disk().flush()?)
    }

    /// As [`RawFile::sync_all`]: there is no other metadata to leave out.
    ///
    /// # Errors
    /// As [`RawFile::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        self.sync_all()
    }

    /// The first byte at or after `offset` that is not in a hole of the host's file; `None` if there is none
    /// up to the end. If the host cannot report holes, there are none.
    ///
    /// # Errors
    /// Those of write-back and of the host.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        flush_from(self.host(), offset)?;
        let found = self.disk().seek_data(offset)?;
        Ok(found.filter(|at| *at < self.len()))
    }

    /// The first byte at or after `offset` that is in a hole; the end counts as one. `None` if `offset` is at
    /// or past the end.
    ///
    /// # Errors
    /// As [`RawFile::seek_data`].
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        flush_from(self.host(), offset)?;
        let len = self.len();
        if offset >= len {
            return Ok(None);
        }
        Ok(Some(self.disk().seek_hole(offset)?.unwrap_or(len).min(len)))
    }

    fn identity(&self) -> Identity<'_> {
        Identity {
            disk: self.disk(),
            len: self.len(),
        }
    }

    /// The file as the cache sees it, if it is cached.
    fn host(&self) -> Option<Arc<dyn Backing>> {
        let cached = self.cached.get()?;
        Some(Arc::clone(cached) as Arc<dyn Backing>)
    }
}

/// Writes back everything from `offset` on, so that the host does not report it as a hole.
fn flush_from(cached: Option<Arc<dyn Backing>>, offset: u64) -> Result<()> {
    match cached {
        Some(cached) => crate::buffered::flush(&cached, offset..u64::MAX),
        None => Ok(()),
    }
}

fn check_writable(disk: &Disk) -> Result<()> {
    if disk.info().read_only {
        return Err(Reason::ReadOnly.into());
    }
    Ok(())
}

fn total(bufs: &[IoSlice<'_>]) -> u64 {
    bufs.iter()
        .fold(0_u64, |sum, buf| sum.saturating_add(buf.len() as u64))
}

/// [`room::host_error`] for the result of a write.
fn host_result<T>(result: Result<T>) -> Result<T> {
    result.map_err(|error| match error {
        Error::Device(error) => room::host_error(error),
        other => other,
    })
}
