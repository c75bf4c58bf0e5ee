//! Write-back: one flusher per device. Writers only notify it, and those of several long streams wait for it
//! (`backlog`); its thread takes dirty blocks, claims device blocks from the file's mapper, writes and
//! commits. The exception is a small flush: if the flusher has nothing of the file in flight, the waiting
//! thread writes the blocks itself, so an fsync of a few blocks needs no other thread (`own`).
//!
//! ```text
//!  writers ─ dirtied, stream_passed ─┐                    ┌─ run ─ run ─ run ─►  Stream ─► device
//!  fsync ─┬─ flush ──────────────────┼─ inbox ─► Flusher ─┤  (several in flight, each with its own claims)
//!  throttle, memory, clock, thaw ────┘                    └─ done: commit, then clean
//!         └─ a few blocks ─► own ─► run ─► device
//! ```
//!
//! Invariants:
//! - The flusher holds a reference to a file while the file is dirty or under write-back. A file written by
//!   a waiting thread is released when the flusher next looks for clean files.
//! - The inbox holds at most a few entries per file, one per waiting thread, and a few more: it does not grow
//!   with the amount of work.
//! - The flusher takes no lock of a file and waits for none: it waits for the device, for a mapper, and for
//!   messages. It skips a frozen file until it has thawed.
//! - Only the flusher and threads waiting for a flush write.
//! - The flusher's thread may drop the last reference to a [`Backing`], so its drop must not wait for
//!   write-back.

mod backlog;
mod counts;
#[cfg(test)]
mod fairness;
mod file_state;
mod files;
mod flusher;
mod inbox;
mod jobs;
mod own;
mod ranges;
mod reply;
mod run;
mod wake_flag;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use throughline_block::Disk;
use throughline_locks::{Mutex, Rank};

use crate::cache::{Accepted, Backing, Writing};
use crate::error::{Error, Result};

pub use counts::WritebackCounts;
pub(crate) use file_state::FileState;

use backlog::Backlog;
pub(crate) use backlog::{InCall, LONG_BYTES};
use counts::Counting;
use flusher::Flusher;
use inbox::{Inbox, Message};
use reply::Reply;

/// Default age at which dirty data is written.
const AGE: Duration = Duration::from_secs(30);

/// Minimum amount of data behind a sequential writer before it is written.
const BEHIND_BYTES: u64 = 4 << 20;

/// The interface to the flusher: its inbox and its thread, which starts with the first dirty file if not
/// before ([`Writeback::start`]).
pub struct Writeback {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// State shared with the flusher's thread. It does not keep the cache alive.
struct Shared {
    disk: Arc<Disk>,
    inbox: Inbox,
    counting: Counting,
    backlog: Backlog,
    age_ms: AtomicU64,
    /// See [`BEHIND_BYTES`].
    behind_bytes: AtomicU64,
    /// Error of a file whose write-back currently fails.
    failing: Mutex<Option<Error>>,
    /// Flushes by waiting threads since the flusher last looked for clean files.
    own_flushes_since_look: AtomicU64,
}

impl Writeback {
    /// For the files on `disk`.
    pub(crate) fn new(disk: Arc<Disk>) -> Writeback {
        Writeback {
            shared: Arc::new(Shared {
                disk,
                inbox: Inbox::new(),
                counting: Counting::default(),
                backlog: Backlog::default(),
                age_ms: AtomicU64::new(AGE.as_millis() as u64),
                behind_bytes: AtomicU64::new(BEHIND_BYTES),
                failing: Mutex::default(),
                own_flushes_since_look: AtomicU64::new(0),
            }),
            thread: Mutex::ranked(Rank::Flusher, None),
        }
    }

    /// The callback for [`Throttle::on_need`](crate::throttle::Throttle).
    pub(crate) fn bell(&self) -> impl Fn() + Send + Sync + 'static {
        let shared = Arc::downgrade(&self.shared);
        move || {
            if let Some(shared) = shared.upgrade() {
                shared.inbox.wake();
            }
        }
    }

