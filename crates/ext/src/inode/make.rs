//! Creating and freeing inodes.

use std::sync::Arc;

use throughline_extfmt::extent::NodeMut;
use throughline_extfmt::features::Incompat;
use throughline_extfmt::inode::{FileType, InodeFlags, Time};
use throughline_extfmt::{FsBlock, GroupNumber, InodeImage, InodeNumber};

use super::Inode;
use super::inodes::Inodes;
use crate::error::{Error, Reason, Result};
use crate::flags::seen;
use crate::handle::Handle;
use crate::ialloc::Near;

impl Inodes {
    /// Creates an inode (3 credits: bitmap, descriptor, inode table): allocates its number, builds its
    /// image, and inserts its object into the table. Times are the current time; flags and project are
    /// inherited; it has an empty extent tree or block map, and no names yet. The caller sets the link count
    /// and stores it, in the same handle. `mode` includes the type bits.
    ///
    /// # Errors
    /// `NoSpace` if no inode is free; errors of the journal; `Corrupt`.
    pub(crate) fn new_inode(
        &self,
        h: &mut Handle<'_>,
        parent: &Inode,
        mode: u16,
        uid: u32,
        gid: u32,
    ) -> Result<Arc<Inode>> {
        let kind = FileType::from_mode(mode).ok_or(Reason::Invalid("a mode without file type"))?;
        let image = self.fresh_image(parent, kind, mode, (uid, gid));
        let is_dir = kind == FileType::Directory;
        let near = Near {
            ino: parent.ino,
            is_top: is_dir
                && (parent.ino == InodeNumber::ROOT
                    || parent.raw.read().flags().contains(InodeFlags::TOPDIR)),
            last_child_group: &parent.last_child_group,
        };
        let result = self
            .take_inode(h, &near, is_dir)
            .and_then(|ino| self.insert_inode(h, ino, image));
        self.note_damage(result)
    }

    /// Frees an inode without names whose blocks are already freed (3 credits, as [`Inodes::new_inode`]).
    /// Sets the deletion time. A damaged bitmap of its group is left unchanged, as in
    /// [`crate::Blocks::free`].
    ///
    /// # Errors
    /// Errors of the journal; `Corrupt`, with nothing changed, if it is already free.
    pub(crate) fn free_inode(&self, h: &mut Handle<'_>, inode: &Inode) -> Result<()> {
        let result = self.put_inode(h, inode);
        self.note_damage(result)
    }

    fn put_inode(&self, h: &mut Handle<'_>, inode: &Inode) -> Result<()> {
        let Some((group, index)) = self
            .geo
            .inode_place(inode.ino)
            .filter(|_| inode.ino >= self.geo.first_ino)
        else {
            return Err(Error::corrupt("freeing a reserved inode").in_inode(inode.ino));
        };
        let is_used = self.check_inode_used(group, index);
        let is_used = is_used.map_err(|e| e.in_inode(inode.ino))?;
        {
            let mut raw = inode.raw.write();
            raw.set_links_count(0);
            raw.set_size_bytes(0);
            raw.set_dtime(self.now().seconds as u32);
        }
        self.retire_inode(h, inode)?;
        if !is_used {
            return Ok(());
        }
        self.give_number(h, inode.ino, inode.kind == Some(FileType::Directory))
    }

    fn fresh_image(
        &self,
        parent: &Inode,
        kind: FileType,
        mode: u16,
        (uid, gid): (u32, u32),
    ) -> InodeImage {
        let want = self.superblock.lock().s_want_extra_isize.get();
        let mut image = InodeImage::new(self.geo.inode_bytes, want);
        image.set_mode(mode);
        image.set_uid(uid);
        image.set_gid(gid);
        let now = self.now();
        for time in [Time::Access, Time::Change, Time::Modify, Time::Create] {
            image.set_time(time, now);
        }
        image.set_generation(self.ialloc.generation(now.nanoseconds));
        let of_parent = parent.raw.read().flags();
        let mut flags = seen::inherited(of_parent, kind);
        let mapped = matches!(
            kind,
            FileType::Regular | FileType::Directory | FileType::Symlink
        );
        if mapped && self.geo.incompat.contains(Incompat::EXTENTS) {
            flags |= InodeFlags::EXTENTS;
            // An empty node always fits in 60 bytes.
            let _ = NodeMut::init(image.i_block_mut(), 0);
        }
        image.set_flags(flags);
        if of_parent.contains(InodeFlags::PROJINHERIT) {
            // An inode without room for a project ID inherits none.
            let _ = image.set_projid(self.project(parent));
        }
        image
    }

    /// Where the first block of an inode should go: in its inode's group. With flex groups of at least four
    /// groups, directories go to the first group of their flex group and files to the second, so that
    /// directories lie together.
    pub(crate) fn goal_for(&self, inode: &Inode) -> FsBlock {
        let GroupNumber(own) = self.group_of_inode(inode.ino);
        let log = self.geo.log_groups_per_flex;
        let group = if (2..32).contains(&log) {
            let first = own >> log << log;
            let behind = first.saturating_add(1);
            let is_file = inode.kind == Some(FileType::Regular);
            if is_file && behind < self.geo.groups {
                behind
            } else {
                first
            }
        } else {
            own
        };
        self.geo.group_first_block(GroupNumber(group))
    }
}
