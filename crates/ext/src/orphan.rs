//! Inodes without names: freed when nobody has them open, and remembered on disk until then. And inodes of which more
//! is cut off than fits into one transaction.
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
mod slots;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use throughline_extfmt::features::{Compat, RoCompat};
use throughline_extfmt::superblock::State;
use throughline_extfmt::{FsBlock, InodeNumber, Superblock};

use crate::error::{Error, Reason, Result};
use crate::fs::Fs;
use crate::handle::Handle;
use crate::inode::Inode;
use crate::lock_order::{Held, Rank, locked};
use crate::{truncate, xattr};
use list::List;
use slots::OrphanFile;
pub(crate) use slots::Slot;

/// Blocks that making an inode an orphan, or no orphan, touches beside its own: the superblock, that of its neighbour on
/// the list, or one of slots.
pub(crate) const ORPHAN_CREDITS: u32 = 1;

/// Blocks that the last step of freeing an inode may change: its place in the table, its bitmap and descriptor, what holds
/// its attributes, and what the orphans are in.
const FREE_CREDITS: u32 = 3 + xattr::RELEASE_CREDITS + ORPHAN_CREDITS;

/// Where the disk remembers an orphan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// It is none.
    #[default]
    Nowhere,
    /// On the list.
    List,
    /// In the orphan file.
    Slot(Slot),
}

/// The orphans of a volume.
#[derive(Default)]
pub(crate) struct Orphans {
    list: Mutex<List>,
    /// Once the volume is open for writing, if it has one.
    file: OnceLock<OrphanFile>,
    /// Those of before were left to e2fsck.
    left_alone: AtomicBool,
}

/// What [`crate::Fs::open`] found unfinished, and ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrphansSettled {
    /// Inodes without names, which were freed.
    pub freed: u32,
    /// Inodes with names, whose truncation was ended.
    pub truncated: u32,
}

impl Orphans {
    /// The volume is closed cleanly: nothing is to be looked for in an empty orphan file.
    pub(crate) fn leave(&self, sb: &mut Superblock) {
        let empty = self.file.get().is_some_and(OrphanFile::is_empty);
        if empty && !self.left_alone.load(Ordering::Relaxed) {
            set_present(sb, false);
        }
    }

    fn list(&self) -> Held<MutexGuard<'_, List>> {
        locked(Rank::OrphanSlots, 0, || self.list.lock())
    }
}

/// Frees the inodes without names that are still open: the volume is being closed, and who has them can do nothing more
/// with them.
///
/// # Errors
/// Those of freeing them; what is left is for the next open.
pub(crate) fn end_all(fs: &Fs) -> Result<()> {
    let mut all = fs.orphans.list().held();
    all.extend(fs.orphans.file.get().into_iter().flat_map(OrphanFile::held));
    for inode in all {
        inode.forget_opens();
        fs.free_if_unused(&inode)?;
    }
    Ok(())
}

fn set_present(sb: &mut Superblock, present: bool) {
    let mut features = sb.ro_compat();
    features.set(RoCompat::ORPHAN_PRESENT, present);
    sb.s_feature_ro_compat.set(features.bits());
}

fn place(inode: &Inode) -> Held<MutexGuard<'_, Place>> {
    locked(Rank::Orphan, inode.ino.0.into(), || inode.orphan.lock())
}

