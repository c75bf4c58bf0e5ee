//! Adds and removes names of existing inodes: link, unlink, rmdir.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use throughline_extfmt::InodeNumber;
use throughline_extfmt::inode::Time;

use super::{
    MAX_LINKS, is_there, leads_to, lock_directories, may_add, may_link, may_remove, need_dir,
};
use crate::error::{Error, Reason, Result};
use crate::handle::Handle;
use crate::inode::{Inode, Inodes, Watch};
use crate::names::Names;
use crate::orphan::ORPHAN_CREDITS;
use crate::{dir, namei, orphan};

/// Blocks that a new name may change: the name, the inode, the orphan record.
const LINK_CREDITS: u32 = dir::INSERT_CREDITS + 1 + ORPHAN_CREDITS;
/// Blocks that removing a name may change: its leaf, two inodes, the orphan record.
pub(super) const UNLINK_CREDITS: u32 = 3 + ORPHAN_CREDITS;

impl Names {
    /// Adds a name to an inode that is not a directory, or the first name to one created without
    /// ([`Names::tmpfile`]).
    ///
    /// # Errors
    /// `Permission` for a directory, an immutable inode or a system inode, `Exists`, `NotDir`, `NotFound`
    /// (the inode or directory was removed meanwhile), `NoKey` (an encrypted directory), `TooManyLinks`,
    /// `CrossDevice` (the directory passes on a different project), `NameTooLong`, `Invalid`, `NoSpace`,
    /// `ReadOnly`.
    pub fn link(&self, inode: &Arc<Inode>, parent: &Arc<Inode>, name: &[u8]) -> Result<()> {
        namei::check_new_name(name)?;
        need_dir(parent)?;
        if self.is_system_inode(inode.ino) {
            return Err(Reason::Permission.into());
        }
        // Its other names may be removed meanwhile, and it may have none yet.
        self.open_inode(inode)?;
        let linked = self
            .data_before_name(inode, false)
            .and_then(|()| self.with_room(|| try_link(self, inode, parent, name)));
        let closed = self.close_inode(inode);
        linked.and(closed)?;
        self.names_changed(&[parent])
    }

    /// Removes the name of anything but a directory. The inode is freed with its last name and last holder.
    ///
    /// # Errors
    /// `NotFound`, `IsDir`, `NotDir`, `Permission` (an immutable or append-only inode or directory),
    /// `ReadOnly`.
    pub fn unlink(&self, parent: &Arc<Inode>, name: &[u8]) -> Result<()> {
        self.unlink_watched(parent, name, &mut Watch::new(), |_| Ok(()))
    }

