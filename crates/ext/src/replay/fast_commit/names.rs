//! Names, and the subdirectory counts of directories.

use std::sync::Arc;

use throughline_extfmt::InodeNumber;
use throughline_extfmt::fast_commit::Name;
use throughline_extfmt::inode::{FileType, Time};

use super::{CREDITS, Replay};
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::{dir, namei};

/// Maximum link count of an inode, and maximum number of subdirectories that a directory counts.
const MAX_LINKS: u32 = 65_000;

impl Replay<'_> {
    /// Adds the first name of an inode; a new directory gets its first block.
    pub(super) fn create(&mut self, name: &Name) -> Result<()> {
        let (Some(parent), Some(inode)) = (self.directory(name.parent)?, self.find(name.ino)?)
        else {
            return Ok(());
        };
        if self.unfilled.remove(&inode.ino) {
            let fs = self.fs;
            fs.transact(CREDITS, |h| {
                dir::init(fs, h, &inode, parent.ino)?;
                fs.store(h, &inode)
            })?;
        }
        self.add_name(&parent, &inode, &name.name).map(drop)
    }

    /// Adds another name to an inode.
    pub(super) fn link(&mut self, name: &Name) -> Result<()> {
        let (Some(parent), Some(inode)) = (self.directory(name.parent)?, self.find(name.ino)?)
        else {
            return Ok(());
        };
        if self.add_name(&parent, &inode, &name.name)? && !inode.is_dir() {
            let links = inode.raw.read().links_count().saturating_add(1);
            self.set_links(&inode, links)?;
        }
        Ok(())
    }

    /// Removes a name. The inode is freed with its last name.
    pub(super) fn unlink(&mut self, name: &Name) -> Result<()> {
        let Some(parent) = self.directory(name.parent)? else {
            return Ok(());
        };
        let found = {
            let _lock = parent.dir_exclusive();
            let found = dir::lookup_to_change(self.fs, &parent, &name.name)?;
            found.filter(|found| found.ino == name.ino)
        };
        let Some(found) = found else {
            return Ok(());
        };
        let fs = self.fs;
        let lock = parent.dir_exclusive();
        fs.transact(CREDITS, |h| {
            dir::remove(fs, h, &parent, &found)?;
            fs.store(h, &parent)
        })?;
        drop(lock);
        self.changed.insert(parent.ino);
        let Some(inode) = self.find(name.ino)? else {
            return Ok(());
        };
        if inode.is_dir() {
            self.directories.insert(parent.ino);
            if !self.unfilled.contains(&inode.ino) && !dir::is_empty(fs, &inode)? {
                let what = "fast commit: the name of a directory that is not empty is removed";
                return Err(Error::corrupt(what).in_inode(inode.ino));
            }
            return self.free(&inode);
        }
        let links = inode.raw.read().links_count().saturating_sub(1);
        if links == 0 {
            return self.free(&inode);
        }
        self.set_links(&inode, links)
    }

    /// Adds a name; returns `false` if it already existed for this inode.
    fn add_name(&mut self, parent: &Arc<Inode>, inode: &Arc<Inode>, name: &[u8]) -> Result<bool> {
        namei::check_new_name(name)
            .map_err(|_| Error::corrupt("fast commit: an invalid name").in_inode(parent.ino))?;
        let fs = self.fs;
        let there = {
            let _lock = parent.dir_exclusive();
            dir::lookup_to_change(fs, parent, name)?
        };
        match there {
            Some(found) if found.ino == inode.ino => {
                self.nameless.remove(&inode.ino);
                return Ok(false);
            }
            Some(found) => self.unlink(&Name {
                parent: parent.ino,
                ino: found.ino,
                name: name.to_vec(),
            })?,
            None => {}
        }
        let lock = parent.dir_exclusive();
        fs.transact(CREDITS, |h| {
            let room = dir::room(fs, parent, name)?;
            dir::insert(fs, h, parent, room, name, inode.ino, inode.file_type())?;
            // The time is not logged; it is at least the inode's change time.
            let changed = inode.raw.read().time(Time::Change);
            let mut raw = parent.raw.write();
            for time in [Time::Modify, Time::Change] {
                if let Some(changed) =
                    changed.filter(|at| raw.time(time).is_none_or(|old| old < *at))
                {
                    raw.set_time(time, changed);
                }
            }
            drop(raw);
            fs.store(h, parent)
        })?;
        drop(lock);
        self.nameless.remove(&inode.ino);
        self.changed.insert(parent.ino);
        if inode.is_dir() {
            self.directories.insert(parent.ino);
        }
        Ok(true)
    }

    /// A directory that exists.
    fn directory(&self, ino: InodeNumber) -> Result<Option<Arc<Inode>>> {
        let inode = self.find(ino)?;
        Ok(inode.filter(|inode| inode.is_dir() && !self.unfilled.contains(&ino)))
    }

    fn set_links(&self, inode: &Inode, links: u16) -> Result<()> {
        let fs = self.fs;
        inode.raw.write().set_links_count(links);
        fs.transact(CREDITS, |h| fs.store(h, inode))
    }

    /// Recounts the subdirectories of changed directories: their logged counts may be older or newer than the
    /// names.
    pub(super) fn count_subdirectories(&mut self) -> Result<()> {
        for ino in std::mem::take(&mut self.directories) {
            let Some(parent) = self.directory(ino)? else {
                continue;
            };
            let links = self.subdirectories(&parent)?.saturating_add(2);
            let was = parent.raw.read().links_count();
            // 1 means too many to count.
            let links = if was == 1 || links >= MAX_LINKS {
                1
            } else {
                links as u16
            };
            if links != was {
                self.set_links(&parent, links)?;
            }
        }
        Ok(())
    }

    fn subdirectories(&self, parent: &Inode) -> Result<u32> {
        let _lock = parent.dir_shared();
        let (mut at, mut count) = (0, 0_u32);
        loop {
            let names = dir::list(self.fs, parent, at)?.all()?;
            let Some(last) = names.last() else {
                return Ok(count);
            };
            at = last.next;
            for entry in names {
                if matches!(entry.name.as_slice(), b"." | b"..") {
                    continue;
                }
                let kind = match entry.file_type {
                    Some(kind) => Some(kind),
                    None => self.find(entry.ino)?.and_then(|inode| inode.kind),
                };
                count += u32::from(kind == Some(FileType::Directory));
            }
        }
    }
}
