//! Memory for a page cache: power-of-two pieces of huge pages, allocated and recycled within a budget.
//!
//! ```text
//!  PagePool::take ─► Buddy: pages of a chunk ─► Pages: a pointer into the Chunk, returned when dropped
//! ```
//!
//! Invariants:
//! - A block has one owner: [`Buddy`] allocates it again only after the [`Pages`] that held it was dropped.
//!   So a `Pages` is the only holder of its bytes.
//! - A chunk stays in the pool from [`Chunk::new`] until all its blocks are free, and a `Pages` keeps the
//!   pool alive. So the memory of a `Pages` is valid while it exists. It is initialised, because the chunk
//!   is.
//! - Allocated bytes never exceed a constant budget, and no chunk is added beyond the budget rounded up to
//!   whole chunks plus [`SPARE_CHUNKS`]. The spare chunks compensate for fragmentation; beyond that, a large
//!   piece is refused although its bytes would fit.
//! - Chunks are kept for reuse, because finding, zeroing and mapping a fresh page takes longer than filling
//!   it. They are unmapped with the pool, and when the budget shrinks: a chunk in use as soon as it becomes
//!   free.
//! - No system call is made with the pool locked.

mod buddy;
mod chunk;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use throughline_locks::{Mutex, Rank};

use buddy::{Block, Buddy};
use chunk::{CHUNK_BYTES, Chunk};

/// The smallest piece, in bytes.
pub const MIN_PAGES_BYTES: usize = 4 << 10;
/// The largest piece, in bytes.
pub const MAX_PAGES_BYTES: usize = 2 << 20;

/// Chunks allowed in addition to those that the budget fills.
const SPARE_CHUNKS: u64 = 2;

/// Allocates [`Pages`] within a budget. Cheap to clone; clones share the pool.
#[derive(Clone, Debug)]
pub struct PagePool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    /// Held while a chunk is mapped, so that concurrent callers do not map one each.
    growing: Mutex<()>,
    /// Copies of the values in `state`, readable without the lock.
    max_bytes: AtomicU64,
    used_bytes: AtomicU64,
}

#[derive(Debug)]
struct State {
    buddy: Buddy,
    /// Indexed by the buddy allocator's chunk numbers.
    chunks: Vec<Option<Chunk>>,
    max_bytes: u64,
    used_bytes: u64,
}

/// The result of an attempt to allocate.
enum Taken {
    Piece(Block, NonNull<u8>),
    /// Needs another chunk, which may be added.
    NeedsChunk,
    Nothing,
}

impl PagePool {
    /// A pool with a budget of `max_bytes` allocated at the same time.
    pub fn new(max_bytes: u64) -> PagePool {
        let state = State {
            buddy: Buddy::default(),
            chunks: Vec::new(),
            max_bytes,
            used_bytes: 0,
        };
        PagePool {
            inner: Arc::new(Inner {
                state: Mutex::new(state),
                growing: Mutex::ranked(Rank::Growth, ()),
                max_bytes: AtomicU64::new(max_bytes),
                used_bytes: AtomicU64::new(0),
            }),
        }
    }

    /// Allocates `bytes` of memory, a power of two from [`MIN_PAGES_BYTES`] to [`MAX_PAGES_BYTES`], aligned
    /// to their size. `None` if the budget has no room for them, the room is too fragmented, or the system
    /// has no memory. **Their content is what their last user left.**
    ///
    /// # Panics
    /// If `bytes` is not such a power of two: a bug in the caller.
    pub fn take(&self, bytes: usize) -> Option<Pages> {
        assert!(bytes.is_power_of_two() && (MIN_PAGES_BYTES..=MAX_PAGES_BYTES).contains(&bytes));
        match self.inner.try_take(bytes) {
            Taken::Piece(block, memory) => Some(self.pages(block, memory, bytes)),
            Taken::Nothing => None,
            Taken::NeedsChunk => self.take_from_new_chunk(bytes),
        }
    }

    /// The budget in bytes.
    pub fn max_bytes(&self) -> u64 {
        self.inner.max_bytes.load(Ordering::Relaxed)
    }

    /// Changes the budget. Allocated memory stays allocated; new allocations fail until they fit. Chunks
    /// beyond the new budget are returned to the system as soon as they are wholly free.
    pub fn set_max_bytes(&self, bytes: u64) {
        let mut surplus = Vec::new();
        {
            let mut state = self.inner.state.lock();
            state.max_bytes = bytes;
            self.inner.max_bytes.store(bytes, Ordering::Relaxed);
            while let Some(chunk) = state.remove_surplus() {
                surplus.push(chunk);
            }
        }
        drop(surplus); // unlocked
    }