    /// As [`Names::unlink`]; adds the inodes that it may change to `watch`, and runs `and` on the inode
    /// before its name is removed.
    ///
    /// # Errors
    /// The same; those of `and`, with nothing changed.
    pub fn unlink_watched(
        &self,
        parent: &Arc<Inode>,
        name: &[u8],
        watch: &mut Watch,
        and: impl FnOnce(&Arc<Inode>) -> Result<()>,
    ) -> Result<()> {
        watch.add(parent);
        namei::check_name(name)?;
        need_dir(parent)?;
        if matches!(name, b"." | b"..") {
            return Err(Reason::IsDir.into());
        }
        let lock = parent.dir_exclusive();
        let found = dir::nokey::lookup_to_change(self, parent, name)?.ok_or(Reason::NotFound)?;
        let inode = self.named_inode(parent, found.ino)?;
        watch.add(&inode);
        may_remove(parent, &inode)?;
        if inode.is_dir() {
            return Err(Reason::IsDir.into());
        }
        and(&inode)?;
        self.transact(UNLINK_CREDITS, |h| {
            dir::remove(self, h, parent, &found)?;
            self.dir_changed(h, parent, 0)?;
            self.drop_link(h, &inode)
        })?;
        drop(lock);
        self.free_if_unused(&inode)?;
        self.names_changed(&[parent])
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`, `NotDir`, `NotEmpty`, `Invalid` for `.`, `Busy` for the root, `Permission`, `ReadOnly`.
    pub fn rmdir(&self, parent: &Arc<Inode>, name: &[u8]) -> Result<()> {
        self.rmdir_watched(parent, name, &mut Watch::new())
    }

    /// As [`Names::rmdir`]; adds the inodes that it may change to `watch`.
    ///
    /// # Errors
    /// The same.
    pub fn rmdir_watched(&self, parent: &Arc<Inode>, name: &[u8], watch: &mut Watch) -> Result<()> {
        watch.add(parent);
        namei::check_name(name)?;
        need_dir(parent)?;
        match name {
            b"." => return Err(Reason::Invalid("`.` cannot be removed").into()),
            b".." => return Err(Reason::NotEmpty.into()),
            _ => {}
        }
        loop {
            let child = self.lookup(parent, name)?;
            watch.add(&child);
            if rmdir_if_still(self, parent, name, &child)? {
                self.free_if_unused(&child)?;
                return self.names_changed(&[parent]);
            }
        }
    }

    /// Decrements the link count.
    pub(super) fn drop_link(&self, h: &mut Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        let left = {
            let mut raw = inode.raw.write();
            let left = raw.links_count().saturating_sub(1);
            raw.set_links_count(left);
            raw.set_time(Time::Change, self.now());
            left
        };
        if left == 0 {
            orphan::add(self, h, inode)
        } else {
            self.store(h, inode)
        }
    }

    /// The only name of a directory was removed: makes it an orphan.
    pub(super) fn drop_dir(&self, h: &mut Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
        {
            let mut raw = inode.raw.write();
            raw.set_links_count(0);
            raw.set_time(Time::Change, self.now());
        }
        orphan::add(self, h, inode)
    }
}

fn try_link(fs: &Names, inode: &Arc<Inode>, parent: &Arc<Inode>, name: &[u8]) -> Result<()> {
    let _lock = parent.dir_exclusive();
    is_there(parent)?;
    dir::nokey::refuse_new(fs, parent, name)?;
    let room = dir::room(fs, parent, name)?;
    may_add(parent)?;
    may_link(inode)?;
    fs.check_project(parent, inode)?;
    let unnamed = inode.raw.read().links_count() == 0;
    fs.transact(LINK_CREDITS, |h| {
        // Count first: too high a count is less harmful than too low a one.
        count_link(fs, h, inode)?;
        let named = dir::insert(fs, h, parent, room, name, inode.ino, inode.file_type())
            .and_then(|()| fs.dir_changed(h, parent, 0));
        if matches!(named, Err(Error::Caller(_))) {
            fs.drop_link(h, inode)?;
            inode.linkable.store(unnamed, Ordering::Release);
        } else if named.is_ok() && unnamed {
            orphan::remove_named(fs, h, inode)?;
            fs.store(h, inode)?;
        }
        named
    })
}

fn count_link(fs: &Inodes, h: &mut Handle<'_>, inode: &Inode) -> Result<()> {
    {
        let mut raw = inode.raw.write();
        match raw.links_count() {
            0 if inode.linkable.swap(false, Ordering::AcqRel) => raw.set_links_count(1),
            // Its last name was removed meanwhile.
            0 => return Err(Reason::NotFound.into()),
            MAX_LINKS.. => return Err(Reason::TooManyLinks.into()),
            links => raw.set_links_count(links + 1),
        }
        raw.set_time(Time::Change, fs.now());
    }
    fs.store(h, inode)
}

/// Removes `child` if `name` still refers to it; locks both, in order.
fn rmdir_if_still(fs: &Names, parent: &Inode, name: &[u8], child: &Arc<Inode>) -> Result<bool> {
    if child.ino == InodeNumber::ROOT {
        return Err(Reason::Busy("it is the root".into()).into());
    }
    let _locks = lock_directories([parent, child]);
    let found = dir::nokey::lookup_to_change(fs, parent, name)?.ok_or(Reason::NotFound)?;
    if !leads_to(fs, parent, &found, child)? {
        return Ok(false);
    }
    may_remove(parent, child)?;
    need_dir(child)?;
    if !dir::is_empty(fs, child)? {
        return Err(Reason::NotEmpty.into());
    }
    fs.transact(UNLINK_CREDITS, |h| {
        dir::remove(fs, h, parent, &found)?;
        fs.dir_changed(h, parent, -1)?;
        // As in the kernel's ext4, for its remaining holders.
        child.raw.write().set_size_bytes(0);
        fs.drop_dir(h, child)
    })?;
    Ok(true)
}
