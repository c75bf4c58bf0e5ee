//! `Read`, `Write` and `Seek` for open files, as with `std::fs::File`: the position is kept in the handle.
//!
//! Invariant: the position's lock is held for the whole call, so concurrent reads return different bytes and
//! concurrent writes do not overwrite each other.

use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};

use throughline_locks::MutexGuard;

use crate::file::File;
use crate::handle::Handle;
use crate::raw::RawFile;

impl Handle {
    /// A call that panics while it holds the lock leaves the position unchanged.
    fn locked_position(&self) -> MutexGuard<'_, u64> {
        self.position.lock()
    }

    fn read_on(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut position = self.locked_position();
        let read = self.read_vectored_at(bufs, *position)?;
        *position = position.saturating_add(read as u64);
        Ok(read)
    }

    fn write_on(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut position = self.locked_position();
        let (at, written) = self.write_from(bufs, *position)?;
        *position = at.saturating_add(written as u64);
        Ok(written)
    }

    fn seek_to(&self, to: SeekFrom) -> io::Result<u64> {
        let mut position = self.locked_position();
        *position = target(*position, to, || Ok(self.size()?))?;
        Ok(*position)
    }
}

/// The position that `to` denotes, relative to `position` or to the `size` of the file.
pub(crate) fn target(
    position: u64,
    to: SeekFrom,
    size: impl FnOnce() -> io::Result<u64>,
) -> io::Result<u64> {
    let (base, by) = match to {
        SeekFrom::Start(position) => return Ok(position),
        SeekFrom::Current(by) => (position, by),
        SeekFrom::End(by) => (size()?, by),
    };
    let outside = || io::Error::new(io::ErrorKind::InvalidInput, "a position before byte 0");
    base.checked_add_signed(by).ok_or_else(outside)
}

/// Implements the three traits for a type that dereferences to [`Handle`], owned or borrowed.
macro_rules! positioned {
    ($($file:ty),*) => {$(
        impl Read for $file {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                self.read_on(&mut [IoSliceMut::new(buf)])
            }

            fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.read_on(bufs)
            }
        }

        /// As [`Handle::write_at`]. **Until it is synced, a change is lost if the process ends or the machine
        /// fails.** `flush` does nothing, as the handle buffers no data of its own; [`Handle::sync_all`]
        /// makes writes durable.
        impl Write for $file {
            fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
                self.write_on(&[IoSlice::new(buf)])
            }

            fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                self.write_on(bufs)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        impl Seek for $file {
            fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
                self.seek_to(to)
            }
        }
    )*};
}

positioned!(File, &File, RawFile, &RawFile, Handle, &Handle);
