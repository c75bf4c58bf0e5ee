//! [`Cursor`]: an independent position in an open file, for `std::io`.

use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::ops::Deref;

use crate::handle::Handle;
use crate::position::target;

/// A position in an open file: `Read`, `Write` and `Seek`. It borrows a file ([`Handle::cursor`]) or owns it
/// ([`Cursor::new`]). Errors are those of the handle's calls, as `io::Error`s.
///
/// A handle opened for appending writes at the end; the position then follows the bytes written. `flush` does
/// nothing, as the cursor buffers nothing; [`Handle::sync_all`] makes writes durable.
#[derive(Clone, Debug)]
pub struct Cursor<T> {
    file: T,
    position: u64,
}

impl<T: Deref<Target = Handle>> Cursor<T> {
    /// Starts at byte 0 of `file`.
    pub fn new(file: T) -> Cursor<T> {
        Cursor { file, position: 0 }
    }

    /// The offset of the next read or write.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Moves to byte `position`.
    pub fn set_position(&mut self, position: u64) {
        self.position = position;
    }

    /// The file.
    pub fn get_ref(&self) -> &T {
        &self.file
    }

    /// Returns the file.
    pub fn into_inner(self) -> T {
        self.file
    }

    fn advance(&mut self, by: usize) -> usize {
        self.position = self.position.saturating_add(by as u64);
        by
    }
}

impl<T: Deref<Target = Handle>> Read for Cursor<T> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buf, self.position)?;
        Ok(self.advance(read))
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let read = self.file.read_vectored_at(bufs, self.position)?;
        Ok(self.advance(read))
    }
}

/// As [`Handle::write_at`]. **Until it is synced, a change is lost if the process ends or the machine
/// fails.**
/// `flush` does nothing; [`Handle::sync_all`] makes writes durable.
impl<T: Deref<Target = Handle>> Write for Cursor<T> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let (at, written) = self.file.write_from(bufs, self.position)?;
        self.position = at;
        Ok(self.advance(written))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<T: Deref<Target = Handle>> Seek for Cursor<T> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.position = target(self.position, to, || Ok(self.file.size()?))?;
        Ok(self.position)
    }
}
