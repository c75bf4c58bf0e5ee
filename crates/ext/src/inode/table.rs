//! The table of inodes in memory: one object per number, bounded in size.
//!
//! Invariant: an inode leaves a shard only under the shard's lock, and only if the table is its only holder
//! or if it was freed. Inodes are obtained only through the table, so there are never two live objects with
//! the same number.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use foldhash::HashMap;
use throughline_extfmt::InodeNumber;
use throughline_locks::{Mutex, Rank};

use super::Inode;
use crate::error::Result;

/// Number of shards; consecutive inode numbers are in different ones.
const SHARDS: usize = 64;
/// Inodes in a shard above which unheld ones are evicted. An object takes about 2 KiB, and as much again with
/// cached data: at most 16 MiB in total.
const SHARD_KEEP: usize = 64;

/// See the head of this file.
pub(crate) struct InodeTable {
    shards: Box<[Mutex<Shard>]>,
}

struct Shard {
    inodes: HashMap<u32, Arc<Inode>>,
    /// Number of inodes at which the next sweep runs.
    sweep_at: usize,
}

impl Default for InodeTable {
    fn default() -> Self {
        let shard = || {
            Mutex::ranked(
                Rank::InodeTable,
                Shard {
                    inodes: HashMap::default(),
                    sweep_at: SHARD_KEEP,
                },
            )
        };
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
        }
    }
}

impl InodeTable {
    fn shard(&self, ino: InodeNumber) -> &Mutex<Shard> {
        &self.shards[ino.0 as usize % SHARDS]
    }

    /// The inode, if it is in memory.
    pub(crate) fn get(&self, ino: InodeNumber) -> Option<Arc<Inode>> {
        let shard = self.shard(ino).lock();
        let inode = shard.inodes.get(&ino.0)?;
        if !inode.touched.load(Ordering::Relaxed) {
            inode.touched.store(true, Ordering::Relaxed);
        }
        Some(Arc::clone(inode))
    }

    /// The inode; made by `load` if it is not in memory.
    pub(crate) fn get_or_insert(
        &self,
        ino: InodeNumber,
        load: impl FnOnce() -> Result<Inode>,
    ) -> Result<Arc<Inode>> {
        let mut shard = self.shard(ino).lock();
        if let Some(inode) = shard.inodes.get(&ino.0) {
            return Ok(Arc::clone(inode));
        }
        let inode = Arc::new(load()?);
        shard.insert(Arc::clone(&inode));
        Ok(inode)
    }

    /// Inserts a new inode, replacing the freed one that had its number.
    pub(crate) fn replace(&self, inode: &Arc<Inode>) {
        self.shard(inode.ino).lock().insert(Arc::clone(inode));
    }

    /// Number of inodes in memory.
    pub(crate) fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.lock().inodes.len())
            .sum()
    }

    /// Removes a freed inode.
    pub(crate) fn remove(&self, ino: InodeNumber) {
        self.shard(ino).lock().inodes.remove(&ino.0);
    }
}

impl Shard {
    fn insert(&mut self, inode: Arc<Inode>) {
        if self.inodes.len() >= self.sweep_at {
            self.sweep();
        }
        self.inodes.insert(inode.ino.0, inode);
    }

    /// Evicts inodes without other holders: first those unused since the last sweep, then all if too many
    /// remain.
    fn sweep(&mut self) {
        let held = |inode: &Arc<Inode>| Arc::strong_count(inode) > 1;
        self.inodes
            .retain(|_, inode| held(inode) || inode.touched.swap(false, Ordering::Relaxed));
        if self.inodes.len() > SHARD_KEEP / 2 {
            self.inodes.retain(|_, inode| held(inode));
        }
        // Inodes in use cannot be evicted: the next sweep runs after as many new ones as could be evicted.
        self.sweep_at = self
            .inodes
            .len()
            .saturating_add(SHARD_KEEP / 2)
            .max(SHARD_KEEP);
    }
}
