//! [`RawFile`]: a whole device, or a plain file of the host, as a file: its mapping is the device onto itself.
//!
//! ```text
//!  RawFile ── Core: disk, committed length, room on the host's disk
//!     │  └─── gate, extend: the file's locks
//!     └─ Cached (from the first buffered access on): the bytes in the page cache, and the file as that sees it
//! ```
//!
//! Invariants:
//! - Who uses only direct I/O shares nothing with other threads but what all only read: no count per inode, no lock that
//!   another thread's I/O writes (founding report 2). A block device cannot shrink, so reading takes no lock at all.
//!   Writing takes the [`Gate`], because a write of a part of a block must be alone.
//! - With the first buffered access the file is [`Cached`], for as long as it is open, and the rules of
//!   [`crate::coherence`] hold: I/O holds the gate shared; direct writes and all that changes the length hold it
//!   exclusively, with background work kept out.
//! - Of a plain file nobody else may change the length.
//! - What a buffered write accepted has its room on the host's disk, where the host can promise that ([`room`]).
//! - Write-back writes whole blocks, so the host's file may be longer than the data, by zeros, until the file is synced or
//!   closed. The length is set to the byte only while nothing is written back.

mod backing;
mod buffered;
mod identity;
mod resize;
mod room;

use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use throughline_block::Disk;

use crate::cache::{Backing, CacheOptions, PageCache};
use crate::error::{Error, Reason, Result};
use crate::gate::Gate;
use crate::{coherence, direct};
use backing::{Cached, Core};
use identity::Identity;

/// A block device or a plain file, for direct and buffered I/O of any offset, length and memory. A plain file grows with
/// what is written behind its end; a device does not.
///
/// Dropping it writes back what is dirty; [`RawFile::close`] does so and says what went wrong.
pub struct RawFile {
    core: Arc<Core>,
    /// The file's lock against truncation.
    gate: Gate,
    /// Held by buffered writes that end behind the size. Taken inside the gate.
    extend: Mutex<()>,
    /// What the program wants kept allocated behind the end, up to here. Under the gate, exclusively.
    kept_until: Mutex<u64>,
    options: CacheOptions,
    /// Made under the gate, exclusively.
    cached: OnceLock<Arc<Cached>>,
    /// There is nothing left to do when it is dropped.
    closed: AtomicBool,
}

impl RawFile {
    /// The file that is all of `disk`, with a cache derived from the machine if it comes to use one.
    pub fn new(disk: Arc<Disk>) -> Self {
        Self::with_cache(disk, CacheOptions::default())
    }

    /// As [`RawFile::new`], with a cache made as `options` say when it is first used.
    pub fn with_cache(disk: Arc<Disk>, options: CacheOptions) -> Self {
        Self {
            core: Arc::new(Core::new(disk)),
            gate: Gate::default(),
            extend: Mutex::new(()),
            kept_until: Mutex::new(0),
            options,
            cached: OnceLock::new(),
            closed: AtomicBool::new(false),
        }
    }

    /// The disk below.
    pub fn disk(&self) -> &Arc<Disk> {
        &self.core.disk
    }

    /// Its page cache, if it has come to use one.
    pub fn cache(&self) -> Option<&Arc<PageCache>> {
        self.cached.get().map(|cached| cached.space.cache())
    }

