//! [`Nodes`]: which inodes the kernel knows, and how often it was told of each.
//!
//! Invariants:
//! - The kernel's number of an inode is its own, but that of the root, which is 1.
//! - An inode that the kernel knows and that has lost its last name stays until the kernel forgets it: the table holds it
//!   then. For all others a count is kept and nothing else, so that a mount may know millions of files.
//! - What the kernel changes in a directory it changes alone (its own lock), so a name looked up in a request that changes
//!   it means the same until the request is done.

use std::collections::HashMap;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use throughline::{Error, Node, Reason, Result, Volume};

/// The number of the root's inode on the disk, and the kernel's for it.
pub(crate) const ROOT_INO: u64 = 2;
pub(crate) const ROOT_NODEID: u64 = 1;

const SHARDS: usize = 16;

/// So many requests wait for room at a time. Each has a thread of the mount's, which has others to serve.
const MAX_ROOM_WAITERS: usize = 4;

/// See the head of this file.
pub(crate) struct Nodes {
    volume: Volume,
    shards: Box<[Mutex<HashMap<u64, Known>>]>,
    nameless: Mutex<Nameless>,
    one_went: Condvar,
}

/// Inodes without names that the table holds.
#[derive(Default)]
struct Nameless {
    held: usize,
    gone: u64,
    /// Requests that wait for one more to go.
    waiters: usize,
}

#[derive(Default)]
struct Known {
    /// How often the kernel was told of it, less what it has forgotten.
    lookups: u64,
    /// It has no name any more.
    nameless: Option<Box<Node>>,
}

/// The kernel's number for an inode.
pub(crate) fn nodeid_of(ino: u64) -> u64 {
    if ino == ROOT_INO { ROOT_NODEID } else { ino }
}

impl Nodes {
    pub(crate) fn new(volume: Volume) -> Nodes {
        Nodes {
            volume,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            nameless: Mutex::default(),
            one_went: Condvar::new(),
        }
    }

    fn shard(&self, nodeid: u64) -> &Mutex<HashMap<u64, Known>> {
        &self.shards[nodeid as usize % SHARDS]
    }

    /// The inode that the kernel means.
    ///
    /// # Errors
    /// [`Reason::NotFound`] for one that is gone; damage; the device's.
    pub(crate) fn get(&self, nodeid: u64) -> Result<Node> {
        match nodeid {
            ROOT_NODEID => self.volume.root_node(),
            // Never told to the kernel.
            0 | ROOT_INO => Err(Error::Caller(Reason::NotFound)),
            ino => self.volume.node(ino),
        }
    }

    /// The kernel is told of an inode.
    pub(crate) fn note(&self, nodeid: u64) {
        if nodeid != ROOT_NODEID {
            let mut known = self.shard(nodeid).lock();
            known.entry(nodeid).or_default().lookups += 1;
        }
    }

    /// The kernel forgets `lookups` tellings of an inode.
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
        // Outside of the lock: what has no name is freed now, with I/O.
        drop(shard);
        if let Some(node) = gone.and_then(|known| known.nameless) {
            drop(node);
            let mut nameless = self.nameless.lock();
            nameless.held = nameless.held.saturating_sub(1);
            nameless.gone += 1;
            self.one_went.notify_all();
        }
    }

    /// How many inodes without names have gone.
    pub(crate) fn gone(&self) -> u64 {
        self.nameless.lock().gone
    }

    /// Waits, until `end` at most, for one more inode without a name to go than the `seen`; how many have gone then. `None`
    /// where none is left that could, or none did, or [enough](MAX_ROOM_WAITERS) wait already. What lost its last name is freed
    /// when the kernel forgets it, a moment behind the request that took the name: whoever finds the volume full meanwhile tries
    /// again.
    pub(crate) fn await_room(&self, seen: u64, end: Instant) -> Option<u64> {
        let mut nameless = self.nameless.lock();
        if nameless.gone == seen && nameless.waiters >= MAX_ROOM_WAITERS {
            return None;
        }
        nameless.waiters += 1;
        let mut late = false;
        while nameless.gone == seen && nameless.held > 0 && !late {
            late = self.one_went.wait_until(&mut nameless, end).timed_out();
        }
        nameless.waiters -= 1;
        (nameless.gone != seen).then_some(nameless.gone)
    }

    /// A name of `node` was taken away: if that was the last one, it stays as long as the kernel knows it.
    pub(crate) fn lost_a_name(&self, node: Node) -> Result<()> {
        if node.metadata()?.links() > 0 && !node.is_dir() {
            return Ok(());
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
        Ok(())
    }

    /// How many inodes the kernel knows, beside the root.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// The mount has gone, and with it all that the kernel knew.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let known = std::mem::take(&mut *shard.lock());
            drop(known);
        }
    }
}
