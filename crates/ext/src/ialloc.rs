//! The inode allocator.
//!
//! Files go to their directory's group. Directories are spread so that each has room around it: top-level
//! ones over the whole volume, deeper ones near their parent while its group is not much fuller than average.
//!
//! Invariants: an inode bitmap changes only under its group's lock, together with its descriptor; within a
//! group the lowest free inode is always taken, so that the never-used part of the inode table
//! (`bg_itable_unused`) stays contiguous.
//!
//! Without an on-disk journal, a freed inode waits, as blocks do ([`crate::balloc`]), until its freeing is
//! durable. Otherwise a crash could leave its old name on disk with the contents of a new, different file.

mod group;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

use foldhash::HashMap;
use throughline_extfmt::{GroupNumber, InodeNumber, Superblock};
use throughline_journal::Tid;
use throughline_locks::{Mutex, MutexGuard, Rank};

use crate::alloc::Alloc;
use crate::error::{Error, Reason, Result};
use crate::handle::Handle;

/// Number of locks for groups' inode bitmaps; several groups share one.
const LOCKS: usize = 64;
/// Flex groups compared for a new directory.
const FLEXES_LOOKED_AT: u32 = 16;
/// Most groups of a flex group that are summed up for that; on some volumes one flex group covers everything.
const GROUPS_OF_FLEX: u32 = 64;

/// The counts and hints of the inode allocator.
pub(crate) struct Ialloc {
    free: AtomicU32,
    /// Hints about groups, by number.
    groups: Box<[Mutex<HashMap<u32, Hints>>]>,
    /// The newest transaction that freed a waiting inode.
    last_freed: Mutex<Option<Tid>>,
    /// Where the search for the next top-level directory starts; also varies generations.
    rotor: AtomicU32,
}

/// The properties of a directory that decide where a new inode in it is allocated.
pub(crate) struct Near<'a> {
    /// Inode number.
    pub(crate) ino: InodeNumber,
    /// It is at the top of the tree: its subdirectories are spread over the volume.
    pub(crate) is_top: bool,
    /// The group in which its last child was allocated.
    pub(crate) last_child_group: &'a AtomicU32,
}

/// Hints about a group's inodes.
#[derive(Default)]
struct Hints {
    /// No inode below this index is free, except those that wait.
    first_free: u32,
    /// Freed inodes that cannot be reused before their transaction is durable, in ascending order of
    /// transactions.
    waiting: VecDeque<(Tid, u32)>,
    /// Its bitmap is damaged: no inodes are allocated from it.
    is_damaged: bool,
}

