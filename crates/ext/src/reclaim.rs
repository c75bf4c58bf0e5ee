//! Freeing inodes without names, when they are closed or when the volume is next opened, and finishing
//! truncations that a crash interrupted. The on-disk records of both are in [`crate::orphan`].
//!
//! Invariant: an inode is freed once, by the thread that [closes it for good](Inode::close_permanently).

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use throughline_extfmt::features::{Compat, RoCompat};
use throughline_extfmt::superblock::State;
use throughline_extfmt::{FileBlock, FsBlock, InodeNumber};

use crate::attrs::Attrs;
use crate::error::{Error, Reason, Result};
use crate::inode::{Inode, Inodes};
use crate::map;
use crate::orphan::place::{ORPHAN_CREDITS, Place, Slot};
use crate::orphan::{List, OrphanFile, place, remove, set_present};
use crate::{truncate, xattr};

/// Upper limit for the blocks of an orphan file; `mke2fs` makes at most 512 by default.
const MAX_BLOCKS: u64 = 1 << 14;

/// Blocks that the last step of freeing an inode may change: its inode table block, bitmap and descriptor,
/// its attributes, and its orphan record.
const FREE_CREDITS: u32 = 3 + xattr::RELEASE_CREDITS + ORPHAN_CREDITS;

/// What opening a volume found unfinished and completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrphansProcessed {
    /// Inodes without names, which were freed.
    pub freed: u32,
    /// Inodes with names whose truncation was completed.
    pub truncated: u32,
}

/// Frees the unnamed inodes that are still open: the volume is being closed, so their holders can no longer
/// use them.
///
/// # Errors
/// Those of freeing them; the rest is left to the next open.
pub(crate) fn end_all(fs: &Attrs) -> Result<()> {
    let mut all = fs.orphans.list().held();
    all.extend(fs.orphans.file.get().into_iter().flat_map(OrphanFile::held));
    for inode in all {
        inode.forget_opens();
        fs.free_if_unused(&inode)?;
    }
    Ok(())
}

/// Completes what a crash interrupted: frees unnamed inodes, and the blocks past the end of inodes being
/// truncated. For a volume that was just opened for writing.
///
/// # Errors
/// `Corrupt` for invalid orphans; device errors.
pub(crate) fn recover(fs: &Attrs) -> Result<OrphansProcessed> {
    fs.note_damage(recover_all(fs))
}

fn recover_all(fs: &Attrs) -> Result<OrphansProcessed> {
    let sb = fs.superblock();
    let (has_file, present) = (
        sb.compat().contains(Compat::ORPHAN_FILE),
        sb.ro_compat().contains(RoCompat::ORPHAN_PRESENT),
    );
    let file = if has_file {
        let file = open_file(fs)?;
        Some(fs.orphans.file.get_or_init(|| file))
    } else {
        None
    };
    if has_file && !present {
        // From now on, a crash may leave orphans in the file.
        let mut h = fs.begin(1)?;
        fs.update_super(&mut h, |sb| set_present(sb, true))?;
        h.stop()?;
    }
    let mut processed = OrphansProcessed::default();
    *fs.orphans.list() = List::starting_at(sb.s_last_orphan.get());
    if sb.state().contains(State::ERROR) {
        // Leave the orphans of a damaged volume to e2fsck.
        fs.orphans.left_to_e2fsck.store(true, Ordering::Relaxed);
        return Ok(processed);
    }
    recover_list(fs, &mut processed)?;
    if let Some(file) = file.filter(|_| present) {
        for (slot, ino) in file.found(fs)? {
            recover_slot(fs, file, (slot, ino), &mut processed).map_err(|e| file.name(slot, e))?;
        }
    }
    Ok(processed)
}

/// The orphans recorded on disk, for a volume that was opened without processing them. They stay recorded;
/// new ones are put in front.
///
/// # Errors
/// As [`recover`].
pub(crate) fn recorded(fs: &Attrs) -> Result<HashSet<InodeNumber>> {
    let sb = fs.superblock();
    let mut all = HashSet::new();
    let mut ino = InodeNumber(sb.s_last_orphan.get());
    *fs.orphans.list() = List::starting_at(ino.0);
    while ino != InodeNumber::NONE {
        if !all.insert(ino) {
            return Err(Error::corrupt("the orphan list has a cycle").in_inode(ino));
        }
        ino = InodeNumber(orphan_inode(fs, ino)?.raw.read().dtime());
    }
    if sb.compat().contains(Compat::ORPHAN_FILE)
        && sb.ro_compat().contains(RoCompat::ORPHAN_PRESENT)
    {
        let found = open_file(fs)?.found(fs)?;
        all.extend(found.into_iter().map(|(_, ino)| ino));
    }
    Ok(all)
}

