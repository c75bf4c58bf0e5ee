//! What the tar parser reads from.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::{Compression, Spool};
use crate::error::{Error, Result};

/// Bytes of an archive, in order.
pub(crate) trait Input {
    /// Reads until the buffer is full or the input ends; how many bytes.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize>;

    /// Passes over data that will be wanted later; where it will be.
    fn pass(&mut self, bytes: u64) -> Result<u64>;

    /// Passes over what will not be wanted.
    fn skip(&mut self, bytes: u64) -> Result<()>;

    /// How many bytes were read and passed over.
    fn position(&self) -> u64;
}

/// A part of a file.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) file: Arc<File>,
    pub(crate) start: u64,
    pub(crate) length: u64,
}

impl Window {
    /// All of a file.
    pub(crate) fn whole(file: File) -> io::Result<Window> {
        let length = file.metadata()?.len();
        Ok(Window {
            file: Arc::new(file),
            start: 0,
            length,
        })
    }

    /// How it is compressed, as its first bytes say.
    pub(crate) fn compression(&self) -> io::Result<Compression> {
        let mut head = [0; 6];
        let head = &mut head[..self.length.min(6) as usize];
        self.read_exact_at(0, head)?;
        Ok(Compression::of(head))
    }

    pub(crate) fn read_exact_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = at
            .checked_add(buffer.len() as u64)
            .filter(|&end| end <= self.length);
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.file.read_exact_at(buffer, self.start + at)
    }

    pub(crate) fn reader(&self) -> WindowReader {
        WindowReader {
            window: self.clone(),
            position: 0,
        }
    }
}

/// Reads a window from its start.
pub(crate) struct WindowReader {
    window: Window,
    position: u64,
}

impl Read for WindowReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.window.length - self.position;
        let most = left.min(buffer.len() as u64) as usize;
        let read = self
            .window
            .file
            .read_at(&mut buffer[..most], self.window.start + self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}

/// A plain archive in a file: data is passed over without being read.
pub(crate) struct FileInput {
    window: Window,
    position: u64,
    buffer: Vec<u8>,
    /// Where in the window the buffer's bytes are.
    buffered: u64,
}

/// Bytes read ahead of headers: with small files, several headers are in it.
const READ_AHEAD: usize = 32 << 10;

impl FileInput {
    pub(crate) fn new(window: Window) -> FileInput {
        FileInput {
            window,
            position: 0,
            buffer: Vec::new(),
            buffered: 0,
        }
    }

    fn refill(&mut self) -> Result<()> {
        let left = self.window.length.saturating_sub(self.position);
        self.buffer.resize(left.min(READ_AHEAD as u64) as usize, 0);
        self.buffered = self.position;
        let read = self.window.read_exact_at(self.position, &mut self.buffer);
        read.map_err(|error| Error::io("archive", error))
    }
}

impl Input for FileInput {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() && self.position < self.window.length {
            let inside = self
                .position
                .checked_sub(self.buffered)
                .filter(|&at| at < self.buffer.len() as u64);
            let Some(at) = inside else {
                self.refill()?;
                continue;
            };
            let part = &self.buffer[at as usize..];
            let part = &part[..part.len().min(buffer.len() - done)];
            buffer[done..done + part.len()].copy_from_slice(part);
            done += part.len();
            self.position += part.len() as u64;
        }
        Ok(done)
    }

    fn pass(&mut self, bytes: u64) -> Result<u64> {
        let at = self.position;
        self.skip(bytes)?;
        Ok(at)
    }

    fn skip(&mut self, bytes: u64) -> Result<()> {
        let end = self
            .position
            .checked_add(bytes)
            .filter(|&end| end <= self.window.length);
        self.position = end.ok_or_else(|| truncated(self.position))?;
        Ok(())
    }

    fn position(&self) -> u64 {
        self.position
    }
}

/// An archive that is read in order.
pub(crate) struct StreamInput<'a> {
    reader: Box<dyn Read + Send + 'a>,
    position: u64,
    scratch: Vec<u8>,
    /// Where contents are kept, if the stream cannot be read again.
    spool: Option<&'a mut Spool>,
}

impl<'a> StreamInput<'a> {
    pub(crate) fn new(
        reader: Box<dyn Read + Send + 'a>,
        spool: Option<&'a mut Spool>,
    ) -> StreamInput<'a> {
        StreamInput {
            reader,
            position: 0,
            scratch: vec![0; 128 << 10],
            spool,
        }
    }

    fn go(&mut self, bytes: u64, keep: bool) -> Result<()> {
        let mut left = bytes;
        while left > 0 {
            let part = left.min(self.scratch.len() as u64) as usize;
            let read = fill(&mut *self.reader, &mut self.scratch[..part]).map_err(from_read)?;
            self.position += read as u64;
            if read < part {
                return Err(truncated(self.position));
            }
            if let Some(spool) = self.spool.as_mut().filter(|_| keep) {
                spool.append(&self.scratch[..part])?;
            }
            left -= part as u64;
        }
        Ok(())
    }

    /// Reads to the end, so that checksums there are checked.
    pub(crate) fn drain(&mut self) -> Result<()> {
        while fill(&mut *self.reader, &mut self.scratch).map_err(from_read)? > 0 {}
        Ok(())
    }
}

impl Input for StreamInput<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let read = fill(&mut *self.reader, buffer).map_err(from_read)?;
        self.position += read as u64;
        Ok(read)
    }

    fn pass(&mut self, bytes: u64) -> Result<u64> {
        let at = self
            .spool
            .as_ref()
            .map_or(self.position, |spool| spool.length());
        self.go(bytes, true)?;
        Ok(at)
    }

    fn skip(&mut self, bytes: u64) -> Result<()> {
        self.go(bytes, false)
    }

    fn position(&self) -> u64 {
        self.position
    }
}

/// Reads until the buffer is full, or the stream ends.
pub(super) fn fill(reader: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match reader.read(&mut buffer[done..]) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn truncated(position: u64) -> Error {
    Error::damaged(
        format_args!("byte {position}"),
        "the archive is truncated, or a size in it lies",
    )
}

/// The error of a reader: one of ours inside it, a damaged stream, or the device's.
pub(crate) fn from_read(error: io::Error) -> Error {
    if error.get_ref().is_some_and(|inner| inner.is::<Error>()) {
        let inner = error.into_inner().expect("it has one");
        return *inner.downcast::<Error>().expect("it is one");
    }
    match error.kind() {
        io::ErrorKind::InvalidData
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::UnexpectedEof
        | io::ErrorKind::Other => Error::damaged("archive", error),
        _ => Error::io("archive", error),
    }
}
