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
//! - A [`Block`] never changes: whoever changes the buffer while a snapshot is alive changes a copy.
//! - A buffer that is dirty, loading or pinned by a transaction that is not home stays in the cache; for one block
//!   there is one buffer.
//! - A detached buffer has left the cache; whoever still finds it looks the block up again.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard};
use throughline_device::AlignedBuf;
use throughline_extfmt::FsBlock;

/// A stable snapshot of one block: cheap to clone, and unchanged by later modifications of the block. While it lives the block is not
/// evicted: who has looked at it changes what was looked at, not what the device says a second time.
#[derive(Clone)]
pub struct Block {
    bytes: Arc<AlignedBuf>,
    /// `None` in the buffer itself, and in a transaction.
    _buffer: Option<Arc<Buffer>>,
}

impl Block {
    /// Wraps bytes that nobody else holds.
    pub(crate) fn new(bytes: AlignedBuf) -> Self {
        Self {
            bytes: Arc::new(bytes),
            _buffer: None,
        }
    }

    /// The snapshot, which keeps `buffer` in the cache.
    pub(crate) fn of(self, buffer: Arc<Buffer>) -> Self {
        Self {
            _buffer: Some(buffer),
            ..self
        }
    }

    /// The bytes for changing: in place where no snapshot is alive, else those of a copy that takes its place.
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

    /// All zeroes for changing, without copying what was there.
    pub(crate) fn make_zeroed(&mut self) -> &mut [u8] {
        let (len, align_bytes) = (self.bytes.len(), self.bytes.align_bytes());
        match Arc::get_mut(&mut self.bytes) {
            Some(bytes) => bytes.fill(0),
            None => self.bytes = Arc::new(AlignedBuf::zeroed(len, align_bytes)),
        }
        self.make_mut()
    }
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
    /// Which block it is.
    pub(crate) block: FsBlock,
    /// Set by every use, cleared by the clock that evicts.
    pub(crate) referenced: AtomicBool,
    state: Mutex<State>,
    /// Told when a load of this block ends.
    settled: Condvar,
}

/// What is known about the block; changed under the buffer's lock.
#[derive(Default)]
pub(crate) struct State {
    /// The content; `None` before the first load and after a failed one.
    pub(crate) content: Option<Block>,
    /// Somebody reads it from the device right now.
    pub(crate) loading: bool,
    /// The running transaction has changed the content.
    pub(crate) dirty: bool,
    /// It was made in the running transaction, so nothing that is home refers to it yet.
    pub(crate) fresh: bool,
    /// The content passed its check, or was made by us.
    pub(crate) verified: bool,
    /// The buffer left the cache.
    pub(crate) detached: bool,
}

impl State {
    /// The content of a buffer that was loaded: it stays, whatever happens to the buffer.
    pub(crate) fn loaded_content(&mut self) -> &mut Block {
        match &mut self.content {
            Some(content) => content,
            None => unreachable!("a loaded buffer has content"),
        }
    }
}

impl Buffer {
    /// An empty buffer.
    pub(crate) fn new(block: FsBlock) -> Self {
        Self {
            block,
            referenced: AtomicBool::new(true),
            state: Mutex::new(State::default()),
            settled: Condvar::new(),
        }
    }

    /// Remembers a use, writing the shared line only when it changes.
    pub(crate) fn touch(&self) {
        if !self.referenced.load(Ordering::Relaxed) {
            self.referenced.store(true, Ordering::Relaxed);
        }
    }

    /// The state, now.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits for the end of a load; spurious returns are possible.
    pub(crate) fn wait(&self, state: &mut MutexGuard<'_, State>) {
        self.settled.wait(state);
    }

    /// Wakes those who [`wait`](Self::wait).
    pub(crate) fn settle(&self) {
        self.settled.notify_all();
    }
}
