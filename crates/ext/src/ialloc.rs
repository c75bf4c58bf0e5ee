//! The inode allocator.
//!
//! Files go to their directory's group. Directories spread, so that each has room around it: those at the top of the tree
//! over the whole volume, those below near their parent while that is no fuller than the average.
//!
//! Invariants: an inode bitmap changes only under its group's lock, together with its descriptor; within a group always the
//! lowest free inode is taken, so that the part of a table that was never used (`bg_itable_unused`) stays one piece.
//!
//! Without a journal on disk a freed inode waits, as blocks do ([`crate::balloc`]), until that is durable: else a crash could
//! leave its old name on the disk together with its new contents, which are another file's.

mod group;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Mutex, MutexGuard};
use throughline_extfmt::extent::NodeMut;
use throughline_extfmt::features::Incompat;
use throughline_extfmt::inode::{FileType, InodeFlags, Time};
use throughline_extfmt::{FsBlock, GroupNumber, InodeImage, InodeNumber, Superblock};
use throughline_journal::Tid;

use crate::error::{Error, Reason, Result};
use crate::flags;
use crate::fs::Fs;
use crate::handle::Handle;
use crate::inode::Inode;
use crate::lock_order::{Held, Rank, locked};

/// Locks of groups' inode bitmaps; several groups share one.
const LOCKS: usize = 64;
/// Flex groups that are compared for a new directory.
const FLEXES_LOOKED_AT: u32 = 16;
/// Groups of a flex group that are summed up for that; there are volumes with one flex group for all.
const GROUPS_OF_FLEX: u32 = 64;

/// The counts and hints of the inode allocator.
pub(crate) struct Ialloc {
    free: AtomicU32,
    /// What is known of groups, by number.
    groups: Box<[Mutex<HashMap<u32, Hints>>]>,
    /// The newest transaction that freed an inode which waits.
    last_freed: Mutex<Option<Tid>>,
    /// Where the next directory at the top of the tree starts to look; also makes generations differ.
    rotor: AtomicU32,
}

/// What is known of a group's inodes.
#[derive(Default)]
struct Hints {
    /// Index below which no inode is free, but for those that wait.
    first_free: u32,
    /// Freed, and not to be used before that transaction is durable: ascending by that.
    waiting: VecDeque<(Tid, u32)>,
    /// Its bitmap cannot be: it gives no inodes.
    is_damaged: bool,
}

impl Hints {
    /// Those freed until `committed` wait no more.
    fn settle(&mut self, committed: Tid) {
        while let Some(&(_, index)) = self
            .waiting
            .front()
            .filter(|(tid, _)| !tid.is_after(committed))
        {
            self.waiting.pop_front();
            self.first_free = self.first_free.min(index);
        }
    }

    fn is_waiting(&self, index: u32) -> bool {
        self.waiting.iter().any(|(_, other)| *other == index)
    }
}

impl Ialloc {
    /// With the superblock's count, and the numbers that a seed gives, else random ones.
    pub(crate) fn new(sb: &Superblock, seed: Option<u32>) -> Self {
        use std::hash::{BuildHasher, RandomState};
        let begin = seed.unwrap_or_else(|| RandomState::new().hash_one(sb.s_uuid) as u32);
        Self {
            free: AtomicU32::new(sb.s_free_inodes_count.get().min(sb.s_inodes_count.get())),
            groups: (0..LOCKS).map(|_| Mutex::default()).collect(),
            last_freed: Mutex::default(),
            rotor: AtomicU32::new(begin),
        }
    }

    /// Free inodes.
    pub(crate) fn free_inodes(&self) -> u32 {
        self.free.load(Ordering::Relaxed)
    }

    /// Whether freed inodes wait for a transaction after `committed`.
    pub(crate) fn is_awaiting(&self, committed: Tid) -> bool {
        self.last_freed
            .lock()
            .is_some_and(|tid| tid.is_after(committed))
    }

    /// Corrects the count, before anything was allocated.
    pub(crate) fn set_free(&self, free: u32) {
        self.free.store(free, Ordering::Relaxed);
    }

