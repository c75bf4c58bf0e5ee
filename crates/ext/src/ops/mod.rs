//! Changes of names: create, link, unlink, rmdir, rename.
//!
//! Every operation follows one course: it locks the directories (all of them, ascending by number), looks everything
//! up, refuses what cannot be, begins one handle, changes, and stops the handle. What it needs for the new name is sought
//! before the first change, so that a refusal leaves nothing behind; where a change does fail half-way for want of
//! space, what was made is taken back inside the same handle.
//!
//! An inode that loses its last name goes on the orphan list in the same transaction, and is freed when nobody has it
//! open (see [`crate::orphan`]).

mod create;
#[cfg(test)]
mod credit_tests;
mod link;
mod rename;
mod symlink;
#[cfg(test)]
mod tests;
mod tmpfile;
#[cfg(test)]
mod tmpfile_tests;
mod whiteout;

use parking_lot::RwLockWriteGuard;
use smallvec::SmallVec;
use throughline_extfmt::features::RoCompat;
use throughline_extfmt::inode::{InodeFlags, Time};

use crate::error::{Error, Reason, Result};
use crate::handle::Handle;
use crate::inode::Inode;
use crate::lock_order::Held;
use crate::names::Names;

pub use create::{NewInode, NewKind};
pub use rename::RenameMode;

/// Names that one inode can have, and subdirectories that a directory can count.
const MAX_LINKS: u16 = 65_000;
/// The link count of a directory with more subdirectories than it can count (`dir_nlink`).
const UNCOUNTED: u16 = 1;

/// Refuses a directory that was removed. Its lock is held.
fn is_there(dir: &Inode) -> Result<()> {
    if dir.raw.read().links_count() == 0 {
        return Err(Reason::NotFound.into());
    }
    Ok(())
}

/// Whether names may be added to this directory. Its lock is held. (A name that is taken is told first.)
fn may_add(dir: &Inode) -> Result<()> {
    is_there(dir)?;
    if dir.raw.read().flags().contains(InodeFlags::IMMUTABLE) {
        return Err(Reason::Permission.into());
    }
    Ok(())
}

/// Whether the name of `inode` may be taken from `dir`. The directory's lock is held.
fn may_remove(dir: &Inode, inode: &Inode) -> Result<()> {
    let kept = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
    if dir.raw.read().flags().intersects(kept) {
        return Err(Reason::Permission.into());
    }
    let raw = inode.raw.read();
    if raw.flags().intersects(kept) {
        return Err(Reason::Permission.into());
    }
    if raw.links_count() == 0 {
        return Err(Error::corrupt("a name leads to an inode without links").in_inode(inode.ino));
    }
    Ok(())
}

/// Whether `inode` may get one more name.
fn may_link(inode: &Inode) -> Result<()> {
    let kept = InodeFlags::IMMUTABLE | InodeFlags::APPEND | InodeFlags::EA_INODE;
    if inode.is_dir() || inode.raw.read().flags().intersects(kept) {
        return Err(Reason::Permission.into());
    }
    Ok(())
}

fn need_dir(inode: &Inode) -> Result<()> {
    if inode.is_dir() {
        Ok(())
    } else {
        Err(Reason::NotDir.into())
    }
}

/// Locks the contents of directories, in their order; one that is named twice is locked once.
fn lock_directories<'a, const N: usize>(
    mut dirs: [&'a Inode; N],
) -> SmallVec<[Held<RwLockWriteGuard<'a, ()>>; 4]> {
    dirs.sort_by_key(|dir| dir.ino);
    let mut locks = SmallVec::new();
    let mut last = None;
    for dir in dirs {
        if last.replace(dir.ino) != Some(dir.ino) {
            locks.push(dir.dir_exclusive());
        }
    }
    locks
}

impl Names {
    /// Whether `dir` can count one more subdirectory.
    fn may_add_subdirectory(&self, dir: &Inode) -> Result<()> {
        let (links, flags) = {
            let raw = dir.raw.read();
            (raw.links_count(), raw.flags())
        };
        let countless =
            self.geo.ro_compat.contains(RoCompat::DIR_NLINK) && flags.contains(InodeFlags::INDEX);
        if links >= MAX_LINKS && !countless {
            return Err(Reason::TooManyLinks.into());
        }
        Ok(())
    }

    /// The directory's names changed: its times, and its count of subdirectories by `more`.
    fn dir_changed(&self, h: &mut Handle<'_>, dir: &Inode, more: i32) -> Result<()> {
        let now = self.now();
        {
            let mut raw = dir.raw.write();
            raw.set_time(Time::Modify, now);
            raw.set_time(Time::Change, now);
            let links = raw.links_count();
            match more {
                1 if links == UNCOUNTED || links >= MAX_LINKS => raw.set_links_count(UNCOUNTED),
                1 => raw.set_links_count(links + 1),
                // Below 2 it is uncounted, or damaged: e2fsck counts again.
                -1 if links > 2 => raw.set_links_count(links - 1),
                _ => {}
            }
        }
        self.store(h, dir)
    }
}
