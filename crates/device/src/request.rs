//! A request to a device, and its completion.
//!
//! A [`Request`] is made by [`crate::scope`] and [`crate::Lane`] alone. It carries raw pointers, and **while a `Request`
//! value exists, the memory behind its segments is valid, and no one but the holder of the request uses it** (for
//! reads) **or writes it** (for writes). Everything below rests on that. It holds, segment by segment, for one of two reasons:
//! - The memory was lent to a scope, which does not end before each of its requests has come back to it (or the process
//!   aborts).
//! - The memory is [`Pages`] of which the request holds a share, in `kept`, until it is dropped. Their bytes lie outside of
//!   the [`Arc`], at an address that does not change, and to write them takes a `&mut Pages`, which an `Arc` gives to a sole
//!   owner only. That needs nothing of the holder: a request that is forgotten keeps its memory for ever.
//!
//! An engine in turn does not let go of a `Request` before the system is done with its memory.

use std::fmt;
use std::io;
use std::slice;
use std::sync::Arc;

use libc::iovec;
use smallvec::SmallVec;

use crate::Pages;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Device to memory.
    Read,
    /// Memory to device.
    Write,
    /// All writes that completed before this was submitted survive a power loss once it completes.
    Flush,
    /// The range's content is no longer needed; what it reads as afterwards is undefined.
    Discard,
    /// The range reads as zeros afterwards.
    WriteZeroes,
}

pub(crate) type Segments = SmallVec<[iovec; 4]>;

/// Shares of memory that is not borrowed.
pub(crate) type Kept = SmallVec<[Arc<Pages>; 1]>;

/// The owner of requests that need none. No scope has this number: theirs are addresses.
pub(crate) const LANE: usize = 0;

/// One request, with the memory it may touch until it is dropped or given back.
pub struct Request {
    tag: u64,
    offset_bytes: u64,
    len_bytes: u64,
    /// Which scope lent the memory, and must get the request back; [`LANE`] where none did.
    owner: usize,
    segments: Segments,
    /// Never read: what it holds stays.
    _kept: Kept,
    op: Op,
    fua: bool,
}

// SAFETY: the segments came from `&mut [u8]`, `&[u8]` or `Arc<Pages>`, all of which are `Send`, and the request is
// their only holder (module head).
unsafe impl Send for Request {}

impl Request {
    /// # Safety
    /// Until the returned request is dropped, the segments' memory stays valid and initialised, and is
    /// used by no one else (`op` read) or written by no one (`op` write). That may rest on `kept`.
    pub(crate) unsafe fn new(
        owner: usize,
        tag: u64,
        op: Op,
        offset_bytes: u64,
        segments: Segments,
        kept: Kept,
        fua: bool,
    ) -> Request {
        let len_bytes = segments.iter().map(|s| s.iov_len as u64).sum();
        Request {
            tag,
            offset_bytes,
            len_bytes,
            owner,
            segments,
            _kept: kept,
            op,
            fua,
        }
    }

    /// A request without memory.
    pub(crate) fn range(
        owner: usize,
        tag: u64,
        op: Op,
        offset_bytes: u64,
        len_bytes: u64,
    ) -> Request {
        debug_assert!(!matches!(op, Op::Read | Op::Write));
        Request {
            tag,
            offset_bytes,
            len_bytes,
            owner,
            segments: Segments::new(),
            _kept: Kept::new(),
            op,
            fua: false,
        }
    }

    /// The submitter's own number for it.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// What it asks for.
    pub fn op(&self) -> Op {
        self.op
    }

