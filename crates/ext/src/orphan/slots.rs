//! The orphan file (`orphan_file`): blocks of slots that name orphans.
//!
//! Each thread begins to look in a block of its own, so that several delete files without waiting for one line of one
//! block, as all do that go through the head of the list.
//!
//! Invariant: a slot that is in use on the disk is never handed out, whoever filled it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use throughline_extfmt::{FsBlock, InodeNumber, orphan as format};

use super::place::Slot;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::inode::Inode;
use crate::inode::Inodes;
use crate::lock_order::{Held, Rank, locked};

/// The orphan file of a volume that is open for writing.
pub(crate) struct OrphanFile {
    ino: InodeNumber,
    csum_seed: Option<u32>,
    blocks: Vec<SlotBlock>,
}

struct SlotBlock {
    at: FsBlock,
    /// `None` until somebody asks for it.
    slots: Mutex<Option<Slots>>,
}

/// The slots of a block.
struct Slots {
    /// Those that are free, the lowest last.
    free: Vec<usize>,
    /// Inodes of those that are not: held in memory.
    taken: HashMap<usize, Arc<Inode>>,
    /// Those in use since before the volume was opened.
    found: Vec<(usize, InodeNumber)>,
}

impl OrphanFile {
    /// The orphan file in inode `ino`, whose blocks are these.
    pub(crate) fn new(ino: InodeNumber, csum_seed: Option<u32>, blocks: Vec<FsBlock>) -> Self {
        let blocks = blocks.into_iter().map(|at| SlotBlock {
            at,
            slots: Mutex::new(None),
        });
        Self {
            ino,
            csum_seed,
            blocks: blocks.collect(),
        }
    }

    /// Puts an inode into a free slot; `None` where there is none.
    ///
    /// # Errors
    /// Those of the journal.
    pub(crate) fn push(
        &self,
        fs: &Inodes,
        h: &mut Handle<'_>,
        inode: &Arc<Inode>,
    ) -> Result<Option<Slot>> {
        let first = thread_number();
        for step in 0..self.blocks.len() {
            let block = (first + step) % self.blocks.len();
            // What cannot be read or is damaged is not used: there are other blocks, and the list.
            let Ok(mut held) = self.slots(fs, block) else {
                continue;
            };
            let Some(slots) = held.as_mut() else { continue };
            let Some(&slot) = slots.free.last() else {
                continue;
            };
            let place = Slot { block, slot };
            match self.set(fs, h, place, inode.ino) {
                // Damaged since it was looked at.
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
    /// Those of the journal.
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
    /// `Corrupt` for a damaged block; those of the device.
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

    /// Takes an inode whose slot was in use when the volume was opened into memory.
    pub(crate) fn adopt(&self, fs: &Inodes, place: Slot, inode: &Arc<Inode>) -> Result<()> {
        if let Some(slots) = self.slots(fs, place.block)?.as_mut() {
            slots.found.retain(|&(slot, _)| slot != place.slot);
            slots.taken.insert(place.slot, Arc::clone(inode));
        }
        Ok(())
    }

    /// An error's place: the file, and the block of the slot.
    pub(crate) fn name(&self, place: Slot, error: Error) -> Error {
        match self.blocks.get(place.block) {
            Some(block) => error.in_block(block.at),
            None => error,
        }
    }

    /// Whether no slot is in use, as far as blocks were looked at.
    pub(crate) fn is_empty(&self) -> bool {
        let empty = |slots: &Slots| slots.taken.is_empty() && slots.found.is_empty();
        self.blocks
            .iter()
            .all(|block| block.slots.lock().as_ref().is_none_or(empty))
    }

    /// All inodes in slots, as far as they are in memory.
    pub(crate) fn held(&self) -> Vec<Arc<Inode>> {
        let mut all = Vec::new();
        for block in &self.blocks {
            if let Some(slots) = block.slots.lock().as_ref() {
                all.extend(slots.taken.values().cloned());
            }
        }
        all
    }

    /// The slots of a block, locked, read if they were not.
    fn slots(&self, fs: &Inodes, block: usize) -> Result<Held<MutexGuard<'_, Option<Slots>>>> {
        let SlotBlock { at, slots } = &self.blocks[block];
        let mut held = locked(Rank::OrphanSlots, block as u64, || slots.lock());
        if held.is_none() {
            **held = Some(self.read(fs, *at).map_err(|e| e.in_inode(self.ino))?);
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

    /// Its blocks.
    #[cfg(test)]
    pub(super) fn places(&self) -> Vec<FsBlock> {
        self.blocks.iter().map(|block| block.at).collect()
    }

    /// Writes a slot of the first block without noting it, and changes the block's bytes; the block.
    #[cfg(test)]
    pub(crate) fn put_behind_back(
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

/// A number of the thread, its own as long as there are not many.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    MINE.with(|mine| *mine)
}
