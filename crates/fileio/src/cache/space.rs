//! [`AddressSpace`]: the cached bytes of one file.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use throughline_locks::Mutex;

use crate::cache::PageCache;
use crate::cache::activity::{self, Activity, Running};
use crate::cache::folio::MIN_FOLIO_BYTES;
use crate::cache::refused::Refused;
use crate::cache::runs::Runs;
use crate::cache::span::{Span, SpanState, number_of};
use crate::cache::stream::{Run, WriteStreams};
use crate::writeback::FileState;

/// The cached contents of one file. Owned by the file's in-memory object; holds no reference to it.
pub struct AddressSpace {
    pub(crate) cache: Arc<PageCache>,
    pub(crate) core: Arc<Core>,
    pub(crate) activity: Activity,
    pub(crate) runs: Runs,
    /// Bytes that a program has stored and that have no space on the volume.
    pub refused: Refused,
    pub(crate) streams: WriteStreams,
    pub(crate) fills: Run,
    /// Owned by the flusher.
    pub(crate) flushing: FileState,
}

/// The part of an [`AddressSpace`] that its spans reference.
pub(crate) struct Core {
    pub(crate) id: u64,
    pub(crate) block_shift: u32,
    size: AtomicU64,
    cached_bytes: AtomicU64,
    dirty_bytes: AtomicU64,
    lists: Mutex<Lists>,
}

/// Numbers of the spans of this file that are in the table.
#[derive(Default)]
struct Lists {
    all: BTreeSet<u64>,
    /// Those with dirty blocks.
    dirty: BTreeSet<u64>,
}

impl AddressSpace {
    /// For a file of `size` bytes. `block_bytes` is its allocation unit and the granularity of dirty and
    /// up-to-date state: a power of two from 512 to 64 KiB; other values are clamped and rounded up.
    pub fn new(cache: Arc<PageCache>, size: u64, block_bytes: u32) -> AddressSpace {
        let block = block_bytes.clamp(512, 64 << 10).next_power_of_two();
        let core = Core {
            id: cache.next_id(),
            block_shift: block.ilog2(),
            size: AtomicU64::new(size),
            cached_bytes: AtomicU64::new(0),
            dirty_bytes: AtomicU64::new(0),
            lists: Mutex::default(),
        };
        AddressSpace {
            cache,
            core: Arc::new(core),
            activity: Activity::default(),
            runs: Runs::default(),
            refused: Refused::default(),
            streams: WriteStreams::default(),
            fills: Run::default(),
            flushing: FileState::default(),
        }
    }

    /// The cache that this space belongs to.
    pub fn cache(&self) -> &Arc<PageCache> {
        &self.cache
    }

    /// Granularity of dirty and up-to-date state, in bytes.
    pub fn block_bytes(&self) -> u32 {
        1 << self.core.block_shift
    }

    /// The file's size in bytes as readers see it; at least the committed size.
    pub fn size(&self) -> u64 {
        self.core.size.load(Ordering::Acquire)
    }

    /// Sets the size after a truncation or a direct write. The caller holds the file's lock exclusively.
    pub fn set_size(&self, bytes: u64) {
        self.core.size.store(bytes, Ordering::Release);
    }

    /// Memory used by folios of this file, in bytes.
    pub fn cached_bytes(&self) -> u64 {
        self.core.cached_bytes.load(Ordering::Relaxed)
    }

    /// Bytes dirty or under write-back. Blocks that are both, with different contents, count twice.
    pub fn dirty_bytes(&self) -> u64 {
        self.core.dirty_bytes.load(Ordering::SeqCst)
    }

    /// Whether any block of the range is dirty or under write-back.
    pub fn is_dirty(&self, range: Range<u64>) -> bool {
        if self.dirty_bytes() == 0 {
            return false;
        }
        loop {
            let failed = self.runs.failed();
            // Check dirty blocks first: a block taken for write-back enters the runs before it stops being
            // dirty.
            if self.has_dirty(&range) || self.runs.overlap(&range) {
                return true;
            }
            // A run that failed in between was missed by both checks; its blocks are dirty again.
            if self.runs.failed() == failed {
                return false;
            }
        }
    }

    /// Whether any byte of the range is under write-back.
    pub fn is_being_written(&self, range: &Range<u64>) -> bool {
        self.runs.overlap(range)
    }

    /// Whether nothing is cached. Cheap: one load.
    pub fn is_empty(&self) -> bool {
        self.cached_bytes() == 0
    }

