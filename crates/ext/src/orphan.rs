//! Where the disk remembers inodes that are to be freed or cut: inodes without names, and inodes of which more is cut off than
//! fits into one transaction. What ends them is above ([`crate::reclaim`]).
//!
//! An inode that loses its last name becomes an orphan in the same transaction, and leaves the orphans in the transaction
//! that frees it. One that is being truncated is an orphan from the transaction that sets its size to the one that frees
//! its last block. So after a crash the next writable open finds it and ends what was begun: an orphan without names is
//! freed, of one with names what lies behind its size.
//!
//! Where the disk remembers them: a slot of the orphan file, where the volume has one and it has a free slot; else the
//! list. `ORPHAN_PRESENT` is set while the volume is open for writing and has an orphan file.
//!
//! Invariants:
//! - [`Inode::orphan`] says where the disk has the inode, and is locked over every change of that.
//! - An orphan is held in memory.

mod list;
pub(crate) mod place;
mod slots;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use throughline_extfmt::features::RoCompat;
use throughline_extfmt::{FsBlock, Superblock};

use crate::error::Result;
use crate::handle::Handle;
use crate::inode::Inode;
use crate::inode::Inodes;
use crate::lock_order::{Held, Rank, locked};
pub(crate) use list::List;
pub(crate) use place::{ORPHAN_CREDITS, Place};
pub(crate) use slots::OrphanFile;

/// The orphans of a volume.
#[derive(Default)]
pub(crate) struct Orphans {
    pub(crate) list: Mutex<List>,
    /// Once the volume is open for writing, if it has one.
    pub(crate) file: OnceLock<OrphanFile>,
    /// Those of before were left to e2fsck.
    pub(crate) left_alone: AtomicBool,
}

impl Orphans {
    /// The volume is closed cleanly: nothing is to be looked for in an empty orphan file.
    pub(crate) fn leave(&self, sb: &mut Superblock) {
        let empty = self.file.get().is_some_and(OrphanFile::is_empty);
        if empty && !self.left_alone.load(Ordering::Relaxed) {
            set_present(sb, false);
        }
    }

    pub(crate) fn list(&self) -> Held<MutexGuard<'_, List>> {
        locked(Rank::OrphanSlots, 0, || self.list.lock())
    }
}

pub(crate) fn set_present(sb: &mut Superblock, present: bool) {
    let mut features = sb.ro_compat();
    features.set(RoCompat::ORPHAN_PRESENT, present);
    sb.s_feature_ro_compat.set(features.bits());
}

pub(crate) fn place(inode: &Inode) -> Held<MutexGuard<'_, Place>> {
    locked(Rank::Orphan, inode.ino.0.into(), || inode.orphan.lock())
}

/// Makes an inode an orphan, if it is none, and stores it ([`ORPHAN_CREDITS`], and its own block).
///
/// # Errors
/// Those of the journal.
pub(crate) fn add(fs: &Inodes, h: &mut Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
    let mut place = place(inode);
    if **place == Place::Nowhere {
        let slot = match fs.orphans.file.get() {
            Some(file) => file.push(fs, h, inode)?,
            None => None,
        };
        **place = match slot {
            Some(slot) => Place::Slot(slot),
            None => {
                fs.orphans.list().push(fs, h, inode)?;
                Place::List
            }
        };
    }
    fs.store(h, inode)
}

/// Makes an inode that is being truncated and has a name an orphan, as [`add`] does.
///
/// Not where there is no journal and a block holds its attributes: after a crash e2fsck (1.47) drops that block from each
/// inode whose truncation it ends. (With a journal we or the kernel end it.) The blocks behind its size are then given back
/// to it by e2fsck, or found by the next truncation.
///
/// # Errors
/// Those of the journal.
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

/// It is no orphan any more; its deletion time is 0 if it was one. It is not stored.
pub(crate) fn remove(fs: &Inodes, h: &mut Handle<'_>, inode: &Inode) -> Result<()> {
    take_out(fs, h, inode, &mut place(inode))
}

/// The truncation of an inode is over: if it has names, it is no orphan any more. It is not stored ([`ORPHAN_CREDITS`]).
///
/// # Errors
/// Those of the journal.
pub(crate) fn remove_named(fs: &Inodes, h: &mut Handle<'_>, inode: &Inode) -> Result<()> {
    let mut place = place(inode);
    // Who takes the last name away comes for the place only then, and finds it empty or waits for us.
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