    /// Length in bytes, as every reader sees it.
    pub fn len(&self) -> u64 {
        let committed = self.core.committed();
        match self.cached.get() {
            Some(cached) => cached.space.size().max(committed),
            None => committed,
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` from byte `offset` on, past the cache; returns how many bytes there were, fewer only at the end.
    ///
    /// # Errors
    /// What the device says; `buf` is then undefined.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read_vectored_at(offset, &mut [IoSliceMut::new(buf)])
    }

    /// As [`RawFile::read_at`], into several pieces of memory one after the other.
    ///
    /// # Errors
    /// As [`RawFile::read_at`].
    pub fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<usize> {
        let Some(host) = self.host() else {
            return direct::read(self.disk(), &self.identity(), offset, bufs);
        };
        let _beside_others = self.gate.shared();
        let len = bufs
            .iter()
            .fold(0_u64, |sum, buf| sum.saturating_add(buf.len() as u64));
        coherence::before_direct_read(&host, offset..offset.saturating_add(len))?;
        direct::read(self.disk(), &self.identity(), offset, bufs)
    }

    /// Writes `buf` at byte `offset`, past the cache; returns how many bytes are written, fewer only where an error or
    /// the device's end came after them.
    ///
    /// # Errors
    /// [`Reason::NoSpace`] at the end of a device and on a full host, [`Reason::ReadOnly`], what the device says.
    pub fn write_at(&self, offset: u64, buf: &[u8]) -> Result<usize> {
        self.write_vectored_at(offset, &[IoSlice::new(buf)])
    }

    /// As [`RawFile::write_at`], from several pieces of memory one after the other.
    ///
    /// # Errors
    /// As [`RawFile::write_at`].
    pub fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<usize> {
        self.check_writable()?;
        let len = total(bufs);
        let end = offset.checked_add(len).ok_or(Reason::TooLarge)?;
        if len == 0 {
            return Ok(0);
        }
        if !direct::needs_exclusive(&self.identity(), offset, len) {
            let _beside_others = self.gate.shared();
            if self.cached.get().is_none() && !self.grows(end) {
                return told(direct::write(self.disk(), &self.identity(), offset, bufs));
            }
        }
        self.gate.exclusive(|| self.write_alone(bufs, offset, end))
    }

    /// Writes at the end, past the cache; returns where the bytes are, and how many were written. Appends never overlap.
    ///
    /// # Errors
    /// As [`RawFile::write_at`].
    pub fn append(&self, bufs: &[IoSlice<'_>]) -> Result<(u64, usize)> {
        self.check_writable()?;
        let len = total(bufs);
        self.gate.exclusive(|| {
            let offset = self.len();
            if len == 0 {
                return Ok((offset, 0));
            }
            let end = offset.checked_add(len).ok_or(Reason::TooLarge)?;
            Ok((offset, self.write_alone(bufs, offset, end)?))
        })
    }

    /// With the gate held exclusively.
    fn write_alone(&self, bufs: &[IoSlice<'_>], offset: u64, end: u64) -> Result<usize> {
        let host = self.host();
        let _frozen = match &host {
            // From the end on: a hole between them changes what the last block reads as.
            Some(host) => {
                let from = offset.min(self.len());
                Some(coherence::before_direct_write(host, from..end)?)
            }
            None => None,
        };
        if self.grows(end) {
            return self.write_growing(bufs, offset, end);
        }
        told(direct::write(self.disk(), &self.identity(), offset, bufs))
    }

    /// Whether a write up to `end` reaches into the last block of a plain file, where that is not whole, or behind it.
    /// Steady while the gate is held and nothing is written back.
    fn grows(&self, end: u64) -> bool {
        let block = u64::from(identity::logical_bytes(self.disk()));
        self.core.can_grow()
            && end
                .checked_next_multiple_of(block)
                .is_none_or(|end| end > self.len())
    }

    /// Writes up to `end`, alone. The device writes whole blocks and would make the file as long, so the length is set
    /// to the byte afterwards; readers see the new length only then.
    fn write_growing(&self, bufs: &[IoSlice<'_>], offset: u64, end: u64) -> Result<usize> {
        let before = self.len();
        if end > before {
            self.disk().set_len(end).map_err(room::told)?;
        }
        let written = told(direct::write(self.disk(), &self.identity(), offset, bufs));
        let len = match &written {
            Ok(bytes) => before.max(offset.saturating_add(*bytes as u64)),
            Err(_) => before,
        };
        let trimmed = self.set_len_alone(len);
        let written = written?;
        trimmed?;
        Ok(written)
    }

    /// Returns when everything written before, and the length, survives a power loss.
    ///
    /// # Errors
    /// What write-back met and what the device says, again at each call until it can be done.
    pub fn sync_all(&self) -> Result<()> {
        self.write_back()?;
        Ok(self.disk().flush()?)
    }

    /// As [`RawFile::sync_all`]: there is no other metadata that could be left out.
    ///
    /// # Errors
    /// As there.
    pub fn sync_data(&self) -> Result<()> {
        self.sync_all()
    }

    /// The first byte at or behind `offset` that is no hole of the host's file; `None` if there is none up to the end. What
    /// the host cannot tell is no hole.
    ///
    /// # Errors
    /// What write-back met, what the system says.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        self.settled(offset)?;
        let found = self.disk().seek_data(offset)?;
        Ok(found.filter(|at| *at < self.len()))
    }

    /// The first byte at or behind `offset` that is in a hole, of which there is one behind the end; `None` where
    /// `offset` is behind the last byte.
    ///
    /// # Errors
    /// As [`RawFile::seek_data`].
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        self.settled(offset)?;
        let len = self.len();
        if offset >= len {
            return Ok(None);
        }
        Ok(Some(self.disk().seek_hole(offset)?.unwrap_or(len).min(len)))
    }

    /// What is dirty from `offset` on is on the device, and no longer taken for a hole.
    fn settled(&self, offset: u64) -> Result<()> {
        match self.host() {
            Some(host) => crate::buffered::flush(&host, offset..u64::MAX),
            None => Ok(()),
        }
    }

    fn check_writable(&self) -> Result<()> {
        if self.disk().info().read_only {
            return Err(Reason::ReadOnly.into());
        }
        Ok(())
    }

    fn identity(&self) -> Identity<'_> {
        Identity {
            disk: self.disk(),
            len: self.len(),
        }
    }

    /// The file as the cache sees it, once it is cached.
    fn host(&self) -> Option<Arc<dyn Backing>> {
        let cached = self.cached.get()?;
        Some(Arc::clone(cached) as Arc<dyn Backing>)
    }
}

fn total(bufs: &[IoSlice<'_>]) -> u64 {
    bufs.iter()
        .fold(0_u64, |sum, buf| sum.saturating_add(buf.len() as u64))
}

/// As [`room::told`], where the host's words come from a write.
fn told<T>(result: Result<T>) -> Result<T> {
    result.map_err(|error| match error {
        Error::Device(error) => room::told(error),
        other => other,
    })
}
