//! Lends borrowed memory to a queue safely.
//!
//! As with `std::thread::scope`, memory borrowed for `'env` may be passed to the device inside [`scope`], and
//! `scope` returns (or unwinds) only when the device is done with it. It counts its requests and checks each
//! one's owner number when it is returned. If a queue loses a request or panics while it is drained, the
//! memory may still be in use, and the process aborts.
//!
//! Owned memory ([`Segment::Shared`]) needs none of that: its request keeps it alive and prevents changes for
//! as long as the request exists ([`crate::Request`]). A queue that loses such a request only leaks memory. A
//! [`scope`] waits for it like for other requests. A [`crate::Lane`] takes only memory that is owned or
//! `'static`, so its requests may outlive a call.

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

use libc::iovec;

use crate::request::{Kept, Segments};
use crate::{Completion, Op, Pages, Queue, Request};

/// A piece of memory for a request.
#[derive(Debug)]
pub enum Segment<'env> {
    /// Filled by a read.
    Read(&'env mut [u8]),
    /// Written to the device.
    Write(&'env [u8]),
    /// Written to the device, and not borrowed: the request owns a reference to it until it is done.
    Shared {
        /// The memory.
        pages: Arc<Pages>,
        /// The offset of the piece's first byte.
        from: usize,
        /// The length of the piece, in bytes.
        len: usize,
    },
}

impl Segment<'_> {
    /// The length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Segment::Read(memory) => memory.len(),
            Segment::Write(memory) => memory.len(),
            Segment::Shared { len, .. } => *len,
        }
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of its first byte, for alignment.
    pub fn addr(&self) -> usize {
        match self {
            Segment::Read(memory) => memory.as_ptr().addr(),
            Segment::Write(memory) => memory.as_ptr().addr(),
            // Computing an address is no access: an out-of-bounds piece panics when it is used.
            Segment::Shared { pages, from, .. } => pages.as_ptr().addr().wrapping_add(*from),
        }
    }

    /// The memory, and its owner if it is not borrowed for `'env`.
    fn into_iovec(self, op: Op) -> (iovec, Option<Arc<Pages>>) {
        match (self, op) {
            (Segment::Read(memory), Op::Read) => {
                let iov_base = memory.as_mut_ptr().cast();
                let iov_len = memory.len();
                (iovec { iov_base, iov_len }, None)
            }
            (Segment::Write(memory), Op::Write) => (to_be_written(memory), None),
            (Segment::Shared { pages, from, len }, Op::Write) => {
                let piece = to_be_written(&pages[from..][..len]);
                (piece, Some(pages))
            }
            (_, op) => panic!("a {op:?} cannot use memory lent for the other direction"),
        }
    }
}

fn to_be_written(memory: &[u8]) -> iovec {
    iovec {
        iov_base: memory.as_ptr().cast_mut().cast(),
        iov_len: memory.len(),
    }
}

/// Collects the memory of `segments`, without empty ones, and the owners of what is not borrowed.
///
/// # Panics
/// If a segment's kind does not match `op`, or a segment lies outside its pages: a bug in the caller.
pub(crate) fn gather<'env>(
    op: Op,
    segments: impl IntoIterator<Item = Segment<'env>>,
) -> (Segments, Kept) {
    let (mut pieces, mut kept) = (Segments::new(), Kept::new());
    for segment in segments.into_iter().filter(|s| !s.is_empty()) {
        let (piece, keep) = segment.into_iovec(op);
        pieces.push(piece);
        kept.extend(keep);
    }
    (pieces, kept)
}

/// The result of a request submitted through a [`Scope`] or a [`crate::Lane`].
#[derive(Debug)]
pub struct Done {
    /// The submitter's number for it.
    pub tag: u64,
    /// The operation.
    pub op: Op,
    /// The first byte on the device.
    pub offset_bytes: u64,
    /// The length of its range on the device, in bytes.
    pub len_bytes: u64,
    /// `Ok` if all of it is done.
    pub result: io::Result<()>,
}

impl From<Completion> for Done {
    /// Drops the request, which releases its memory.
    fn from(completion: Completion) -> Done {
        Done {
            tag: completion.request.tag(),
            op: completion.request.op(),
            offset_bytes: completion.request.offset_bytes(),
            len_bytes: completion.request.len_bytes(),
            result: completion.result,
        }
    }
}

/// Submits requests with memory borrowed for `'env` to one queue. See [`scope`].
// `'env: 'queue` is explicit because compilers from 1.88 to 1.93 would otherwise require 'static.
pub struct Scope<'queue, 'env: 'queue> {
    queue: &'queue mut dyn Queue,
    /// Unique among the scopes with requests in flight.
    owner: usize,
    /// Requests submitted and not returned.
    out: usize,
    completions: Vec<Completion>,
    /// Makes `'env` invariant: it must not shrink to a borrow that ends inside the closure.
    env: PhantomData<&'env mut &'env ()>,
}

