//! The orphan file (`orphan_file`): blocks of slots that name orphans.
//!
//! Each thread starts its search in a different block, so that concurrent deletions do not contend for one
//! block, as they do for the head of the list.
//!
//! Invariant: a slot that is in use on disk is never handed out, no matter what filled it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use throughline_extfmt::{FsBlock, InodeNumber, orphan as format};
use throughline_locks::{Mutex, MutexGuard, Rank};

use super::place::Slot;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::inode::Inode;
use crate::inode::Inodes;

/// The orphan file of a volume open for writing.
pub(crate) struct OrphanFile {
    ino: InodeNumber,
    csum_seed: Option<u32>,
    blocks: Vec<SlotBlock>,
}

struct SlotBlock {
    at: FsBlock,
    /// `None` until first needed.
    slots: Mutex<Option<Slots>>,
}

/// The slots of a block.
struct Slots {
    /// Free slots, the lowest last.
    free: Vec<usize>,
    /// Inodes in slots, kept in memory.
    taken: HashMap<usize, Arc<Inode>>,
    /// Slots in use since before the volume was opened.
    found: Vec<(usize, InodeNumber)>,
}

impl OrphanFile {
    /// The orphan file in inode `ino` with the given blocks.
    pub(crate) fn new(ino: InodeNumber, csum_seed: Option<u32>, blocks: Vec<FsBlock>) -> Self {
        let blocks = (0..).zip(blocks).map(|(number, at)| SlotBlock {
            at,
            slots: Mutex::numbered(Rank::OrphanSlots, number, None),
        });
        Self {
            ino,
            csum_seed,
            blocks: blocks.collect(),
        }
    }

    /// Puts an inode into a free slot; `None` if there is none.
    ///
    /// # Errors
    /// Journal errors.
    pub(crate) fn push(
        &self,
        fs: &Inodes,
        h: &mut Handle<'_>,
        inode: &Arc<Inode>,
    ) -> Result<Option<Slot>> {
        let first = thread_number();
        for step in 0..self.blocks.len() {
            let block = (first + step) % self.blocks.len();
            // Skip a damaged or unreadable block: there are other blocks, and the list.
            let Ok(mut held) = self.slots(fs, block) else {
                continue;
            };
            let Some(slots) = held.as_mut() else { continue };
            let Some(&slot) = slots.free.last() else {
                continue;
            };
            let place = Slot { block, slot };
            match self.set(fs, h, place, inode.ino) {
                // Damaged since it was read.
                Err(Error::Corrupt(_)) => continue,
                done => done?,
            }
            slots.free.pop();
            slots.taken.insert(slot, Arc::clone(inode));
            return Ok(Some(place));
        }
        Ok(None)
    }

    /// Empties a slot.
    ///
    /// # Errors
    /// Journal errors.
    pub(crate) fn take_out(&self, fs: &Inodes, h: &mut Handle<'_>, place: Slot) -> Result<()> {
        let mut held = self.slots(fs, place.block)?;
        self.set(fs, h, place, InodeNumber::NONE)?;
        if let Some(slots) = held.as_mut() {
            slots.taken.remove(&place.slot);
            slots.free.push(place.slot);
        }
        Ok(())
    }

    /// The slots that were in use when the volume was opened.
    ///
    /// # Errors
    /// `Corrupt` for a damaged block; device errors.
    pub(crate) fn found(&self, fs: &Inodes) -> Result<Vec<(Slot, InodeNumber)>> {
        let ahead: Vec<_> = self.blocks.iter().map(|block| block.at).collect();
        fs.journal.readahead(&ahead);
        let mut all = Vec::new();
        for block in 0..self.blocks.len() {
            let held = self.slots(fs, block)?;
            let found = held.as_ref().map_or(&[][..], |slots| &slots.found);
            all.extend(found.iter().map(|&(slot, ino)| (Slot { block, slot }, ino)));
        }
        Ok(all)
    }