    /// Refuses new write-back and readahead of the file, and waits for running work to end. The caller holds
    /// the file's lock exclusively.
    pub fn freeze(&self) -> Frozen<'_> {
        Frozen {
            frozen: Some(self.activity.freeze()),
            cache: &self.cache,
        }
    }

    /// Begins background work on the file. `None` while it is frozen or has exclusive work: retry later.
    pub(crate) fn begin_background(&self) -> Option<Running> {
        self.activity.begin()
    }

    /// Begins exclusive write-back by the calling thread. `None` while the file is frozen or any background
    /// work is running.
    pub(crate) fn begin_exclusive(&self) -> Option<Exclusive<'_>> {
        Some(Exclusive {
            exclusive: Some(self.activity.begin_exclusive()?),
            cache: &self.cache,
        })
    }

    /// Whether any write-back of the file has failed so far.
    pub(crate) fn has_failed(&self) -> bool {
        self.runs.failed() > 0
    }

    /// Numbers of the cached spans that `range` touches, ascending.
    pub(crate) fn spans(&self, range: &Range<u64>) -> Vec<u64> {
        if range.is_empty() {
            return Vec::new();
        }
        let lists = self.core.lists.lock();
        let touched = number_of(range.start)..=number_of(range.end - 1);
        lists.all.range(touched).copied().collect()
    }

    /// Calls `f` with the state of the span, creating it if needed. A span left empty is removed.
    pub(crate) fn with_span<R>(
        &self,
        number: u64,
        f: impl FnOnce(&Arc<Span>, &mut SpanState) -> R,
    ) -> R {
        loop {
            let span = self.cache.table.get_or_insert(&self.core, number);
            let mut state = span.state.write();
            if state.gone {
                continue;
            }
            let result = f(&span, &mut state);
            if state.is_empty() {
                self.cache.removed(&span, &mut state, None);
            }
            return result;
        }
    }

    /// Calls `f` with the state of the span, if it exists.
    pub(crate) fn with_present<R>(
        &self,
        number: u64,
        f: impl FnOnce(&Arc<Span>, &mut SpanState) -> R,
    ) -> Option<R> {
        let span = self.cache.table.get(self.core.id, number)?;
        let mut state = span.state.write();
        (!state.gone).then(|| f(&span, &mut state))
    }

    /// The first span with dirty blocks, from `number` on.
    pub(crate) fn next_dirty_span(&self, number: u64) -> Option<u64> {
        self.core.lists.lock().dirty.range(number..).next().copied()
    }

    /// The smallest folio of this file, in bytes.
    pub(crate) fn least_folio_bytes(&self) -> u64 {
        MIN_FOLIO_BYTES.max(u64::from(self.block_bytes()))
    }

    /// `range` extended to whole blocks.
    pub(crate) fn whole_blocks(&self, range: &Range<u64>) -> Range<u64> {
        let block = u64::from(self.block_bytes());
        let end = range.end.checked_next_multiple_of(block);
        range.start - range.start % block..end.unwrap_or(u64::MAX - (block - 1))
    }
}

impl Core {
    /// Raises the size to at least `bytes`. Called with the span locked that holds the new last bytes.
    pub(crate) fn grow_to(&self, bytes: u64) {
        self.size.fetch_max(bytes, Ordering::AcqRel);
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Accounts for a new folio in a span.
    pub(crate) fn cached(&self, span: u64, bytes: u64) {
        self.cached_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.lists.lock().all.insert(span);
    }

    pub(crate) fn uncached(&self, bytes: u64) {
        self.cached_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Removes a span from the lists. Called with the span locked and still in the table, so that no new span
    /// of that number is listed yet.
    pub(crate) fn forget_span(&self, span: u64) {
        let mut lists = self.lists.lock();
        remove(&mut lists.all, span);
        remove(&mut lists.dirty, span);
    }

    /// Counts bytes that became dirty, including bytes dirtied while older contents are under write-back.
    pub(crate) fn dirtied(&self, bytes: u64) {
        self.dirty_bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    pub(crate) fn undirtied(&self, bytes: u64) {
        self.dirty_bytes.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// Adds the span to the list of dirty spans, or removes it. Called with the span locked.
    pub(crate) fn list_dirty(&self, span: u64, is_dirty: bool) {
        let mut lists = self.lists.lock();
        match is_dirty {
            true => _ = lists.dirty.insert(span),
            false => remove(&mut lists.dirty, span),
        }
    }
}

/// Removes a number. An empty set may keep memory allocated, and there is one per open file.
fn remove(set: &mut BTreeSet<u64>, number: u64) {
    set.remove(&number);
    if set.is_empty() {
        *set = BTreeSet::new();
    }
}

/// While this lives, no background work on the file runs or begins.
#[must_use = "the file thaws when this is dropped"]
pub struct Frozen<'a> {
    frozen: Option<activity::Frozen<'a>>,
    cache: &'a PageCache,
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.frozen = None;
        // The flusher may have skipped the file.
        self.cache.writeback.thawed();
    }
}

/// Exclusive write-back of the file, until this is dropped.
#[must_use = "others may work on the file again when this is dropped"]
pub(crate) struct Exclusive<'a> {
    exclusive: Option<activity::Exclusive<'a>>,
    cache: &'a PageCache,
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        self.exclusive = None;
        // The flusher may have skipped the file.
        self.cache.writeback.thawed();
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        self.drop_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use crate::cache::Backing;
    use crate::cache::testing::Volume;

    /// A span must leave the lists while it is still in the table. Afterwards a new span of the same number
    /// could be listed and be removed in its place; its dirty blocks would never be written.
    #[test]
    fn listed_spans_are_in_the_table() {
        let volume = Volume::new(4096, 100, 1 << 20);
        let file = volume.file();
        file.write(0, b"what goes").expect("a write");
        file.flush().expect("a flush");
        let (cache, core) = (&*volume.cache, &file.space().core);
        let mut others = Vec::new();
        while let Some(pages) = cache.pool.take(4096) {
            others.push(pages);
        }
        let span = cache.table.get(core.id, 0).expect("it is cached");
        thread::scope(|scope| {
            let lists = core.lists.lock();
            let taker = scope.spawn(|| cache.take_memory(4096, 4096));
            // The thread has locked the span and will wait for the lists.
            while span.state.try_read().is_some() {
                assert!(!taker.is_finished(), "the span should go");
                thread::yield_now();
            }
            for _ in 0..1000 {
                assert!(lists.all.contains(&0));
                assert!(cache.table.get(core.id, 0).is_some(), "listed, and gone");
                thread::yield_now();
            }
            drop(lists);
            assert!(taker.join().expect("no panic").is_some());
        });
        assert!(cache.table.get(core.id, 0).is_none());
        assert!(core.lists.lock().all.is_empty());
    }
}
