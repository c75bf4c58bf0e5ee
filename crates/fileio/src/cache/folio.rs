//! A folio: naturally aligned memory of one file, with the state of each block in it.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use throughline_device::Pages;

use crate::cache::blocks::BlockSet;
use crate::cache::policy::Entry;

/// The smallest folio, in bytes; a larger allocation unit makes it larger.
pub(crate) const MIN_FOLIO_BYTES: u64 = 4 << 10;

/// Uses are counted up to this. So the counter of a hot folio soon stops changing and its cache line stays
/// shared.
const MAX_USES: u8 = 3;

thread_local! {
    /// The folio that this thread used last. Consecutive uses of it, as a stream of small reads makes, count
    /// once.
    static LAST_USED: Cell<u64> = const { Cell::new(0) };
}

/// See the module. All offsets are offsets in the file.
#[derive(Debug)]
pub(crate) struct Folio {
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// Unique in this cache, never reused; not 0.
    pub(crate) id: u64,
    /// `None`: being read from the device into memory owned by the filler. All blocks are `filling` then.
    pub(crate) memory: Option<Arc<Pages>>,
    block_shift: u32,
    pub(crate) up_to_date: BlockSet,
    /// To be written back. A subset of `up_to_date`.
    pub(crate) dirty: BlockSet,
    /// Under write-back. A block may be both this and dirty.
    pub(crate) writing: BlockSet,
    /// Being read from the device. None of these is dirty.
    pub(crate) filling: BlockSet,
    /// Dirty blocks for which space on the volume is reserved.
    pub(crate) reserved: BlockSet,
    /// An entry for this folio is in the policy's queues, or about to be added.
    pub(crate) queued: bool,
    uses: AtomicU8,
    /// Offset in the folio up to which it has been accessed, in bytes. Continuing from there is not a second
    /// use, however small the steps.
    seen_bytes: AtomicU32,
    /// Created by a long run of reads or writes.
    pub(crate) streamed: bool,
    /// Reading this folio triggers the next readahead.
    pub(crate) mark: AtomicBool,
}

impl Folio {
    /// A folio of `len` bytes at `start` with no block up to date; `memory` may hold anything.
    pub(crate) fn new(
        id: u64,
        start: u64,
        len: u64,
        block_shift: u32,
        memory: Option<Pages>,
    ) -> Folio {
        let blocks = (len >> block_shift) as usize;
        let mut filling = BlockSet::empty(blocks);
        if memory.is_none() {
            filling.insert(0..blocks);
        }
        Folio {
            start,
            len,
            id,
            memory: memory.map(Arc::new),
            block_shift,
            up_to_date: BlockSet::empty(blocks),
            dirty: BlockSet::empty(blocks),
            writing: BlockSet::empty(blocks),
            filling,
            reserved: BlockSet::empty(blocks),
            queued: false,
            uses: AtomicU8::new(0),
            seen_bytes: AtomicU32::new(0),
            streamed: false,
            mark: AtomicBool::new(false),
        }
    }

    pub(crate) fn end(&self) -> u64 {
        self.start + self.len
    }

    pub(crate) fn block_bytes(&self) -> u64 {
        1 << self.block_shift
    }

    /// The blocks of this folio that `range` touches.
    pub(crate) fn blocks(&self, range: &Range<u64>) -> Range<usize> {
        let start = range.start.clamp(self.start, self.end()) - self.start;
        let end = range.end.clamp(self.start, self.end()) - self.start;
        if start >= end {
            return 0..0;
        }
        let last = (end - 1) >> self.block_shift;
        (start >> self.block_shift) as usize..last as usize + 1
    }

    /// The bytes of the file that `blocks` cover.
    pub(crate) fn bytes(&self, blocks: &Range<usize>) -> Range<u64> {
        let at = |block: usize| self.start + ((block as u64) << self.block_shift);
        at(blocks.start)..at(blocks.end)
    }

    /// Position of a range of the file in the folio's memory.
    pub(crate) fn place(&self, range: &Range<u64>) -> Range<usize> {
        (range.start - self.start) as usize..(range.end - self.start) as usize
    }

    /// The number of readable bytes from `at` on, up to `end`.
    pub(crate) fn readable(&self, at: u64, end: u64) -> u64 {
        let end = end.min(self.end());
        let blocks = self.blocks(&(at..end));
        match self.up_to_date.first(blocks, false) {
            Some(block) => self.bytes(&(block..block)).start.saturating_sub(at),
            None => end - at,
        }
    }

    /// The first run of `blocks` that can be written back now: dirty, and not already under write-back.
    pub(crate) fn takeable(&self, mut blocks: Range<usize>) -> Option<Range<usize>> {
        loop {
            let run = self.dirty.first_run(blocks.clone())?;
            if self.writing.is_empty() {
                return Some(run);
            }
            if let Some(start) = self.writing.first(run.clone(), false) {
                let end = self.writing.first(start..run.end, true);
                return Some(start..end.unwrap_or(run.end));
            }
            blocks.start = run.end;
        }
    }

    /// The memory, for changing it. If the device shares it, the device keeps the old memory and the folio
    /// gets a copy in memory from `take`. `None`: the folio has no memory, or there was none for a copy.
    pub(crate) fn own_memory(
        &mut self,
        take: impl FnOnce(usize) -> Option<Pages>,
    ) -> Option<&mut Pages> {
        let memory = self.memory.as_mut()?;
        if Arc::get_mut(memory).is_none() {
            let mut copy = take(memory.len())?;
            copy.copy_from_slice(memory);
            *memory = Arc::new(copy);
        }
        Arc::get_mut(memory)
    }

    /// Whether the folio can be dropped: nothing in it is dirty, under write-back or being filled.
    pub(crate) fn is_idle(&self) -> bool {
        self.memory.is_some()
            && self.dirty.is_empty()
            && self.writing.is_empty()
            && self.filling.is_empty()
    }

    /// Records a use of bytes of the folio for the policy. Writes nothing if the counter is at its limit or
    /// this thread used the folio last.
    pub(crate) fn note_use(&self, used: &Range<u64>) {
        let was_last = LAST_USED.replace(self.id) == self.id;
        if used.start - self.start >= u64::from(self.seen_bytes.load(Ordering::Relaxed)) {
            let seen = (used.end - self.start) as u32;
            return self.seen_bytes.store(seen, Ordering::Relaxed);
        }
        if was_last {
            return;
        }
        let uses = self.uses.load(Ordering::Relaxed);
        if uses < MAX_USES {
            self.uses.store(uses + 1, Ordering::Relaxed);
        }
    }

    /// Uses recorded since the folio was queued or the count was lowered.
    pub(crate) fn uses(&self) -> u8 {
        self.uses.load(Ordering::Relaxed)
    }

    pub(crate) fn set_uses(&self, uses: u8) {
        self.uses.store(uses, Ordering::Relaxed);
    }

    /// The folio's entry in the policy.
    pub(crate) fn entry(&self, space: u64) -> Entry {
        Entry {
            space,
            start: self.start,
            id: self.id,
            bytes: self.len,
            streamed: self.streamed,
        }
    }
}
