//! The answer to whoever waits for a flush.

use std::io;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;
use throughline_device::Op;

use crate::error::{Error, Result};

/// One answer for one or several parts of work; an error if a part is dropped unfinished.
pub(super) struct Reply {
    state: Mutex<State>,
    to: Sender<Result<()>>,
}

struct State {
    parts: usize,
    error: Option<Error>,
}

/// Where the answer comes.
pub(super) struct Waiter(Receiver<Result<()>>);

impl Reply {
    /// Of work that has no parts yet.
    pub(super) fn new() -> (Reply, Waiter) {
        let (to, from) = bounded(1);
        let state = Mutex::new(State {
            parts: 0,
            error: None,
        });
        (Reply { state, to }, Waiter(from))
    }

    /// One part more.
    pub(super) fn part(&self) {
        self.state.lock().parts += 1;
    }

    /// A part has ended. The first error is the answer.
    pub(super) fn end(&self, result: Result<()>) {
        let mut state = self.state.lock();
        state.parts -= 1;
        state.error = state.error.take().or(result.err());
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let answer = match state.error.take() {
            Some(error) => Err(error),
            None if state.parts > 0 => Err(ended()),
            None => Ok(()),
        };
        // Nobody waits any more: nobody to tell.
        let _ = self.to.send(answer);
    }
}

impl Waiter {
    /// Waits for the answer.
    pub(super) fn wait(self) -> Result<()> {
        self.0.recv().unwrap_or_else(|_| Err(ended()))
    }
}

/// The flusher was closed, or died, before the work was done.
pub(super) fn ended() -> Error {
    let source = io::Error::other("write-back of the device was closed");
    throughline_block::Error::device(Op::Write, 0, 0, source).into()
}
