//! The memory of a [`super::PagePool`]: chunks of 2 MiB straight from the system, in huge pages where it has them, and back
//! to it when dropped.
//!
//! Not from the allocator: that may keep for itself what is freed, and zeroes aligned memory which the system has zeroed
//! already.
//!
//! Invariant of [`Chunk`]: `base` is [`CHUNK_BYTES`] of memory at a multiple of as many, readable, writable, initialised
//! (the system's zeros to begin with), and no one else's until the chunk is dropped.

use std::ptr::NonNull;

use super::MAX_PAGES_BYTES;

/// The size of a chunk, and its alignment: a huge page.
pub(super) const CHUNK_BYTES: usize = MAX_PAGES_BYTES;

/// Memory to be carved up. It has no accessors: its owner hands out pointers into it.
#[derive(Debug)]
pub(super) struct Chunk {
    base: NonNull<u8>,
}

// SAFETY: it owns its memory, as a `Box<[u8]>` does.
unsafe impl Send for Chunk {}
// SAFETY: it gives no access to its memory, only the address.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// The first byte. Pointers made from it are good until the chunk is dropped.
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
        /// A chunk of zeros.
        ///
        /// # Errors
        /// When the system has no more memory, or no more mappings, for us.
        pub(in super::super) fn new() -> io::Result<Chunk> {
            let mut begin = map(CHUNK_BYTES)?;
            if !begin.addr().is_multiple_of(CHUNK_BYTES) {
                // SAFETY: the mapping just made, and nobody knows of it.
                unsafe { munmap(begin, CHUNK_BYTES)? };
                begin = map_aligned()?;
            }
            // Hints: where they are refused, small pages, or pages when they are touched first, do as well.
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
        // SAFETY: a new mapping at a place of the system's choice touches no other memory.
        unsafe { mmap_anonymous(ptr::null_mut(), len, access, MapFlags::PRIVATE) }
    }

    /// Twice as much, and back with what lies outside of the aligned chunk in it.
    fn map_aligned() -> rustix::io::Result<*mut c_void> {
        let begin = map(2 * CHUNK_BYTES)?;
        let head = begin.addr().next_multiple_of(CHUNK_BYTES) - begin.addr();
        let chunk = begin.wrapping_byte_add(head);
        if head > 0 {
            // SAFETY: the part of the mapping just made before the chunk.
            unsafe { munmap(begin, head)? };
        }
        if head < CHUNK_BYTES {
            // SAFETY: the part of the mapping just made behind the chunk.
            unsafe { munmap(chunk.wrapping_byte_add(CHUNK_BYTES), CHUNK_BYTES - head)? };
        }
        Ok(chunk)
    }

    impl Drop for Chunk {
        fn drop(&mut self) {
            // SAFETY: mapped in `new`, ours alone, and not used after its owner let go of it.
            let unmapped = unsafe { munmap(self.base.as_ptr().cast(), CHUNK_BYTES) };
            debug_assert!(unmapped.is_ok(), "{unmapped:?}");
        }
    }
}

/// Miri has no such mappings: the allocator's memory in their place.
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
            // SAFETY: allocated in `new` with this layout, and not used after its owner let go of it.
            unsafe { dealloc(self.base.as_ptr(), layout()) }
        }
    }
}
