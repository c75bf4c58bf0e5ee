//! The table of inodes in memory: one object a number, and no more memory than its bound allows.
//!
//! Invariant: an inode leaves a shard only under the shard's lock and only when nobody but the table holds it, or because
//! it was freed; and nobody gets one but through the table. So there are never two live objects of one number.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use throughline_extfmt::InodeNumber;

use super::Inode;
use crate::error::Result;

/// Shards; neighbouring numbers lie in different ones.
const SHARDS: usize = 64;
/// Inodes of a shard from which on those that nobody holds are dropped. An object takes some 2 KiB, and as much again with
/// cached bytes: all of them 16 MiB at the most.
const SHARD_KEEP: usize = 64;

/// See the head of this file.
pub(crate) struct InodeTable {
    shards: Box<[Mutex<Shard>]>,
}

struct Shard {
    inodes: HashMap<u32, Arc<Inode>>,
    /// Number of inodes at which the next sweep comes.
    sweep_at: usize,
}

impl Default for InodeTable {
    fn default() -> Self {
        let shard = || {
            Mutex::new(Shard {
                inodes: HashMap::new(),
                sweep_at: SHARD_KEEP,
            })
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

    /// The inode, made by `load` if it is not in memory.
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

    /// Puts a fresh inode in the place of whatever had its number before it was freed.
    pub(crate) fn replace(&self, inode: &Arc<Inode>) {
        self.shard(inode.ino).lock().insert(Arc::clone(inode));
    }

    /// How many inodes are in memory.
    pub(crate) fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.lock().inodes.len())
            .sum()
    }

    /// Takes a freed inode out.
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

    /// Drops inodes that nobody holds: first those unused since the last sweep, then, if that was not enough, all.
    fn sweep(&mut self) {
        let held = |inode: &Arc<Inode>| Arc::strong_count(inode) > 1;
        self.inodes
            .retain(|_, inode| held(inode) || inode.touched.swap(false, Ordering::Relaxed));
        if self.inodes.len() > SHARD_KEEP / 2 {
            self.inodes.retain(|_, inode| held(inode));
        }
        // What is held cannot go: the next sweep comes when there is as much again that might.
        self.sweep_at = self
            .inodes
            .len()
            .saturating_add(SHARD_KEEP / 2)
            .max(SHARD_KEEP);
    }
}
