//! Memory for a page cache: power-of-two pieces of huge pages, handed out and recycled under a budget.
//!
//! ```text
//!  PagePool::take ─► Buddy: which pages of which chunk ─► Pages: a pointer into the Chunk, back when dropped
//! ```
//!
//! Invariants:
//! - A block is handed out once: [`Buddy`] gives it again only after the [`Pages`] that held it was dropped. So a `Pages` is
//!   the only holder of its bytes.
//! - A chunk lives in the pool from [`Chunk::new`] until all its blocks are free, and a `Pages` keeps the pool alive. So
//!   the memory of a `Pages` is valid while it exists. All of it is initialised, since the chunk was, and stays so.
//! - What is handed out is never more than the budget, and chunks are never made beyond the budget rounded up to whole chunks
//!   and [`SPARE_CHUNKS`]. The spare ones give room to fragments; when there is none, a large piece is refused although
//!   its bytes would fit.
//! - Chunks are kept for the next taker: a system that has to find, zero and map a fresh page takes longer than it takes to
//!   fill it. They go back when the budget shrinks, a chunk that is in use as soon as it is not, and with the pool.
//! - No call to the system is made with the pool locked.

mod buddy;
mod chunk;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use buddy::{Block, Buddy};
use chunk::{CHUNK_BYTES, Chunk};

/// The smallest piece, in bytes.
pub const MIN_PAGES_BYTES: usize = 4 << 10;
/// The largest piece, in bytes.
pub const MAX_PAGES_BYTES: usize = 2 << 20;

/// Chunks beyond those that the budget fills.
const SPARE_CHUNKS: u64 = 2;

/// Hands out [`Pages`], no more bytes at a time than its budget. Cheap to clone and shared.
#[derive(Clone, Debug)]
pub struct PagePool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    /// Held while a chunk is made, so that all who need one do not each make one.
    growing: Mutex<()>,
    /// Copies of the state's, to be read without the lock.
    max_bytes: AtomicU64,
    used_bytes: AtomicU64,
}

#[derive(Debug)]
struct State {
    buddy: Buddy,
    /// By the buddy's numbers.
    chunks: Vec<Option<Chunk>>,
    max_bytes: u64,
    used_bytes: u64,
}

/// What came of an attempt to take.
enum Taken {
    Piece(Block, NonNull<u8>),
    /// Not without another chunk, which may be made.
    NeedsChunk,
    Nothing,
}

impl PagePool {
    /// A pool that hands out at most `max_bytes` at a time.
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
                growing: Mutex::new(()),
                max_bytes: AtomicU64::new(max_bytes),
                used_bytes: AtomicU64::new(0),
            }),
        }
    }

    /// `bytes` of memory, a power of two from [`MIN_PAGES_BYTES`] to [`MAX_PAGES_BYTES`], aligned to their size; `None`
    /// where the budget has no room for them, or room in smaller pieces only, or the system has no memory. **Their content is what their
    /// last user left.**
    ///
    /// # Panics
    /// If `bytes` is not such a power of two: our own bug.
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

    /// Changes the budget. What is handed out stays so; nothing new is until it fits again. Memory beyond the new budget
    /// that is not handed out goes back to the system, at once where a whole chunk is free, else when it becomes free.
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

    /// Bytes handed out at the moment.
    pub fn used_bytes(&self) -> u64 {
        self.inner.used_bytes.load(Ordering::Relaxed)
    }

    /// Bytes had from the system at the moment, handed out or kept for re-use.
    pub fn held_bytes(&self) -> u64 {
        self.inner.state.lock().buddy.chunks() as u64 * CHUNK_BYTES as u64
    }

    #[cold]
    fn take_from_new_chunk(&self, bytes: usize) -> Option<Pages> {
        let _growing = self.inner.growing.lock();
        loop {
            // Another may have made a chunk, or given something back, meanwhile.
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
        let base = chunk.expect("the buddy knows the chunks there are").base();
        // SAFETY: the block is inside the chunk: it has `first_page` smaller than the chunk's pages.
        let memory = unsafe { base.add(block.first_page as usize * MIN_PAGES_BYTES) };
        Taken::Piece(block, memory)
    }

    /// Takes back a block whose `Pages` is being dropped.
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

    /// Adds a chunk, or gives it back where the budget has shrunk while it was made.
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

    /// Takes away a free chunk that is beyond the budget.
    fn remove_surplus(&mut self) -> Option<Chunk> {
        if self.buddy.chunks() as u64 <= self.most_chunks() {
            return None;
        }
        let number = self.buddy.remove_free_chunk()?;
        self.chunks[number as usize].take()
    }
}

/// Of a block of `bytes`, a power of two.
fn order(bytes: usize) -> usize {
    (bytes / MIN_PAGES_BYTES).trailing_zeros() as usize
}

/// Memory from a [`PagePool`], back to it when dropped. Dereferences to `[u8]`. In an [`Arc`] it is shared with the
/// device while that writes it, and free to be changed again ([`Arc::get_mut`]) when that is done.
pub struct Pages {
    memory: NonNull<u8>,
    len: usize,
    block: Block,
    pool: Arc<Inner>,
}

// SAFETY: it is the only holder of its bytes (module head), as a `Box<[u8]>` is.
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