    /// Registers a file whose blocks became dirty: it will be written in its turn and is kept alive until
    /// clean. Every write calls this after dirtying blocks.
    pub(crate) fn dirtied(&self, host: &Arc<dyn Backing>) {
        let inbox = &self.shared.inbox;
        if host.space().flushing.enlist() && inbox.dirtied(Arc::clone(host)) {
            self.send(Message::Wake);
        } else if inbox.is_asleep() && host.space().cache().throttle().over_background() {
            inbox.wake();
        }
    }

    /// Records that the sequential writer `writing` has passed the range `passed`: its run so far, without
    /// its current folio.
    pub(crate) fn stream_passed(
        &self,
        host: &Arc<dyn Backing>,
        passed: Range<u64>,
        writing: &Writing<'_>,
    ) {
        if passed.end < host.whole_bytes() {
            return;
        }
        let behind_bytes = self.shared.behind_bytes.load(Ordering::Relaxed);
        if writing.is_due(passed.end, behind_bytes) {
            self.notify_passed(host, passed);
        }
    }

    fn notify_passed(&self, host: &Arc<dyn Backing>, passed: Range<u64>) {
        if host.space().flushing.stream_passed(passed) {
            self.send(Message::Passed(Arc::clone(host)));
        }
    }

    /// Begins a call that writes to a long stream.
    pub(crate) fn enter_long(&self) -> InCall<'_> {
        self.shared.backlog.enter()
    }

    /// Holds the writer of one of several long streams to its backlog. Called after a write, without locks.
    pub(crate) fn hold(&self, host: &Arc<dyn Backing>, accepted: &Accepted) {
        if !backlog::is_looked_at(accepted) {
            return;
        }
        let _in_call = self.enter_long();
        let space = host.space();
        let bandwidth = space.cache().throttle().bandwidth_bytes_per_s();
        if let Some(due) = self.due(host, accepted, bandwidth.unwrap_or(0)) {
            self.shared.counting.holds.add(1);
            space.wait_until_clean(&due, Instant::now() + backlog::LONGEST);
        }
    }

    /// What a writer waits for after a call: the bytes one backlog behind, if they are not on the device. The
    /// flusher is told of them.
    fn due(
        &self,
        host: &Arc<dyn Backing>,
        accepted: &Accepted,
        bandwidth_bytes_per_s: u64,
    ) -> Option<Range<u64>> {
        let space = host.space();
        let limit_bytes = space.cache().throttle().limit_bytes();
        let backlog = &self.shared.backlog;
        let each_bytes = backlog.each_bytes(limit_bytes, bandwidth_bytes_per_s)?;
        let due = backlog::due(accepted, each_bytes)?;
        // What has failed, or is to be written as one run, may stay dirty for long.
        if space.has_failed()
            || space.refused.is_any()
            || host.whole_bytes() > 0
            || !space.is_dirty(due.clone())
        {
            return None;
        }
        // The last notification may have been before these bytes.
        self.notify_passed(host, accepted.run.0..due.end);
        Some(due)
    }

    /// Requests background write-back because memory is short.
    pub(crate) fn pressure(&self) {
        self.shared.inbox.pressure();
    }

    /// Reports that a file has thawed.
    pub(crate) fn thawed(&self) {
        self.shared.inbox.thawed();
    }

    /// See [`crate::buffered::flush`]; without `asks`, [`crate::buffered::flush_promised`].
    pub(crate) fn flush(
        &self,
        host: &Arc<dyn Backing>,
        range: Range<u64>,
        asks: bool,
    ) -> Result<()> {
        if !host.space().is_dirty(range.clone()) {
            return Ok(());
        }
        if let Some(result) = self.shared.flush_here(host, &range) {
            return result;
        }
        let (reply, waiter) = Reply::new(asks);
        reply.part();
        self.send(Message::Flush(Arc::clone(host), range, Arc::new(reply)));
        waiter.wait()
    }

    /// See [`crate::buffered::start_flush`].
    pub(crate) fn start_flush(&self, host: &Arc<dyn Backing>, range: Range<u64>) {
        if host.space().is_dirty(range.clone()) && host.space().flushing.start(range) {
            self.send(Message::Start(Arc::clone(host)));
        }
    }

    /// See [`PageCache::flush_all`](crate::PageCache::flush_all).
    pub(crate) fn flush_all(&self) -> Result<()> {
        // Without a thread, there may be files for which none could be started.
        if self.thread.lock().is_none() && !self.shared.inbox.has_dirtied() {
            return Ok(());
        }
        let (reply, waiter) = Reply::new(true);
        reply.part();
        self.send(Message::FlushAll(Arc::new(reply)));
        waiter.wait()
    }

    /// Ends the thread when everything in flight has ended. Files that are still dirty are released.
    pub(crate) fn close(&self) {
        // Stay locked until it has ended, so that no second one starts meanwhile.
        let mut thread = self.thread.lock();
        let Some(handle) = thread.take() else {
            return;
        };
        self.shared.inbox.send(Message::Stop);
        // If the flusher itself drops the last file, and with it the cache, it ends on its own.
        if handle.thread().id() != thread::current().id() {
            // A panic of the flusher was already reported, and waiting threads got an error.
            let _ = handle.join();
        }
    }

    /// The counters so far.
    pub fn counts(&self) -> WritebackCounts {
        self.shared.counting.snapshot()
    }

    /// The error of a file whose write-back currently fails; it is still dirty and will be retried. `None` if
    /// none fails.
    pub fn failing(&self) -> Option<Error> {
        self.shared.failing.lock().clone()
    }

    /// How long data stays dirty before it is written without another reason. Checked every 5 s, more often
    /// for a shorter age.
    pub fn age(&self) -> Duration {
        self.shared.age()
    }

    /// Sets [`Writeback::age`], at least one millisecond.
    pub fn set_age(&self, age: Duration) {
        let ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX).max(1);
        self.shared.age_ms.store(ms, Ordering::Relaxed);
        self.shared.inbox.wake();
    }

    /// Starts the thread if it is not running, so that later calls need not start it.
    ///
    /// # Errors
    /// The system's, if it refuses a thread.
    pub fn start(&self) -> Result<()> {
        let mut thread = self.thread.lock();
        if thread.as_ref().is_some_and(|handle| !handle.is_finished()) {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        throughline_device::leave_background();
        let spawned = thread::Builder::new()
            .name("tl-flusher".into())
            .spawn(move || {
                throughline_device::free_thread();
                throughline_device::shorten_slice();
                Flusher::new(shared).run();
            });
        let what = "starting the thread that writes back";
        *thread = Some(spawned.map_err(|error| throughline_block::Error::system(what, error))?);
        Ok(())
    }

    fn send(&self, message: Message) {
        self.shared.inbox.send(message);
        if let Err(error) = self.start() {
            // The message stays queued for the next attempt; waiting threads get the error.
            self.shared.inbox.set_unwatched();
            self.shared.inbox.refuse_waiters(&error);
        }
    }
}

impl Drop for Writeback {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn age(&self) -> Duration {
        Duration::from_millis(self.age_ms.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use throughline_device::MemoryDevice;

    use super::*;

    #[test]
    fn the_thread_starts_when_it_is_needed_and_ends_with_its_owner() {
        let disk = Disk::new(Arc::new(MemoryDevice::new(1 << 20))).unwrap();
        let writeback = Writeback::new(Arc::new(disk));
        let shared = Arc::downgrade(&writeback.shared);
        let bell = writeback.bell();
        bell();
        writeback.flush_all().unwrap();
        assert_eq!(shared.strong_count(), 1, "nothing to write");
        writeback.send(Message::Thawed);
        assert!(shared.strong_count() > 1, "the thread holds a reference");
        writeback.flush_all().unwrap();
        writeback.close();
        writeback.close();
        assert_eq!(shared.strong_count(), 1, "closed");
        writeback.send(Message::Thawed);
        assert!(shared.strong_count() > 1, "started again");
        drop(writeback);
        assert_eq!(shared.strong_count(), 0);
        bell();
    }
}
