//! The metadata cache: a sharded map from [`FsBlock`] to [`Buffer`], with clock eviction of clean buffers.
//!
//! Invariants:
//! - A block has at most one buffer. It is inserted under its shard's lock and removed under that lock, and
//!   only if it has no other holder (eviction) or is marked detached (discard). So two callers never change
//!   two copies.
//! - When several threads load one block, one reads it; the others wait, holding no lock.
//! - Clean bytes stay below the budget, except for blocks that are in use. Pinned bytes are bounded by
//!   [`crate::Journal::begin`] and by the log.
//! - Lock order: buffer → the shard's dirty set or its map. None is held across device I/O.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use throughline_block::{Disk, Purpose};
use throughline_device::AlignedBuf;
use throughline_extfmt::{Corrupt, FsBlock};
use throughline_locks::{Mutex, MutexGuard};

use crate::buffer::{Block, Buffer, State};
use crate::error::{Error, Result};
use crate::parts::{Part, Sum};
use crate::residents::Residents;

/// Shards of the map, a power of two. Adjacent blocks are in different shards.
const SHARDS: usize = 16;
/// Eviction continues until 1/n of the budget is free, so that not every load has to evict.
const EVICT_SLACK: u64 = 32;

/// A block of a sealed transaction.
pub(crate) struct SealedBlock {
    /// Pins the block in the cache until it is home.
    pub(crate) buffer: Arc<Buffer>,
    /// The content at the seal.
    pub(crate) content: Block,
    /// Created in this transaction: no block at home refers to it yet.
    pub(crate) fresh: bool,
}

/// See the head of this file.
pub(crate) struct Cache {
    disk: Arc<Disk>,
    block_bytes: u32,
    align_bytes: usize,
    clean_budget_bytes: u64,
    shards: Box<[CachePadded<Shard>]>,
    resident_bytes: AtomicU64,
    /// Blocks that the running transaction changed.
    running_blocks: AtomicU64,
    /// Bytes not home yet, of the running transaction and earlier ones.
    pinned_bytes: AtomicU64,
    /// The shard at which the next eviction starts, modulo [`SHARDS`].
    evict_hand: AtomicUsize,
}

#[derive(Default)]
struct Shard {
    residents: Mutex<Residents>,
    /// The dirty buffers, ascending.
    dirty: Mutex<BTreeMap<FsBlock, Arc<Buffer>>>,
}

/// Buffers marked as loading. Dropping it, also in a panic, ends the load of those not filled, so that no
/// thread waits for ever.
struct Loading(Vec<Arc<Buffer>>);

impl Drop for Loading {
    fn drop(&mut self) {
        for buffer in &self.0 {
            buffer.lock().loading = false;
            buffer.wake_waiters();
        }
    }
}

impl Cache {
    pub(crate) fn new(disk: Arc<Disk>, block_bytes: u32, clean_budget_bytes: u64) -> Self {
        let align_bytes = disk.limits().memory_align_bytes.max(1) as usize;
        Self {
            disk,
            block_bytes,
            align_bytes,
            clean_budget_bytes,
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            resident_bytes: AtomicU64::new(0),
            running_blocks: AtomicU64::new(0),
            pinned_bytes: AtomicU64::new(0),
            evict_hand: AtomicUsize::new(0),
        }
    }

