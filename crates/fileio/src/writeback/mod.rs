//! Write-back: one flusher for a device. Whoever writes a file only leaves word here; the flusher's thread takes what is
//! dirty, asks the file's mapper for blocks, writes and commits. Only a little that somebody waits for is written by whoever
//! waits, where the flusher has nothing of the file under way: an fsync of a few blocks needs no other thread (`own`).
//!
//! ```text
//!  writers ─ dirtied, stream_passed ─┐                    ┌─ run ─ run ─ run ─►  Stream ─► device
//!  fsync ─┬─ flush ──────────────────┼─ inbox ─► Flusher ─┤  (several in flight, each with claims of its own)
//!  throttle, memory, clock, thaw ────┘                    └─ done: commit, then clean
//!         └─ a few blocks ─► own ─► run ─► device
//! ```
//!
//! Invariants:
//! - A file is known to the flusher, and kept alive by it, while it is dirty or under write-back. One that was written by
//!   whoever waited for it is let go at the flusher's next look.
//! - The inbox holds at most a few entries a file, one for each thread that waits, and a few more: it does not grow with the
//!   work.
//! - The flusher takes no lock of a file and waits for none: it waits for the device, for a mapper, and for messages. A file
//!   that is frozen is passed over until it has thawed.
//! - Nothing is written but by the flusher, and by who waits for it.
//! - A [`Backing`] may be let go by the flusher's thread, so its drop must not wait for write-back.

mod counts;
mod file_state;
mod files;
mod flusher;
mod inbox;
mod jobs;
mod own;
mod reply;
mod run;
mod wish;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use throughline_block::Disk;
use throughline_device::Op;

use crate::cache::Backing;
use crate::error::{Error, Result};

pub use counts::WritebackCounts;
pub(crate) use file_state::FileState;

use counts::Counting;
use flusher::Flusher;
use inbox::{Inbox, Message};
use reply::Reply;

/// What has been dirty for so long is written, if nobody says otherwise.
const AGE: Duration = Duration::from_secs(30);

/// A stream is written once so much of it lies behind its writer, at least.
const BEHIND_BYTES: u64 = 4 << 20;

/// The flusher's face: its inbox, and its thread, which starts with the first dirty file.
pub struct Writeback {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the flusher's thread has in common with everybody else. It does not keep the cache alive.
struct Shared {
    disk: Arc<Disk>,
    inbox: Inbox,
    counting: Counting,
    age_ms: AtomicU64,
    /// See [`BEHIND_BYTES`].
    behind_bytes: AtomicU64,
    /// Why the write-back of some file fails at present.
    failing: Mutex<Option<Error>>,
    /// Files flushed by those who waited since the flusher looked which it can let go.
    unlooked: AtomicU64,
}

impl Writeback {
    /// For the files on `disk`.
    pub(crate) fn new(disk: Arc<Disk>) -> Writeback {
        Writeback {
            shared: Arc::new(Shared {
                disk,
                inbox: Inbox::new(),
                counting: Counting::default(),
                age_ms: AtomicU64::new(AGE.as_millis() as u64),
                behind_bytes: AtomicU64::new(BEHIND_BYTES),
                failing: Mutex::default(),
                unlooked: AtomicU64::new(0),
            }),
            thread: Mutex::new(None),
        }
    }

    /// What [`Throttle::on_need`](crate::throttle::Throttle) calls.
    pub(crate) fn bell(&self) -> impl Fn() + Send + Sync + 'static {
        let shared = Arc::downgrade(&self.shared);
        move || {
            if let Some(shared) = shared.upgrade() {
                shared.inbox.wake();
            }
        }
    }

    /// Blocks of a file have become dirty: it is written in its turn, and kept alive until it is clean. To be called
    /// by every write, after they are dirty.
    pub(crate) fn dirtied(&self, host: &Arc<dyn Backing>) {
        let inbox = &self.shared.inbox;
        if host.space().flushing.enlist() && inbox.dirtied(Arc::clone(host)) {
            self.send(Message::Wake);
        } else if inbox.is_asleep() && host.space().cache().throttle().over_background() {
            inbox.wake();
        }
    }

