//! Operations on the data of files.
//!
//! The calls themselves are those of a [`Handle`]; here it is added which files they changed. I/O counts no
//! edits, so that threads that write one file share no counter. So a file is also listed if bytes were
//! written, and if the operation failed for a reason that may be found after a part was done.

use throughline_ext::Fallocate;

use super::Outcome;
use crate::error::{Error, Result};
use crate::file::File;
use crate::handle::Handle;
use crate::node::Node;
use crate::source::Source;

/// Writes at byte `offset`, as [`Handle::write_at`].
///
/// **Until it is synced, a change is lost if the process ends or the machine fails** ([what is
/// durable](crate#what-is-durable)).
///
/// # Errors
/// The same.
pub fn write(file: &File, buf: &[u8], offset: u64) -> Outcome<usize> {
    on_data(
        &[file.node_ref()],
        || file.write_at(buf, offset),
        |done| *done > 0,
    )
}

/// Copies bytes of one file to another, as [`Handle::copy_range`]. The access time of `from` changes too.
///
/// **Until it is synced, a change is lost if the process ends or the machine fails** ([what is
/// durable](crate#what-is-durable)).
///
/// # Errors
/// The same; [`Reason::CrossDevice`](crate::Reason::CrossDevice) for files of two volumes.
pub fn copy_range(
    (from, offset): (&File, u64),
    (to, to_offset): (&File, u64),
    len: u64,
) -> Outcome<u64> {
    let copy = || Handle::copy_range(from, offset, to, to_offset, len);
    on_data(&[to.node_ref(), from.node_ref()], copy, |done| *done > 0)
}

/// Sets the length of a file, as [`Handle::set_len`].
///
/// **Until it is synced, a change is lost if the process ends or the machine fails** ([what is
/// durable](crate#what-is-durable)).
///
/// # Errors
/// The same; [`Reason::IsDir`](crate::Reason::IsDir) and [`Reason::Invalid`](crate::Reason::Invalid) for
/// anything but a regular file.
pub fn set_len(node: &Node, bytes: u64) -> Outcome<()> {
    on_data(&[node], || node.source().set_len(bytes), |()| true)
}

/// Changes how a range of a file is allocated, as [`Handle::allocate`].
///
/// **Until it is synced, a change is lost if the process ends or the machine fails** ([what is
/// durable](crate#what-is-durable)).
///
/// # Errors
/// As [`set_len`].
pub fn allocate(node: &Node, mode: Fallocate, offset: u64, len: u64) -> Outcome<()> {
    let allocate = || node.source().allocate(mode, offset, len);
    on_data(&[node], allocate, |()| true)
}

/// Runs `call`, which changes the data of the first node. `did` is whether a success changed any.
fn on_data<T>(
    nodes: &[&Node],
    call: impl FnOnce() -> Result<T>,
    did: impl FnOnce(&T) -> bool,
) -> Outcome<T> {
    let outcome = Outcome::of(nodes, |_| call());
    let changed = match &outcome.result {
        Ok(done) => did(done),
        // Found before a byte is changed, or after an edit, which is counted. When the volume was taken down,
        // nothing of the change is left.
        Err(Error::Caller(_) | Error::Unsupported(_) | Error::Down) => false,
        Err(_) => true,
    };
    match nodes {
        [node, ..] if changed => outcome.and_changed(node),
        _ => outcome,
    }
}
