//! Copies the bytes of one file.
//!
//! For a large file, a separate thread reads into one of [`BUFFERS`] aligned buffers while this thread writes
//! another, so both sides stay busy. Each call is large enough to fill a device's queue. A small file goes
//! through one buffer of the calling thread.

use std::os::fd::BorrowedFd;
use std::thread::Builder;

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::io::Errno;
use throughline::AlignedBuf;

use super::Sparse;
use super::side::Content;
use crate::interrupt::Interrupt;
use crate::place::Place;
use crate::problem::{Doing, Failure, Problem};
use crate::progress::Progress;

/// Bytes per read or write.
pub(crate) const CHUNK_BYTES: usize = 8 << 20;
/// Number of buffers: one being filled, one being written, and a full one between them.
const BUFFERS: usize = 3;
/// Alignment for direct I/O on any device, and the unit in which zeroes become holes.
pub(crate) const ALIGN_BYTES: usize = 4096;

/// The buffers for large files. They are allocated for the first file and reused.
#[derive(Default)]
pub(crate) struct Buffers(Vec<AlignedBuf>);

/// A copy of one file's bytes.
pub(crate) struct Transfer<'a> {
    pub(crate) from: &'a dyn Content,
    pub(crate) to: &'a dyn Content,
    /// Used in messages.
    pub(crate) source: &'a Place,
    pub(crate) target: &'a Place,
    pub(crate) sparse: Sparse,
    pub(crate) progress: &'a Progress,
    pub(crate) interrupt: &'a Interrupt,
}

/// A part of a file in memory.
struct Piece {
    offset_bytes: u64,
    filled: usize,
    buffer: AlignedBuf,
}

/// The state of reading.
struct Reader<'a> {
    transfer: &'a Transfer<'a>,
    /// Next byte to read.
    offset_bytes: u64,
    /// End of the current range of data. At or before `offset_bytes` if the next range is not known yet.
    data_end: u64,
    /// A read found the end of the file. This takes precedence over the length from `stat`, which is wrong
    /// for files of sysfs.
    is_at_end: bool,
}

impl<'a> Reader<'a> {
    fn new(transfer: &'a Transfer<'a>) -> Reader<'a> {
        let whole = transfer.from.is_stream() || transfer.sparse == Sparse::Never;
        Reader {
            transfer,
            offset_bytes: 0,
            data_end: if whole { u64::MAX } else { 0 },
            is_at_end: false,
        }
    }

    /// Fills a buffer. Returns offset and length of the bytes read, or `None` at the end.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<Option<(u64, usize)>, Failure> {
        let Transfer { from, source, .. } = self.transfer;
        let reading = || format!("error reading {source}");
        self.transfer.interrupt.check()?;
        if self.offset_bytes >= self.data_end {
            let Some(data) = from.next_data(self.offset_bytes).doing(reading)? else {
                return Ok(None);
            };
            // Ensure progress, whatever range is returned.
            self.offset_bytes = data.start.max(self.offset_bytes);
            self.data_end = data.end.max(self.offset_bytes.saturating_add(1));
        }
        let room = usize::try_from(self.data_end - self.offset_bytes)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let got = match from.stream() {
            Some(stream) => self.fill_from(stream, &mut buffer[..room])?,
            None => from
                .read_at(self.offset_bytes, &mut buffer[..room])
                .doing(reading)?,
        };
        if got == 0 {
            self.is_at_end = true;
            return Ok(None);
        }
        let start = self.offset_bytes;
        self.offset_bytes = start
            .checked_add(got as u64)
            .ok_or_else(|| Problem::new("File too large").met(reading()))?;
        Ok(Some((start, got)))
    }

    /// Fills a buffer from a stream, up to its end.
    fn fill_from(&self, stream: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Failure> {
        let Transfer {
            from,
            source,
            interrupt,
            ..
        } = self.transfer;
        let mut filled = 0;
        while filled < buffer.len() {
            interrupt.wait_readable(stream)?;
            let got = from
                .read_at(self.offset_bytes, &mut buffer[filled..])
                .doing(|| format!("error reading {source}"))?;
            // Ctrl-C also ends the writer of our input pipe. The end of the pipe is then not the end of the
            // file.
            interrupt.check()?;
            if got == 0 {
                break;
            }
            filled += got;
        }
        Ok(filled)
    }

    /// The final length of the copy.
    fn len_bytes(&self) -> Result<u64, Failure> {
        let Transfer { from, source, .. } = self.transfer;
        if from.is_stream() || self.is_at_end {
            return Ok(self.offset_bytes);
        }
        let len = from
            .meta()
            .doing(|| format!("error reading {source}"))?
            .len_bytes;
        Ok(len.max(self.offset_bytes))
    }
}

/// The state of writing.
struct Writer<'a> {
    transfer: &'a Transfer<'a>,
    /// End of the bytes written.
    end_bytes: u64,
}

