//! Inodes without names: freed when nobody has them open, and remembered on disk until then.
//!
//! An inode that loses its last name is put on the volume's orphan list in the same transaction: a chain from
//! `s_last_orphan` through `i_dtime`. It leaves the list in the transaction that frees it. So after a crash the next
//! writable open finds it there and ends what was begun; an inode that has names but is on the list was being truncated,
//! and what lies behind its size is freed. Volumes with `orphan_file` have a second place where such inodes may stand,
//! which is emptied at open as well; new ones always go on the list, which every reader of the format knows.
//!
//! Invariants: [`Orphans`] mirrors the list on disk, the head last; every inode in it is held in memory.

mod slots;

use std::sync::Arc;

use parking_lot::Mutex;
use throughline_extfmt::InodeNumber;
use throughline_extfmt::superblock::State;

use crate::error::{Error, Reason, Result};
use crate::fs::Fs;
use crate::handle::Handle;
use crate::inode::Inode;
use crate::lock_order::{Rank, locked};
use crate::{truncate, xattr};

/// Blocks that the last step of freeing an inode may change: its place in the table, its bitmap, descriptor, the
/// superblock, its neighbour on the list, its attribute block.
const FREE_CREDITS: u32 = 16;

/// The orphan list in memory.
#[derive(Default)]
pub(crate) struct Orphans {
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    /// From the bottom to the head.
    inodes: Vec<Arc<Inode>>,
    /// What the bottom points to: orphans of before that were left alone.
    below: u32,
}

impl List {
    /// The number that the inode at `place` points to.
    fn below(&self, place: usize) -> u32 {
        place
            .checked_sub(1)
            .and_then(|below| self.inodes.get(below))
            .map_or(self.below, |inode| inode.ino.0)
    }
}

/// Puts an inode on the list, and stores it (2 credits).
pub(crate) fn add(fs: &Fs, h: &mut Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
    let mut list = locked(Rank::Orphans, 0, || fs.orphans.list.lock());
    if list.inodes.iter().rev().any(|other| other.ino == inode.ino) {
        return fs.store(h, inode);
    }
    let head = list.below(list.inodes.len());
    inode.raw.write().set_dtime(head);
    fs.store(h, inode)?;
    fs.update_super(h, |sb| sb.s_last_orphan.set(inode.ino.0))?;
    list.inodes.push(Arc::clone(inode));
    Ok(())
}

/// Takes an inode off the list; its deletion time is 0 then. It is not stored; its neighbour is (1 credit).
pub(crate) fn remove(fs: &Fs, h: &mut Handle<'_>, inode: &Inode) -> Result<()> {
    let mut list = locked(Rank::Orphans, 0, || fs.orphans.list.lock());
    let Some(place) = list.inodes.iter().rposition(|other| other.ino == inode.ino) else {
        return Ok(());
    };
    let next = list.below(place);
    match list.inodes.get(place + 1) {
        None => fs.update_super(h, |sb| sb.s_last_orphan.set(next))?,
        Some(above) => {
            above.raw.write().set_dtime(next);
            fs.store(h, above)?;
        }
    }
    inode.raw.write().set_dtime(0);
    list.inodes.remove(place);
    Ok(())
}

/// Ends what a crash cut short: frees the inodes without names, and the blocks behind the end of those being truncated.
/// For a volume that was just opened for writing.
///
/// # Errors
/// `Corrupt` for a list that cannot be; the device's.
pub(crate) fn recover(fs: &Fs) -> Result<()> {
    let (head, state) = {
        let sb = fs.superblock();
        (sb.s_last_orphan.get(), sb.state())
    };
    if state.contains(State::ERROR) {
        // What is on the list of a damaged volume is for e2fsck to judge.
        fs.orphans.list.lock().below = head;
        return Ok(());
    }
    let mut next = head;
    // A list without a circle has each inode once.
    let mut left = fs.geo.inodes;
    while next != 0 {
        left = left
            .checked_sub(1)
            .ok_or_else(|| Error::corrupt("the orphan list runs in a circle"))?;
        next = process_one(fs, InodeNumber(next))?;
    }
    slots::recover(fs)
}

/// Ends one inode, the head of the list; the next.
fn process_one(fs: &Fs, ino: InodeNumber) -> Result<u32> {
    let inode = orphan_inode(fs, ino)?;
    let next = inode.raw.read().dtime();
    {
        let mut list = fs.orphans.list.lock();
        list.inodes.push(Arc::clone(&inode));
        list.below = next;
    }
    settle(fs, &inode)?;
    Ok(next)
}

fn orphan_inode(fs: &Fs, ino: InodeNumber) -> Result<Arc<Inode>> {
    if ino < fs.geo.first_ino {
        return Err(Error::corrupt("a reserved inode is listed as an orphan").in_inode(ino));
    }
    match fs.inode(ino) {
        Err(Error::Caller(Reason::NotFound)) => {
            Err(Error::corrupt("a free inode is listed as an orphan").in_inode(ino))
        }
        other => other,
    }
}

/// Frees an orphan, or ends its truncation, and takes it off the list.
fn settle(fs: &Fs, inode: &Arc<Inode>) -> Result<()> {
    if inode.raw.read().links_count() == 0 {
        return fs.free_if_unused(inode);
    }
    truncate::free_beyond_size(fs, inode)?;
    let mut h = fs.begin(FREE_CREDITS)?;
    remove(fs, &mut h, inode)?;
    fs.store(&mut h, inode)?;
    h.stop()
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

    /// Frees an inode that has neither names nor open files.
    pub(crate) fn free_if_unused(&self, inode: &Arc<Inode>) -> Result<()> {
        let mut doomed = vec![Arc::clone(inode)];
        // Values of attributes can be inodes, which go with the last inode that uses them.
        while let Some(inode) = doomed.pop() {
            if inode.raw.read().links_count() == 0 && inode.close_for_good() {
                doomed.extend(self.free_orphan(&inode)?);
            }
        }
        Ok(())
    }

    /// Frees an inode; the inodes of attribute values that nobody uses any more.
    fn free_orphan(&self, inode: &Arc<Inode>) -> Result<Vec<Arc<Inode>>> {
        truncate::free_all(self, inode)?;
        let mut h = self.begin(FREE_CREDITS)?;
        let unused = xattr::release(self, &mut h, inode)?;
        remove(self, &mut h, inode)?;
        self.free_inode(&mut h, inode)?;
        h.stop()?;
        Ok(unused)
    }
}
