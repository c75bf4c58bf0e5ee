//! A folio: naturally aligned memory of one file, and what is known of each block in it.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use throughline_device::Pages;

use crate::cache::blocks::BlockSet;
use crate::cache::policy::Entry;

/// The smallest folio, in bytes; a larger allocation unit makes it larger.
pub(crate) const MIN_FOLIO_BYTES: u64 = 4 << 10;

/// More uses than this are not counted: so a hot folio is soon only read by those who hit it.
const MOST_USES: u8 = 3;

thread_local! {
    /// The folio that this thread used last: using it on and on, as a stream of small reads does, is one use.
    static LAST_USED: Cell<u64> = const { Cell::new(0) };
}

/// See the module. All offsets are of the file.
#[derive(Debug)]
pub(crate) struct Folio {
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// Nobody else in this cache has or had it; not 0.
    pub(crate) id: u64,
    /// `None`: on its way from the device, with whoever fills it. All blocks are `filling` then.
    pub(crate) memory: Option<Arc<Pages>>,
    block_shift: u32,
    pub(crate) up_to_date: BlockSet,
    /// To be written back. Part of `up_to_date`.
    pub(crate) dirty: BlockSet,
    /// Under write-back. A block may be that and dirty.
    pub(crate) writing: BlockSet,
    /// Being read by someone. None of these is dirty.
    pub(crate) filling: BlockSet,
    /// Dirty ones for which room on the volume is promised.
    pub(crate) reserved: BlockSet,
    /// An entry of it is in the policy's queues, or is being put there.
    pub(crate) queued: bool,
    uses: AtomicU8,
    /// How far into it somebody was, in bytes. To go on from there is no second use, in however small steps it comes.
    seen_bytes: AtomicU32,
    /// A long run of reads or writes brought it.
    pub(crate) streamed: bool,
    /// Reading this sends for more.
    pub(crate) mark: AtomicBool,
}

impl Folio {
    /// Of `len` bytes at `start`, with nothing known; `memory` may hold anything.
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

    /// The blocks that `range` touches, as far as they are of this folio.
    pub(crate) fn blocks(&self, range: &Range<u64>) -> Range<usize> {
        let start = range.start.clamp(self.start, self.end()) - self.start;
        let end = range.end.clamp(self.start, self.end()) - self.start;
        if start >= end {
            return 0..0;
        }
        let last = (end - 1) >> self.block_shift;
        (start >> self.block_shift) as usize..last as usize + 1
    }

    /// The file bytes of `blocks`.
    pub(crate) fn bytes(&self, blocks: &Range<usize>) -> Range<u64> {
        let at = |block: usize| self.start + ((block as u64) << self.block_shift);
        at(blocks.start)..at(blocks.end)
    }

    /// Where file bytes are in the memory.
    pub(crate) fn place(&self, range: &Range<u64>) -> Range<usize> {
        (range.start - self.start) as usize..(range.end - self.start) as usize
    }

    /// How many bytes from `at` on, up to `end` at most, can be read.
    pub(crate) fn readable(&self, at: u64, end: u64) -> u64 {
        let end = end.min(self.end());
        let blocks = self.blocks(&(at..end));
        match self.up_to_date.first(blocks, false) {
            Some(block) => self.bytes(&(block..block)).start.saturating_sub(at),
            None => end - at,
        }
    }

    /// The first run of `blocks` to be written back now: dirty, and no older bytes of it on their way.
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

    /// The memory, to be changed. Where the device has it too, that keeps it, and the folio gets a copy in memory that
    /// `take` gives. `None`: there is none, of either.
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

    /// Whether it can be dropped: nothing of it is dirty, under write-back or on its way from the device.
    pub(crate) fn is_idle(&self) -> bool {
        self.memory.is_some()
            && self.dirty.is_empty()
            && self.writing.is_empty()
            && self.filling.is_empty()
    }

    /// Notes the use of file bytes of it, for the policy. Writes nothing when it was used often before, or last by this
    /// thread.
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
        if uses < MOST_USES {
            self.uses.store(uses + 1, Ordering::Relaxed);
        }
    }

    /// Uses noted since it was queued, or lowered.
    pub(crate) fn uses(&self) -> u8 {
        self.uses.load(Ordering::Relaxed)
    }

    pub(crate) fn set_uses(&self, uses: u8) {
        self.uses.store(uses, Ordering::Relaxed);
    }

    /// What the policy keeps of it.
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
