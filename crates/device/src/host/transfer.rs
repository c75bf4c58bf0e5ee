//! One request's way through the kernel, the same for every engine: what a result means, when to go on
//! after a short transfer, and where a file ends.
//!
//! Invariant: `done_bytes` is a multiple of the logical block, so that a direct transfer can go on there.

use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;

use libc::iovec;
use rustix::io::Errno;
use smallvec::SmallVec;

use super::file::HostFile;
use crate::request::Segments;
use crate::{Completion, Op, Request};

/// The most bytes for one system call: below the kernel's own limit, and a multiple of any block.
pub(crate) const MAX_CALL_BYTES: u64 = 1 << 30;

/// How often a call may get nowhere (a signal, a lack of kernel memory) before that is an error.
const MAX_STALLS: u32 = 1000;

/// A request on its way.
pub(crate) struct Transfer {
    pub(crate) request: Request,
    done_bytes: u64,
    stalls: u32,
}

/// What to do after a result.
pub(crate) enum Step {
    /// Call again.
    Again,
    /// The request is done.
    Finished(io::Result<()>),
}

impl Transfer {
    pub(crate) fn new(request: Request) -> Transfer {
        Transfer {
            request,
            done_bytes: 0,
            stalls: 0,
        }
    }

    /// Where on the device the next call begins.
    pub(crate) fn offset_bytes(&self) -> u64 {
        self.request.offset_bytes() + self.done_bytes
    }

    /// Whether the request's own segments are what the next call transfers.
    pub(crate) fn is_untouched(&self) -> bool {
        self.done_bytes == 0 && self.request.len_bytes() <= MAX_CALL_BYTES
    }

    /// What the next call reads into.
    pub(crate) fn read_slices(&mut self) -> SmallVec<[IoSliceMut<'_>; 4]> {
        let mut window = Window::new(self.done_bytes);
        let slices = self.request.slices_mut();
        slices
            .map(|s| {
                let r = window.clip(s.len());
                IoSliceMut::new(&mut s[r])
            })
            .filter(|s| !s.is_empty())
            .collect()
    }

    /// What the next call writes.
    pub(crate) fn write_slices(&self) -> SmallVec<[IoSlice<'_>; 4]> {
        let mut window = Window::new(self.done_bytes);
        let slices = self.request.slices();
        slices
            .map(|s| IoSlice::new(&s[window.clip(s.len())]))
            .filter(|s| !s.is_empty())
            .collect()
    }

    /// As [`read_slices`](Transfer::read_slices) and `write_slices`, for a call that outlives the borrow.
    pub(crate) fn iovecs(&self) -> Segments {
        let mut window = Window::new(self.done_bytes);
        let pieces = self.request.iovecs().iter().map(|s| {
            let range = window.clip(s.iov_len);
            iovec {
                iov_base: s.iov_base.cast::<u8>().wrapping_add(range.start).cast(),
                iov_len: range.len(),
            }
        });
        pieces.filter(|s| s.iov_len > 0).collect()
    }

    /// Takes the result of a call: the bytes transferred, or an errno.
    pub(crate) fn advance(&mut self, file: &HostFile, result: Result<u64, Errno>) -> Step {
        let moves_data = matches!(self.request.op(), Op::Read | Op::Write);
        match result {
            Err(Errno::INTR | Errno::AGAIN) => self.stall(io::ErrorKind::WouldBlock),
            Err(errno) => Step::Finished(Err(self.error(errno))),
            Ok(_) if !moves_data => Step::Finished(Ok(())),
            Ok(bytes) => self.advance_by(file, bytes),
        }
    }

    fn advance_by(&mut self, file: &HostFile, bytes: u64) -> Step {
        let reached = self.done_bytes.saturating_add(bytes);
        if self.request.op() == Op::Write {
            file.written_to(self.request.offset_bytes() + reached.min(self.request.len_bytes()));
        }
        if reached >= self.request.len_bytes() {
            return Step::Finished(Ok(()));
        }
        let whole = reached - reached % file.block_bytes();
        if whole > self.done_bytes {
            self.done_bytes = whole;
            self.stalls = 0;
            return Step::Again;
        }
        match self.request.op() {
            Op::Read => self.end_of_file(file, reached),
            _ => self.stall(io::ErrorKind::WriteZero),
        }
    }

    /// A read got to byte `reached` of the request, within a block, and no further.
    fn end_of_file(&mut self, file: &HostFile, reached: u64) -> Step {
        let len = match file.current_len_bytes() {
            Ok(len) => len,
            Err(error) => return Step::Finished(Err(error)),
        };
        let (begin, block) = (self.request.offset_bytes(), file.block_bytes());
        if len > begin + reached {
            return self.stall(io::ErrorKind::UnexpectedEof); // it grew since
        }
        let readable = len.checked_next_multiple_of(block).unwrap_or(len);
        if begin + self.request.len_bytes() <= readable {
            self.request.zero_from(reached as usize);
            return Step::Finished(Ok(()));
        }
        let why =
            format!("the file ends at {len}, before the end of the read: was it cut meanwhile?");
        Step::Finished(Err(io::Error::new(io::ErrorKind::UnexpectedEof, why)))
    }

    /// Again, but not for ever.
    fn stall(&mut self, kind: io::ErrorKind) -> Step {
        self.stalls += 1;
        if self.stalls <= MAX_STALLS {
            return Step::Again;
        }
        let why = format!(
            "{:?} makes no progress after {MAX_STALLS} tries",
            self.request.op()
        );
        Step::Finished(Err(io::Error::new(kind, why)))
    }

    fn error(&self, errno: Errno) -> io::Error {
        let clears = matches!(self.request.op(), Op::Discard | Op::WriteZeroes);
        if clears && matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY) {
            let why = format!("{:?} is not supported here", self.request.op());
            return io::Error::new(io::ErrorKind::Unsupported, why);
        }
        errno.into()
    }

    /// The end of it.
    pub(crate) fn finish(self, result: io::Result<()>) -> Completion {
        Completion {
            request: self.request,
            result,
        }
    }
}

/// Cuts the next call's bytes out of consecutive pieces.
struct Window {
    skip: u64,
    room: u64,
}

impl Window {
    fn new(skip: u64) -> Window {
        Window {
            skip,
            room: MAX_CALL_BYTES,
        }
    }

    /// The part of the next piece, `len` bytes long, that is in the window.
    fn clip(&mut self, len: usize) -> Range<usize> {
        let begin = self.skip.min(len as u64);
        let take = (len as u64 - begin).min(self.room);
        self.skip -= begin;
        self.room -= take;
        begin as usize..(begin + take) as usize
    }
}
