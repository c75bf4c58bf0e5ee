//! A queue for owned memory, whose requests may outlive the call that submits them.
//!
//! [`crate::scope`] must wait for the memory that it lends; a lane lends none. It takes memory that is owned
//! or `'static`, so its requests may stay in flight from one call to the next. This is sound because each
//! request keeps its own memory alive (see [`crate::Request`]'s module).

use crate::request::LANE;
use crate::scope::{gather, take_back};
use crate::{BlockDevice, Completion, Done, Op, Queue, Request, Segment};

/// A queue to a device for requests that outlive the call that submits them.
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
    /// Requests submitted and not returned.
    out: usize,
    completions: Vec<Completion>,
}

impl Lane {
    /// Opens a queue of `device`.
    ///
    /// # Errors
    /// If the system refuses the resources.
    pub fn open(device: &dyn BlockDevice) -> std::io::Result<Lane> {
        Ok(Lane {
            queue: device.open_queue()?,
            out: 0,
            completions: Vec::new(),
        })
    }

    /// Submits a read or write of `segments`, consecutive on the device, at `offset_bytes`, as
    /// [`Scope::submit`](crate::Scope::submit) does. With [`depth`](Lane::depth) requests in flight, it first
    /// waits for one of them.
    ///
    /// # Panics
    /// If `op` is neither read nor write, a segment's kind does not match it, or a segment lies outside its
    /// pages: a bug in the caller.
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
        // SAFETY: the segments are kept alive by the request or borrowed for 'static, exclusively for reads
        // (`gather` checked the kind).
        let request = unsafe { Request::new(LANE, tag, op, offset_bytes, pieces, kept, fua) };
        self.out += 1;
        self.queue.submit(request);
    }

    /// Pushes submitted requests to the device without waiting.
    pub fn kick(&mut self) {
        self.queue.kick();
    }

    /// Appends completed requests to `done`. Waits for at least `wait_for` of them, or for all in flight if
    /// those are fewer. Their memory has been released.
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
