//! Lending borrowed memory to a queue, safely.
//!
//! As with `std::thread::scope`, memory borrowed for `'env` may be handed to the device inside [`scope`],
//! and `scope` returns (or unwinds) only when the device is done with it. It counts the requests it made
//! and takes each back by its owner number. A queue that lost one, or that panics while it is drained,
//! leaves no way to know that the memory is free: then the process aborts.
//!
//! Memory that is owned ([`Segment::Shared`]) needs none of that: its request holds it, and holds everyone off changing
//! it, for as long as the request exists ([`crate::Request`]). A queue that loses such a request loses memory, no more. In
//! a [`scope`] it is waited for like the rest; a [`crate::Lane`] takes nothing else, and so can be left and come back to.

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

use libc::iovec;

use crate::request::{Kept, Segments};
use crate::{Completion, Op, Pages, Queue, Request};

/// A piece of memory to be lent.
#[derive(Debug)]
pub enum Segment<'env> {
    /// To be filled by a read.
    Read(&'env mut [u8]),
    /// To be written.
    Write(&'env [u8]),
    /// To be written, and not borrowed: the request owns a share of it until it is done.
    Shared {
        /// The memory.
        pages: Arc<Pages>,
        /// The first byte of the piece in it.
        from: usize,
        /// The bytes of the piece.
        len: usize,
    },
}

impl Segment<'_> {
    /// Its length.
    pub fn len(&self) -> usize {
        match self {
            Segment::Read(memory) => memory.len(),
            Segment::Write(memory) => memory.len(),
            Segment::Shared { len, .. } => *len,
        }
    }

    /// Whether it is nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of its first byte, for alignment.
    pub fn addr(&self) -> usize {
        match self {
            Segment::Read(memory) => memory.as_ptr().addr(),
            Segment::Write(memory) => memory.as_ptr().addr(),
            // An address is no access: one that is out of bounds is found out when the piece is used.
            Segment::Shared { pages, from, .. } => pages.as_ptr().addr().wrapping_add(*from),
        }
    }

    /// The memory, and what keeps it if that is not `'env`.
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

/// The memory of `segments`, without the empty ones, and the shares that keep what is not borrowed of it.
///
/// # Panics
/// If a segment is of the other kind than `op`, or outside of its pages: our own bug.
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

/// What became of a request that was submitted through a [`Scope`].
#[derive(Debug)]
pub struct Done {
    /// The submitter's own number for it.
    pub tag: u64,
    /// What it asked for.
    pub op: Op,
    /// Where on the device it began.
    pub offset_bytes: u64,
    /// How many bytes of the device it covered.
    pub len_bytes: u64,
    /// All done, or why not.
    pub result: io::Result<()>,
}

impl From<Completion> for Done {
    /// Lets go of the request and its memory.
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

/// The lender: submits requests with memory of `'env` to one queue. See [`scope`].
// That 'env outlives 'queue is said, not left to be inferred: compilers from 1.88 to 1.93 would ask for 'static.
pub struct Scope<'queue, 'env: 'queue> {
    queue: &'queue mut dyn Queue,
    /// Unique among the scopes that have requests out.
    owner: usize,
    /// Requests submitted and not come back.
    out: usize,
    completions: Vec<Completion>,
    /// Invariant: `'env` must not shrink to a borrow that ends inside the closure.
    env: PhantomData<&'env mut &'env ()>,
}

thread_local! {
    /// A vector for completions, so that a scope allocates none.
    static SPARE: Cell<Vec<Completion>> = const { Cell::new(Vec::new()) };
}

/// Calls `f` with a [`Scope`] on `queue`, and returns when everything submitted in it has completed.
///
/// Completions that `f` has not reaped are discarded, errors too: reap what matters.
pub fn scope<'env, R>(queue: &mut dyn Queue, f: impl FnOnce(&mut Scope<'_, 'env>) -> R) -> R {
    let brand = 0_u8; // its address is ours alone until the scope below is drained and dropped
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
    /// Submits a read or write of `segments`, one after the other on the device, at `offset_bytes`.
    ///
    /// Empty segments are dropped. `fua`: a write survives a power loss once it completes.
    ///
    /// # Panics
    /// If `op` is neither read nor write, or a segment is of the other kind: our own bug.
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
        // SAFETY: the segments are kept, or borrowed for 'env, reads exclusively (`gather` checked the kind),
        // and 'env outlives this scope, whose drop returns only when the request has come back.
        let request = unsafe { Request::new(self.owner, tag, op, offset_bytes, pieces, kept, fua) };
        self.out += 1;
        self.queue.submit(request);
    }

    /// Submits a flush (range ignored), discard or write-zeroes of `len_bytes` at `offset_bytes`.
    ///
    /// # Panics
    /// If `op` is a read or write: our own bug.
    pub fn submit_range(&mut self, tag: u64, op: Op, offset_bytes: u64, len_bytes: u64) {
        assert!(!matches!(op, Op::Read | Op::Write), "{op:?} needs memory");
        self.out += 1;
        self.queue
            .submit(Request::range(self.owner, tag, op, offset_bytes, len_bytes));
    }

    /// Pushes what was submitted to the device without waiting. Not needed before [`reap`](Scope::reap).
    pub fn kick(&mut self) {
        self.queue.kick();
    }

    /// Appends to `done` what has completed, waiting for at least `wait_for` or all that is in flight.
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
            assert!(got > before, "a queue must wait for what is in flight");
        }
    }

    /// Requests submitted and not yet reaped.
    pub fn in_flight(&self) -> usize {
        self.out
    }

    /// How many requests the queue keeps on the device at once.
    pub fn depth(&self) -> usize {
        self.queue.depth()
    }
}

impl Drop for Scope<'_, '_> {
    /// Waits for every request, on return and on panic alike.
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

/// Counts one request back in; the request itself is dropped by the caller, in this scope.
pub(crate) fn take_back(owner: usize, out: &mut usize, completion: &Completion) {
    if completion.request.owner() != owner || *out == 0 {
        abort("a queue gave a request back to another than its owner");
    }
    *out -= 1;
}

/// The memory lent may be in use for ever: there is no state to return to.
pub(crate) fn abort(why: &str) -> ! {
    eprintln!("throughline: {why}; memory lent to the device cannot be taken back");
    std::process::abort()
}

/// Aborts, and says why, if it is dropped: forget it where all went well.
pub(crate) struct AbortOnUnwind(pub(crate) &'static str);

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        abort(self.0);
    }
}
