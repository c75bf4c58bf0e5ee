//! What is known, while a volume is open, of blocks and values that inodes can share: where one with the same contents is.
//!
//! Invariants:
//! - A block or a value leaves the tables when it is freed, a block when it is changed, under their lock: what is found
//!   there under the lock is one of attributes, with that hash.
//! - The tables are a help, not the truth: their size is bounded by forgetting, and contents are compared.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};
use throughline_extfmt::{FsBlock, InodeNumber};

use crate::lock_order::{Held, Rank, locked};

/// Blocks, and values, that are remembered at most.
const MOST: usize = 1024;

/// Attributes of an open volume.
pub(crate) struct Xattrs {
    /// Lists of access rights are kept.
    pub(super) acl: bool,
    known: Mutex<Known>,
}

/// See the head of this file.
#[derive(Default)]
pub(super) struct Known {
    blocks: HashMap<u32, FsBlock>,
    values: HashMap<u32, InodeNumber>,
}

impl Xattrs {
    pub(crate) fn new(acl: bool) -> Self {
        Self {
            acl,
            known: Mutex::default(),
        }
    }

    /// The lock under which blocks and values change their counts.
    pub(super) fn known(&self) -> Held<MutexGuard<'_, Known>> {
        locked(Rank::Shares, 0, || self.known.lock())
    }
}

impl Known {
    /// A block whose `h_hash` is that.
    pub(super) fn block(&self, hash: u32) -> Option<FsBlock> {
        self.blocks.get(&hash).copied()
    }

    /// A block with a hash: 0 stands for one that is never shared.
    pub(super) fn add_block(&mut self, hash: u32, at: FsBlock) {
        if hash != 0 {
            add(&mut self.blocks, hash, at);
        }
    }

    pub(super) fn forget_block(&mut self, hash: u32, at: FsBlock) {
        forget(&mut self.blocks, hash, at);
    }

    /// An inode whose value has that hash.
    pub(super) fn value(&self, hash: u32) -> Option<InodeNumber> {
        self.values.get(&hash).copied()
    }

    pub(super) fn add_value(&mut self, hash: u32, ino: InodeNumber) {
        add(&mut self.values, hash, ino);
    }

    pub(super) fn forget_value(&mut self, hash: u32, ino: InodeNumber) {
        forget(&mut self.values, hash, ino);
    }
}

fn add<T>(table: &mut HashMap<u32, T>, hash: u32, what: T) {
    if table.len() >= MOST && !table.contains_key(&hash) {
        table.clear();
    }
    table.insert(hash, what);
}

fn forget<T: PartialEq>(table: &mut HashMap<u32, T>, hash: u32, what: T) {
    if table.get(&hash) == Some(&what) {
        table.remove(&hash);
    }
}
