//! Replies to threads that wait for a flush.

use std::io;

use crossbeam_channel::{Receiver, Sender, bounded};
use throughline_device::Op;
use throughline_locks::Mutex;

use crate::error::{Error, Result};

/// The reply for work in one or several parts; an error if a part is dropped unfinished.
pub(super) struct Reply {
    /// The flush covers kept bytes too ([`Refused::first_kept`](crate::Refused::first_kept)).
    pub(super) asks: bool,
    state: Mutex<State>,
    to: Sender<Result<()>>,
}

struct State {
    parts: usize,
    error: Option<Error>,
}

/// The receiving end of a [`Reply`].
pub(super) struct Waiter(Receiver<Result<()>>);

impl Reply {
    /// For work with no parts yet. With `asks`, it fails while there is no space for kept bytes.
    pub(super) fn new(asks: bool) -> (Reply, Waiter) {
        let (to, from) = bounded(1);
        let state = Mutex::new(State {
            parts: 0,
            error: None,
        });
        (Reply { asks, state, to }, Waiter(from))
    }

    /// Adds a part.
    pub(super) fn part(&self) {
        self.state.lock().parts += 1;
    }

    /// Ends a part. The first error becomes the reply.
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
        // The waiter may be gone.
        let _ = self.to.send(answer);
    }
}

impl Waiter {
    /// Waits for the reply.
    pub(super) fn wait(self) -> Result<()> {
        self.0.recv().unwrap_or_else(|_| Err(ended()))
    }
}

/// The error if the flusher is closed or panics before the work is done.
pub(super) fn ended() -> Error {
    let source = io::Error::other("write-back of the device was closed");
    throughline_block::Error::device(Op::Write, 0, 0, source).into()
}