    pub(crate) fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    pub(crate) fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        self.resident_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn running_blocks(&self) -> u64 {
        self.running_blocks.load(Ordering::Relaxed)
    }

    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes.load(Ordering::Relaxed)
    }

    /// The byte offset of `block`, if all of it lies on the device.
    pub(crate) fn offset_of(&self, block: FsBlock) -> Result<u64> {
        let bytes = u64::from(self.block_bytes);
        block
            .byte_offset(self.block_bytes)
            .filter(|offset| {
                offset
                    .checked_add(bytes)
                    .is_some_and(|end| end <= self.disk.len_bytes())
            })
            .ok_or_else(|| {
                let len = self.disk.len_bytes();
                let what =
                    format!("lies past the end of the device ({len} bytes, blocks of {bytes})");
                Error::corrupt_block(block, Corrupt::new(what))
            })
    }

    /// The byte offset of a block in the cache. It cannot overflow: only blocks that lie on the device are
    /// cached.
    pub(crate) fn offset_of_resident(&self, block: FsBlock) -> u64 {
        block.0 * u64::from(self.block_bytes)
    }

    /// A snapshot of `block`, read if it is not cached. `check` runs unless the block has passed a check
    /// since it was loaded.
    pub(crate) fn read(
        &self,
        block: FsBlock,
        check: Option<impl FnOnce(&[u8]) -> core::result::Result<(), Corrupt>>,
    ) -> Result<Block> {
        let buffer = self.find(block)?;
        let (snapshot, verified) = {
            let mut state = self.loaded(&buffer)?;
            (state.loaded_content().clone(), state.verified)
        };
        if let Some(check) = check.filter(|_| !verified) {
            check(&snapshot).map_err(|what| Error::corrupt_block(block, what))?;
            buffer.lock().verified = true;
        }
        Ok(snapshot.of(buffer))
    }

    /// Changes `block` through `change`, loading it first. `check` as in [`Cache::read`].
    pub(crate) fn modify<R>(
        &self,
        block: FsBlock,
        check: Option<impl Fn(&[u8]) -> core::result::Result<(), Corrupt>>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        loop {
            // The reference is held until the change, so the checked content is not evicted before.
            let buffer = self.find(block)?;
            let mut state = self.loaded(&buffer)?;
            if let Some(check) = &check
                && !state.verified
                && !state.detached
            {
                let content = state.loaded_content().clone();
                drop(state);
                check(&content).map_err(|what| Error::corrupt_block(block, what))?;
                state = buffer.lock();
                // A thread that changed the block meanwhile has checked it too, or created it.
                state.verified = true;
            }
            if state.detached {
                continue;
            }
            self.mark_dirty(&buffer, &mut state);
            return Ok(change(state.loaded_content().make_mut()));
        }
    }

    /// As [`Cache::read`], for a caller that uses the part at `index`: `check` runs unless the part has
    /// passed a check since the block was loaded, or was changed.
    pub(crate) fn read_part(
        &self,
        block: FsBlock,
        index: u32,
        check: impl FnOnce(&[u8]) -> core::result::Result<(), Corrupt>,
    ) -> Result<Block> {
        let buffer = self.find(block)?;
        let (snapshot, is_sound) = {
            let mut state = self.loaded(&buffer)?;
            let parts = state.parts.as_ref();
            let is_sound = parts.is_some_and(|parts| parts.is_sound(index));
            (state.loaded_content().clone(), is_sound)
        };
        if !is_sound {
            check(&snapshot).map_err(|what| Error::corrupt_block(block, what))?;
            let mut state = buffer.lock();
            state.parts.get_or_insert_default().set_sound(index);
        }
        Ok(snapshot.of(buffer))
    }

    /// Changes a part of `block` through `change`, loading it first; `sum` computes its checksum when the
    /// transaction is sealed. `check` as in [`Cache::read_part`].
    pub(crate) fn modify_part<R>(
        &self,
        block: FsBlock,
        (part, sum): (Part, &Arc<dyn Sum>),
        check: impl FnOnce(&[u8]) -> core::result::Result<(), Corrupt>,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R> {
        loop {
            let buffer = self.find(block)?;
            let mut state = self.loaded(&buffer)?;
            if state.detached {
                continue;
            }
            let parts = state.parts.as_ref();
            if !parts.is_some_and(|parts| parts.is_sound(part.index)) {
                check(state.loaded_content()).map_err(|what| Error::corrupt_block(block, what))?;
            }
            state.parts.get_or_insert_default().set_changed(part, sum);
            self.mark_dirty(&buffer, &mut state);
            return Ok(change(state.loaded_content().make_mut()));
        }
    }

    /// Fills `block` with zeroes and lets `fill` write into it, without reading the device.
    pub(crate) fn create<R>(&self, block: FsBlock, fill: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        loop {
            let buffer = self.find(block)?;
            let mut state = buffer.lock();
            while state.loading {
                buffer.wait(&mut state);
            }
            if state.detached {
                continue;
            }
            let fresh = !state.dirty;
            self.mark_dirty(&buffer, &mut state);
            state.fresh |= fresh;
            state.verified = true;
            state.parts = None;
            let bytes = match &mut state.content {
                Some(content) => content.make_zeroed(),
                none => none.insert(Block::new(self.new_bytes())).make_mut(),
            };
            return Ok(fill(bytes));
        }
    }

    /// Removes `block` from the cache, with its changes in the running transaction. Snapshots in earlier
    /// transactions remain.
    pub(crate) fn discard(&self, block: FsBlock) {
        let shard = self.shard(block);
        let found = shard
            .residents
            .lock()
            .map
            .get(&block)
            .map(|resident| Arc::clone(&resident.buffer));
        let Some(buffer) = found else { return };
        let mut state = buffer.lock();
        while state.loading {
            buffer.wait(&mut state);
        }
        if state.detached {
            return; // another discard came first
        }
        state.detached = true;
        if state.dirty {
            state.dirty = false;
            shard.dirty.lock().remove(&block);
            self.running_blocks.fetch_sub(1, Ordering::Relaxed);
            self.unpin(1);
        }
        shard.residents.lock().remove(block);
        self.resident_bytes
            .fetch_sub(u64::from(self.block_bytes), Ordering::Relaxed);
    }

    /// Whether a block is cached.
    pub(crate) fn has(&self, block: FsBlock) -> bool {
        self.find(block)
            .is_ok_and(|buffer| buffer.lock().content.is_some())
    }

    /// Reads those of `blocks` that are not cached, in one batch. Ignores errors: a later read of the block
    /// is tried again.
    pub(crate) fn readahead(&self, blocks: &[FsBlock]) {
        let most = (self.clean_budget_bytes / 4 / u64::from(self.block_bytes)).max(1);
        let mut wanted = Loading(Vec::new());
        for &block in blocks
            .iter()
            .take(usize::try_from(most).unwrap_or(usize::MAX))
        {
            let Ok(buffer) = self.find(block) else {
                continue;
            };
            let mut state = buffer.lock();
            if state.content.is_none() && !state.loading && !state.detached {
                state.loading = true;
                drop(state);
                wanted.0.push(buffer);
            }
        }
        wanted.0.sort_unstable_by_key(|buffer| buffer.block);
        self.fill(&wanted);
    }

    /// Takes snapshots of the blocks that the running transaction changed, ascending. They stay pinned until
    /// [`Cache::unpin`].
    pub(crate) fn seal(&self) -> Vec<SealedBlock> {
        let mut taken = Vec::new();
        for shard in &self.shards {
            taken.extend(std::mem::take(&mut *shard.dirty.lock()).into_values());
        }
        taken.sort_unstable_by_key(|buffer| buffer.block);
        self.running_blocks
            .fetch_sub(taken.len() as u64, Ordering::Relaxed);
        taken
            .into_iter()
            .map(|buffer| {
                let mut state = buffer.lock();
                state.dirty = false;
                let fresh = std::mem::take(&mut state.fresh);
                let content = state.seal();
                drop(state);
                SealedBlock {
                    buffer,
                    content,
                    fresh,
                }
            })
            .collect()
    }

    /// Unpins this many of the blocks that [`Cache::seal`] returned: they are home, or need not be written
    /// home any more.
    pub(crate) fn unpin(&self, blocks: u64) {
        self.pinned_bytes
            .fetch_sub(blocks * u64::from(self.block_bytes), Ordering::Relaxed);
    }

    fn mark_dirty(&self, buffer: &Arc<Buffer>, state: &mut State) {
        if !state.dirty {
            state.dirty = true;
            self.running_blocks.fetch_add(1, Ordering::Relaxed);
            self.pinned_bytes
                .fetch_add(u64::from(self.block_bytes), Ordering::Relaxed);
            self.shard(buffer.block)
                .dirty
                .lock()
                .insert(buffer.block, Arc::clone(buffer));
        }
    }

    /// The buffer's state, with its content loaded by this thread or another one.
    fn loaded<'b>(&self, buffer: &'b Arc<Buffer>) -> Result<MutexGuard<'b, State>> {
        let mut state = buffer.lock();
        while state.loading {
            buffer.wait(&mut state);
        }
        if state.content.is_some() {
            return Ok(state);
        }
        state.loading = true;
        drop(state);
        let loading = Loading(vec![Arc::clone(buffer)]);
        let mut bytes = self.new_bytes();
        let offset = self.offset_of_resident(buffer.block);
        Purpose::Metadata.during(|| self.disk.read_at(offset, &mut bytes))?;
        self.arrived(buffer, bytes);
        drop(loading);
        Ok(buffer.lock())
    }

    /// Reads all of `wanted`, ascending, in one batch.
    fn fill(&self, wanted: &Loading) {
        let mut bytes: Vec<AlignedBuf> = wanted.0.iter().map(|_| self.new_bytes()).collect();
        let mut pieces: Vec<(u64, &mut [u8])> = Vec::with_capacity(bytes.len());
        for (buffer, bytes) in wanted.0.iter().zip(&mut bytes) {
            pieces.push((self.offset_of_resident(buffer.block), bytes));
        }
        let read = || self.disk.read_batch(&mut pieces);
        if !wanted.0.is_empty() && Purpose::Metadata.during(read).is_ok() {
            wanted
                .0
                .iter()
                .zip(bytes)
                .for_each(|(buffer, bytes)| self.arrived(buffer, bytes));
        }
    }

    fn arrived(&self, buffer: &Buffer, bytes: AlignedBuf) {
        let mut state = buffer.lock();
        state.content = Some(Block::new(bytes));
        state.verified = false;
        state.parts = None;
        state.loading = false;
        drop(state);
        buffer.wake_waiters();
    }

    fn new_bytes(&self) -> AlignedBuf {
        AlignedBuf::zeroed(self.block_bytes as usize, self.align_bytes)
    }

    fn shard(&self, block: FsBlock) -> &Shard {
        &self.shards[block.0 as usize % SHARDS]
    }

    /// The buffer of `block`, inserted if it is missing.
    fn find(&self, block: FsBlock) -> Result<Arc<Buffer>> {
        let buffer = {
            let mut residents = self.shard(block).residents.lock();
            if let Some(resident) = residents.map.get(&block) {
                resident.buffer.touch();
                return Ok(Arc::clone(&resident.buffer));
            }
            self.offset_of(block)?;
            residents.insert(block)
        };
        self.resident_bytes
            .fetch_add(u64::from(self.block_bytes), Ordering::Relaxed);
        self.evict();
        Ok(buffer)
    }

    /// Evicts clean blocks while they exceed the budget.
    pub(crate) fn evict(&self) {
        let clean = || self.resident_bytes().saturating_sub(self.pinned_bytes());
        if clean() <= self.clean_budget_bytes {
            return;
        }
        let goal = self.clean_budget_bytes - self.clean_budget_bytes / EVICT_SLACK;
        let block_bytes = u64::from(self.block_bytes);
        for visit in 0..2 * SHARDS {
            let shard = &self.shards[self.evict_hand.fetch_add(1, Ordering::Relaxed) % SHARDS];
            // In the first round each shard evicts its share, in the second round what is still in excess.
            let parts = if visit < SHARDS { SHARDS as u64 } else { 1 };
            let share = clean().saturating_sub(goal).div_ceil(parts * block_bytes);
            if share == 0 {
                return;
            }
            let mut residents = shard.residents.lock();
            for _ in 0..share {
                if !residents.evict_one() {
                    break;
                }
                self.resident_bytes
                    .fetch_sub(block_bytes, Ordering::Relaxed);
            }
        }
    }
}