    /// Bytes currently allocated.
    pub fn used_bytes(&self) -> u64 {
        self.inner.used_bytes.load(Ordering::Relaxed)
    }

    /// Bytes currently mapped from the system, allocated or kept for reuse.
    pub fn held_bytes(&self) -> u64 {
        self.inner.state.lock().buddy.chunks() as u64 * CHUNK_BYTES as u64
    }

    #[cold]
    fn take_from_new_chunk(&self, bytes: usize) -> Option<Pages> {
        let _growing = self.inner.growing.lock();
        loop {
            // Another thread may have added a chunk or freed memory meanwhile.
            match self.inner.try_take(bytes) {
                Taken::Piece(block, memory) => return Some(self.pages(block, memory, bytes)),
                Taken::Nothing => return None,
                Taken::NeedsChunk => {
                    let chunk = Chunk::new().ok()?;
                    let refused = self.inner.state.lock().add(chunk);
                    drop(refused); // unlocked
                }
            }
        }
    }

    fn pages(&self, block: Block, memory: NonNull<u8>, bytes: usize) -> Pages {
        Pages {
            memory,
            len: bytes,
            block,
            pool: Arc::clone(&self.inner),
        }
    }
}

impl Inner {
    fn try_take(&self, bytes: usize) -> Taken {
        let mut state = self.state.lock();
        let fits = |sum: &u64| *sum <= state.max_bytes;
        let Some(used) = state.used_bytes.checked_add(bytes as u64).filter(fits) else {
            return Taken::Nothing;
        };
        let Some(block) = state.buddy.take(order(bytes)) else {
            return match (state.buddy.chunks() as u64) < state.most_chunks() {
                true => Taken::NeedsChunk,
                false => Taken::Nothing,
            };
        };
        state.used_bytes = used;
        self.used_bytes.store(used, Ordering::Relaxed);
        let chunk = state.chunks[block.chunk as usize].as_ref();
        let base = chunk
            .expect("the buddy allocator has only existing chunks")
            .base();
        // SAFETY: the block is inside the chunk: its `first_page` is less than the chunk's number of pages.
        let memory = unsafe { base.add(block.first_page as usize * MIN_PAGES_BYTES) };
        Taken::Piece(block, memory)
    }

    /// Frees a block whose `Pages` is being dropped.
    fn give(&self, block: Block, bytes: usize) {
        let surplus = {
            let mut state = self.state.lock();
            state.buddy.give(block, order(bytes));
            state.used_bytes -= bytes as u64;
            self.used_bytes.store(state.used_bytes, Ordering::Relaxed);
            state.remove_surplus()
        };
        drop(surplus); // unlocked
    }
}

impl State {
    fn most_chunks(&self) -> u64 {
        self.max_bytes.div_ceil(CHUNK_BYTES as u64) + SPARE_CHUNKS
    }

    /// Adds a chunk, or returns it if it exceeds the budget by now.
    fn add(&mut self, chunk: Chunk) -> Option<Chunk> {
        if self.buddy.chunks() as u64 >= self.most_chunks() {
            return Some(chunk);
        }
        let number = self.buddy.add_chunk() as usize;
        if number == self.chunks.len() {
            self.chunks.push(None);
        }
        self.chunks[number].replace(chunk)
    }

    /// Removes a free chunk that exceeds the budget.
    fn remove_surplus(&mut self) -> Option<Chunk> {
        if self.buddy.chunks() as u64 <= self.most_chunks() {
            return None;
        }
        let number = self.buddy.remove_free_chunk()?;
        self.chunks[number as usize].take()
    }
}

/// The order of a block of `bytes`, a power of two.
fn order(bytes: usize) -> usize {
    (bytes / MIN_PAGES_BYTES).trailing_zeros() as usize
}

/// Memory from a [`PagePool`], to which it returns when dropped. Dereferences to `[u8]`. In an [`Arc`] it can
/// be shared with the device while that writes it, and changed again ([`Arc::get_mut`]) when that is done.
pub struct Pages {
    memory: NonNull<u8>,
    len: usize,
    block: Block,
    pool: Arc<Inner>,
}

// SAFETY: it is the only holder of its bytes (module head), like a `Box<[u8]>`.
unsafe impl Send for Pages {}
// SAFETY: shared access only reads.
unsafe impl Sync for Pages {}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: valid and initialised while `self` exists, and held by it alone (module head).
        unsafe { slice::from_raw_parts(self.memory.as_ptr(), self.len) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.memory.as_ptr(), self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.pool.give(self.block, self.len);
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pages({} bytes)", self.len)
    }
}
