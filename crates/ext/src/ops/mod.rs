//! Changes of names: create, link, unlink, rmdir, rename.
//!
//! All operations follow the same steps: lock the directories (in ascending order), look everything up, check
//! the request, begin one handle, apply the changes, and stop the handle. Room for the new name is found
//! before the first change, so that a refused request leaves nothing behind. If a change fails half-way for
//! lack of space, it is undone inside the same handle.
//!
//! An inode that loses its last name goes on the orphan list in the same transaction, and is freed when it
//! has no holder left (see [`crate::orphan`]).

mod create;
#[cfg(test)]
mod credit_tests;
mod ignore_case;
mod link;
mod rename;
mod symlink;
#[cfg(test)]
mod tests;
mod tmpfile;
#[cfg(test)]
mod tmpfile_tests;
mod whiteout;

use std::sync::Arc;

use smallvec::SmallVec;
use throughline_extfmt::features::RoCompat;
use throughline_extfmt::inode::{InodeFlags, Time};
use throughline_locks::RwLockWriteGuard;

use crate::dir;
use crate::error::{Error, Reason, Result};
use crate::handle::Handle;
use crate::inode::Inode;
use crate::names::Names;

pub use create::{NewInode, NewKind};
pub use rename::RenameMode;

/// Maximum link count of an inode, and maximum number of subdirectories that a directory counts.
const MAX_LINKS: u16 = 65_000;
/// Link count of a directory with too many subdirectories to count (`dir_nlink`).
const UNCOUNTED: u16 = 1;

/// Fails if the directory was removed. Its lock is held.
fn is_there(dir: &Inode) -> Result<()> {
    if dir.raw.read().links_count() == 0 {
        return Err(Reason::NotFound.into());
    }
    Ok(())
}

/// Checks that names may be added to this directory. Its lock is held. (An existing name is reported first.)
fn may_add(dir: &Inode) -> Result<()> {
    is_there(dir)?;
    if dir.raw.read().flags().contains(InodeFlags::IMMUTABLE) {
        return Err(Reason::Permission.into());
    }
    Ok(())
}

/// Checks that the name of `inode` may be removed from `dir`. The directory's lock is held.
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

/// Checks that `inode` may get another name.
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

/// Whether the name `found` in `dir`, which is locked now, still has the inode `seen`, which was looked up
/// before. It is not enough to compare the numbers: `seen` may have been freed, and its number used again.
fn leads_to(fs: &Names, dir: &Inode, found: &dir::Found, seen: &Arc<Inode>) -> Result<bool> {
    Ok(found.ino == seen.ino && Arc::ptr_eq(&fs.named_inode(dir, found.ino)?, seen))
}

/// Locks directories in ascending order; a directory given twice is locked once.
fn lock_directories<'a, const N: usize>(
    mut dirs: [&'a Inode; N],
) -> SmallVec<[RwLockWriteGuard<'a, ()>; 4]> {
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
    /// Checks that `dir` can have another subdirectory.
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

    /// Updates a directory after a change of its names: its times, and its subdirectory count by `more`.
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
                // Below 2 the count is not maintained, or is damaged: e2fsck recounts.
                -1 if links > 2 => raw.set_links_count(links - 1),
                _ => {}
            }
        }
        self.store(h, dir)
    }
}
