//! A program's call, told to those who listen to the disk below: its begin, its end, what it moved.

use throughline_block::{Disk, Event};
use throughline_device::Op;

use crate::error::Result;

/// Does `call`, whose answer says by `bytes` what it moved. Where nobody listens this is one relaxed load; a `call` that
/// moves what it uses is then made in place.
#[inline(always)]
pub(crate) fn told<T>(
    disk: &Disk,
    op: Op,
    bytes: impl FnOnce(&T) -> usize,
    call: impl FnOnce() -> Result<T>,
) -> Result<T> {
    match disk.is_heard() {
        false => call(),
        true => tell(disk, op, bytes, call),
    }
}

#[cold]
#[inline(never)]
fn tell<T>(
    disk: &Disk,
    op: Op,
    bytes: impl FnOnce(&T) -> usize,
    call: impl FnOnce() -> Result<T>,
) -> Result<T> {
    disk.tell(|| Event::CallBegins);
    let done = call();
    let bytes = done.as_ref().map_or(0, bytes) as u64;
    disk.tell(|| Event::CallEnds { op, bytes });
    done
}
