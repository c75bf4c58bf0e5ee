//! On-disk records of inodes to be freed or truncated: inodes without names, and truncations that span
//! several transactions. [`crate::reclaim`] processes them.
//!
//! An inode that loses its last name becomes an orphan in the same transaction, and stops being one in the
//! transaction that frees it. An inode being truncated is an orphan from the transaction that sets its size
//! to the one that frees its last block. So after a crash, the next writable open finds the inode and
//! completes the operation: an orphan without names is freed, one with names is truncated to its size.
//!
//! The record is a slot in the orphan file if the volume has one with a free slot, otherwise an entry in the
//! list. `ORPHAN_PRESENT` is set while a volume with an orphan file is open for writing.
//!
//! Invariants:
//! - [`Inode::orphan`] says where the inode is recorded, and is locked during every change of the record.
//! - An orphan is kept in memory.

mod list;
pub(crate) mod place;
mod slots;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use throughline_extfmt::features::RoCompat;
use throughline_extfmt::{FsBlock, Superblock};
use throughline_locks::{Mutex, MutexGuard, Rank};

use crate::error::Result;
use crate::handle::Handle;
use crate::inode::Inode;
use crate::inode::Inodes;
pub(crate) use list::List;
pub(crate) use place::{ORPHAN_CREDITS, Place};
pub(crate) use slots::OrphanFile;

/// The orphans of a volume.
pub(crate) struct Orphans {
    pub(crate) list: Mutex<List>,
    /// Set once the volume is open for writing, if it has an orphan file.
    pub(crate) file: OnceLock<OrphanFile>,
    /// Earlier orphans were left to e2fsck.
    pub(crate) left_to_e2fsck: AtomicBool,
}

impl Default for Orphans {
    fn default() -> Self {
        Self {
            list: Mutex::ranked(Rank::OrphanSlots, List::default()),
            file: OnceLock::new(),
            left_to_e2fsck: AtomicBool::new(false),
        }
    }
}

impl Orphans {
    /// On a clean close: whether the orphan file is empty, so that it need not be searched. Not to be called
    /// with the superblock locked.
    pub(crate) fn is_file_empty(&self) -> bool {
        let empty = self.file.get().is_some_and(OrphanFile::is_empty);
        empty && !self.left_to_e2fsck.load(Ordering::Relaxed)
    }

    pub(crate) fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock()
    }
}

pub(crate) fn set_present(sb: &mut Superblock, present: bool) {
    let mut features = sb.ro_compat();
    features.set(RoCompat::ORPHAN_PRESENT, present);
    sb.s_feature_ro_compat.set(features.bits());
}

pub(crate) fn place(inode: &Inode) -> MutexGuard<'_, Place> {
    inode.orphan.lock()
}

/// Makes an inode an orphan unless it is one, and stores it (credits: [`ORPHAN_CREDITS`] and its own block).
///
/// # Errors
/// Journal errors.
pub(crate) fn add(fs: &Inodes, h: &mut Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
    let mut place = place(inode);
    if *place == Place::Nowhere {
        let slot = match fs.orphans.file.get() {
            Some(file) => file.push(fs, h, inode)?,
            None => None,
        };
        *place = match slot {
            Some(slot) => Place::Slot(slot),
            None => {
                fs.orphans.list().push(fs, h, inode)?;
                Place::List
            }
        };
    }
    fs.store(h, inode)
}

/// As [`add`], for an inode that is being truncated and may still have names.
///
/// Without a journal, an inode with an attribute block is not made an orphan: after a crash, e2fsck (1.47)
/// drops that block from each inode whose truncation it completes. (With a journal, this crate or the kernel
/// completes it.) e2fsck then includes the blocks past the size in the file again, or the next truncation
/// frees them.
///
/// # Errors
/// Journal errors.
pub(crate) fn add_named(fs: &Inodes, h: &mut Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
    let (links, block) = {
        let raw = inode.raw.read();
        (raw.links_count(), raw.file_acl(&fs.geo))
    };
    if links > 0 && block != FsBlock(0) && !fs.has_log() {
        return fs.store(h, inode);
    }
    add(fs, h, inode)
}

/// Removes the orphan record, if any, and resets the deletion time to 0. Does not store the inode.
pub(crate) fn remove(fs: &Inodes, h: &mut Handle<'_>, inode: &Inode) -> Result<()> {
    take_out(fs, h, inode, &mut place(inode))
}

/// At the end of a truncation: removes the orphan record if the inode has names. Does not store the inode
/// (credits: [`ORPHAN_CREDITS`]).
///
/// # Errors
/// Journal errors.
pub(crate) fn remove_named(fs: &Inodes, h: &mut Handle<'_>, inode: &Inode) -> Result<()> {
    let mut place = place(inode);
    // A thread that removes the last name takes this lock only afterwards: it then finds no record, or waits
    // for this thread.
    if inode.raw.read().links_count() == 0 {
        return Ok(());
    }
    take_out(fs, h, inode, &mut place)
}

fn take_out(fs: &Inodes, h: &mut Handle<'_>, inode: &Inode, place: &mut Place) -> Result<()> {
    match *place {
        Place::Nowhere => return Ok(()),
        Place::List => fs.orphans.list().take_out(fs, h, inode.ino)?,
        Place::Slot(slot) => {
            if let Some(file) = fs.orphans.file.get() {
                file.take_out(fs, h, slot)?;
            }
        }
    }
    *place = Place::Nowhere;
    Ok(())
}
