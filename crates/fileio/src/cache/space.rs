//! [`AddressSpace`]: the cached bytes of one file.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::cache::PageCache;
use crate::cache::activity::{self, Activity, Running};
use crate::cache::folio::MIN_FOLIO_BYTES;
use crate::cache::runs::Runs;
use crate::cache::span::{Span, SpanState, number_of};
use crate::cache::stream::{Run, WriteStream};
use crate::writeback::FileState;

/// What is cached of one file. It lives in the file's object in memory and holds no reference to it.
pub struct AddressSpace {
    pub(crate) cache: Arc<PageCache>,
    pub(crate) core: Arc<Core>,
    pub(crate) activity: Activity,
    pub(crate) runs: Runs,
    pub(crate) stream: WriteStream,
    pub(crate) fills: Run,
    /// The flusher's own.
    pub(crate) flushing: FileState,
}

/// The part of an [`AddressSpace`] that its spans hold on to.
pub(crate) struct Core {
    pub(crate) id: u64,
    pub(crate) block_shift: u32,
    size: AtomicU64,
    cached_bytes: AtomicU64,
    dirty_bytes: AtomicU64,
    lists: Mutex<Lists>,
}

/// Numbers of spans, each of which is in the table.
#[derive(Default)]
struct Lists {
    all: BTreeSet<u64>,
    /// Those with dirty blocks.
    dirty: BTreeSet<u64>,
}

impl AddressSpace {
    /// For a file of `size` bytes whose allocation unit is `block_bytes`: a power of two, 512 to 64 KiB (another is taken
    /// for the next such). What is dirty and what is up to date is kept in blocks of that.
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
            stream: WriteStream::default(),
            fills: Run::default(),
            flushing: FileState::default(),
        }
    }

    /// The cache it is part of.
    pub fn cache(&self) -> &Arc<PageCache> {
        &self.cache
    }

    /// Granularity in bytes of what is dirty and what is up to date.
    pub fn block_bytes(&self) -> u32 {
        1 << self.core.block_shift
    }

    /// The file's size in bytes as every reader sees it: at least what is committed.
    pub fn size(&self) -> u64 {
        self.core.size.load(Ordering::Acquire)
    }

    /// The size changed otherwise than by a buffered write: a truncation, a direct write. Under the file's lock, exclusively.
    pub fn set_size(&self, bytes: u64) {
        self.core.size.store(bytes, Ordering::Release);
    }

    /// Bytes of memory that hold something of this file.
    pub fn cached_bytes(&self) -> u64 {
        self.core.cached_bytes.load(Ordering::Relaxed)
    }

    /// Bytes dirty or under write-back; those that are both, with different content, count twice.
    pub fn dirty_bytes(&self) -> u64 {
        self.core.dirty_bytes.load(Ordering::SeqCst)
    }

    /// Whether any byte of the range is dirty or under write-back.
    pub fn is_dirty(&self, range: Range<u64>) -> bool {
        if self.dirty_bytes() == 0 {
            return false;
        }
        loop {
            let failed = self.runs.failed();
            // Dirty ones first: what is taken from there is among the runs before it is no longer dirty.
            if self.has_dirty(&range) || self.runs.overlap(&range) {
                return true;
            }
            // A run that failed between the two is in neither, and dirty again.
            if self.runs.failed() == failed {
                return false;
            }
        }
    }

    /// Whether anything at all is cached. Cheap: one load.
    pub fn is_empty(&self) -> bool {
        self.cached_bytes() == 0
    }

    /// Keeps write-back and readahead out of the file, when those that run have ended. The file's lock is held exclusively.
    pub fn freeze(&self) -> Frozen<'_> {
        Frozen {
            frozen: Some(self.activity.freeze()),
            cache: &self.cache,
        }
    }

    /// Enters background work on the file; `None` while it is frozen or somebody is alone on it: come again.
    pub(crate) fn begin_background(&self) -> Option<Running> {
        self.activity.begin()
    }

    /// Enters the file in the flusher's place; `None` while it is frozen, or anything is under write-back or read ahead.
    pub(crate) fn begin_alone(&self) -> Option<Alone<'_>> {
        Some(Alone {
            alone: Some(self.activity.begin_alone()?),
            cache: &self.cache,
        })
    }

    /// Whether a write-back of the file has ever failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.runs.failed() > 0
    }

    /// The numbers of the spans with something cached that `range` touches, ascending.
    pub(crate) fn spans(&self, range: &Range<u64>) -> Vec<u64> {
        if range.is_empty() {
            return Vec::new();
        }
        let lists = self.core.lists.lock();
        let touched = number_of(range.start)..=number_of(range.end - 1);
        lists.all.range(touched).copied().collect()
    }

    /// Calls `f` with the state of the span, made where there is none. `f` puts a folio in, or there was one.
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

    /// Calls `f` with the state of the span, if there is one.
    pub(crate) fn with_present<R>(
        &self,
        number: u64,
        f: impl FnOnce(&Arc<Span>, &mut SpanState) -> R,
    ) -> Option<R> {
        let span = self.cache.table.get(self.core.id, number)?;
        let mut state = span.state.write();
        (!state.gone).then(|| f(&span, &mut state))
    }

    /// The first span at or behind `number` with dirty blocks.
    pub(crate) fn next_dirty_span(&self, number: u64) -> Option<u64> {
        self.core.lists.lock().dirty.range(number..).next().copied()
    }

    /// The least folio of this file, in bytes.
    pub(crate) fn least_folio_bytes(&self) -> u64 {
        MIN_FOLIO_BYTES.max(u64::from(self.block_bytes()))
    }

    /// `range` made longer to whole blocks.
    pub(crate) fn whole_blocks(&self, range: &Range<u64>) -> Range<u64> {
        let block = u64::from(self.block_bytes());
        let end = range.end.checked_next_multiple_of(block);
        range.start - range.start % block..end.unwrap_or(u64::MAX - (block - 1))
    }
}

