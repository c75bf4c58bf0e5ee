//! A queue of a [`FaultDevice`](super::FaultDevice).

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use throughline_device::{AlignedBuf, Completion, Op, Queue, Request, Segment, scope};

use super::script::{Random, Script, Verdict};

/// `EIO`, as from a disk.
fn injected() -> io::Error {
    const EIO: i32 = 5;
    io::Error::from_raw_os_error(EIO)
}

pub(super) struct FaultQueue {
    inner: Box<dyn Queue>,
    /// Writes the blocks of torn writes, so that they do not interfere with what is in flight on `inner`.
    side: Box<dyn Queue>,
    block_bytes: usize,
    align_bytes: usize,
    script: Arc<Mutex<Script>>,
    /// Never submitted to `inner`, and not yet reaped.
    refused: Vec<Completion>,
    /// Submitted to `inner`, to be reported as failed: operation, offset, length.
    to_fail: Vec<(Op, u64, u64)>,
}

fn identity(request: &Request) -> (Op, u64, u64) {
    (request.op(), request.offset_bytes(), request.len_bytes())
}

impl FaultQueue {
    pub(super) fn new(
        inner: Box<dyn Queue>,
        side: Box<dyn Queue>,
        block_bytes: usize,
        align_bytes: usize,
        script: Arc<Mutex<Script>>,
    ) -> FaultQueue {
        FaultQueue {
            inner,
            side,
            block_bytes,
            align_bytes,
            script,
            refused: Vec::new(),
            to_fail: Vec::new(),
        }
    }

    fn refuse(&mut self, request: Request) {
        self.refused.push(Completion {
            request,
            result: Err(injected()),
        });
    }

    /// Carries out part of the request.
    fn tear(&mut self, request: &mut Request, mut random: Random) {
        match request.op() {
            Op::Read => request
                .slices_mut()
                .flatten()
                .for_each(|byte| *byte = random.next() as u8),
            Op::Write => self.write_some(request, random),
            _ => {}
        }
    }

    /// Writes a subset of the request's blocks.
    fn write_some(&mut self, request: &Request, mut random: Random) {
        let mut block = AlignedBuf::zeroed(self.block_bytes, self.align_bytes);
        for (i, begin) in (0..request.len_bytes())
            .step_by(self.block_bytes)
            .enumerate()
        {
            let whole = request.copy_out(i * self.block_bytes, &mut block) == block.len();
            if whole && random.next().is_multiple_of(2) {
                let at = request.offset_bytes().wrapping_add(begin);
                // Its result does not matter: the request fails anyway.
                scope(&mut *self.side, |s| {
                    s.submit(0, Op::Write, at, [Segment::Write(&block)], false)
                });
            }
        }
    }
}

impl Queue for FaultQueue {
    fn submit(&mut self, mut request: Request) {
        let verdict = self.script.lock().next(&request);
        match verdict {
            Verdict::Pass => self.inner.submit(request),
            Verdict::Refuse => self.refuse(request),
            Verdict::Lose => self.refused.push(Completion {
                request,
                result: Ok(()),
            }),
            Verdict::FailAfterDone => {
                self.to_fail.push(identity(&request));
                self.inner.submit(request);
            }
            Verdict::Tear(random) => {
                self.tear(&mut request, random);
                self.refuse(request);
            }
        }
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn reap(&mut self, wait_for: usize, done: &mut Vec<Completion>) {
        let wait_for = wait_for.saturating_sub(self.refused.len());
        done.append(&mut self.refused);
        let new = done.len();
        self.inner.reap(wait_for, done);
        for completion in &mut done[new..] {
            let it = identity(&completion.request);
            if let Some(at) = self.to_fail.iter().position(|failing| *failing == it) {
                self.to_fail.swap_remove(at);
                completion.result = Err(injected());
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.refused.len()
    }

    fn depth(&self) -> usize {
        self.inner.depth()
    }
}
