//! Bytes of which only so many may be in use at once, given out in the order of asking.
//!
//! Invariants:
//! - Taking never brings the bytes in use past the limit, not for a moment. The one exception is a request larger than
//!   the limit itself (the limit was lowered after its size was chosen): it is let through alone, when nothing is in use.
//! - Who waits is served first come, first served: nobody who comes later takes room that the first in line waits for.
//! - No wake-up is lost. Who waits enters the line and then looks for room; who gives room back lowers the bytes in use and
//!   then looks at the line. All four are sequentially consistent, so at least one of the two sees the other.
//! - A [`Ticket`] is answered once. Given up (dropped) it leaves no room taken.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU64, AtomicUsize, Condvar, Mutex, Ordering};

/// See the module. `E` is why waiting may be in vain.
pub(crate) struct Room<E> {
    /// The one line that every taking and giving back writes.
    used_bytes: CachePadded<AtomicU64>,
    limit_bytes: CachePadded<AtomicU64>,
    /// Length of the line; written with it locked.
    waiting: AtomicUsize,
    line: Mutex<Line<E>>,
}

struct Line<E> {
    waiters: VecDeque<Arc<Waiter<E>>>,
    /// Why nobody gets room back at present.
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
            line: Mutex::new(Line {
                waiters: VecDeque::new(),
                stuck: None,
            }),
        }
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::SeqCst)
    }

    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Ordering::SeqCst)
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether anyone waits.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Takes `bytes` if there is room and nobody waits for it. The bytes in use then, these among them.
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

    /// Takes `bytes`, or a place in the line for them.
    ///
    /// # Errors
    /// Why waiting is in vain.
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
            settled: false,
        }))
    }

    /// Gives back bytes that were taken.
    pub(crate) fn give_back(&self, bytes: u64) {
        let before = self
            .used_bytes
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |used| {
                Some(used.saturating_sub(bytes))
            });
        debug_assert!(
            before.is_ok_and(|used| used >= bytes),
            "more given back than taken: {bytes} of {before:?}"
        );
        if self.is_waited_for() {
            self.serve(&mut self.line.lock());
        }
    }

    /// Another limit, from now on. Those who wait notice.
    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit_bytes.store(bytes, Ordering::SeqCst);
        self.serve(&mut self.line.lock());
    }

    /// Nothing is given back at present (`Some`: all who wait get it as an error, and so does who would have to wait), or
    /// again.
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

    /// Why nothing is given back.
    pub(crate) fn stuck(&self) -> Option<E> {
        self.line.lock().stuck.clone()
    }

    /// Answers those in front for whom there is room.
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

    /// Takes a waiter out of the line, if it is there still.
    fn leave(&self, line: &mut Line<E>, waiter: &Arc<Waiter<E>>) -> bool {
        let Some(at) = line.waiters.iter().position(|one| Arc::ptr_eq(one, waiter)) else {
            return false;
        };
        line.waiters.remove(at);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        true
    }
}

/// A place in the line. Dropped, it is given up.
#[must_use = "dropping it gives the place up"]
pub(crate) struct Ticket<'a, E: Clone> {
    room: &'a Room<E>,
    waiter: Arc<Waiter<E>>,
    settled: bool,
}

impl<E: Clone> Ticket<'_, E> {
    /// Waits for the answer, `most` at the longest; `None` where it has not come.
    pub(crate) fn wait(&mut self, most: Duration) -> Option<Result<(), E>> {
        let mut answer = self.waiter.answer.lock();
        if answer.is_none() {
            self.waiter.wake.wait_for(&mut answer, most);
        }
        let answer = answer.take();
        self.settled |= answer.is_some();
        answer
    }
}

impl<E: Clone> Drop for Ticket<'_, E> {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        let mut line = self.room.line.lock();
        if self.room.leave(&mut line, &self.waiter) {
            // Who is behind may want less than this one did.
            self.room.serve(&mut line);
            return;
        }
        drop(line);
        if let Some(Ok(())) = self.waiter.answer.lock().take() {
            self.room.give_back(self.waiter.bytes);
        }
    }
}
