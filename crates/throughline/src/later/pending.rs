//! [`Pending`]: the result of a call that another thread runs.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use throughline_locks::{Mutex, MutexGuard};

/// A call in flight; resolves to its result. Dropping it does not cancel the call.
///
/// # Panics
/// If it is polled again after it was ready, or if the call panicked.
#[must_use = "the call continues, but its result is lost"]
pub struct Pending<T>(Arc<Slot<T>>);

/// The sending end; fulfilled once.
pub(super) struct Promise<T>(Arc<Slot<T>>);

struct Slot<T>(Mutex<State<T>>);

enum State<T> {
    Waiting(Option<Waker>),
    Done(T),
    /// The call panicked.
    Broken,
    Taken,
}

/// A connected pair.
pub(super) fn pair<T>() -> (Promise<T>, Pending<T>) {
    let slot = Arc::new(Slot(Mutex::new(State::Waiting(None))));
    (Promise(Arc::clone(&slot)), Pending(slot))
}

/// The result of a call that is complete.
pub(super) fn ready<T>(answer: T) -> Pending<T> {
    Pending(Arc::new(Slot(Mutex::new(State::Done(answer)))))
}

impl<T> Slot<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock()
    }

    fn end(&self, state: State<T>) {
        let mut now = self.state();
        if let State::Waiting(waker) = &mut *now {
            let waker = waker.take();
            *now = state;
            drop(now); // the woken task may poll at once
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl<T> Promise<T> {
    pub(super) fn keep(self, answer: T) {
        self.0.end(State::Done(answer));
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.0.end(State::Broken); // no effect after `keep`
    }
}

impl<T> Future for Pending<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut now = self.0.state();
        match std::mem::replace(&mut *now, State::Taken) {
            State::Done(answer) => Poll::Ready(answer),
            State::Waiting(_) => {
                *now = State::Waiting(Some(context.waker().clone()));
                Poll::Pending
            }
            State::Broken => panic!("the call panicked"),
            State::Taken => panic!("polled after its result was taken"),
        }
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &*self.0.state() {
            State::Waiting(_) => "Pending(under way)",
            State::Done(_) => "Pending(done)",
            State::Broken => "Pending(panicked)",
            State::Taken => "Pending(taken)",
        })
    }
}
