//! Owned memory aligned for direct I/O, and a pool that recycles it.
//!
//! Invariant of [`AlignedBuf`]: `ptr` is an allocation of `layout`, fully initialised and owned by the value
//! alone. A zero-sized one owns nothing and has a dangling, aligned pointer.

use std::alloc::{self, Layout};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use throughline_locks::Mutex;

/// Memory of at least this size is aligned to it and requested in huge pages: for direct I/O the kernel pins
/// and maps a 2 MiB page in one step, but small pages in 512.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Memory with a chosen alignment, zeroed at creation. Dereferences to `[u8]`.
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its bytes, like a `Box<[u8]>`.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Allocates `len_bytes` zeros, aligned to `align_bytes`.
    ///
    /// # Panics
    /// If `align_bytes` is not a power of two or the size overflows `isize`. Aborts if memory is exhausted,
    /// like all Rust allocations.
    pub fn zeroed(len_bytes: usize, align_bytes: usize) -> AlignedBuf {
        let layout = Layout::from_size_align(len_bytes, align_bytes)
            .expect("a power of two and a valid size");
        if len_bytes == 0 {
            let ptr = NonNull::new(std::ptr::without_provenance_mut(align_bytes))
                .expect("a power of two is not 0");
            return AlignedBuf { ptr, layout };
        }
        if len_bytes >= HUGE_PAGE_BYTES {
            return AlignedBuf::zeroed_huge(layout);
        }
        // SAFETY: the layout's size is not zero.
        let raw = unsafe { alloc::alloc_zeroed(layout) };
        let Some(ptr) = NonNull::new(raw) else {
            alloc::handle_alloc_error(layout)
        };
        AlignedBuf { ptr, layout }
    }

    fn zeroed_huge(asked: Layout) -> AlignedBuf {
        let layout = asked
            .align_to(HUGE_PAGE_BYTES)
            .expect("a power of two and a valid size");
        // SAFETY: the layout's size is at least a huge page, so not zero.
        let raw = unsafe { alloc::alloc(layout) };
        let Some(ptr) = NonNull::new(raw) else {
            alloc::handle_alloc_error(layout)
        };
        #[cfg(not(miri))]
        {
            let whole_pages = layout.size() - layout.size() % HUGE_PAGE_BYTES;
            // A hint: if it is refused, small pages are used.
            // SAFETY: whole pages of the allocation just made; the advice changes neither content nor access.
            let _ = unsafe {
                rustix::mm::madvise(raw.cast(), whole_pages, rustix::mm::Advice::LinuxHugepage)
            };
        }
        // SAFETY: the allocation is writable and has the layout's size.
        unsafe { ptr.as_ptr().write_bytes(0, layout.size()) };
        AlignedBuf { ptr, layout }
    }

    /// The alignment in bytes: the requested one, or more for large memory.
    pub fn align_bytes(&self) -> usize {
        self.layout.align()
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: initialised and owned (module head).
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: initialised and owned (module head), borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.ptr.as_ptr(), self.layout.size()) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.layout.size() != 0 {
            // SAFETY: allocated in `zeroed` with this layout, and not freed before.
            unsafe { alloc::dealloc(self.ptr.as_ptr(), self.layout) }
        }
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "AlignedBuf({} bytes, aligned to {})",
            self.layout.size(),
            self.layout.align()
        )
    }
}

/// A pool that recycles buffers of one size, because a fresh one costs page faults. Cheap to clone; clones
/// share the pool.
#[derive(Clone, Debug)]
pub struct AlignedPool {
    inner: Arc<PoolInner>,
}

#[derive(Debug)]
struct PoolInner {
    buffer_bytes: usize,
    align_bytes: usize,
    max_idle: usize,
    idle: Mutex<Vec<AlignedBuf>>,
}

impl AlignedPool {
    /// A pool of buffers of `buffer_bytes` that keeps at most `max_idle` unused ones.
    ///
    /// # Panics
    /// If `align_bytes` is not a power of two: a bug in the caller.
    pub fn new(buffer_bytes: usize, align_bytes: usize, max_idle: usize) -> AlignedPool {
        assert!(align_bytes.is_power_of_two());
        let idle = Mutex::new(Vec::with_capacity(max_idle.min(64)));
        AlignedPool {
            inner: Arc::new(PoolInner {
                buffer_bytes,
                align_bytes,
                max_idle,
                idle,
            }),
        }
    }

    /// The size of each buffer, in bytes.
    pub fn buffer_bytes(&self) -> usize {
        self.inner.buffer_bytes
    }

    /// A buffer, which returns to the pool when dropped. **Its content is what its last user left.**
    pub fn take(&self) -> PooledBuf {
        let recycled = self.inner.idle.lock().pop();
        let buf = recycled
            .unwrap_or_else(|| AlignedBuf::zeroed(self.inner.buffer_bytes, self.inner.align_bytes));
        PooledBuf {
            buf: Some(buf),
            pool: Arc::clone(&self.inner),
        }
    }
}

/// A buffer from an [`AlignedPool`], to which it returns when dropped. Dereferences to `[u8]`.
#[derive(Debug)]
pub struct PooledBuf {
    /// `Some` until dropped.
    buf: Option<AlignedBuf>,
    pool: Arc<PoolInner>,
}

impl Deref for PooledBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buf.as_deref().expect("present until dropped")
    }
}

impl DerefMut for PooledBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.buf.as_deref_mut().expect("present until dropped")
    }
}

impl Drop for PooledBuf {
    fn drop(&mut self) {
        let buf = self.buf.take();
        let mut idle = self.pool.idle.lock();
        if idle.len() < self.pool.max_idle {
            idle.extend(buf);
        }
    }
}