    /// A sequential writer has left the file bytes `passed` behind: its run so far without the folio it is in.
    pub(crate) fn stream_passed(&self, host: &Arc<dyn Backing>, passed: Range<u64>) {
        if passed.end < host.whole_bytes() {
            return;
        }
        let behind_bytes = self.shared.behind_bytes.load(Ordering::Relaxed);
        if host.space().flushing.stream_passed(passed, behind_bytes) {
            self.send(Message::Passed(Arc::clone(host)));
        }
    }

    /// Memory is short: write although no threshold is passed.
    pub(crate) fn pressure(&self) {
        self.shared.inbox.pressure();
    }

    /// A file has thawed.
    pub(crate) fn thawed(&self) {
        self.shared.inbox.thawed();
    }

    /// See [`crate::buffered::flush`].
    pub(crate) fn flush(&self, host: &Arc<dyn Backing>, range: Range<u64>) -> Result<()> {
        if !host.space().is_dirty(range.clone()) {
            return Ok(());
        }
        if let Some(result) = self.shared.flush_here(host, &range) {
            return result;
        }
        let (reply, waiter) = Reply::new();
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
        if self.thread.lock().is_none() {
            return Ok(());
        }
        let (reply, waiter) = Reply::new();
        reply.part();
        self.send(Message::FlushAll(Arc::new(reply)));
        waiter.wait()
    }

    /// Ends the thread, when what is in flight has ended. Files that are dirty then are let go.
    pub(crate) fn close(&self) {
        // Locked until it has ended, so that no other one starts beside it.
        let mut thread = self.thread.lock();
        let Some(handle) = thread.take() else {
            return;
        };
        self.shared.inbox.send(Message::Stop);
        // The flusher itself lets the last file go, and the cache with it: it ends on its own.
        if handle.thread().id() != thread::current().id() {
            // A flusher that panicked has nothing left to tell: those who waited for it have their error.
            let _ = handle.join();
        }
    }

    /// What it did so far.
    pub fn counts(&self) -> WritebackCounts {
        self.shared.counting.snapshot()
    }

    /// Why the write-back of some file fails at present: it is dirty still, and tried again. `None` where all goes well.
    pub fn failing(&self) -> Option<Error> {
        self.shared.failing.lock().clone()
    }

    /// How long something stays dirty before it is written without another reason. Looked at every 5 s, or more often for a
    /// shorter age.
    pub fn age(&self) -> Duration {
        self.shared.age()
    }

    /// Changes [`Writeback::age`], of at least a millisecond.
    pub fn set_age(&self, age: Duration) {
        let ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX).max(1);
        self.shared.age_ms.store(ms, Ordering::Relaxed);
        self.shared.inbox.wake();
    }

    fn send(&self, message: Message) {
        self.shared.inbox.send(message);
        let mut thread = self.thread.lock();
        if thread.as_ref().is_some_and(|handle| !handle.is_finished()) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let spawned = thread::Builder::new()
            .name("tl-flusher".into())
            .spawn(move || Flusher::new(shared).run());
        match spawned {
            Ok(handle) => *thread = Some(handle),
            Err(source) => {
                // The message stays for the next one who tries; those who wait have their answer.
                self.shared.inbox.say_unwatched();
                let error = throughline_block::Error::device(Op::Write, 0, 0, source);
                self.shared.inbox.refuse_waiters(&error.into());
            }
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
        assert_eq!(shared.strong_count(), 1, "there was nothing to write");
        writeback.send(Message::Thawed);
        assert!(shared.strong_count() > 1, "the thread has it too");
        writeback.flush_all().unwrap();
        writeback.close();
        writeback.close();
        assert_eq!(shared.strong_count(), 1, "closed");
        writeback.send(Message::Thawed);
        assert!(shared.strong_count() > 1, "and started again");
        drop(writeback);
        assert_eq!(shared.strong_count(), 0);
        bell();
    }
}