impl Core {
    /// The file is at least `bytes` long. With the span locked that has what makes it so.
    pub(crate) fn grow_to(&self, bytes: u64) {
        self.size.fetch_max(bytes, Ordering::AcqRel);
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// A folio was put in.
    pub(crate) fn cached(&self, span: u64, bytes: u64) {
        self.cached_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.lists.lock().all.insert(span);
    }

    pub(crate) fn uncached(&self, bytes: u64) {
        self.cached_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A span goes. With it locked, and still in the table: the next one of its number lists itself.
    pub(crate) fn forget_span(&self, span: u64) {
        let mut lists = self.lists.lock();
        remove(&mut lists.all, span);
        remove(&mut lists.dirty, span);
    }

    /// Bytes became dirty, or are dirty beside older ones under write-back.
    pub(crate) fn dirtied(&self, bytes: u64) {
        self.dirty_bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    pub(crate) fn undirtied(&self, bytes: u64) {
        self.dirty_bytes.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// A span has dirty blocks now, or none any more. With it locked.
    pub(crate) fn list_dirty(&self, span: u64, is_dirty: bool) {
        let mut lists = self.lists.lock();
        match is_dirty {
            true => _ = lists.dirty.insert(span),
            false => remove(&mut lists.dirty, span),
        }
    }
}

/// Takes a number out. A set that has become empty keeps no memory: there are as many as files are open.
fn remove(set: &mut BTreeSet<u64>, number: u64) {
    set.remove(&number);
    if set.is_empty() {
        *set = BTreeSet::new();
    }
}

/// No background work runs on the file, nor begins, until this is dropped.
#[must_use = "the file thaws when this is dropped"]
pub struct Frozen<'a> {
    frozen: Option<activity::Frozen<'a>>,
    cache: &'a PageCache,
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.frozen = None;
        // The flusher has passed over the file.
        self.cache.writeback.thawed();
    }
}

/// The only write-back of the file, until this is dropped.
#[must_use = "others may work on the file again when this is dropped"]
pub(crate) struct Alone<'a> {
    alone: Option<activity::Alone<'a>>,
    cache: &'a PageCache,
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.alone = None;
        // The flusher has passed over the file.
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

    /// A span that goes is struck off the lists while it is in the table. Later, the next one of its number might be
    /// struck off in its place: what is dirty in that would never be written.
    #[test]
    fn what_is_listed_is_in_the_table() {
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
            // It has the span, and will wait for the lists.
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
