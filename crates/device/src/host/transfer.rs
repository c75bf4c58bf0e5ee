//! The progress of one request, used by all engines: interprets results, continues short transfers, and
//! handles the end of a file.
//!
//! Invariant: `done_bytes` is a multiple of the logical block, so that a direct transfer can continue there.

use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;

use libc::iovec;
use rustix::io::Errno;
use smallvec::SmallVec;

use super::file::HostFile;
use crate::request::Segments;
use crate::{Completion, Op, Request};

/// The most bytes for one system call: below the kernel's own limit, and a multiple of any block size.
pub(crate) const MAX_CALL_BYTES: u64 = 1 << 30;

/// How often in a row a call may make no progress (a signal, a lack of kernel memory) before that is an
/// error.
const MAX_STALLS: u32 = 1000;

/// A request in progress.
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

    /// The device offset of the next call.
    pub(crate) fn offset_bytes(&self) -> u64 {
        self.request.offset_bytes() + self.done_bytes
    }

    /// Whether the next call transfers exactly the request's own segments.
    pub(crate) fn is_untouched(&self) -> bool {
        self.done_bytes == 0 && self.request.len_bytes() <= MAX_CALL_BYTES
    }

    /// The memory that the next call reads into.
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

    /// The memory that the next call writes.
    pub(crate) fn write_slices(&self) -> SmallVec<[IoSlice<'_>; 4]> {
        let mut window = Window::new(self.done_bytes);
        let slices = self.request.slices();
        slices
            .map(|s| IoSlice::new(&s[window.clip(s.len())]))
            .filter(|s| !s.is_empty())
            .collect()
    }

    /// The memory of the next call, for a call that outlives the borrow.
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

    /// Processes the result of a call: the bytes transferred, or an errno.
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

    /// Handles a read that ended at byte `reached` of the request, within a block.
    fn end_of_file(&mut self, file: &HostFile, reached: u64) -> Step {
        let len = match file.current_len_bytes() {
            Ok(len) => len,
            Err(error) => return Step::Finished(Err(error)),
        };
        let (begin, block) = (self.request.offset_bytes(), file.block_bytes());
        if len > begin + reached {
            return self.stall(io::ErrorKind::UnexpectedEof); // the file has grown since
        }
        let readable = len.checked_next_multiple_of(block).unwrap_or(len);
        if begin + self.request.len_bytes() <= readable {
            self.request.zero_from(reached as usize);
            return Step::Finished(Ok(()));
        }
        let why = format!(
            "the file ends at {len}, before the end of the read: was it truncated meanwhile?"
        );
        Step::Finished(Err(io::Error::new(io::ErrorKind::UnexpectedEof, why)))
    }

    /// Retries, up to [`MAX_STALLS`] times in a row.
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
            let why = format!(
                "this file or device does not support {:?}",
                self.request.op()
            );
            return io::Error::new(io::ErrorKind::Unsupported, why);
        }
        errno.into()
    }

    /// Completes the request.
    pub(crate) fn finish(self, result: io::Result<()>) -> Completion {
        Completion {
            request: self.request,
            result,
        }
    }
}

