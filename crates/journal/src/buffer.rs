//! One metadata block in memory: [`Block`], the snapshot that readers hold, and [`Buffer`], the cached block
//! behind it.
//!
//! ```text
//!                                   ┌── modify, create ──┐
//!  (absent) ──► loading ──► clean ──┘                    ▼
//!                             ▲                        dirty: in the running transaction
//!                             │                          │ seal: a snapshot goes with the transaction
//!                             └──── home ◄── pinned ◄────┘
//! ```
//!
//! Invariants:
//! - A [`Block`] never changes: a change of the buffer while a snapshot is alive goes to a copy.
//! - A buffer stays in the cache while it is dirty, loading or pinned by a transaction that is not home. A
//!   block has at most one buffer.
//! - The content of a sealed transaction has the right checksums; that of a dirty buffer may not
//!   ([`crate::parts`]).
//! - A detached buffer has left the cache; a caller that still holds it must look the block up again.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use throughline_device::AlignedBuf;
use throughline_extfmt::FsBlock;
use throughline_locks::{Condvar, Mutex, MutexGuard, Rank};

use crate::parts::Parts;

/// A stable snapshot of one block: cheap to clone, and unchanged by later modifications of the block. While
/// it is held the block is not evicted, so a later change applies to the content that was inspected, not to a
/// second read from the device.
#[derive(Clone)]
pub struct Block {
    bytes: Arc<AlignedBuf>,
    /// Keeps the buffer in the cache. `None` in the buffer itself, and in a transaction.
    _buffer: Option<Arc<Buffer>>,
}

impl Block {
    /// Wraps bytes that have no other owner.
    pub(crate) fn new(bytes: AlignedBuf) -> Self {
        Self {
            bytes: Arc::new(bytes),
            _buffer: None,
        }
    }

    /// This snapshot, made to keep `buffer` in the cache.
    pub(crate) fn of(self, buffer: Arc<Buffer>) -> Self {
        Self {
            _buffer: Some(buffer),
            ..self
        }
    }

    /// Gives the snapshot up, but keeps the block in the cache.
    pub fn into_pin(self) -> Pin {
        Pin {
            _buffer: self._buffer,
        }
    }

    /// The bytes for changing: in place if no snapshot is alive, else in a copy that replaces them.
    pub(crate) fn make_mut(&mut self) -> &mut [u8] {
        if Arc::get_mut(&mut self.bytes).is_none() {
            let mut copy = AlignedBuf::zeroed(self.bytes.len(), self.bytes.align_bytes());
            copy.copy_from_slice(&self.bytes);
            self.bytes = Arc::new(copy);
        }
        match Arc::get_mut(&mut self.bytes) {
            Some(bytes) => bytes,
            None => unreachable!("the copy has one owner"),
        }
    }

    /// Zeroed bytes for changing, without copying the old content.
    pub(crate) fn make_zeroed(&mut self) -> &mut [u8] {
        let (len, align_bytes) = (self.bytes.len(), self.bytes.align_bytes());
        match Arc::get_mut(&mut self.bytes) {
            Some(bytes) => bytes.fill(0),
            None => self.bytes = Arc::new(AlignedBuf::zeroed(len, align_bytes)),
        }
        self.make_mut()
    }
}

/// Keeps a block in the cache without a snapshot of it: what was inspected is what a change applies to, and
/// the change needs no copy.
#[must_use]
#[derive(Debug)]
pub struct Pin {
    _buffer: Option<Arc<Buffer>>,
}

impl Deref for Block {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes)", self.len())
    }
}

/// A cached block.
pub(crate) struct Buffer {
    /// The block number.
    pub(crate) block: FsBlock,
    /// Set by every use, cleared by the eviction clock.
    pub(crate) referenced: AtomicBool,
    state: Mutex<State>,
    /// Notified when a load of this block ends.
    load_ended: Condvar,
}

/// The state of a block, protected by the buffer's lock.
#[derive(Default)]
pub(crate) struct State {
    /// The content; `None` before the first load and after a failed one.
    pub(crate) content: Option<Block>,
    /// A thread is reading it from the device.
    pub(crate) loading: bool,
    /// The running transaction has changed the content.
    pub(crate) dirty: bool,
    /// It was created in the running transaction, so no block at home refers to it yet.
    pub(crate) fresh: bool,
    /// The content has passed its check, or was created in memory.
    pub(crate) verified: bool,
    /// The buffer left the cache.
    pub(crate) detached: bool,
    /// Its parts with checksums of their own, from their first use.
    pub(crate) parts: Option<Box<Parts>>,
}

impl State {
    /// The content of a loaded buffer. Content is never removed, even when the buffer is detached.
    pub(crate) fn loaded_content(&mut self) -> &mut Block {
        match &mut self.content {
            Some(content) => content,
            None => unreachable!("a loaded buffer has content"),
        }
    }

    /// The content with its checksums, for a transaction.
    pub(crate) fn seal(&mut self) -> Block {
        let parts = self.parts.as_mut().filter(|parts| parts.is_changed());
        if let (Some(parts), Some(content)) = (parts, &mut self.content) {
            parts.seal(content.make_mut());
        }
        self.loaded_content().clone()
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({})", self.block)
    }
}

impl Buffer {
    /// An empty buffer.
    pub(crate) fn new(block: FsBlock) -> Self {
        Self {
            block,
            referenced: AtomicBool::new(true),
            state: Mutex::ranked(Rank::Buffer, State::default()),
            load_ended: Condvar::new(),
        }
    }

    /// Marks the buffer as used. Writes the shared cache line only if the mark changes.
    pub(crate) fn touch(&self) {
        if !self.referenced.load(Ordering::Relaxed) {
            self.referenced.store(true, Ordering::Relaxed);
        }
    }

    /// Locks the state.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits for the end of a load; spurious returns are possible.
    pub(crate) fn wait(&self, state: &mut MutexGuard<'_, State>) {
        self.load_ended.wait(state);
    }

    /// Wakes all threads in [`wait`](Self::wait).
    pub(crate) fn wake_waiters(&self) {
        self.load_ended.notify_all();
    }
}
