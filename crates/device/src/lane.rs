//! A queue for memory that nobody has to wait for.
//!
//! [`crate::scope`] must wait for what it lent; a lane lends nothing. It takes memory that is owned or lives for ever, so
//! its requests may be on the device while its owner does something else, from one call to the next. What makes that sound
//! is said in [`crate::Request`]'s module: each request keeps its own memory.

use crate::request::LANE;
use crate::scope::{gather, take_back};
use crate::{BlockDevice, Completion, Done, Op, Queue, Request, Segment};

/// A queue of its own to a device, for requests that outlive the call that makes them.
///
/// ```
/// use std::sync::Arc;
/// use throughline_device::{Lane, MemoryDevice, Op, PagePool, Segment};
///
/// let pages = Arc::new(PagePool::new(1 << 20).take(4096).expect("room"));
/// let mut lane = Lane::open(&MemoryDevice::new(1 << 20))?;
/// lane.submit(7, Op::Write, 0, [Segment::Shared { pages, from: 0, len: 4096 }], false);
/// lane.kick();
/// let mut done = Vec::new();
/// lane.reap(1, &mut done);
/// assert!(done[0].tag == 7 && done[0].result.is_ok());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Lane {
    queue: Box<dyn Queue>,
    /// Requests submitted and not come back.
    out: usize,
    completions: Vec<Completion>,
}

impl Lane {
    /// Opens a queue of `device`.
    ///
    /// # Errors
    /// When the system refuses the resources.
    pub fn open(device: &dyn BlockDevice) -> std::io::Result<Lane> {
        Ok(Lane {
            queue: device.open_queue()?,
            out: 0,
            completions: Vec::new(),
        })
    }

    /// Submits a read or write of `segments`, one after the other on the device, at `offset_bytes`. As
    /// [`Scope::submit`](crate::Scope::submit); with [`depth`](Lane::depth) requests there already it first waits for one of them.
    ///
    /// # Panics
    /// If `op` is neither read nor write, or a segment is of the other kind or outside of its pages: our own bug.
    pub fn submit(
        &mut self,
        tag: u64,
        op: Op,
        offset_bytes: u64,
        segments: impl IntoIterator<Item = Segment<'static>>,
        fua: bool,
    ) {
        assert!(matches!(op, Op::Read | Op::Write), "{op:?} has no memory");
        let (pieces, kept) = gather(op, segments);
        // SAFETY: the segments are kept by the request, or borrowed for ever, reads exclusively (`gather` checked the kind).
        let request = unsafe { Request::new(LANE, tag, op, offset_bytes, pieces, kept, fua) };
        self.out += 1;
        self.queue.submit(request);
    }

    /// Pushes what was submitted to the device without waiting.
    pub fn kick(&mut self) {
        self.queue.kick();
    }

    /// Appends to `done` what has completed, waiting for at least `wait_for` or all that is in flight. The memory of
    /// what it appends has been let go of.
    pub fn reap(&mut self, wait_for: usize, done: &mut Vec<Done>) {
        let wait_for = wait_for.min(self.out);
        let mut got = 0;
        loop {
            self.queue.reap(wait_for - got, &mut self.completions);
            let before = got;
            for completion in self.completions.drain(..) {
                take_back(LANE, &mut self.out, &completion);
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