    /// Where on the device it begins.
    pub fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }

    /// How many bytes of the device it covers.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Whether a write is to survive a power loss once it completes.
    pub fn fua(&self) -> bool {
        self.fua
    }

    /// Moves it to another place, for a device that is a window of another.
    pub fn set_offset_bytes(&mut self, offset_bytes: u64) {
        self.offset_bytes = offset_bytes;
    }

    /// How many pieces of memory it has.
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// The pieces of memory in order: of a write, what is to be written.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.segments.iter().map(|s| {
            // SAFETY: valid, initialised and not written by others while `self` exists (module head);
            // `slices_mut` needs `&mut self`, so no `&mut [u8]` to it lives beside this borrow.
            unsafe { slice::from_raw_parts(s.iov_base.cast::<u8>(), s.iov_len) }
        })
    }

    /// The pieces of memory of a read, in order, to be filled.
    ///
    /// # Panics
    /// If the request is not a read: the memory of a write is not ours to change.
    pub fn slices_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        assert!(
            self.op == Op::Read,
            "only the memory of a read may be filled"
        );
        self.segments.iter_mut().map(|s| {
            // SAFETY: a read's segments came from disjoint `&mut [u8]`, none from shares (`gather`), are valid while `self` exists
            // (module head), and are borrowed from here through `&mut self` only.
            unsafe { slice::from_raw_parts_mut(s.iov_base.cast::<u8>(), s.iov_len) }
        })
    }

    /// Copies the request's memory from byte `skip` on into `to`; returns how many bytes there were.
    pub fn copy_out(&self, mut skip: usize, to: &mut [u8]) -> usize {
        let mut copied = 0;
        for piece in self.slices() {
            if skip >= piece.len() {
                skip -= piece.len();
                continue;
            }
            let n = (piece.len() - skip).min(to.len() - copied);
            to[copied..copied + n].copy_from_slice(&piece[skip..skip + n]);
            copied += n;
            skip = 0;
        }
        copied
    }

    /// Copies `from` into a read's memory from byte `skip` on; returns how many bytes there was room for.
    ///
    /// # Panics
    /// If the request is not a read.
    pub fn copy_in(&mut self, mut skip: usize, from: &[u8]) -> usize {
        let mut copied = 0;
        for piece in self.slices_mut() {
            if skip >= piece.len() {
                skip -= piece.len();
                continue;
            }
            let n = (piece.len() - skip).min(from.len() - copied);
            piece[skip..skip + n].copy_from_slice(&from[copied..copied + n]);
            copied += n;
            skip = 0;
        }
        copied
    }

    /// Zeroes a read's memory from byte `skip` on.
    ///
    /// # Panics
    /// If the request is not a read.
    pub fn zero_from(&mut self, mut skip: usize) {
        for piece in self.slices_mut() {
            let begin = skip.min(piece.len());
            piece[begin..].fill(0);
            skip -= begin;
        }
    }

    /// Whether every piece begins and ends on an address without the bits of `mask`.
    pub(crate) fn memory_is_aligned(&self, mask: usize) -> bool {
        self.segments
            .iter()
            .all(|s| (s.iov_base.addr() | s.iov_len) & mask == 0)
    }

    /// Whether an inner boundary between pieces is off the multiples of `mask + 1`.
    pub(crate) fn has_gap(&self, mask: u64) -> bool {
        self.segments.windows(2).any(|pair| {
            let end = pair[0].iov_base.addr() as u64 + pair[0].iov_len as u64;
            (end | pair[1].iov_base.addr() as u64) & mask != 0
        })
    }

    pub(crate) fn owner(&self) -> usize {
        self.owner
    }

    /// The memory as the kernel wants it; the array lies inside the request when it has few pieces.
    #[cfg_attr(miri, allow(dead_code))] // the host engines'
    pub(crate) fn iovecs(&self) -> &[iovec] {
        &self.segments
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("tag", &self.tag)
            .field("op", &self.op)
            .field("offset_bytes", &self.offset_bytes)
            .field("len_bytes", &self.len_bytes)
            .field("segments", &self.segments.len())
            .field("fua", &self.fua)
            .finish()
    }
}

/// A request that is done, all of it or with an error.
#[derive(Debug)]
pub struct Completion {
    /// The request, and with it the memory.
    pub request: Request,
    /// All done, or why not.
    pub result: io::Result<()>,
}
