//! [`Cursor`]: a position in an open file, for all that speaks `std::io`.

use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::ops::Deref;

use crate::handle::Handle;
use crate::position::target;

/// A position in an open file: `Read`, `Write` and `Seek`. It borrows a file ([`Handle::cursor`]) or owns it
/// ([`Cursor::new`]). Errors are those of the calls, as `io::Error`s.
///
/// A handle that was opened to append writes at the end; the position is then behind what it wrote. `flush` does nothing:
/// nothing is held back here; [`Handle::sync`] is what makes writes safe.
#[derive(Clone, Debug)]
pub struct Cursor<T> {
    file: T,
    position: u64,
}

impl<T: Deref<Target = Handle>> Cursor<T> {
    /// At byte 0 of `file`.
    pub fn new(file: T) -> Cursor<T> {
        Cursor { file, position: 0 }
    }

    /// The byte that is read or written next.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Goes to byte `position`.
    pub fn set_position(&mut self, position: u64) {
        self.position = position;
    }

    /// The file.
    pub fn get_ref(&self) -> &T {
        &self.file
    }

    /// Gives the file back.
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
