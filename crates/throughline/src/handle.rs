//! [`Handle`]: the I/O calls of every open file, in a volume or on the host.
//!
//! Invariants:
//! - All calls take offsets and `&self`, so any number of threads may share a handle. `Read`, `Write` and
//!   `Seek` use the handle's own position; each [`Cursor`] has its own.
//! - All handles of a file see the same bytes, buffered or direct.
//! - A call that fails after part of its work returns the number of bytes done; the next call returns the
//!   error.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use throughline_block::Disk;
use throughline_device::Op;
use throughline_ext::{Fallocate, Reason};
use throughline_fileio::{Advice, ReadStream};
use throughline_locks::{Mutex, Rank};

use crate::call::traced;
use crate::cursor::Cursor;
use crate::error::Result;
use crate::hints::SyncRange;
use crate::mode::{Durability, Mode};
use crate::source::{At, Source};

/// An open file, buffered or direct: the common part of [`File`](crate::File) and
/// [`RawFile`](crate::RawFile), which both dereference to it.
///
/// *Buffered* (the default): data goes through this library's page cache. A write returns when the data is in
/// memory. Write-back or a sync call brings it to the device later. Writers that are faster than the device
/// are paused for short times. *Direct*: data goes straight between the caller's memory and the device.
///
/// **Dropping a handle loses nothing**: its writes stay in the cache and are written back. They are lost if
/// the process ends or the machine fails before write-back or a sync ([what is
/// durable](crate#what-is-durable)).
///
/// `Read`, `Write` and `Seek` use a position that is kept in the handle, as with `std::fs::File`. They also
/// work on `&File`; calls that use the position run one at a time.
pub struct Handle {
    source: Arc<dyn Source>,
    /// The disk below, whose listeners trace the calls.
    disk: Arc<Disk>,
    mode: Mode,
    stream: ReadStream,
    /// Position of the `std::io` calls; see `position`. Clones share it.
    pub(crate) position: Arc<Mutex<u64>>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("device", &self.disk.info().name)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

impl Handle {
    pub(crate) fn new(source: Arc<dyn Source>, disk: &Arc<Disk>, mode: Mode) -> Handle {
        Handle {
            source,
            disk: Arc::clone(disk),
            mode,
            stream: ReadStream::default(),
            position: Arc::new(Mutex::ranked(Rank::Position, 0)),
        }
    }

    /// Another handle with the same mode.
    pub(crate) fn another(&self) -> Handle {
        Handle::new(Arc::clone(&self.source), &self.disk, self.mode)
    }

    /// Another handle with the same mode; both share one position.
    pub(crate) fn share(&self) -> Handle {
        Handle {
            position: Arc::clone(&self.position),
            ..self.another()
        }
    }

    /// Whether the handle bypasses this library's page cache.
    pub fn is_direct(&self) -> bool {
        self.mode.direct
    }

    /// The file's size in bytes, as every reader sees it.
    ///
    /// # Errors
    /// Damage.
    pub fn size(&self) -> Result<u64> {
        self.source.size()
    }

    /// Fills `buf` from byte `offset` and returns the number of bytes read, which is short only at the end of
    /// the file.
    ///
    /// # Errors
    /// Damage; device errors. The contents of `buf` are then undefined. [`Reason::NotOpenedFor`] if the
    /// handle is for writing only.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.read_vectored_at(&mut [IoSliceMut::new(buf)], offset)
    }

