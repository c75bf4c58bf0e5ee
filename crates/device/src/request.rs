//! A request to a device, and its completion.
//!
//! Only [`crate::scope`] and [`crate::Lane`] create a [`Request`]. It carries raw pointers, and **while a
//! `Request` value exists, the memory behind its segments is valid; during a read only the holder of the
//! request accesses it, and during a write no one changes it.** All safety arguments below depend on that.
//! For each segment it holds for one of two reasons:
//! - The memory was lent to a scope, which does not end before all its requests have been returned to it (or
//!   the process aborts).
//! - The memory is [`Pages`] of which the request holds an [`Arc`], in `kept`, until it is dropped. Their
//!   bytes lie outside the `Arc` allocation, at a fixed address. Writing them takes a `&mut Pages`, which an
//!   `Arc` gives only to a sole owner. This does not depend on the holder: a request that is leaked keeps its
//!   memory for ever.
//!
//! An engine in turn does not drop or return a `Request` before the system is done with its memory.

use std::fmt;
use std::io;
use std::slice;
use std::sync::Arc;

use libc::iovec;
use smallvec::SmallVec;

use crate::Pages;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Device to memory.
    Read,
    /// Memory to device.
    Write,
    /// Makes all writes durable that completed before it was submitted.
    Flush,
    /// The range's content is no longer needed, and undefined afterwards.
    Discard,
    /// The range reads as zeros afterwards.
    WriteZeroes,
}

pub(crate) type Segments = SmallVec<[iovec; 4]>;

/// References that keep memory alive which is not borrowed.
pub(crate) type Kept = SmallVec<[Arc<Pages>; 1]>;

/// The owner number of requests that no scope made. Scopes' numbers are addresses, so none is 0.
pub(crate) const LANE: usize = 0;

/// A request with its memory. The queue may access the memory until the request is dropped or returned.
pub struct Request {
    tag: u64,
    offset_bytes: u64,
    len_bytes: u64,
    /// The scope that lent the memory and must get the request back; [`LANE`] if none did.
    owner: usize,
    segments: Segments,
    /// Never read: keeps the memory alive.
    _kept: Kept,
    op: Op,
    fua: bool,
}

// SAFETY: the segments came from `&mut [u8]`, `&[u8]` or `Arc<Pages>`, all of which are `Send`, and the
// request is their only holder (module head).
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

    /// The submitter's number for it.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// The operation.
    pub fn op(&self) -> Op {
        self.op
    }

    /// The first byte on the device.
    pub fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }

    /// The length of its range on the device, in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Whether a write must be durable on completion.
    pub fn fua(&self) -> bool {
        self.fua
    }

    /// Changes its offset, for a device that is a window of another one.
    pub fn set_offset_bytes(&mut self, offset_bytes: u64) {
        self.offset_bytes = offset_bytes;
    }

    /// The number of memory segments.
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// The memory segments in order. For a write they hold the data.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.segments.iter().map(|s| {
            // SAFETY: valid, initialised and not written by others while `self` exists (module head);
            // `slices_mut` needs `&mut self`, so no `&mut [u8]` to it coexists with this borrow.
            unsafe { slice::from_raw_parts(s.iov_base.cast::<u8>(), s.iov_len) }
        })
    }

    /// The memory segments of a read, in order, to be filled.
    ///
    /// # Panics
    /// If the request is not a read: the memory of a write must not be changed.
    pub fn slices_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        assert!(
            self.op == Op::Read,
            "only the memory of a read may be filled"
        );
        self.segments.iter_mut().map(|s| {
            // SAFETY: a read's segments came from disjoint `&mut [u8]`, none from shares (`gather`), are
            // valid while `self` exists (module head), and are borrowed from here through `&mut self` only.
            unsafe { slice::from_raw_parts_mut(s.iov_base.cast::<u8>(), s.iov_len) }
        })
    }

    /// Copies the request's memory from byte `skip` on into `to`. Returns the number of bytes copied.
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

    /// Copies `from` into a read's memory from byte `skip` on. Returns the number of bytes copied.
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

    /// Whether every segment's address and length have none of the bits of `mask`.
    pub(crate) fn memory_is_aligned(&self, mask: usize) -> bool {
        self.segments
            .iter()
            .all(|s| (s.iov_base.addr() | s.iov_len) & mask == 0)
    }

    /// Whether an inner boundary between segments is not at a multiple of `mask + 1`.
    pub(crate) fn has_gap(&self, mask: u64) -> bool {
        self.segments.windows(2).any(|pair| {
            let end = pair[0].iov_base.addr() as u64 + pair[0].iov_len as u64;
            (end | pair[1].iov_base.addr() as u64) & mask != 0
        })
    }

    pub(crate) fn owner(&self) -> usize {
        self.owner
    }

    /// The memory as the kernel takes it. With few segments the array lies inside the request.
    #[cfg_attr(miri, allow(dead_code))] // used by the host engines
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

/// A completed request.
#[derive(Debug)]
pub struct Completion {
    /// The request, with its memory.
    pub request: Request,
    /// `Ok` if all of it is done.
    pub result: io::Result<()>,
}
