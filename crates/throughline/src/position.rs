//! `Read`, `Write` and `Seek` of open files, as `std::fs::File` has them: a position in the handle itself.
//!
//! Invariant: the lock of the position is held for the whole call, so that of two threads that read, each gets other bytes, and
//! of two that write, none overwrites the other.

use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::sync::{MutexGuard, PoisonError};

use crate::file::File;
use crate::handle::Handle;
use crate::raw::RawFile;

impl Handle {
    /// A panic between the lock and the end of a call leaves the position as it was.
    fn locked_position(&self) -> MutexGuard<'_, u64> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
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

/// The position that `to` names, seen from `position` in a file of `size` bytes.
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

/// The three traits for a type that dereferences to [`Handle`], owned or borrowed.
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

        /// `flush` does nothing: no byte is held back by the handle itself. [`Handle::sync_all`] makes writes durable.
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
