//! Asynchronous calls on open files, for any runtime: [`AsyncFile`], [`Pending`].
//!
//! ```text
//! read_at ─► in the cache? ─► ready at once
//!        └─► Queue of reads  ─┐                    ┌─► the call itself ─► Pending: its waker
//! write_at ─► Queue of writes ├─ a few threads each┤
//! sync ─► Group ─► of syncs  ─┘                    └─► one sync for all that wait
//! ```
//!
//! Invariants:
//! - A call starts when it is made and runs to completion whether its future is polled, kept or dropped.
//!   Until then it owns its buffer.
//! - Each kind of call has a bounded number of threads. Reads do not queue behind throttled writes, and a
//!   read of cached data takes no thread.
//! - When a call's future is ready, the call no longer holds a reference to the file.
//! - A sync covers all calls that completed before it was made. Calls that wait for a sync share it: of each
//!   kind, one sync runs at a time.

mod pending;
mod queue;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub use pending::Pending;

use throughline_locks::{Mutex, MutexGuard};

use crate::error::Result;
use crate::handle::Handle;
use pending::Promise;
use queue::{READS, SYNCS, WRITES};

/// The largest read that is answered in the caller's thread, in bytes: a copy of about 0.1 ms.
const MAX_AT_ONCE_BYTES: usize = 1 << 20;

/// The result of a call that takes a buffer: its outcome, and the buffer.
pub type Returned<T> = (Result<T>, Vec<u8>);

/// An open file of either kind with calls that return futures, independent of the runtime; see
/// [`Handle::to_async`]. Clones share the same handle.
///
/// A call is queued at once and runs to completion, even if its future is dropped; **calls that are not
/// complete when the process ends are lost**. Therefore a call takes ownership of its buffer and returns it
/// with the result. Calls on a file run concurrently; to order two calls, await
/// the first one.
#[derive(Clone)]
pub struct AsyncFile {
    shared: Arc<Shared>,
}

struct Shared {
    handle: Handle,
    syncs: Group,
    data_syncs: Group,
}

/// The syncs of one kind: one runs at a time, and the calls made meanwhile share the next one.
#[derive(Default)]
struct Group(Mutex<Syncs>);

#[derive(Default)]
struct Syncs {
    is_running: bool,
    /// Callers that wait for a sync that has not begun.
    waiting: Vec<Promise<Result<()>>>,
}

impl fmt::Debug for AsyncFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncFile")
            .field(&self.shared.handle)
            .finish()
    }
}

impl Handle {
    /// The same file with the same options, with calls that return futures. The result keeps the file open.
    ///
    /// ```
    /// # use std::pin::pin;
    /// # use std::task::{Context, Poll, Waker};
    /// # fn block_on<T>(future: impl Future<Output = T>) -> T {
    /// #     let mut future = pin!(future);
    /// #     loop {
    /// #         match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
    /// #             Poll::Ready(done) => return done,
    /// #             Poll::Pending => std::thread::yield_now(),
    /// #         }
    /// #     }
    /// # }
    /// # fn main() -> throughline::Result<()> {
    /// use throughline::{Memory, OpenOptions};
    ///
    /// let raw = OpenOptions::new().write(true).open_raw_device(Memory::zeroed(1 << 20))?;
    /// let file = raw.to_async();
    /// block_on(async {
    ///     let (written, buf) = file.write_at(b"hello".to_vec(), 100).await;
    ///     assert_eq!(written?, 5);
    ///     file.sync_data().await?;
    ///     let (read, buf) = file.read_at(buf, 101).await;
    ///     assert_eq!(&buf[..read?], b"ello\0");
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn to_async(&self) -> AsyncFile {
        AsyncFile {
            shared: Arc::new(Shared {
                handle: self.another(),
                syncs: Group::default(),
                data_syncs: Group::default(),
            }),
        }
    }
}

