//! Memory for a page cache: power-of-two pieces of huge pages, handed out and recycled under a budget.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::AlignedBuf;

/// The smallest piece, in bytes.
pub const MIN_PAGES_BYTES: usize = 4 << 10;
/// The largest piece, in bytes.
pub const MAX_PAGES_BYTES: usize = 2 << 20;

/// Hands out [`Pages`], no more bytes at a time than its budget. Cheap to clone and shared.
#[derive(Clone, Debug)]
pub struct PagePool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    max_bytes: AtomicU64,
    used_bytes: AtomicU64,
}

impl PagePool {
    /// A pool that hands out at most `max_bytes` at a time.
    pub fn new(max_bytes: u64) -> PagePool {
        PagePool {
            inner: Arc::new(Inner {
                max_bytes: AtomicU64::new(max_bytes),
                used_bytes: AtomicU64::new(0),
            }),
        }
    }

    /// `bytes` of memory, a power of two from [`MIN_PAGES_BYTES`] to [`MAX_PAGES_BYTES`], aligned to their size; `None`
    /// where the budget has no room for them. **Their content is what their last user left.**
    ///
    /// # Panics
    /// If `bytes` is not such a power of two: our own bug.
    pub fn take(&self, bytes: usize) -> Option<Pages> {
        assert!(bytes.is_power_of_two() && (MIN_PAGES_BYTES..=MAX_PAGES_BYTES).contains(&bytes));
        let max = self.inner.max_bytes.load(Ordering::Relaxed);
        let add = |used: u64| used.checked_add(bytes as u64).filter(|sum| *sum <= max);
        self.inner
            .used_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .ok()?;
        Some(Pages {
            buf: AlignedBuf::zeroed(bytes, bytes),
            pool: Arc::clone(&self.inner),
        })
    }

    /// The budget in bytes.
    pub fn max_bytes(&self) -> u64 {
        self.inner.max_bytes.load(Ordering::Relaxed)
    }

    /// Changes the budget. What is handed out stays so; nothing new is until it fits again.
    pub fn set_max_bytes(&self, bytes: u64) {
        self.inner.max_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Bytes handed out at the moment.
    pub fn used_bytes(&self) -> u64 {
        self.inner.used_bytes.load(Ordering::Relaxed)
    }
}

/// Memory from a [`PagePool`], back to it when dropped. Dereferences to `[u8]`. In an [`Arc`] it is shared with the
/// device while that writes it, and free to be changed again ([`Arc::get_mut`]) when that is done.
#[derive(Debug)]
pub struct Pages {
    buf: AlignedBuf,
    pool: Arc<Inner>,
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buf
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buf
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.pool
            .used_bytes
            .fetch_sub(self.buf.len() as u64, Ordering::Relaxed);
    }
}
