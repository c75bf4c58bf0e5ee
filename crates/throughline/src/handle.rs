//! [`Handle`]: what every open file can do, in a volume or on its own.
//!
//! Invariants:
//! - All calls take offsets and `&self`: all threads may use a handle at once. The position that `Read`, `Write` and `Seek`
//!   use is the handle's own; a [`Cursor`] has another.
//! - All handles of a file see the same bytes, buffered or direct.
//! - Of a call that fails half-way, what was done is reported as a short count; the next call meets the error.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex};

use throughline_block::Disk;
use throughline_device::Op;
use throughline_ext::{Fallocate, Reason};
use throughline_fileio::{Advice, ReadStream, Wait};

use crate::call::told;
use crate::cursor::Cursor;
use crate::error::Result;
use crate::hints::SyncRange;
use crate::mode::{Durability, Mode};
use crate::source::{At, Source};

/// An open file, buffered or direct: what [`File`](crate::File) and [`RawFile`](crate::RawFile) have in common. Both
/// dereference to it.
///
/// *Buffered* (the default), bytes go through this library's page cache: a write is in memory when it returns and on the device
/// soon, or when one of the sync calls says so; the writer pauses now and then where it is faster than the device. *Direct*,
/// they go straight between the program's memory and the device.
///
/// **A handle that is dropped loses nothing**: what it wrote stays in the cache and is written back. It is lost if the process or
/// the machine ends before that, or before a sync ([what is durable](crate#what-is-durable)).
///
/// `Read`, `Write` and `Seek` work on a position that the handle keeps, as those of `std::fs::File` do: for a handle that is
/// borrowed too, one call at a time.
pub struct Handle {
    source: Arc<dyn Source>,
    /// What it lies on: whose listeners hear of the calls.
    disk: Arc<Disk>,
    mode: Mode,
    stream: ReadStream,
    /// Where `std::io`'s calls go on; see `position`.
    pub(crate) position: Mutex<u64>,
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
            position: Mutex::new(0),
        }
    }

    /// Another handle, for the same uses.
    pub(crate) fn another(&self) -> Handle {
        Handle::new(Arc::clone(&self.source), &self.disk, self.mode)
    }

    /// Whether it goes past the cache.
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

    /// Fills `buf` from byte `offset` on; returns how many bytes there were, fewer only at the end of the file.
    ///
    /// # Errors
    /// Damage; the device's. `buf` is then undefined.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.read_vectored_at(&mut [IoSliceMut::new(buf)], offset)
    }

    /// As [`Handle::read_at`], into several buffers one after the other.
    ///
    /// # Errors
    /// As there.
    pub fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        let (source, direct) = (&self.source, self.mode.direct);
        let read = move || source.read(direct, &self.stream, offset, bufs);
        let done = told(&self.disk, Op::Read, |bytes| *bytes, read)?;
        if !self.mode.unseen {
            source.accessed();
        }
        Ok(done)
    }

    /// As [`Handle::read_at`], all of `buf` or an error.
    ///
    /// # Errors
    /// As there; [`Reason::PastEnd`] where the file ends before.
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

    /// Writes `buf` at byte `offset` (at the end, if it was opened to append); the file grows as needed, and what is
    /// between its end and `offset` becomes a hole. Returns how many bytes were written, fewer than given only where an
    /// error came after them, which the next call meets.
    ///
    /// **Until a sync, what it accepts is lost if the process or the machine ends** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::NoSpace`] (told here: what is accepted has its room), [`Reason::TooLarge`], [`Reason::ReadOnly`],
    /// [`Reason::Permission`]; damage; the device's, an earlier write-back's among them where memory is full of what
    /// cannot be written.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        self.write_vectored_at(&[IoSlice::new(buf)], offset)
    }

    /// As [`Handle::write_at`], from several buffers one after the other.
    ///
    /// **Until a sync, what it accepts is lost if the process or the machine ends** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// As there.
    pub fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<usize> {
        Ok(self.write(At::Offset(offset), bufs, Wait::Yes)?.1)
    }

    /// As [`Handle::write_at`], until all of `buf` is written.
    ///
    /// **Until a sync, what it accepts is lost if the process or the machine ends** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// As there; a part of `buf` may have been written then.
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

    /// As [`Handle::write_at`], and where a buffered write would have to wait for dirty memory to be written back, or to
    /// pause for what was written before, it says so instead: for programs with an event loop, which try again later. A
    /// direct handle waits for the device as ever.
    ///
    /// **Until a sync, what it accepts is lost if the process or the machine ends** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::WouldBlock`], with nothing written; as [`Handle::write_at`].
    pub fn try_write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        let bufs = [IoSlice::new(buf)];
        Ok(self.write(At::Offset(offset), &bufs, Wait::No)?.1)
    }

    /// Writes at the end of the file; returns where the bytes are, and how many were written. Appends of any number of
    /// handles and threads never overlap.
    ///
    /// **Until a sync, what it accepts is lost if the process or the machine ends** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// As [`Handle::write_at`].
    pub fn append(&self, buf: &[u8]) -> Result<(u64, usize)> {
        self.write(At::End, &[IoSlice::new(buf)], Wait::Yes)
    }

    /// As [`Handle::append`], all of `buf` in one piece or an error; returns where it begins. On an error the first part of
    /// `buf` may be at the end of the file.
    ///
    /// **Until a sync, what it accepts is lost if the process or the machine ends** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// As [`Handle::write_at`]; [`Reason::Busy`] where an error cut the append short and another append came between its
    /// two parts.
    pub fn append_all(&self, buf: &[u8]) -> Result<u64> {
        let (begin, mut done) = self.append(buf)?;
        while let Some(rest) = buf.get(done..).filter(|rest| !rest.is_empty()) {
            let (at, written) = self.append(rest)?;
            if written == 0 {
                return Err(Reason::NoSpace.into());
            }
            if begin.checked_add(done as u64) != Some(at) {
                let why = "another append came between the parts of one that was cut short";
                return Err(Reason::Busy(why.into()).into());
            }
            done += written;
        }
        Ok(begin)
    }

    /// As [`Handle::write_vectored_at`], and says where the bytes went.
    pub(crate) fn write_from(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(u64, usize)> {
        self.write(At::Offset(offset), bufs, Wait::Yes)
    }

    fn write(&self, at: At, bufs: &[IoSlice<'_>], wait: Wait) -> Result<(u64, usize)> {
        let at = match at {
            _ if self.mode.append => At::End,
            At::Offset(offset) if self.mode.granted => At::Granted(offset),
            at => at,
        };
        let direct = self.mode.direct;
        let moved = |written: &(u64, usize)| written.1;
        told(&self.disk, Op::Write, moved, move || {
            let written = self.source.write(direct, at, bufs, wait)?;
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
        told(&self.disk, Op::Flush, |()| 0, sync)
    }

    /// Returns when data, size and name survive a crash (`fsync`).
    ///
    /// # Errors
    /// What the device says, again at every call until it can be done.
    pub fn sync(&self) -> Result<()> {
        self.make_durable(false)
    }

    /// [`Handle::sync`] by the name that it has in `std::fs`.
    ///
    /// # Errors
    /// As there.
    pub fn sync_all(&self) -> Result<()> {
        self.sync()
    }

    /// Returns when the data can be read back after a crash (`fdatasync`): as [`Handle::sync`], but for times.
    ///
    /// # Errors
    /// As [`Handle::sync`].
    pub fn sync_data(&self) -> Result<()> {
        self.make_durable(true)
    }

    /// Writes back what is dirty of `len` bytes from `offset` on, for programs that spread the work of a later sync: after
    /// this nothing is promised about a crash. `len` 0 is to the end of the file.
    ///
    /// # Errors
    /// With [`SyncRange::Wait`], what write-back met.
    pub fn sync_range(&self, offset: u64, len: u64, how: SyncRange) -> Result<()> {
        self.source.sync_range(range(offset, len), how)
    }

    /// Says how `len` bytes from `offset` on will be used; `len` 0 is to the end of the file. [`Advice::WillNeed`] and
    /// [`Advice::DontNeed`] are about that range, the others about this handle and the whole file. Never waits for the
    /// device, and what is read in the background fails in silence.
    ///
    /// # Errors
    /// Damage.
    pub fn advise(&self, advice: Advice, offset: u64, len: u64) -> Result<()> {
        self.source.advise(&self.stream, advice, range(offset, len))
    }

    /// Makes the file `bytes` long: what is behind goes, what is new is a hole.
    ///
    /// **Until a sync, what it accepts is lost if the process or the machine ends** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// As [`Handle::write_at`]; [`Error::Unsupported`](crate::Error::Unsupported) for a device.
    pub fn set_len(&self, bytes: u64) -> Result<()> {
        self.source.set_len(bytes)
    }

    /// Changes how `len` bytes from `offset` on are allocated.
    ///
    /// **Until a sync, what it accepts is lost if the process or the machine ends** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::Invalid`] for an empty range, or one that is not whole blocks where it must be;
    /// [`Error::Unsupported`](crate::Error::Unsupported) for what this file's format, or a raw file, cannot do; as
    /// [`Handle::write_at`].
    pub fn allocate(&self, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.source.allocate(mode, offset, len)
    }

    /// The first byte at or behind `offset` that is no hole; `None` if there is none up to the end.
    ///
    /// # Errors
    /// Damage; the device's.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        self.source.seek_data(offset)
    }

    /// The first byte at or behind `offset` that is in a hole, of which there is one behind the end; `None` where `offset`
    /// is behind the last byte.
    ///
    /// # Errors
    /// Damage; the device's.
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        self.source.seek_hole(offset)
    }

    /// A position in the file apart from the handle's own, from byte 0 on, with `std::io`'s `Read`, `Write` and `Seek`: one for
    /// each thread or parser. [`Cursor::new`] takes a file instead of borrowing it.
    pub fn cursor(&self) -> Cursor<&Handle> {
        Cursor::new(self)
    }

    /// Whether both are handles of the same open file.
    pub fn is_same_file(&self, other: &Handle) -> bool {
        self.source.is_same(&*other.source)
    }
}

/// `len` bytes from `offset` on; to the end where `len` is 0.
fn range(offset: u64, len: u64) -> std::ops::Range<u64> {
    match len {
        0 => offset..u64::MAX,
        _ => offset..offset.saturating_add(len),
    }
}
