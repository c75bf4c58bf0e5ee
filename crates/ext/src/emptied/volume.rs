//! The deferred truncations of a volume: how many blocks they hold, and when each is due.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use throughline_extfmt::InodeNumber;
use throughline_journal::Tid;
use throughline_locks::{Mutex, Rank};

use super::thread::{Body, Thread};
use crate::inode::Inode;

/// Most files of a volume with a deferred truncation.
const MAX_FILES: usize = 1024;

/// Delay before a failed truncation is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The deferred truncations of a volume.
pub(crate) struct OfVolume {
    /// Whether replaced files must keep complete contents after a crash (`auto_da_alloc`).
    is_on: bool,
    /// The body of the thread; unset while no thread is allowed.
    body: OnceLock<Body>,
    files: Mutex<Files>,
    pub(super) thread: Thread,
}

#[derive(Default)]
struct Files {
    by_number: HashMap<InodeNumber, File>,
    /// Blocks that the truncated files still hold on disk.
    blocks: u64,
    /// The transaction of the last truncation that was carried out.
    ended: Option<Tid>,
}

struct File {
    inode: Arc<Inode>,
    blocks: u64,
    due: Instant,
    /// When it is due at the latest, however often the file is truncated again.
    last_due: Instant,
}

/// The next truncation to carry out.
pub(super) enum Next {
    Now(Arc<Inode>),
    At(Instant),
    Nothing,
}

impl OfVolume {
    pub(crate) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            body: OnceLock::new(),
            files: Mutex::ranked(Rank::Emptied, Files::default()),
            thread: Thread::default(),
        }
    }

    /// Allows the thread, which runs `body`.
    pub(crate) fn set_thread(&self, body: Body) {
        let _ = self.body.set(body);
    }

    /// Whether a thread is allowed.
    pub(super) fn has_thread(&self) -> bool {
        self.body.get().is_some()
    }

    /// Whether replaced files must keep complete contents after a crash.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Blocks that become free when the truncations are carried out.
    pub(crate) fn blocks(&self) -> u64 {
        self.files.lock().blocks
    }

    /// Whether any truncation is deferred.
    pub(crate) fn is_any(&self) -> bool {
        !self.files.lock().by_number.is_empty()
    }

    /// Stops the thread. From now on no truncation is deferred.
    pub(crate) fn stop(&self) {
        self.thread.stop();
    }

    pub(super) fn has_room(&self) -> bool {
        self.files.lock().by_number.len() < MAX_FILES && !self.thread.is_stopping()
    }

    /// A file was truncated at `now`; it may take `age` to be rewritten.
    pub(super) fn add(&self, inode: Arc<Inode>, blocks: u64, now: Instant, age: Duration) {
        {
            let mut files = self.files.lock();
            files.blocks += blocks;
            let file = File {
                blocks,
                due: now + age,
                last_due: now + age * 2,
                inode,
            };
            files.by_number.insert(file.inode.ino, file);
        }
        if let Some(body) = self.body.get() {
            self.thread.wake(body);
        }
    }

    /// Such a file was truncated again: whoever rewrites it now has as much time as the one before.
    pub(super) fn add_again(&self, ino: InodeNumber, now: Instant, age: Duration) {
        if let Some(file) = self.files.lock().by_number.get_mut(&ino) {
            file.due = file.last_due.min(now + age);
        }
    }

    /// The truncation is carried out in transaction `tid`.
    pub(super) fn remove(&self, ino: InodeNumber, tid: Tid) {
        let mut files = self.files.lock();
        files.ended = Some(tid);
        if let Some(file) = files.by_number.remove(&ino) {
            files.blocks -= file.blocks;
        }
    }

    /// The transaction of the last truncation that was carried out.
    pub(super) fn last_ended(&self) -> Option<Tid> {
        self.files.lock().ended
    }

    pub(super) fn inodes(&self) -> Vec<Arc<Inode>> {
        let files = self.files.lock();
        let files = files.by_number.values();
        files.map(|file| Arc::clone(&file.inode)).collect()
    }

    /// The truncation that is due first. If it is due `now`, its next attempt is scheduled for later, in
    /// case this one fails.
    pub(super) fn next(&self, now: Instant) -> Next {
        let mut files = self.files.lock();
        match files.by_number.values_mut().min_by_key(|file| file.due) {
            Some(file) if file.due <= now => {
                file.due = now + RETRY;
                Next::Now(Arc::clone(&file.inode))
            }
            Some(file) => Next::At(file.due),
            None => Next::Nothing,
        }
    }
}