    /// Takes an inode whose slot was already in use into memory.
    pub(crate) fn adopt(&self, fs: &Inodes, place: Slot, inode: &Arc<Inode>) -> Result<()> {
        if let Some(slots) = self.slots(fs, place.block)?.as_mut() {
            slots.found.retain(|&(slot, _)| slot != place.slot);
            slots.taken.insert(place.slot, Arc::clone(inode));
        }
        Ok(())
    }

    /// Adds the location to an error: the block of the slot.
    pub(crate) fn name(&self, place: Slot, error: Error) -> Error {
        match self.blocks.get(place.block) {
            Some(block) => error.in_block(block.at),
            None => error,
        }
    }

    /// Whether no slot is in use, in the blocks read so far.
    pub(crate) fn is_empty(&self) -> bool {
        let empty = |slots: &Slots| slots.taken.is_empty() && slots.found.is_empty();
        self.blocks
            .iter()
            .all(|block| block.slots.lock().as_ref().is_none_or(empty))
    }

    /// All inodes in slots that are in memory.
    pub(crate) fn held(&self) -> Vec<Arc<Inode>> {
        let mut all = Vec::new();
        for block in &self.blocks {
            if let Some(slots) = block.slots.lock().as_ref() {
                all.extend(slots.taken.values().cloned());
            }
        }
        all
    }

    /// The slots of a block, locked; reads them if needed.
    fn slots(&self, fs: &Inodes, block: usize) -> Result<MutexGuard<'_, Option<Slots>>> {
        let SlotBlock { at, slots } = &self.blocks[block];
        let mut held = slots.lock();
        if held.is_none() {
            *held = Some(self.read(fs, *at).map_err(|e| e.in_inode(self.ino))?);
        }
        Ok(held)
    }

    fn read(&self, fs: &Inodes, at: FsBlock) -> Result<Slots> {
        let bytes = fs.read_checked(at, |bytes| self.check(fs, at, bytes));
        let bytes = bytes.map_err(|e| e.in_block(at))?;
        let found: Vec<_> = format::orphans(&bytes)?.collect();
        let mut used = found.iter().map(|&(slot, _)| slot).peekable();
        let all = 0..format::slots(fs.geo.block_bytes) as usize;
        let mut free: Vec<_> = all.filter(|slot| used.next_if_eq(slot).is_none()).collect();
        free.reverse();
        Ok(Slots {
            free,
            taken: HashMap::new(),
            found,
        })
    }

    fn check(
        &self,
        fs: &Inodes,
        at: FsBlock,
        bytes: &[u8],
    ) -> core::result::Result<(), throughline_extfmt::Corrupt> {
        format::check(bytes, at, fs.geo.inodes, self.csum_seed)
    }

    /// The file's blocks.
    #[cfg(test)]
    pub(super) fn places(&self) -> Vec<FsBlock> {
        self.blocks.iter().map(|block| block.at).collect()
    }

    /// Writes a slot of the first block without recording it, and changes the block's bytes; returns the
    /// block.
    #[cfg(test)]
    pub(crate) fn set_slot_unrecorded(
        &self,
        fs: &Inodes,
        h: &mut Handle<'_>,
        (slot, ino): (usize, InodeNumber),
        change: impl FnOnce(&mut [u8]),
    ) -> Result<FsBlock> {
        self.set(fs, h, Slot { block: 0, slot }, ino)?;
        h.modify(self.blocks[0].at, change)?;
        Ok(self.blocks[0].at)
    }

    fn set(&self, fs: &Inodes, h: &mut Handle<'_>, place: Slot, ino: InodeNumber) -> Result<()> {
        let at = self.blocks[place.block].at;
        let check = |bytes: &[u8]| self.check(fs, at, bytes);
        h.modify_checked(at, check, |bytes| {
            format::set_slot(bytes, place.slot, ino, at, self.csum_seed)
        })?
        .map_err(|e| Error::from(e).in_inode(self.ino).in_block(at))
    }
}

/// A thread index, assigned in order of first use.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    MINE.with(|mine| *mine)
}