fn recover_list(fs: &Attrs, processed: &mut OrphansProcessed) -> Result<()> {
    let mut ino = InodeNumber(fs.superblock().s_last_orphan.get());
    // A list without a cycle contains each inode at most once.
    let mut left = fs.geo.inodes;
    while ino != InodeNumber::NONE {
        left = left
            .checked_sub(1)
            .ok_or_else(|| Error::corrupt("the orphan list has a cycle").in_inode(ino))?;
        let inode = orphan_inode(fs, ino)?;
        let next = inode.raw.read().dtime();
        fs.orphans.list().adopt(&inode, next);
        *place(&inode) = Place::List;
        finish_orphan(fs, &inode, processed)?;
        ino = InodeNumber(next);
    }
    Ok(())
}

fn recover_slot(
    fs: &Attrs,
    file: &OrphanFile,
    (slot, ino): (Slot, InodeNumber),
    processed: &mut OrphansProcessed,
) -> Result<()> {
    let inode = orphan_inode(fs, ino)?;
    if *place(&inode) != Place::Nowhere {
        return Err(Error::corrupt("an inode is listed twice as an orphan").in_inode(ino));
    }
    file.adopt(fs, slot, &inode)?;
    *place(&inode) = Place::Slot(slot);
    finish_orphan(fs, &inode, processed)
}

fn orphan_inode(fs: &Inodes, ino: InodeNumber) -> Result<Arc<Inode>> {
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

/// Frees an orphan, or completes its truncation.
fn finish_orphan(fs: &Attrs, inode: &Arc<Inode>, processed: &mut OrphansProcessed) -> Result<()> {
    if inode.raw.read().links_count() == 0 {
        processed.freed += 1;
        return fs.free_if_unused(inode);
    }
    processed.truncated += 1;
    truncate::free_beyond_size(fs, inode)
}

/// The orphan file named by the superblock.
///
/// # Errors
/// `Corrupt` if it has holes or an invalid size; device errors.
fn open_file(fs: &Attrs) -> Result<OrphanFile> {
    let ino = InodeNumber(fs.superblock.lock().s_orphan_file_inum.get());
    let corrupt = |what: String| Error::corrupt(what).in_inode(ino);
    let file = match fs.inode(ino) {
        Err(Error::Caller(Reason::NotFound)) => {
            return Err(corrupt("the orphan file is a free inode".into()));
        }
        other => other.map_err(|e| e.in_inode(ino))?,
    };
    let size = file.raw.read().size_bytes(&fs.geo)?;
    let count = size >> fs.geo.block_log;
    if count > MAX_BLOCKS {
        return Err(corrupt(format!(
            "the orphan file has {count} blocks, over {MAX_BLOCKS}"
        )));
    }
    let mut blocks = Vec::new();
    while (blocks.len() as u64) < count {
        let at = FileBlock(blocks.len() as u32);
        let left = count as u32 - at.0;
        let (first, len) = map::lookup_block_run(fs, &file, at, left)?
            .ok_or_else(|| corrupt(format!("block {at} of the orphan file is a hole")))?;
        fs.check_data_range(first, len.into())
            .map_err(|e| e.in_inode(ino))?;
        let run = first.0..first.0.saturating_add(len.into());
        blocks.extend(run.map(FsBlock));
    }
    Ok(OrphanFile::new(ino, file.csum_seed, blocks))
}

impl Attrs {
    /// Marks the inode as open: it is kept, with or without names, until [`Attrs::close_inode`].
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

    /// The reverse of [`Attrs::open_inode`]. The last close frees an unnamed inode.
    ///
    /// # Errors
    /// Those of freeing it; it then stays on the orphan list.
    pub fn close_inode(&self, inode: &Arc<Inode>) -> Result<()> {
        inode.drop_open();
        self.free_if_unused(inode)
    }

    /// Frees an orphan without names and without holders. An unnamed inode that is not an orphan did not lose
    /// its names in this session: the volume is damaged, and reading such an inode must not free it.
    pub(crate) fn free_if_unused(&self, inode: &Arc<Inode>) -> Result<()> {
        let named = inode.raw.read().links_count() > 0;
        if named || *place(inode) == Place::Nowhere || !inode.close_permanently() {
            return Ok(());
        }
        let mut doomed = vec![Arc::clone(inode)];
        // Attribute values can be inodes, which are freed with their last user.
        while let Some(inode) = doomed.pop() {
            let unused = self.free_orphan(&inode)?;
            doomed.extend(unused.into_iter().filter(|value| value.close_permanently()));
        }
        Ok(())
    }

    /// Frees an inode; returns the value inodes that have no users left.
    fn free_orphan(&self, inode: &Arc<Inode>) -> Result<Vec<Arc<Inode>>> {
        truncate::free_all(self, inode)?;
        let mut unused = Vec::new();
        // Wait for readers and writers of its attributes.
        let _exclusive = inode.io_unused();
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