    /// The lock of a group's inode bitmap, with the hints kept under it.
    fn lock(&self, group: GroupNumber) -> Held<MutexGuard<'_, HashMap<u32, Hints>>> {
        let slot = group.0 as usize % LOCKS;
        locked(Rank::Group, group.0.into(), || self.groups[slot].lock())
    }
}

impl Fs {
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
        let result = self
            .take_inode(h, parent, kind)
            .and_then(|ino| self.insert_inode(h, ino, image));
        self.note_damage(result)
    }

    /// Gives an inode back (3 credits, as [`Fs::new_inode`]): one without names whose blocks are freed. Sets the deletion time.
    /// Where its group's bitmap is damaged, that stays as it is: [`Fs::free`].
    ///
    /// # Errors
    /// Those of the journal; `Corrupt`, with nothing changed, for one that is free already.
    pub(crate) fn free_inode(&self, h: &mut Handle<'_>, inode: &Inode) -> Result<()> {
        let result = self.put_inode(h, inode);
        self.note_damage(result)
    }

    /// Whether an inode is in use as its bitmap has it.
    ///
    /// # Errors
    /// `Corrupt` for a number that does not exist, or a damaged bitmap; those of the device.
    pub(crate) fn is_inode_used(&self, ino: InodeNumber) -> Result<bool> {
        let (group, index) = self.number_place(ino)?;
        self.is_bit_set(group, index).map_err(|e| e.in_inode(ino))
    }

    /// Takes a number that is free (3 credits): recovery knows which it was.
    ///
    /// # Errors
    /// `Corrupt` for one that is in use; those of the journal.
    pub(crate) fn take_number(
        &self,
        h: &mut Handle<'_>,
        ino: InodeNumber,
        is_dir: bool,
    ) -> Result<()> {
        let place = self.number_place(ino)?;
        self.take_this_inode(h, place, is_dir)
            .map_err(|e| e.in_inode(ino))?;
        self.ialloc.free.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    /// Gives a number back (2 credits); the inode stays as it is.
    ///
    /// # Errors
    /// `Corrupt` for one that is free; those of the journal.
    pub(crate) fn give_number(
        &self,
        h: &mut Handle<'_>,
        ino: InodeNumber,
        was_dir: bool,
    ) -> Result<()> {
        let (group, index) = self.number_place(ino)?;
        self.put_inode_in(h, group, index, was_dir)
            .map_err(|e| e.in_inode(ino))?;
        self.ialloc.free.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn number_place(&self, ino: InodeNumber) -> Result<(GroupNumber, u32)> {
        let place = self.geo.inode_place(ino);
        place.ok_or_else(|| Error::corrupt("an inode that does not exist").in_inode(ino))
    }

    /// Takes the lowest free inode of the best group that has one.
    fn take_inode(
        &self,
        h: &mut Handle<'_>,
        parent: &Inode,
        kind: FileType,
    ) -> Result<InodeNumber> {
        if self.ialloc.free_inodes() == 0 {
            return Err(Reason::NoSpace.into());
        }
        let is_dir = kind == FileType::Directory;
        let first = if is_dir {
            self.group_for_dir(parent)?
        } else {
            self.group_for_child(parent)
        };
        for step in 0..self.geo.groups {
            let group = self.next_group(first, step);
            let desc = self.change_around_damage(self.group_desc(group))?;
            if desc.is_none_or(|desc| desc.free_inodes() == 0) {
                continue;
            }
            if let Some(ino) = self.take_inode_in(h, group, is_dir)? {
                self.ialloc.free.fetch_sub(1, Ordering::Relaxed);
                if !is_dir {
                    parent.last_child_group.store(group.0, Ordering::Relaxed);
                }
                return Ok(ino);
            }
        }
        Err(Reason::NoSpace.into())
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
        self.put_inode_in(h, group, index, inode.kind == Some(FileType::Directory))?;
        self.ialloc.free.fetch_add(1, Ordering::Relaxed);
        Ok(())
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
        image.set_generation(generation(
            self.ialloc.rotor.fetch_add(1, Ordering::Relaxed),
            now.nanoseconds,
        ));
        let of_parent = parent.raw.read().flags();
        let mut flags = flags::inherited(of_parent, kind);
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

    /// Files follow each other near their directory.
    fn group_for_child(&self, parent: &Inode) -> GroupNumber {
        match parent.last_child_group.load(Ordering::Relaxed) {
            group if group < self.geo.groups && !self.has_free_inodes_at_home(parent) => {
                GroupNumber(group)
            }
            _ => self.group_of_inode(parent.ino),
        }
    }

    /// Whether the directory's own group can take a file: cheaper than to find out by searching.
    fn has_free_inodes_at_home(&self, parent: &Inode) -> bool {
        self.group_desc(self.group_of_inode(parent.ino))
            .is_ok_and(|desc| desc.free_inodes() != 0)
    }

    pub(crate) fn group_of_inode(&self, ino: InodeNumber) -> GroupNumber {
        self.geo
            .inode_place(ino)
            .map_or(GroupNumber(0), |(group, _)| group)
    }

    fn next_group(&self, first: GroupNumber, step: u32) -> GroupNumber {
        let sum = u64::from(first.0) + u64::from(step);
        GroupNumber((sum % u64::from(self.geo.groups.max(1))) as u32)
    }

    /// The first group of the flex group for a new directory; without flex groups each group is one.
    fn group_for_dir(&self, parent: &Inode) -> Result<GroupNumber> {
        let log = self.geo.log_groups_per_flex;
        let flexes = (u64::from(self.geo.groups).div_ceil(1 << log)).max(1) as u32;
        let at_top = parent.ino == InodeNumber::ROOT
            || parent.raw.read().flags().contains(InodeFlags::TOPDIR);
        let first = if at_top {
            self.ialloc
                .rotor
                .fetch_add(1, Ordering::Relaxed)
                .wrapping_mul(0x9E37_79B9)
                % flexes
        } else {
            self.group_of_inode(parent.ino).0 >> log
        };
        let average = Room {
            inodes: u64::from(self.ialloc.free_inodes()) / u64::from(flexes),
            blocks: self.balloc.free_on_disk() / u64::from(flexes),
            dirs: 0,
        };
        let mut best: Option<(u32, Room)> = None;
        for step in 0..flexes.min(FLEXES_LOOKED_AT) {
            let flex = ((u64::from(first) + u64::from(step)) % u64::from(flexes)) as u32;
            let room = self.room_in_flex(flex, log)?;
            if !at_top
                && room.inodes > average.inodes / 4
                && room.blocks >= average.blocks / 4
                && room.inodes > 0
            {
                return Ok(GroupNumber(flex << log));
            }
            let fit =
                room.inodes > 0 && room.inodes >= average.inodes && room.blocks >= average.blocks;
            if fit && best.as_ref().is_none_or(|(_, best)| room.dirs < best.dirs) {
                best = Some((flex, room));
            }
        }
        Ok(GroupNumber(best.map_or(first, |(flex, _)| flex) << log))
    }

    fn room_in_flex(&self, flex: u32, log: u32) -> Result<Room> {
        let mut room = Room {
            inodes: 0,
            blocks: 0,
            dirs: 0,
        };
        let first = flex << log;
        let end = u64::from(first)
            .saturating_add(1 << log)
            .min(self.geo.groups.into()) as u32;
        for group in (first..end.min(first.saturating_add(GROUPS_OF_FLEX))).map(GroupNumber) {
            let Some(desc) = self.change_around_damage(self.group_desc(group))? else {
                continue;
            };
            room.inodes = room.inodes.saturating_add(desc.free_inodes().into());
            room.blocks = room.blocks.saturating_add(desc.free_blocks().into());
            room.dirs = room.dirs.saturating_add(desc.used_dirs().into());
        }
        Ok(room)
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

/// What a flex group has left, and the directories it has.
struct Room {
    inodes: u64,
    blocks: u64,
    dirs: u64,
}

/// A generation that differs from those before: it tells an inode from an earlier one of the same number.
fn generation(count: u32, nanoseconds: u32) -> u32 {
    let mixed =
        (u64::from(count) << 32 | u64::from(nanoseconds)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 32) as u32
}
