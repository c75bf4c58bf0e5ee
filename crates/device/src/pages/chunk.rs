//! The memory of a [`super::PagePool`]: chunks of 2 MiB mapped directly from the system, in huge pages if
//! available, and unmapped when dropped.
//!
//! The allocator is not used: it may retain freed memory, and it zeroes aligned memory that the system has
//! already zeroed.
//!
//! Invariant of [`Chunk`]: `base` points to [`CHUNK_BYTES`] of memory, aligned to its size, readable,
//! writable and initialised (by the system, with zeros), and owned by the chunk alone until it is dropped.

use std::ptr::NonNull;

use super::MAX_PAGES_BYTES;

/// The size and alignment of a chunk, in bytes: a huge page.
pub(super) const CHUNK_BYTES: usize = MAX_PAGES_BYTES;

/// Memory to be split up. It has no accessors: its owner hands out pointers into it.
#[derive(Debug)]
pub(super) struct Chunk {
    base: NonNull<u8>,
}

// SAFETY: it owns its memory, like a `Box<[u8]>`.
unsafe impl Send for Chunk {}
// SAFETY: it gives no access to its memory, only its address.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// The first byte. Pointers derived from it are valid until the chunk is dropped.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

#[cfg(not(miri))]
mod system {
    use std::ffi::c_void;
    use std::io;
    use std::ptr::{self, NonNull};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::{CHUNK_BYTES, Chunk};

    impl Chunk {
        /// Maps a chunk of zeros.
        ///
        /// # Errors
        /// If the system refuses more memory or more mappings.
        pub(in super::super) fn new() -> io::Result<Chunk> {
            let mut begin = map(CHUNK_BYTES)?;
            if !begin.addr().is_multiple_of(CHUNK_BYTES) {
                // SAFETY: the mapping was just made and is not referenced.
                unsafe { munmap(begin, CHUNK_BYTES)? };
                begin = map_aligned()?;
            }
            // Hints: if they are refused, pages are small, or are allocated when first touched.
            // SAFETY: our own mapping; the advice changes neither content nor access.
            let _ = unsafe { madvise(begin, CHUNK_BYTES, Advice::LinuxHugepage) };
            // SAFETY: as above.
            let _ = unsafe { madvise(begin, CHUNK_BYTES, Advice::LinuxPopulateWrite) };
            let base = NonNull::new(begin.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
            Ok(Chunk { base })
        }
    }

    fn map(len: usize) -> rustix::io::Result<*mut c_void> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address chosen by the system affects no other memory.
        unsafe { mmap_anonymous(ptr::null_mut(), len, access, MapFlags::PRIVATE) }
    }

    /// Maps twice the size, and unmaps what lies outside the aligned chunk in it.
    fn map_aligned() -> rustix::io::Result<*mut c_void> {
        let begin = map(2 * CHUNK_BYTES)?;
        let head = begin.addr().next_multiple_of(CHUNK_BYTES) - begin.addr();
        let chunk = begin.wrapping_byte_add(head);
        if head > 0 {
            // SAFETY: the part of the mapping just made before the chunk.
            unsafe { munmap(begin, head)? };
        }
        if head < CHUNK_BYTES {
            // SAFETY: the part of the mapping just made after the chunk.
            unsafe { munmap(chunk.wrapping_byte_add(CHUNK_BYTES), CHUNK_BYTES - head)? };
        }
        Ok(chunk)
    }

    impl Drop for Chunk {
        fn drop(&mut self) {
            // SAFETY: mapped in `new`, owned by `self`, and not used after the drop.
            let unmapped = unsafe { munmap(self.base.as_ptr().cast(), CHUNK_BYTES) };
            debug_assert!(unmapped.is_ok(), "{unmapped:?}");
        }
    }
}

/// Miri does not support these mappings: use the allocator's memory instead.
#[cfg(miri)]
mod allocated {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::io;
    use std::ptr::NonNull;

    use super::{CHUNK_BYTES, Chunk};

    fn layout() -> Layout {
        Layout::from_size_align(CHUNK_BYTES, CHUNK_BYTES).expect("a power of two")
    }

    impl Chunk {
        pub(in super::super) fn new() -> io::Result<Chunk> {
            // SAFETY: the layout's size is not zero.
            let base = NonNull::new(unsafe { alloc_zeroed(layout()) });
            Ok(Chunk {
                base: base.ok_or(io::ErrorKind::OutOfMemory)?,
            })
        }
    }

    impl Drop for Chunk {
        fn drop(&mut self) {
            // SAFETY: allocated in `new` with this layout, and not used after the drop.
            unsafe { dealloc(self.base.as_ptr(), layout()) }
        }
    }
}