thread_local! {
    /// A vector for completions, kept so that a scope does not allocate one.
    static SPARE: Cell<Vec<Completion>> = const { Cell::new(Vec::new()) };
}

/// Calls `f` with a [`Scope`] on `queue`, and returns when all requests submitted in it have completed.
///
/// Completions that `f` has not reaped are discarded, including their errors.
pub fn scope<'env, R>(queue: &mut dyn Queue, f: impl FnOnce(&mut Scope<'_, 'env>) -> R) -> R {
    let brand = 0_u8; // its address is unique until the scope below is drained and dropped
    let mut scope = Scope {
        queue,
        owner: (&raw const brand).addr(),
        out: 0,
        completions: SPARE.take(),
        env: PhantomData,
    };
    f(&mut scope)
}

impl<'env> Scope<'_, 'env> {
    /// Submits a read or write of `segments`, consecutive on the device, at `offset_bytes`.
    ///
    /// Empty segments are ignored. With `fua`, a write is durable on completion.
    ///
    /// # Panics
    /// If `op` is neither read nor write, or a segment's kind does not match it: a bug in the caller.
    pub fn submit(
        &mut self,
        tag: u64,
        op: Op,
        offset_bytes: u64,
        segments: impl IntoIterator<Item = Segment<'env>>,
        fua: bool,
    ) {
        assert!(matches!(op, Op::Read | Op::Write), "{op:?} has no memory");
        let (pieces, kept) = gather(op, segments);
        // SAFETY: the segments are kept alive by the request or borrowed for 'env, exclusively for reads
        // (`gather` checked the kind), and 'env outlives this scope, whose drop returns only when the request
        // has been returned.
        let request = unsafe { Request::new(self.owner, tag, op, offset_bytes, pieces, kept, fua) };
        self.out += 1;
        self.queue.submit(request);
    }

    /// Submits a flush (range ignored), discard or write-zeroes of `len_bytes` at `offset_bytes`.
    ///
    /// # Panics
    /// If `op` is a read or write: a bug in the caller.
    pub fn submit_range(&mut self, tag: u64, op: Op, offset_bytes: u64, len_bytes: u64) {
        assert!(!matches!(op, Op::Read | Op::Write), "{op:?} needs memory");
        self.out += 1;
        self.queue
            .submit(Request::range(self.owner, tag, op, offset_bytes, len_bytes));
    }

    /// Pushes submitted requests to the device without waiting. Not needed before [`reap`](Scope::reap).
    pub fn kick(&mut self) {
        self.queue.kick();
    }

    /// Appends completed requests to `done`. Waits for at least `wait_for` of them, or for all in flight if
    /// those are fewer.
    pub fn reap(&mut self, wait_for: usize, done: &mut Vec<Done>) {
        let wait_for = wait_for.min(self.out);
        let mut got = 0;
        loop {
            self.queue.reap(wait_for - got, &mut self.completions);
            let before = got;
            for completion in self.completions.drain(..) {
                take_back(self.owner, &mut self.out, &completion);
                got += 1;
                done.push(completion.into());
            }
            if got >= wait_for {
                return;
            }
            assert!(got > before, "a queue must wait for requests in flight");
        }
    }

    /// Requests submitted and not yet reaped.
    pub fn in_flight(&self) -> usize {
        self.out
    }

    /// The most requests that the queue keeps in flight.
    pub fn depth(&self) -> usize {
        self.queue.depth()
    }
}

impl Drop for Scope<'_, '_> {
    /// Waits for every request, both on return and on panic.
    fn drop(&mut self) {
        if self.out > 0 {
            let bomb = AbortOnUnwind("a queue panicked while it was drained");
            while self.out > 0 {
                self.queue.reap(self.out, &mut self.completions);
                if self.completions.is_empty() {
                    abort("a queue lost a request");
                }
                for completion in self.completions.drain(..) {
                    take_back(self.owner, &mut self.out, &completion);
                }
            }
            std::mem::forget(bomb);
        }
        SPARE.set(std::mem::take(&mut self.completions));
    }
}

/// Counts one request as returned. The caller drops the request itself, within the scope.
pub(crate) fn take_back(owner: usize, out: &mut usize, completion: &Completion) {
    if completion.request.owner() != owner || *out == 0 {
        abort("a queue returned a request to the wrong owner");
    }
    *out -= 1;
}

/// Aborts the process: the device may use the lent memory for ever, so there is no safe way to continue.
pub(crate) fn abort(why: &str) -> ! {
    eprintln!("throughline: {why}; memory lent to the device cannot be taken back");
    std::process::abort()
}

/// Aborts with a message if it is dropped. To be forgotten on success.
pub(crate) struct AbortOnUnwind(pub(crate) &'static str);

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        abort(self.0);
    }
}
