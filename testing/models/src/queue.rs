//! One thread's queue to a [`ModelDevice`](crate::ModelDevice).
//!
//! A request's completion time is determined at submission. Its bytes are moved by the content's device when
//! the submitter next waits, which is while the model's device is busy with it. Then the completion is held
//! back until its time.

use std::collections::VecDeque;
use std::sync::Arc;

use throughline_device::{Completion, Queue, Request};

use crate::device::Shared;
use crate::timetable::Work;

const PAGE_BYTES: u64 = 4096;

pub(crate) struct ModelQueue {
    shared: Arc<Shared>,
    /// A queue of the content's device.
    content: Box<dyn Queue>,
    /// Submitted requests whose bytes are not yet moved, in order of submission.
    fresh: VecDeque<(u64, Request)>,
    /// Requests whose bytes are moved, by completion time.
    moved: VecDeque<(u64, Completion)>,
    /// Completed or refused requests.
    ready: Vec<Completion>,
}

impl ModelQueue {
    pub(crate) fn new(shared: Arc<Shared>, content: Box<dyn Queue>) -> ModelQueue {
        ModelQueue {
            shared,
            content,
            fresh: VecDeque::new(),
            moved: VecDeque::new(),
            ready: Vec::new(),
        }
    }

    /// Charges the submitter for `request`, admits it, and returns its completion time.
    fn end_of(&mut self, request: &Request) -> u64 {
        let host = &self.shared.model.host;
        let pages = request.len_bytes().div_ceil(PAGE_BYTES);
        self.shared
            .clock
            .work(host.request_ns + pages * host.page_in_ns);
        let work = Work {
            op: request.op(),
            offset_bytes: request.offset_bytes(),
            len_bytes: request.len_bytes(),
        };
        self.shared.admit(work) + pages * host.page_out_ns
    }

    /// Moves the bytes of requests that complete by `until_ns`, in order of submission.
    fn move_bytes(&mut self, until_ns: u64) {
        let mut done = Vec::new();
        while self
            .fresh
            .front()
            .is_some_and(|(end_ns, _)| *end_ns <= until_ns)
            && let Some((end_ns, request)) = self.fresh.pop_front()
        {
            self.content.submit(request);
            self.content.reap(1, &mut done);
            for completion in done.drain(..) {
                // A short request may complete before a longer, earlier one.
                let place = self.moved.partition_point(|(other, _)| *other <= end_ns);
                self.moved.insert(place, (end_ns, completion));
            }
        }
    }

    /// Moves due completions to `ready`.
    fn ripen(&mut self) {
        let now_ns = self.shared.clock.now_ns();
        self.move_bytes(now_ns);
        let ripe = self.moved.partition_point(|(end_ns, _)| *end_ns <= now_ns);
        let done = self.moved.drain(..ripe);
        self.ready.extend(done.map(|(_, completion)| completion));
    }

    /// Waits until `wanted` completions are ready, or all.
    fn wait_for(&mut self, wanted: usize) {
        self.move_bytes(u64::MAX);
        self.ripen();
        while self.ready.len() < wanted {
            let missing = wanted - self.ready.len();
            let last = missing.min(self.moved.len());
            let Some((end_ns, _)) = last.checked_sub(1).and_then(|at| self.moved.get(at)) else {
                return;
            };
            self.shared.clock.wait_until(*end_ns);
            self.ripen();
        }
    }
}

impl Queue for ModelQueue {
    fn submit(&mut self, request: Request) {
        if self.fresh.len() + self.moved.len() >= self.depth() {
            let more = self.ready.len() + 1;
            self.wait_for(more);
        }
        if let Err(error) = self.shared.refuses(&request) {
            self.ready.push(Completion {
                request,
                result: Err(error),
            });
            return;
        }
        let end_ns = self.end_of(&request);
        self.fresh.push_back((end_ns, request));
    }

    fn kick(&mut self) {}

    fn reap(&mut self, wait_for: usize, done: &mut Vec<Completion>) {
        match wait_for {
            0 => self.ripen(),
            some => self.wait_for(some),
        }
        done.append(&mut self.ready);
    }

    fn in_flight(&self) -> usize {
        self.fresh.len() + self.moved.len() + self.ready.len()
    }

    fn depth(&self) -> usize {
        self.shared.model.limits.queue_depth.max(1) as usize
    }
}

impl Drop for ModelQueue {
    fn drop(&mut self) {
        self.wait_for(usize::MAX);
    }
}
