//! Memory between the library and the objects of Python.
//!
//! Python's memory may be changed by other threads of Python whenever the interpreter's lock is not held,
//! and Rust must not have a reference to it then. So data is read into memory of ours without the lock, and
//! copied with it. The copy is of memory that is still in the processor's cache.
//!
//! Invariant: a thread has at most one scratch buffer, of at most [`MAX_BYTES`], and uses it again.

use std::cell::RefCell;

use throughline::AlignedBuf;

/// The most that is copied at once: it fits the second-level cache of a processor.
pub(crate) const MAX_BYTES: usize = 256 << 10;
/// A direct read or write of aligned memory needs no other copy.
const ALIGN_BYTES: usize = 4096;

thread_local! {
    static SCRATCH: RefCell<Option<AlignedBuf>> = const { RefCell::new(None) };
}

/// Calls with the buffer of this thread, of at least `len_bytes` or of [`MAX_BYTES`].
pub(crate) fn with<R>(len_bytes: usize, call: impl FnOnce(&mut [u8]) -> R) -> R {
    let wanted = len_bytes.clamp(1, MAX_BYTES).next_multiple_of(ALIGN_BYTES);
    // Taken out: a call of Python may use the buffer of this thread, too.
    let kept = SCRATCH.take().filter(|kept| kept.len() >= wanted);
    let mut buffer = kept.unwrap_or_else(|| AlignedBuf::zeroed(wanted, ALIGN_BYTES));
    let result = call(&mut buffer[..len_bytes]);
    SCRATCH.set(Some(buffer));
    result
}