impl Writer<'_> {
    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Failure> {
        match (self.transfer.to.has_holes(), self.transfer.sparse) {
            (true, Sparse::Always) => self.write_without_zeroes(offset_bytes, bytes)?,
            (true, _) => self.put(offset_bytes, bytes)?,
            (false, _) => {
                self.zeroes_up_to(offset_bytes)?;
                self.put(offset_bytes, bytes)?;
            }
        }
        self.transfer.progress.add(bytes.len() as u64);
        Ok(())
    }

    fn put(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Failure> {
        let Transfer { to, target, .. } = self.transfer;
        let written = to
            .write_at(offset_bytes, bytes)
            .doing(|| format!("error writing {target}"));
        // If the reader of standard output has closed the pipe, that is not an error to report.
        written.map_err(|failure| match (target, failure.errno()) {
            (Place::Stream, Some(Errno::PIPE)) => Failure::PipeClosed,
            _ => failure,
        })?;
        self.end_bytes = offset_bytes.saturating_add(bytes.len() as u64);
        Ok(())
    }

    /// Writes only those runs of blocks that are not all zero.
    fn write_without_zeroes(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Failure> {
        let is_zero = |at: usize| bytes[at..].iter().take(ALIGN_BYTES).all(|byte| *byte == 0);
        let mut at = 0;
        while at < bytes.len() {
            let hole = is_zero(at);
            let mut end = at;
            while end < bytes.len() && is_zero(end) == hole {
                end = bytes.len().min(end + ALIGN_BYTES);
            }
            if !hole {
                self.put(offset_bytes.saturating_add(at as u64), &bytes[at..end])?;
            }
            at = end;
        }
        Ok(())
    }

    /// Writes zeroes up to an offset, to a target without holes.
    fn zeroes_up_to(&mut self, offset_bytes: u64) -> Result<(), Failure> {
        let next = |end: u64| {
            let missing = usize::try_from(offset_bytes.saturating_sub(end));
            missing.unwrap_or(usize::MAX).min(CHUNK_BYTES)
        };
        let first = next(self.end_bytes);
        if first == 0 {
            return Ok(());
        }
        let zeroes = AlignedBuf::zeroed(first.next_multiple_of(ALIGN_BYTES), ALIGN_BYTES);
        while self.end_bytes < offset_bytes {
            self.transfer.interrupt.check()?;
            self.put(self.end_bytes, &zeroes[..next(self.end_bytes)])?;
        }
        Ok(())
    }

    fn finish(&mut self, len_bytes: u64) -> Result<(), Failure> {
        let Transfer { to, target, .. } = self.transfer;
        if !to.has_holes() {
            return self.zeroes_up_to(len_bytes);
        }
        if len_bytes > self.end_bytes {
            to.set_len(len_bytes)
                .doing(|| format!("error writing {target}"))?;
        }
        Ok(())
    }
}

/// Copies through one buffer. Returns the number of bytes copied.
pub(crate) fn copy_small(transfer: &Transfer<'_>, buffer: &mut [u8]) -> Result<u64, Failure> {
    let mut reader = Reader::new(transfer);
    let mut writer = Writer {
        transfer,
        end_bytes: 0,
    };
    let mut copied = 0u64;
    while let Some((offset_bytes, filled)) = reader.fill(buffer)? {
        writer.write(offset_bytes, &buffer[..filled])?;
        copied = copied.saturating_add(filled as u64);
    }
    writer.finish(reader.len_bytes()?)?;
    Ok(copied)
}

/// Copies with reading and writing in parallel. Returns the number of bytes copied.
pub(crate) fn copy_large(transfer: &Transfer<'_>, buffers: &mut Buffers) -> Result<u64, Failure> {
    let (full_in, full_out) = bounded::<Piece>(BUFFERS);
    let (empty_in, empty_out) = bounded::<AlignedBuf>(BUFFERS);
    buffers
        .0
        .resize_with(BUFFERS, || AlignedBuf::zeroed(CHUNK_BYTES, ALIGN_BYTES));
    for buffer in buffers.0.drain(..) {
        // The channel has room for all of them, and its other end is open.
        let _ = empty_in.send(buffer);
    }
    let mut writer = Writer {
        transfer,
        end_bytes: 0,
    };
    let parallel = std::thread::scope(|scope| {
        let empty_out = &empty_out;
        let read = move || read_all(transfer, empty_out, &full_in);
        let reader = Builder::new().spawn_scoped(scope, read).ok()?;
        let written = write_all(&mut writer, full_out, &empty_in);
        drop(empty_in);
        // The reader ends at the end of the file, on an error, or when the writer has ended.
        let len_bytes = reader.join();
        let len_bytes = len_bytes.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Some((len_bytes, written))
    });
    buffers.0.extend(empty_out.try_iter());
    let Some((len_bytes, written)) = parallel else {
        // The system starts no thread.
        return copy_small(transfer, &mut buffers.0[0]);
    };
    let copied = written?;
    writer.finish(len_bytes?)?;
    Ok(copied)
}

/// Fills each empty buffer and passes it on. Returns the final length of the copy.
fn read_all(
    transfer: &Transfer<'_>,
    empty: &Receiver<AlignedBuf>,
    full: &Sender<Piece>,
) -> Result<u64, Failure> {
    let mut reader = Reader::new(transfer);
    while let Ok(mut buffer) = empty.recv() {
        let Some((offset_bytes, filled)) = reader.fill(&mut buffer)? else {
            return reader.len_bytes();
        };
        if full
            .send(Piece {
                offset_bytes,
                filled,
                buffer,
            })
            .is_err()
        {
            break;
        }
    }
    // The writer has ended and returns the error.
    Ok(0)
}

/// Writes each full buffer and returns it to the reader. Returns the number of bytes written.
fn write_all(
    writer: &mut Writer<'_>,
    full: Receiver<Piece>,
    empty: &Sender<AlignedBuf>,
) -> Result<u64, Failure> {
    let mut copied = 0u64;
    for Piece {
        offset_bytes,
        filled,
        buffer,
    } in full
    {
        writer.write(offset_bytes, &buffer[..filled])?;
        copied = copied.saturating_add(filled as u64);
        // If the reader has ended, the buffer is not needed for this file.
        let _ = empty.send(buffer);
    }
    Ok(copied)
}
