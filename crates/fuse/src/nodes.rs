//! [`Nodes`]: the inodes that the kernel references, each with its look-up count.
//!
//! Invariants:
//! - A node id is the inode number, except for the root, whose node id is 1.
//! - The table holds an inode that has lost its last name until the kernel forgets it. For all other inodes
//!   it keeps only a count, so the kernel may reference millions of files.
//! - The kernel serializes changes of a directory (its inode lock). So a name looked up in a request that
//!   changes the directory keeps its meaning until the request is done.

use foldhash::HashMap;
use parking_lot::Mutex;
use throughline::{Error, Node, Reason, Result, Volume};

use crate::nameless::Nameless;

/// The inode number of the root directory, and its node id.
pub(crate) const ROOT_INO: u64 = 2;
pub(crate) const ROOT_NODEID: u64 = 1;

const SHARDS: usize = 16;

/// See the head of this file.
pub(crate) struct Nodes {
    volume: Volume,
    shards: Box<[Mutex<HashMap<u64, Known>>]>,
    nameless: Nameless,
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
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            nameless: Nameless::new(),
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
        drop(shard);
        if let Some(node) = gone.and_then(|known| known.nameless) {
            self.nameless.free(*node);
        }
    }

    /// The inodes without names.
    pub(crate) fn nameless(&self) -> &Nameless {
        &self.nameless
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
                self.nameless.hold();
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
        self.nameless.end();
    }
}
