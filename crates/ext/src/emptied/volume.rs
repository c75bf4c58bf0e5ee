//! The deferred truncations of a volume: how many blocks they hold, and when each is due.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use throughline_extfmt::InodeNumber;
use throughline_locks::{Mutex, Rank};

use super::thread::{Body, Thread};
use crate::inode::Inode;
use crate::map;

/// Most files of a volume with a deferred truncation.
const MAX_FILES: usize = 1024;

/// Delay before a failed truncation is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The part of the time for rewriting a file that passes between two looks whether it has been rewritten.
const LOOKS: u32 = 8;

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
}

struct File {
    inode: Arc<Inode>,
    blocks: u64,
    due: Instant,
    /// The time for rewriting it after a truncation.
    age: Duration,
    /// When that ends after the last truncation.
    rewritten_by: Instant,
    /// It is not put off beyond this, also if the file is truncated again and again.
    last: Instant,
}

impl File {
    /// Puts the truncation off if the file was truncated again and has not been rewritten yet: the disk would
    /// show it empty or short.
    fn put_off(&mut self, now: Instant) -> bool {
        let until = self.rewritten_by.min(self.last);
        let is_rewritten = !self.inode.is_open() && !map::is_empty(&self.inode);
        let is_put_off = now < until && !is_rewritten;
        if is_put_off {
            self.due = until.min(now + self.age / LOOKS);
        }
        is_put_off
    }
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

    /// A truncation that is due in the time `age`.
    pub(super) fn add(&self, inode: Arc<Inode>, blocks: u64, age: Duration) {
        let due = Instant::now() + age;
        let file = File {
            inode,
            blocks,
            due,
            age,
            rewritten_by: due,
            last: due + age,
        };
        {
            let mut files = self.files.lock();
            files.blocks += blocks;
            files.by_number.insert(file.inode.ino, file);
        }
        if let Some(body) = self.body.get() {
            self.thread.wake(body);
        }
    }

    /// The file was truncated again.
    pub(super) fn again(&self, ino: InodeNumber, now: Instant) {
        if let Some(file) = self.files.lock().by_number.get_mut(&ino) {
            file.rewritten_by = now + file.age;
        }
    }

    pub(super) fn remove(&self, ino: InodeNumber) {
        let mut files = self.files.lock();
        if let Some(file) = files.by_number.remove(&ino) {
            files.blocks -= file.blocks;
        }
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
        loop {
            let first = files.by_number.values_mut().min_by_key(|file| file.due);
            return match first {
                Some(file) if file.due <= now => {
                    if file.put_off(now) {
                        continue;
                    }
                    file.due = now + RETRY;
                    Next::Now(Arc::clone(&file.inode))
                }
                Some(file) => Next::At(file.due),
                None => Next::Nothing,
            };
        }
    }
}
