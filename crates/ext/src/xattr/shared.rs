//! Lookup tables of an open volume for sharable attribute blocks and values: contents hash to location.
//!
//! Invariants:
//! - Under the tables' lock, a block or value is removed when it is freed, and a block also when it is
//!   changed. So an entry found under the lock is an attribute block or value with that hash.
//! - The tables are only hints: when full they are cleared, and contents are always compared.

use std::collections::HashMap;

use throughline_extfmt::{FsBlock, InodeNumber};
use throughline_locks::{Mutex, MutexGuard, Rank};

/// Most entries per table.
const MOST: usize = 1024;

/// Attribute state of an open volume.
pub(crate) struct Xattrs {
    /// Whether ACLs are kept.
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
            known: Mutex::ranked(Rank::Shares, Known::default()),
        }
    }

    /// The lock for changes of reference counts of blocks and values.
    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }
}

impl Known {
    /// A block with this `h_hash`.
    pub(super) fn block(&self, hash: u32) -> Option<FsBlock> {
        self.blocks.get(&hash).copied()
    }

    /// Adds a block; hash 0 means that it is never shared.
    pub(super) fn add_block(&mut self, hash: u32, at: FsBlock) {
        if hash != 0 {
            add(&mut self.blocks, hash, at);
        }
    }

    pub(super) fn forget_block(&mut self, hash: u32, at: FsBlock) {
        forget(&mut self.blocks, hash, at);
    }

    /// An inode whose value has this hash.
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
