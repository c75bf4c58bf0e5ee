//! A limited number of bytes, granted in the order of requests.
//!
//! Invariants:
//! - Granted bytes never exceed the limit at any time. The only exception is a request larger than the limit
//!   (because the limit was lowered after its size was chosen): it is granted alone, when nothing is in use.
//! - Waiters are served first come, first served: a later request never takes room that the first waiter
//!   needs.
//! - No wake-up is lost. A waiter enters the queue and then checks for room; a release lowers the bytes in
//!   use and then checks the queue. All four operations are sequentially consistent, so at least one side
//!   sees the other.
//! - A [`Ticket`] is answered once. A ticket dropped unanswered holds no room.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, Rank};

/// See the module. `E` is the error that makes waiting pointless.
pub(crate) struct Room<E> {
    /// The one cache line that every acquire and release writes.
    used_bytes: CachePadded<AtomicU64>,
    limit_bytes: CachePadded<AtomicU64>,
    /// Length of the queue; written with `line` locked.
    waiting: AtomicUsize,
    line: Mutex<Line<E>>,
}

struct Line<E> {
    waiters: VecDeque<Arc<Waiter<E>>>,
    /// The error while nothing is being released.
    stuck: Option<E>,
}

struct Waiter<E> {
    bytes: u64,
    answer: Mutex<Option<Result<(), E>>>,
    wake: Condvar,
}

impl<E> Waiter<E> {
    fn answer(&self, answer: Result<(), E>) {
        *self.answer.lock() = Some(answer);
        self.wake.notify_one();
    }
}

impl<E: Clone> Room<E> {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self {
            used_bytes: CachePadded::new(AtomicU64::new(0)),
            limit_bytes: CachePadded::new(AtomicU64::new(limit_bytes)),
            waiting: AtomicUsize::new(0),
            line: Mutex::ranked(
                Rank::Room,
                Line {
                    waiters: VecDeque::new(),
                    stuck: None,
                },
            ),
        }
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::SeqCst)
    }

    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Ordering::SeqCst)
    }

    /// Number of waiters.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether there are waiters.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Takes `bytes` if there is room and no waiter. Returns the bytes then in use, including these.
    pub(crate) fn take(&self, bytes: u64) -> Option<u64> {
        if self.is_waited_for() {
            return None;
        }
        self.take_past_the_line(bytes)
    }

    fn take_past_the_line(&self, bytes: u64) -> Option<u64> {
        let limit = self.limit_bytes();
        self.used_bytes
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |used| {
                let sum = used.checked_add(bytes)?;
                (sum <= limit || used == 0).then_some(sum)
            })
            .ok()
            .map(|before| before + bytes)
    }

    /// Takes `bytes`, or enters the queue for them.
    ///
    /// # Errors
    /// The error that makes waiting pointless.
    pub(crate) fn take_or_queue(&self, bytes: u64) -> Result<Option<Ticket<'_, E>>, E> {
        if self.take(bytes).is_some() {
            return Ok(None);
        }
        let waiter = Arc::new(Waiter {
            bytes,
            answer: Mutex::new(None),
            wake: Condvar::new(),
        });
        let mut line = self.line.lock();
        line.waiters.push_back(Arc::clone(&waiter));
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.serve(&mut line);
        if let Some(error) = line.stuck.clone()
            && self.leave(&mut line, &waiter)
        {
            self.serve(&mut line);
            return Err(error);
        }
        drop(line);
        Ok(Some(Ticket {
            room: self,
            waiter,
            answered: false,
        }))
    }

    /// Releases bytes that were taken.
    pub(crate) fn give_back(&self, bytes: u64) {
        let before = self
            .used_bytes
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |used| {
                Some(used.saturating_sub(bytes))
            });
        debug_assert!(
            before.is_ok_and(|used| used >= bytes),
            "more bytes released than taken: {bytes} of {before:?}"
        );
        if self.is_waited_for() {
            self.serve(&mut self.line.lock());
        }
    }

    /// Changes the limit; serves waiters for whom there is room now.
    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit_bytes.store(bytes, Ordering::SeqCst);
        self.serve(&mut self.line.lock());
    }

    /// Sets the error while nothing is being released (`Some`: all waiters, and later calls that would have
    /// to wait, get it), or clears it.
    pub(crate) fn set_stuck(&self, error: Option<E>) {
        let mut line = self.line.lock();
        if let Some(error) = &error {
            for waiter in line.waiters.drain(..) {
                self.waiting.fetch_sub(1, Ordering::SeqCst);
                waiter.answer(Err(error.clone()));
            }
        }
        line.stuck = error;
    }

    /// The error while nothing is being released.
    pub(crate) fn stuck(&self) -> Option<E> {
        self.line.lock().stuck.clone()
    }

    /// Grants the requests at the head of the queue for which there is room.
    fn serve(&self, line: &mut Line<E>) {
        while let Some(first) = line.waiters.front()
            && self.take_past_the_line(first.bytes).is_some()
        {
            if let Some(first) = line.waiters.pop_front() {
                self.waiting.fetch_sub(1, Ordering::SeqCst);
                first.answer(Ok(()));
            }
        }
    }

    /// Removes a waiter from the queue. Returns whether it was still queued.
    fn leave(&self, line: &mut Line<E>, waiter: &Arc<Waiter<E>>) -> bool {
        let Some(at) = line.waiters.iter().position(|one| Arc::ptr_eq(one, waiter)) else {
            return false;
        };
        line.waiters.remove(at);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        true
    }
}

/// A place in the queue. Dropping it gives it up.
#[must_use = "dropping it gives the place up"]
pub(crate) struct Ticket<'a, E: Clone> {
    room: &'a Room<E>,
    waiter: Arc<Waiter<E>>,
    answered: bool,
}

impl<E: Clone> Ticket<'_, E> {
    /// Waits for the answer for at most `most`; `None` if there is none yet.
    pub(crate) fn wait(&mut self, most: Duration) -> Option<Result<(), E>> {
        let mut answer = self.waiter.answer.lock();
        if answer.is_none() {
            self.waiter.wake.wait_for(&mut answer, most);
        }
        let answer = answer.take();
        self.answered |= answer.is_some();
        answer
    }
}

impl<E: Clone> Drop for Ticket<'_, E> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let mut line = self.room.line.lock();
        if self.room.leave(&mut line, &self.waiter) {
            // The next waiter may need less.
            self.room.serve(&mut line);
            return;
        }
        drop(line);
        if let Some(Ok(())) = self.waiter.answer.lock().take() {
            self.room.give_back(self.waiter.bytes);
        }
    }
}
