//! Reading cached data without a copy of ours, for callers whose memory is not Rust's: an interpreter's.
//!
//! Invariant: a span is locked while a piece of its memory is lent, so the bytes do not change.

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::cache::AddressSpace;
use crate::cache::folio::Folio;
use crate::cache::span::{number_of, range_of};

/// The lengths of the pieces of memory that hold the `len` bytes from `offset` on, up to the file's
/// size, in order; `None` as for [`AddressSpace::read_cached`]. They may change at any time.
pub fn cached_pieces(space: &AddressSpace, offset: u64, len: u64) -> Option<Vec<usize>> {
    let mut pieces = Vec::new();
    each_hit(space, offset, len, &mut |folio, range| {
        let memory = folio.memory.is_some();
        pieces.push(folio.place(range).len());
        memory
    })?;
    Some(pieces)
}

/// As [`AddressSpace::read_cached`], but calls with each piece of the cache's memory, in order,
/// instead of copying it. Returns the number of bytes; `None` also if a call returns `false`. A part may
/// have been lent then. **The span is locked meanwhile: a call must only copy, and not wait for
/// anything.**
pub fn lend_cached(
    space: &AddressSpace,
    offset: u64,
    len: u64,
    lend: &mut dyn FnMut(&[u8]) -> bool,
) -> Option<usize> {
    let bytes = each_hit(space, offset, len, &mut |folio, range| {
        let lent = folio.memory.as_ref();
        let is_taken = lent.is_some_and(|memory| lend(&memory[folio.place(range)]));
        folio.note_use(range);
        is_taken
    })?;
    space.cache.reads.hit(bytes);
    Some(bytes as usize)
}

/// Calls with each folio and its part of the range, while all is cached and the calls return `true`.
/// Returns the number of bytes.
fn each_hit(
    space: &AddressSpace,
    offset: u64,
    len: u64,
    call: &mut dyn FnMut(&Folio, &Range<u64>) -> bool,
) -> Option<u64> {
    let end = space.size().min(offset.saturating_add(len));
    let mut at = offset;
    while at < end {
        let seen = space
            .cache
            .table
            .look(space.core.id, number_of(at), |span| {
                let state = span.state.read();
                let end = range_of(number_of(at)).end.min(end);
                let mut next = at;
                while next < end {
                    let folio = state.find(next)?;
                    let len = folio.readable(next, end);
                    if len == 0 || folio.mark.load(Ordering::Relaxed) {
                        return None;
                    }
                    call(folio, &(next..next + len)).then_some(())?;
                    next += len;
                }
                Some(end - at)
            });
        at += seen.flatten()?;
    }
    Some(end.saturating_sub(offset))
}