    /// As [`Handle::read_at`], into several buffers in order.
    ///
    /// # Errors
    /// The same.
    pub fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        if self.mode.no_reads {
            return Err(Reason::NotOpenedFor("reading").into());
        }
        let (source, direct) = (&self.source, self.mode.direct);
        let read = move || source.read(direct, &self.stream, offset, bufs);
        let done = traced(&self.disk, Op::Read, |bytes| *bytes, read)?;
        if !self.mode.unseen {
            source.accessed();
        }
        Ok(done)
    }

    /// See [`LendCached`](crate::internal::LendCached).
    pub(crate) fn pieces(&self, len: u64) -> Option<Vec<usize>> {
        if self.mode.direct || self.mode.no_reads {
            return None;
        }
        let position = self.position.try_lock()?;
        self.source.cached_pieces(*position, len)
    }

    /// See [`LendCached`](crate::internal::LendCached).
    pub(crate) fn lend(&self, len: u64, lend: &mut dyn FnMut(&[u8]) -> bool) -> Option<usize> {
        if self.mode.direct || self.mode.no_reads {
            return None;
        }
        let mut position = self.position.try_lock()?;
        let read = self.source.lend_cached(*position, len, lend)?;
        *position = position.saturating_add(read as u64);
        if !self.mode.unseen {
            self.source.accessed();
        }
        traced(&self.disk, Op::Read, |bytes| *bytes, || Ok(read)).ok()
    }

    /// As [`Handle::read_at`], but fills all of `buf` or fails.
    ///
    /// # Errors
    /// The same; [`Reason::PastEnd`] if the file ends first.
    pub fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> Result<()> {
        while !buf.is_empty() {
            let read = self.read_at(buf, offset)?;
            if read == 0 {
                return Err(Reason::PastEnd.into());
            }
            offset = offset.saturating_add(read as u64);
            buf = buf.get_mut(read..).unwrap_or_default();
        }
        Ok(())
    }

    /// Writes `buf` at byte `offset`, or at the end if the file was opened for appending. The file grows as
    /// needed; a gap between its old end and `offset` becomes a hole. Returns the number of bytes written,
    /// which is less than the length of `buf` only if an error followed; the next call then returns the
    /// error.
    ///
    /// **Until it is synced, a change is lost if the process ends or the machine fails**
    /// ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::NoSpace`] (never later than here: accepted data has its space), [`Reason::TooLarge`],
    /// [`Reason::ReadOnly`], [`Reason::NotOpenedFor`], [`Reason::Permission`]; damage; device errors,
    /// including those of earlier write-back if memory is full of data that cannot be written.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        self.write_vectored_at(&[IoSlice::new(buf)], offset)
    }

    /// As [`Handle::write_at`], from several buffers in order.
    ///
    /// **Until it is synced, a change is lost if the process ends or the machine fails**
    /// ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// The same.
    pub fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<usize> {
        Ok(self.write(At::Offset(offset), bufs)?.1)
    }

    /// As [`Handle::write_at`], repeated until all of `buf` is written.
    ///
    /// **Until it is synced, a change is lost if the process ends or the machine fails**
    /// ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// The same; part of `buf` may have been written.
    pub fn write_all_at(&self, mut buf: &[u8], mut offset: u64) -> Result<()> {
        while !buf.is_empty() {
            let written = self.write_at(buf, offset)?;
            if written == 0 {
                return Err(Reason::NoSpace.into());
            }
            offset = offset.checked_add(written as u64).ok_or(Reason::TooLarge)?;
            buf = buf.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    /// Writes at the end of the file; returns the offset of the data and the number of bytes written. Appends
    /// through any number of handles and threads never overlap.
    ///
    /// **Until it is synced, a change is lost if the process ends or the machine fails**
    /// ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// As [`Handle::write_at`].
    pub fn append(&self, buf: &[u8]) -> Result<(u64, usize)> {
        self.write(At::End, &[IoSlice::new(buf)])
    }

    /// As [`Handle::append`], but writes all of `buf` in one contiguous piece or fails; returns its offset.
    /// After an error the first part of `buf` may be at the end of the file.
    ///
    /// **Until it is synced, a change is lost if the process ends or the machine fails**
    /// ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// As [`Handle::write_at`]; [`Reason::Busy`] if an error cut the append short and another append came in
    /// between.
    pub fn append_all(&self, buf: &[u8]) -> Result<u64> {
        let (begin, mut done) = self.append(buf)?;
        while let Some(rest) = buf.get(done..).filter(|rest| !rest.is_empty()) {
            let (at, written) = self.append(rest)?;
            if written == 0 {
                return Err(Reason::NoSpace.into());
            }
            if begin.checked_add(done as u64) != Some(at) {
                let why = "another append came between the parts of a short append";
                return Err(Reason::Busy(why.into()).into());
            }
            done += written;
        }
        Ok(begin)
    }

    /// As [`Handle::write_vectored_at`]; also returns the offset that was written to.
    pub(crate) fn write_from(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(u64, usize)> {
        self.write(At::Offset(offset), bufs)
    }

    /// Whether writes may begin at any offset and are not durable by themselves.
    pub(crate) fn writes_plainly(&self) -> bool {
        !self.mode.no_writes && !self.mode.append && self.mode.durability == Durability::Later
    }

    fn check_write(&self) -> Result<()> {
        match self.mode.no_writes {
            true => Err(Reason::NotOpenedFor("writing").into()),
            false => Ok(()),
        }
    }

    fn write(&self, at: At, bufs: &[IoSlice<'_>]) -> Result<(u64, usize)> {
        self.check_write()?;
        let at = match at {
            _ if self.mode.append => At::End,
            At::Offset(offset) if self.mode.granted => At::Granted(offset),
            at => at,
        };
        let direct = self.mode.direct;
        let moved = |written: &(u64, usize)| written.1;
        traced(&self.disk, Op::Write, moved, move || {
            let written = self.source.write(direct, at, bufs)?;
            match self.mode.durability {
                Durability::Later => {}
                Durability::Data => self.source.sync(true)?,
                Durability::All => self.source.sync(false)?,
            }
            Ok(written)
        })
    }

    fn make_durable(&self, data_only: bool) -> Result<()> {
        let sync = move || self.source.sync(data_only);
        traced(&self.disk, Op::Flush, |()| 0, sync)
    }

    /// Returns when data, size and name survive a crash (`fsync`).
    ///
    /// # Errors
    /// The device's error, on every call until the sync succeeds.
    pub fn sync_all(&self) -> Result<()> {
        self.make_durable(false)
    }

    /// Returns when the data can be read back after a crash (`fdatasync`): as [`Handle::sync_all`], except
    /// for timestamps.
    ///
    /// # Errors
    /// As [`Handle::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        self.make_durable(true)
    }

    /// Writes back the dirty part of `len` bytes from `offset`, so that a later sync has less to do. **Does
    /// not make the data durable.** `len` 0 means to the end of the file.
    ///
    /// # Errors
    /// With [`SyncRange::Wait`], write-back errors.
    pub fn sync_range(&self, offset: u64, len: u64, how: SyncRange) -> Result<()> {
        self.source.sync_range(range(offset, len), how)
    }

    /// Announces how `len` bytes from `offset` will be used; `len` 0 means to the end of the file.
    /// [`Advice::WillNeed`] and [`Advice::DontNeed`] apply to that range, the others to this handle and the
    /// whole file. Never waits for the device; errors of background reads are ignored.
    ///
    /// # Errors
    /// Damage.
    pub fn advise(&self, advice: Advice, offset: u64, len: u64) -> Result<()> {
        self.source.advise(&self.stream, advice, range(offset, len))
    }

    /// Sets the file's length to `bytes`: data past it is dropped, and a new part is a hole.
    ///
    /// **Until it is synced, a change is lost if the process ends or the machine fails**
    /// ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// As [`Handle::write_at`]; [`Error::Unsupported`](crate::Error::Unsupported) for a device.
    pub fn set_len(&self, bytes: u64) -> Result<()> {
        self.check_write()?;
        self.source.set_len(bytes)
    }

    /// Changes how `len` bytes from `offset` on are allocated.
    ///
    /// **Until it is synced, a change is lost if the process ends or the machine fails**
    /// ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::Invalid`] for an empty range, or one that is not block-aligned where it must be;
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the file's format, or a raw file, cannot do it;
    /// as [`Handle::write_at`].
    pub fn allocate(&self, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.check_write()?;
        self.source.allocate(mode, offset, len)
    }

    /// The first byte at or after `offset` that is not in a hole; `None` if there is none before the end.
    ///
    /// # Errors
    /// Damage; device errors.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        self.source.seek_data(offset)
    }

    /// The first byte at or after `offset` that is in a hole; the end of the file counts as one. `None` if
    /// `offset` is past the last byte.
    ///
    /// # Errors
    /// Damage; device errors.
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        self.source.seek_hole(offset)
    }

    /// A separate position in the file, starting at byte 0, with `Read`, `Write` and `Seek`: one for each
    /// thread or parser. [`Cursor::new`] owns its file instead of borrowing it.
    pub fn cursor(&self) -> Cursor<&Handle> {
        Cursor::new(self)
    }

    /// Whether both are handles of the same open file.
    pub fn is_same_file(&self, other: &Handle) -> bool {
        self.source.is_same(&*other.source)
    }
}

/// `len` bytes from `offset`; 0 means to the end.
fn range(offset: u64, len: u64) -> std::ops::Range<u64> {
    match len {
        0 => offset..u64::MAX,
        _ => offset..offset.saturating_add(len),
    }
}
