//! Traces one API call to the disk's listeners: its begin, its end, the bytes it moved.

use throughline_block::{Disk, Event};
use throughline_device::Op;

use crate::error::Result;

/// Runs `call`; `bytes` extracts from its result how much it moved. Without listeners this costs one relaxed
/// load, and a `call` that captures by move is inlined.
#[inline(always)]
pub(crate) fn traced<T>(
    disk: &Disk,
    op: Op,
    bytes: impl FnOnce(&T) -> usize,
    call: impl FnOnce() -> Result<T>,
) -> Result<T> {
    match disk.has_listeners() {
        false => call(),
        true => trace(disk, op, bytes, call),
    }
}

#[cold]
#[inline(never)]
fn trace<T>(
    disk: &Disk,
    op: Op,
    bytes: impl FnOnce(&T) -> usize,
    call: impl FnOnce() -> Result<T>,
) -> Result<T> {
    disk.report(|| Event::CallBegins);
    let done = call();
    let bytes = done.as_ref().map_or(0, bytes) as u64;
    disk.report(|| Event::CallEnds { op, bytes });
    done
}
