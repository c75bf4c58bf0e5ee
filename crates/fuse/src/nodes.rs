//! [`Nodes`]: the inodes that the kernel references, each with its look-up count.
//!
//! Invariants:
//! - A node id is the inode number, except for the root, whose node id is 1.
//! - The table holds an inode that has lost its last name until the kernel forgets it. For all other inodes
//!   it keeps only a count, so the kernel may reference millions of files.
//! - The kernel serializes changes of a directory (its inode lock). So a name looked up in a request that
//!   changes the directory keeps its meaning until the request is done.

use std::time::Instant;

use foldhash::HashMap;
use throughline::{Error, Node, Reason, Result, Volume};
use throughline_locks::{Condvar, Mutex, Rank};

/// The inode number of the root directory, and its node id.
pub(crate) const ROOT_INO: u64 = 2;
pub(crate) const ROOT_NODEID: u64 = 1;

const SHARDS: usize = 16;

/// The maximum number of requests that wait for space at the same time. Each blocks one of the mount's
/// threads.
const MAX_ROOM_WAITERS: usize = 4;

/// See the head of this file.
pub(crate) struct Nodes {
    volume: Volume,
    shards: Box<[Mutex<HashMap<u64, Known>>]>,
    nameless: Mutex<Nameless>,
    freed: Condvar,
}

/// The inodes without names that the table holds.
#[derive(Default)]
struct Nameless {
    held: usize,
    gone: u64,
    /// Requests that wait for the next of these inodes to be freed.
    waiters: usize,
}

#[derive(Default)]
struct Known {
    /// Look-ups reported to the kernel, less those it has forgotten.
    lookups: u64,
    /// The inode itself, once it has lost its last name.
    nameless: Option<Box<Node>>,
}

/// The node id of an inode number.
pub(crate) fn nodeid_of(ino: u64) -> u64 {
    if ino == ROOT_INO { ROOT_NODEID } else { ino }
}

impl Nodes {
    pub(crate) fn new(volume: Volume) -> Nodes {
        Nodes {
            volume,
            shards: (0..SHARDS)
                .map(|_| Mutex::ranked(Rank::KernelNodes, HashMap::default()))
                .collect(),
            nameless: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    fn shard(&self, nodeid: u64) -> &Mutex<HashMap<u64, Known>> {
        &self.shards[nodeid as usize % SHARDS]
    }

    /// The inode of a node id.
    ///
    /// # Errors
    /// [`Reason::NotFound`] if it no longer exists; damage; device errors.
    pub(crate) fn get(&self, nodeid: u64) -> Result<Node> {
        match nodeid {
            ROOT_NODEID => self.volume.node("/"),
            // Never given to the kernel.
            0 | ROOT_INO => Err(Error::Caller(Reason::NotFound)),
            ino => self.volume.node_by_ino(ino),
        }
    }

    /// The inode of a file handle (`open_by_handle_at`), as a node id. The kernel looks up `.` in it if it
    /// does not reference the inode. The kernel compares the generation itself; if the inode does not exist,
    /// the program gets `ESTALE`.
    ///
    /// # Errors
    /// As [`Nodes::get`].
    pub(crate) fn get_by_handle(&self, nodeid: u64) -> Result<Node> {
        match nodeid {
            ROOT_NODEID => self.volume.node("/"),
            // The root's inode number is not a node id.
            ROOT_INO => Err(Error::Caller(Reason::NotFound)),
            ino => self.volume.node_kept(ino),
        }
    }

    /// Counts one look-up reported to the kernel.
    pub(crate) fn note(&self, nodeid: u64) {
        if nodeid != ROOT_NODEID {
            let mut known = self.shard(nodeid).lock();
            known.entry(nodeid).or_default().lookups += 1;
        }
    }

    /// The kernel forgets `lookups` look-ups of an inode.
    pub(crate) fn forget(&self, nodeid: u64, lookups: u64) {
        let mut shard = self.shard(nodeid).lock();
        let Some(known) = shard.get_mut(&nodeid) else {
            return;
        };
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups > 0 {
            return;
        }
        let gone = shard.remove(&nodeid);
        if shard.capacity() > 1024 && shard.len() < shard.capacity() / 8 {
            shard.shrink_to_fit();
        }
        // Not under the lock: an inode without a name is freed now, which does I/O.
        drop(shard);
        if let Some(node) = gone.and_then(|known| known.nameless) {
            drop(node);
            let mut nameless = self.nameless.lock();
            nameless.held = nameless.held.saturating_sub(1);
            nameless.gone += 1;
            self.freed.notify_all();
        }
    }

    /// The number of inodes without names freed so far.
    pub(crate) fn gone(&self) -> u64 {
        self.nameless.lock().gone
    }

    /// Waits, at most until `end`, until more than `seen` inodes without names have been freed. Returns the
    /// new number, or `None` if none is left to wait for, none was freed in time, or [`MAX_ROOM_WAITERS`]
    /// requests already wait. An inode that lost its last name is freed when the kernel forgets it, slightly
    /// after the request that removed the name; a request that finds the volume full in between retries.
    pub(crate) fn await_room(&self, seen: u64, end: Instant) -> Option<u64> {
        let mut nameless = self.nameless.lock();
        if nameless.gone == seen && nameless.waiters >= MAX_ROOM_WAITERS {
            return None;
        }
        nameless.waiters += 1;
        let mut late = false;
        while nameless.gone == seen && nameless.held > 0 && !late {
            late = self.freed.wait_until(&mut nameless, end).timed_out();
        }
        nameless.waiters -= 1;
        (nameless.gone != seen).then_some(nameless.gone)
    }

    /// A name of `node` may have been removed. If none is left, the node is held as long as the kernel
    /// references it.
    pub(crate) fn lost_a_name(&self, node: Node) {
        if node.nlink() > 0 {
            return;
        }
        let nodeid = nodeid_of(node.ino());
        let mut shard = self.shard(nodeid).lock();
        match shard.get_mut(&nodeid) {
            Some(known) if known.nameless.is_none() => {
                known.nameless = Some(Box::new(node));
                self.nameless.lock().held += 1;
            }
            _ => {
                drop(shard);
                drop(node);
            }
        }
    }

    /// The number of inodes that the kernel references, without the root.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Drops everything, once the mount is gone.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let known = std::mem::take(&mut *shard.lock());
            drop(known);
        }
    }
}
