//! Creating inodes and giving them back.

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
    /// A fresh inode (3 credits: bitmap, descriptor, inode table): its number taken, its image made and stored, its object in the table. Times are
    /// now, flags and project as inherited, no names yet (the caller sets the link count and stores), and an empty extent
    /// tree or block map. `mode` has the type bits.
    ///
    /// # Errors
    /// `NoSpace` when no inode is free; those of the journal; `Corrupt`.
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

    /// Gives an inode back (3 credits, as [`Inodes::new_inode`]): one without names whose blocks are freed. Sets the deletion time.
    /// Where its group's bitmap is damaged, that stays as it is: [`crate::Blocks::free`].
    ///
    /// # Errors
    /// Those of the journal; `Corrupt`, with nothing changed, for one that is free already.
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
            return Err(Error::corrupt("a reserved inode is to be freed").in_inode(inode.ino));
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
            // 60 bytes always have room for a node.
            let _ = NodeMut::init(image.i_block_mut(), 0);
        }
        image.set_flags(flags);
        if of_parent.contains(InodeFlags::PROJINHERIT) {
            // Without room for it in the inode there is no project to inherit.
            let _ = image.set_projid(self.project(parent));
        }
        image
    }

    /// Where the first block of a file should go: in its inode's group; with flex groups of four and more, directories in
    /// the first group of theirs and files behind it, so that directories lie together.
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