/// Selects the bytes of the next call from consecutive segments.
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

    /// The part of the next segment, `len` bytes long, that lies in the window.
    fn clip(&mut self, len: usize) -> Range<usize> {
        let begin = self.skip.min(len as u64);
        let take = (len as u64 - begin).min(self.room);
        self.skip -= begin;
        self.room -= take;
        begin as usize..(begin + take) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::fs::File;

    use super::*;
    use crate::host::lock::{Lock, LockedFile};
    use crate::{DeviceInfo, DeviceKind, Limits, Queue, Segment, scope};

    type Results = Vec<Result<u64, Errno>>;

    /// Returns the next of a list of results for each call, and records the offset and length of each call.
    struct Scripted {
        file: HostFile,
        results: VecDeque<Result<u64, Errno>>,
        calls: Vec<(u64, usize)>,
        ready: Vec<Completion>,
    }

    impl Queue for Scripted {
        fn submit(&mut self, request: Request) {
            let mut transfer = Transfer::new(request);
            loop {
                let left: usize = transfer.iovecs().iter().map(|s| s.iov_len).sum();
                let slices: usize = match transfer.request.op() {
                    Op::Read => transfer.read_slices().iter().map(|s| s.len()).sum(),
                    _ => transfer.write_slices().iter().map(|s| s.len()).sum(),
                };
                assert_eq!(left, slices);
                self.calls.push((transfer.offset_bytes(), left));
                let result = self.results.pop_front().expect("no call after the end");
                if let Step::Finished(result) = transfer.advance(&self.file, result) {
                    return self.ready.push(transfer.finish(result));
                }
            }
        }

        fn kick(&mut self) {}

        fn reap(&mut self, _: usize, done: &mut Vec<Completion>) {
            done.append(&mut self.ready);
        }

        fn in_flight(&self) -> usize {
            self.ready.len()
        }

        fn depth(&self) -> usize {
            1
        }
    }

    /// Runs a request of three segments of a block each at `at`, on a file of `len` bytes. Returns its
    /// result, its calls, and its memory.
    fn three_blocks(
        op: Op,
        at: u64,
        len: u64,
        results: Results,
    ) -> (io::Result<()>, Vec<(u64, usize)>, Vec<u8>) {
        let file: File = tempfile::tempfile().unwrap();
        file.set_len(len).unwrap();
        let info = DeviceInfo {
            name: String::new(),
            kind: DeviceKind::RegularFile,
            engine: "scripted",
            direct: true,
            read_only: false,
            limits: Limits::default(),
        };
        let file = HostFile::new(LockedFile::new(file, Lock::None), info, len);
        let mut queue = Scripted {
            file,
            results: results.into(),
            calls: Vec::new(),
            ready: Vec::new(),
        };
        let mut memory = vec![7; 3 * 512];
        let mut done = Vec::new();
        scope(&mut queue, |s| {
            match op {
                Op::Read => s.submit(0, op, at, memory.chunks_mut(512).map(Segment::Read), false),
                Op::Write => s.submit(0, op, at, memory.chunks(512).map(Segment::Write), false),
                _ => s.submit_range(0, op, at, 3 * 512),
            }
            s.reap(1, &mut done);
        });
        assert!(queue.results.is_empty(), "every result was used");
        (done.pop().unwrap().result, queue.calls, memory)
    }

    fn error(outcome: (io::Result<()>, Vec<(u64, usize)>, Vec<u8>)) -> io::Error {
        outcome.0.unwrap_err()
    }

    #[test]
    fn short_transfers_go_on_at_a_whole_block() {
        for op in [Op::Read, Op::Write] {
            let (result, calls, _) = three_blocks(op, 512, 4096, vec![Ok(700), Ok(512), Ok(512)]);
            result.unwrap();
            assert_eq!(calls, [(512, 1536), (1024, 1024), (1536, 512)]);
        }
    }

    #[test]
    fn interruptions_are_tried_again_but_not_for_ever() {
        let (result, calls, _) = three_blocks(
            Op::Read,
            0,
            4096,
            vec![Err(Errno::INTR), Err(Errno::AGAIN), Ok(1536)],
        );
        result.unwrap();
        assert_eq!(calls.len(), 3);
        let endless = vec![Err(Errno::INTR); MAX_STALLS as usize + 1];
        assert_eq!(
            error(three_blocks(Op::Flush, 0, 4096, endless)).kind(),
            io::ErrorKind::WouldBlock
        );
        let nothing = vec![Ok(0); MAX_STALLS as usize + 1];
        assert_eq!(
            error(three_blocks(Op::Write, 0, 4096, nothing)).kind(),
            io::ErrorKind::WriteZero
        );
    }

    #[test]
    fn errors_are_the_systems_own() {
        let outcome = three_blocks(Op::Write, 0, 4096, vec![Ok(512), Err(Errno::NOSPC)]);
        assert_eq!(error(outcome).raw_os_error(), Some(libc::ENOSPC));
        for op in [Op::Discard, Op::WriteZeroes] {
            let outcome = three_blocks(op, 0, 4096, vec![Err(Errno::OPNOTSUPP)]);
            assert_eq!(error(outcome).kind(), io::ErrorKind::Unsupported);
            let outcome = three_blocks(op, 0, 4096, vec![Err(Errno::IO)]);
            assert_eq!(error(outcome).raw_os_error(), Some(libc::EIO));
        }
    }

    #[test]
    fn the_end_of_the_file_is_zeros_only_within_its_last_block() {
        // 1300 bytes: the request's last block is partial.
        let (result, _, memory) = three_blocks(Op::Read, 0, 1300, vec![Ok(1300), Ok(276)]);
        result.unwrap();
        assert!(memory[..1300].iter().all(|&b| b == 7));
        assert!(memory[1300..].iter().all(|&b| b == 0));
        // 600 bytes: a whole block is missing.
        let outcome = three_blocks(Op::Read, 0, 600, vec![Ok(600), Ok(88)]);
        assert_eq!(error(outcome).kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(
            error(three_blocks(Op::Read, 0, 0, vec![Ok(0)])).kind(),
            io::ErrorKind::UnexpectedEof
        );
        // The file grows between the read and the check of its length.
        three_blocks(Op::Read, 0, 4096, vec![Ok(512), Ok(0), Ok(1024)])
            .0
            .unwrap();
    }

    #[test]
    fn a_window_cuts_at_both_ends() {
        let mut window = Window {
            skip: 700,
            room: 1000,
        };
        let cut: Vec<_> = [512, 512, 512, 512].map(|len| window.clip(len)).into();
        assert_eq!(cut, [512..512, 188..512, 0..512, 0..164]);
    }
}