/// Makes an inode an orphan, if it is none, and stores it ([`ORPHAN_CREDITS`], and its own block).
///
/// # Errors
/// Those of the journal.
pub(crate) fn add(fs: &Fs, h: &mut Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
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
pub(crate) fn add_named(fs: &Fs, h: &mut Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
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
fn remove(fs: &Fs, h: &mut Handle<'_>, inode: &Inode) -> Result<()> {
    take_out(fs, h, inode, &mut place(inode))
}

/// The truncation of an inode is over: if it has names, it is no orphan any more. It is not stored ([`ORPHAN_CREDITS`]).
///
/// # Errors
/// Those of the journal.
pub(crate) fn remove_named(fs: &Fs, h: &mut Handle<'_>, inode: &Inode) -> Result<()> {
    let mut place = place(inode);
    // Who takes the last name away comes for the place only then, and finds it empty or waits for us.
    if inode.raw.read().links_count() == 0 {
        return Ok(());
    }
    take_out(fs, h, inode, &mut place)
}

fn take_out(fs: &Fs, h: &mut Handle<'_>, inode: &Inode, place: &mut Place) -> Result<()> {
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

/// Ends what a crash cut short: frees the inodes without names, and the blocks behind the end of those being truncated.
/// For a volume that was just opened for writing.
///
/// # Errors
/// `Corrupt` for orphans that cannot be; the device's.
pub(crate) fn recover(fs: &Fs) -> Result<OrphansSettled> {
    fs.note_damage(recover_all(fs))
}

fn recover_all(fs: &Fs) -> Result<OrphansSettled> {
    let sb = fs.superblock();
    let (has_file, present) = (
        sb.compat().contains(Compat::ORPHAN_FILE),
        sb.ro_compat().contains(RoCompat::ORPHAN_PRESENT),
    );
    let file = if has_file {
        let file = OrphanFile::open(fs)?;
        Some(fs.orphans.file.get_or_init(|| file))
    } else {
        None
    };
    if has_file && !present {
        // From now on, a crash may leave some in it.
        let mut h = fs.begin(1)?;
        fs.update_super(&mut h, |sb| set_present(sb, true))?;
        h.stop()?;
    }
    let mut settled = OrphansSettled::default();
    **fs.orphans.list() = List::starting_at(sb.s_last_orphan.get());
    if sb.state().contains(State::ERROR) {
        // What a damaged volume has of them is for e2fsck to judge.
        fs.orphans.left_alone.store(true, Ordering::Relaxed);
        return Ok(settled);
    }
    recover_list(fs, &mut settled)?;
    if let Some(file) = file.filter(|_| present) {
        for (slot, ino) in file.found(fs)? {
            recover_slot(fs, file, (slot, ino), &mut settled).map_err(|e| file.name(slot, e))?;
        }
    }
    Ok(settled)
}

/// The orphans that the disk has, for a volume that was opened without looking at them. They stay as they are; new ones go
/// before them.
///
/// # Errors
/// As [`recover`].
pub(crate) fn recorded(fs: &Fs) -> Result<HashSet<InodeNumber>> {
    let sb = fs.superblock();
    let mut all = HashSet::new();
    let mut ino = InodeNumber(sb.s_last_orphan.get());
    **fs.orphans.list() = List::starting_at(ino.0);
    while ino != InodeNumber::NONE {
        if !all.insert(ino) {
            return Err(Error::corrupt("the orphan list runs in a circle").in_inode(ino));
        }
        ino = InodeNumber(orphan_inode(fs, ino)?.raw.read().dtime());
    }
    if sb.compat().contains(Compat::ORPHAN_FILE)
        && sb.ro_compat().contains(RoCompat::ORPHAN_PRESENT)
    {
        let found = OrphanFile::open(fs)?.found(fs)?;
        all.extend(found.into_iter().map(|(_, ino)| ino));
    }
    Ok(all)
}

fn recover_list(fs: &Fs, settled: &mut OrphansSettled) -> Result<()> {
    let mut ino = InodeNumber(fs.superblock().s_last_orphan.get());
    // A list without a circle has each inode once.
    let mut left = fs.geo.inodes;
    while ino != InodeNumber::NONE {
        left = left
            .checked_sub(1)
            .ok_or_else(|| Error::corrupt("the orphan list runs in a circle").in_inode(ino))?;
        let inode = orphan_inode(fs, ino)?;
        let next = inode.raw.read().dtime();
        fs.orphans.list().adopt(&inode, next);
        **place(&inode) = Place::List;
        settle(fs, &inode, settled)?;
        ino = InodeNumber(next);
    }
    Ok(())
}

fn recover_slot(
    fs: &Fs,
    file: &OrphanFile,
    (slot, ino): (Slot, InodeNumber),
    settled: &mut OrphansSettled,
) -> Result<()> {
    let inode = orphan_inode(fs, ino)?;
    if **place(&inode) != Place::Nowhere {
        return Err(Error::corrupt("an inode is an orphan twice").in_inode(ino));
    }
    file.adopt(fs, slot, &inode)?;
    **place(&inode) = Place::Slot(slot);
    settle(fs, &inode, settled)
}

fn orphan_inode(fs: &Fs, ino: InodeNumber) -> Result<Arc<Inode>> {
    let corrupt = |what: &str| Err(Error::corrupt(what).in_inode(ino));
    if ino < fs.geo.first_ino {
        return corrupt("a reserved inode is listed as an orphan");
    }
    let inode = match fs.inode(ino) {
        Err(Error::Caller(Reason::NotFound)) => {
            return corrupt("a free inode is listed as an orphan");
        }
        other => other?,
    };
    if fs.is_inode_used(ino)? {
        return Ok(inode);
    }
    corrupt("an inode that is free in its bitmap is listed as an orphan")
}

/// Frees an orphan, or ends its truncation.
fn settle(fs: &Fs, inode: &Arc<Inode>, settled: &mut OrphansSettled) -> Result<()> {
    if inode.raw.read().links_count() == 0 {
        settled.freed += 1;
        return fs.free_if_unused(inode);
    }
    settled.truncated += 1;
    truncate::free_beyond_size(fs, inode)
}

impl Fs {
    /// Notes that somebody has the inode open: it stays, with or without names, until [`Fs::close_inode`].
    ///
    /// # Errors
    /// `NotFound` for an inode that lost its last name and is being freed.
    pub fn open_inode(&self, inode: &Inode) -> Result<()> {
        if inode.add_open() {
            Ok(())
        } else {
            Err(Reason::NotFound.into())
        }
    }

    /// The reverse of [`Fs::open_inode`]. The last one frees an inode without names.
    ///
    /// # Errors
    /// Those of freeing it; it stays on the orphan list then.
    pub fn close_inode(&self, inode: &Arc<Inode>) -> Result<()> {
        inode.drop_open();
        self.free_if_unused(inode)
    }

    /// Frees an orphan that has neither names nor open files. An inode without names that is no orphan has lost none while it
    /// was ours: its volume is damaged, and that somebody looked at it is no reason to free it.
    pub(crate) fn free_if_unused(&self, inode: &Arc<Inode>) -> Result<()> {
        let named = inode.raw.read().links_count() > 0;
        if named || **place(inode) == Place::Nowhere || !inode.close_for_good() {
            return Ok(());
        }
        let mut doomed = vec![Arc::clone(inode)];
        // Values of attributes can be inodes, which go with the last inode that uses them.
        while let Some(inode) = doomed.pop() {
            let unused = self.free_orphan(&inode)?;
            doomed.extend(unused.into_iter().filter(|value| value.close_for_good()));
        }
        Ok(())
    }

    /// Frees an inode; the inodes of attribute values that nobody uses any more.
    fn free_orphan(&self, inode: &Arc<Inode>) -> Result<Vec<Arc<Inode>>> {
        truncate::free_all(self, inode)?;
        let mut unused = Vec::new();
        // Whoever reads its attributes just now, or changes them, comes to an end first.
        let _alone = inode.io_unused();
        loop {
            let mut h = self.begin(FREE_CREDITS)?;
            let released = xattr::release(self, &mut h, inode)?;
            unused.extend(released.unused);
            if released.all {
                remove(self, &mut h, inode)?;
                self.free_inode(&mut h, inode)?;
                h.stop()?;
                return Ok(unused);
            }
            self.store(&mut h, inode)?;
            h.stop()?;
        }
    }
}