impl Hints {
    /// Makes available the inodes freed in transactions up to `committed`.
    fn release_durable(&mut self, committed: Tid) {
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
    /// With the superblock's count. `seed` is where generation numbers and the spread of directories start;
    /// without one they start at random.
    pub(crate) fn new(sb: &Superblock, seed: Option<u32>) -> Self {
        use std::hash::{BuildHasher, RandomState};
        let begin = seed.unwrap_or_else(|| RandomState::new().hash_one(sb.s_uuid) as u32);
        Self {
            free: AtomicU32::new(sb.s_free_inodes_count.get().min(sb.s_inodes_count.get())),
            groups: (0..LOCKS as u64)
                .map(|slot| Mutex::numbered(Rank::InodeGroup, slot, HashMap::default()))
                .collect(),
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

    /// Corrects the count. Only before anything is allocated.
    pub(crate) fn set_free(&self, free: u32) {
        self.free.store(free, Ordering::Relaxed);
    }

    /// A new generation number. It distinguishes an inode from earlier ones with the same number.
    pub(crate) fn generation(&self, nanoseconds: u32) -> u32 {
        let count = self.rotor.fetch_add(1, Ordering::Relaxed);
        let mixed =
            (u64::from(count) << 32 | u64::from(nanoseconds)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 32) as u32
    }

    /// Takes the lock of a group's inode bitmap, which also protects its hints.
    fn lock(&self, group: GroupNumber) -> MutexGuard<'_, HashMap<u32, Hints>> {
        let slot = group.0 as usize % LOCKS;
        self.groups[slot].lock()
    }
}

impl Alloc {
    /// Whether an inode is in use according to its bitmap.
    ///
    /// # Errors
    /// `Corrupt` for a number that does not exist, or a damaged bitmap; device errors.
    pub(crate) fn is_inode_used(&self, ino: InodeNumber) -> Result<bool> {
        let (group, index) = number_place(self, ino)?;
        self.is_bit_set(group, index).map_err(|e| e.in_inode(ino))
    }

    /// Allocates a specific free inode number (3 credits), for recovery: the log names it.
    ///
    /// # Errors
    /// `Corrupt` if it is in use; errors of the journal.
    pub(crate) fn take_number(
        &self,
        h: &mut Handle<'_>,
        ino: InodeNumber,
        is_dir: bool,
    ) -> Result<()> {
        let place = number_place(self, ino)?;
        self.take_this_inode(h, place, is_dir)
            .map_err(|e| e.in_inode(ino))?;
        self.ialloc.free.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    /// Frees an inode number (2 credits); the inode itself is not changed.
    ///
    /// # Errors
    /// `Corrupt` if it is already free; errors of the journal.
    pub(crate) fn give_number(
        &self,
        h: &mut Handle<'_>,
        ino: InodeNumber,
        was_dir: bool,
    ) -> Result<()> {
        let (group, index) = number_place(self, ino)?;
        self.put_inode_in(h, group, index, was_dir)
            .map_err(|e| e.in_inode(ino))?;
        self.ialloc.free.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Allocates the lowest free inode of the best group that has one (3 credits).
    ///
    /// # Errors
    /// `NoSpace` if no inode is free; errors of the journal; `Corrupt`.
    pub(crate) fn take_inode(
        &self,
        h: &mut Handle<'_>,
        near: &Near<'_>,
        is_dir: bool,
    ) -> Result<InodeNumber> {
        if self.ialloc.free_inodes() == 0 {
            return Err(Reason::NoSpace.into());
        }
        let first = if is_dir {
            group_for_dir(self, near)?
        } else {
            group_for_child(self, near)
        };
        for step in 0..self.geo.groups {
            let group = next_group(self, first, step);
            let desc = self.change_around_damage(self.group_desc(group))?;
            if desc.is_none_or(|desc| desc.free_inodes() == 0) {
                continue;
            }
            if let Some(ino) = self.take_inode_in(h, group, is_dir)? {
                self.ialloc.free.fetch_sub(1, Ordering::Relaxed);
                if !is_dir {
                    near.last_child_group.store(group.0, Ordering::Relaxed);
                }
                return Ok(ino);
            }
        }
        Err(Reason::NoSpace.into())
    }

    /// Allocates the lowest free inode of the first `groups` groups (3 credits).
    ///
    /// # Errors
    /// As [`Alloc::take_inode`].
    pub(crate) fn take_inode_below(
        &self,
        h: &mut Handle<'_>,
        groups: u32,
        is_dir: bool,
    ) -> Result<InodeNumber> {
        for group in (0..groups.min(self.geo.groups)).map(GroupNumber) {
            if self.group_desc(group)?.free_inodes() == 0 {
                continue;
            }
            if let Some(ino) = self.take_inode_in(h, group, is_dir)? {
                self.ialloc.free.fetch_sub(1, Ordering::Relaxed);
                return Ok(ino);
            }
        }
        Err(Reason::NoSpace.into())
    }

    pub(crate) fn group_of_inode(&self, ino: InodeNumber) -> GroupNumber {
        self.geo
            .inode_place(ino)
            .map_or(GroupNumber(0), |(group, _)| group)
    }
}

fn number_place(fs: &Alloc, ino: InodeNumber) -> Result<(GroupNumber, u32)> {
    let place = fs.geo.inode_place(ino);
    place.ok_or_else(|| Error::corrupt("an inode that does not exist").in_inode(ino))
}

/// The group for a new file: the directory's own group, or if that is full, the group of its last child.
fn group_for_child(fs: &Alloc, near: &Near<'_>) -> GroupNumber {
    match near.last_child_group.load(Ordering::Relaxed) {
        group if group < fs.geo.groups && !has_free_inodes_at_home(fs, near) => GroupNumber(group),
        _ => fs.group_of_inode(near.ino),
    }
}

/// Whether the directory's own group has a free inode. Cheaper than searching it.
fn has_free_inodes_at_home(fs: &Alloc, near: &Near<'_>) -> bool {
    fs.group_desc(fs.group_of_inode(near.ino))
        .is_ok_and(|desc| desc.free_inodes() != 0)
}

fn next_group(fs: &Alloc, first: GroupNumber, step: u32) -> GroupNumber {
    let sum = u64::from(first.0) + u64::from(step);
    GroupNumber((sum % u64::from(fs.geo.groups.max(1))) as u32)
}

/// The first group of the flex group chosen for a new directory. Without flex groups, each group counts as
/// one.
fn group_for_dir(fs: &Alloc, near: &Near<'_>) -> Result<GroupNumber> {
    let log = fs.geo.log_groups_per_flex;
    let flexes = (u64::from(fs.geo.groups).div_ceil(1 << log)).max(1) as u32;
    let first = if near.is_top {
        fs.ialloc
            .rotor
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_mul(0x9E37_79B9)
            % flexes
    } else {
        fs.group_of_inode(near.ino).0 >> log
    };
    let average = Room {
        inodes: u64::from(fs.ialloc.free_inodes()) / u64::from(flexes),
        blocks: fs.balloc.free_on_disk() / u64::from(flexes),
        dirs: 0,
    };
    let mut best: Option<(u32, Room)> = None;
    for step in 0..flexes.min(FLEXES_LOOKED_AT) {
        let flex = ((u64::from(first) + u64::from(step)) % u64::from(flexes)) as u32;
        let room = room_in_flex(fs, flex, log)?;
        if !near.is_top
            && room.inodes > average.inodes / 4
            && room.blocks >= average.blocks / 4
            && room.inodes > 0
        {
            return Ok(GroupNumber(flex << log));
        }
        let fit = room.inodes > 0 && room.inodes >= average.inodes && room.blocks >= average.blocks;
        if fit && best.as_ref().is_none_or(|(_, best)| room.dirs < best.dirs) {
            best = Some((flex, room));
        }
    }
    Ok(GroupNumber(best.map_or(first, |(flex, _)| flex) << log))
}

fn room_in_flex(fs: &Alloc, flex: u32, log: u32) -> Result<Room> {
    let mut room = Room {
        inodes: 0,
        blocks: 0,
        dirs: 0,
    };
    let first = flex << log;
    let end = u64::from(first)
        .saturating_add(1 << log)
        .min(fs.geo.groups.into()) as u32;
    for group in (first..end.min(first.saturating_add(GROUPS_OF_FLEX))).map(GroupNumber) {
        let Some(desc) = fs.change_around_damage(fs.group_desc(group))? else {
            continue;
        };
        room.inodes = room.inodes.saturating_add(desc.free_inodes().into());
        room.blocks = room.blocks.saturating_add(desc.free_blocks().into());
        room.dirs = room.dirs.saturating_add(desc.used_dirs().into());
    }
    Ok(room)
}

/// What is free in a flex group, and how many directories it has.
struct Room {
    inodes: u64,
    blocks: u64,
    dirs: u64,
}