impl AsyncFile {
    /// As [`Handle::read_at`], filling `buf` up to its length. A read of at most 1 MiB that the cache can
    /// answer is complete when this returns.
    ///
    /// # Errors
    /// The same.
    pub fn read_at(&self, mut buf: Vec<u8>, offset: u64) -> Pending<Returned<usize>> {
        if buf.len() <= MAX_AT_ONCE_BYTES
            && let Some(read) = self.shared.handle.read_cached_at(&mut buf, offset)
        {
            return pending::ready((read, buf));
        }
        let shared = Arc::clone(&self.shared);
        let (promise, pending) = pending::pair();
        READS.submit(Box::new(move || {
            let read = shared.handle.read_at(&mut buf, offset);
            drop(shared); // the caller may close the volume once it has the answer
            promise.keep((read, buf));
        }));
        pending
    }

    /// As [`Handle::write_at`]. **Until it is synced, a change is lost if the process ends or the machine
    /// fails.**
    ///
    /// # Errors
    /// The same.
    pub fn write_at(&self, buf: Vec<u8>, offset: u64) -> Pending<Returned<usize>> {
        let shared = Arc::clone(&self.shared);
        let (promise, pending) = pending::pair();
        WRITES.submit(Box::new(move || {
            let written = shared.handle.write_at(&buf, offset);
            drop(shared); // the caller may close the volume once it has the answer
            promise.keep((written, buf));
        }));
        pending
    }

    /// As [`Handle::append_all`]; returns the offset of `buf`. **Until it is synced, a change is lost if the
    /// process ends or the machine fails.**
    ///
    /// # Errors
    /// The same.
    pub fn append(&self, buf: Vec<u8>) -> Pending<Returned<u64>> {
        let shared = Arc::clone(&self.shared);
        let (promise, pending) = pending::pair();
        WRITES.submit(Box::new(move || {
            let begin = shared.handle.append_all(&buf);
            drop(shared); // the caller may close the volume once it has the answer
            promise.keep((begin, buf));
        }));
        pending
    }

    /// As [`Handle::sync_all`]. Covers the calls whose futures were ready before this one was made.
    ///
    /// # Errors
    /// The same.
    pub fn sync_all(&self) -> Pending<Result<()>> {
        self.sync(|shared| &shared.syncs, Handle::sync_all)
    }

    /// As [`Handle::sync_data`]. Covers the calls whose futures were ready before this one was made.
    ///
    /// # Errors
    /// The same.
    pub fn sync_data(&self) -> Pending<Result<()>> {
        self.sync(|shared| &shared.data_syncs, Handle::sync_data)
    }

    fn sync(
        &self,
        group: fn(&Shared) -> &Group,
        sync: fn(&Handle) -> Result<()>,
    ) -> Pending<Result<()>> {
        let (promise, pending) = pending::pair();
        if group(&self.shared).join(promise) {
            let shared = Arc::clone(&self.shared);
            SYNCS.submit(Box::new(move || run(shared, group, sync)));
        }
        pending
    }
}

/// Runs syncs until no caller waits for one.
fn run(mut shared: Arc<Shared>, group: fn(&Shared) -> &Group, sync: fn(&Handle) -> Result<()>) {
    loop {
        let callers = group(&shared).begin();
        let done = catch_unwind(AssertUnwindSafe(|| sync(&shared.handle)));
        // Before the callers continue: they may close the volume.
        let rest = group(&shared).goes_on().then(|| Arc::clone(&shared));
        drop(shared);
        if let Ok(done) = done {
            callers
                .into_iter()
                .for_each(|caller| caller.keep(done.clone()));
        } // else dropping the promises reports the panic
        match rest {
            Some(rest) => shared = rest,
            None => return,
        }
    }
}

impl Group {
    fn lock(&self) -> MutexGuard<'_, Syncs> {
        self.0.lock()
    }

    /// Adds a caller. Returns true if no sync is running: the caller must start one.
    fn join(&self, promise: Promise<Result<()>>) -> bool {
        let mut syncs = self.lock();
        syncs.waiting.push(promise);
        !std::mem::replace(&mut syncs.is_running, true)
    }

    /// Takes the callers of the sync that begins now; later callers wait for the next one.
    fn begin(&self) -> Vec<Promise<Result<()>>> {
        std::mem::take(&mut self.lock().waiting)
    }

    /// After a sync: whether another is needed. If not, the next caller starts one.
    fn goes_on(&self) -> bool {
        let mut syncs = self.lock();
        syncs.is_running = !syncs.waiting.is_empty();
        syncs.is_running
    }
}
