//! Operations on the data of files.
//!
//! The calls themselves are those of a [`Handle`]; here it is added which files they changed. I/O counts no
//! edits, so that threads that write one file share no counter. So a file is also listed if bytes were
//! written, and if the operation failed for a reason that may be found after a part was done.

use throughline_device::Op;
use throughline_ext::Fallocate;

use super::Outcome;
use crate::call::traced;
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

/// Takes bytes that their program has stored in the kernel's cache, to be written back at byte `offset` of a
/// file that is open for buffered I/O. All are taken, or the call fails. Bytes for which there is no space
/// are kept in memory, as long as they are few: each sync of the file or of the volume fails until there is
/// space.
///
/// # Errors
/// Those of [`Handle::write_at`]. Each sync of the file or of the volume returns the error again until the
/// bytes that were not taken are written again, or removed from the file.
pub fn write_back(file: &File, bytes: &[u8], offset: u64) -> Outcome<()> {
    let node = file.node_ref();
    // After an error, some of the bytes may have been taken.
    Outcome::of(&[node], |_| file.write_back(bytes, offset)).and_changed(node)
}

/// Writes the whole contents of several files, as [`Volume::write_new`](crate::Volume::write_new).
///
/// **Until it is synced, a change is lost if the process ends or the machine fails** ([what is
/// durable](crate#what-is-durable)).
///
/// # Errors
/// [`Reason::CrossDevice`](crate::Reason::CrossDevice) for files of several volumes. Each file has a result
/// of its own, with the errors of [`Handle::write_all_at`].
pub fn write_new(files: &[(&File, &[u8])]) -> Outcome<Vec<Result<()>>> {
    let nodes: Vec<&Node> = files.iter().map(|(file, _)| file.node_ref()).collect();
    let outcome = Outcome::of(&nodes, |_| Ok(write_each(files)));
    let done = outcome.result.iter().flatten();
    let changed: Vec<&Node> = done
        .zip(files)
        .filter(|(done, (_, data))| may_have_changed(done, |()| !data.is_empty()))
        .map(|(_, (file, _))| file.node_ref())
        .collect();
    changed.into_iter().fold(outcome, Outcome::and_changed)
}

fn write_each(files: &[(&File, &[u8])]) -> Vec<Result<()>> {
    let Some((first, _)) = files.first() else {
        return Vec::new();
    };
    let fs = first.node_ref().fs();
    let is_plain = |file: &File| file.writes_plainly() && fs.check_overwrite(file.inode()).is_ok();
    if !files.iter().all(|(file, _)| is_plain(file)) {
        // One of them refuses the write, appends, or waits until it is durable: in order, each in its way.
        let one = |(file, data): &(&File, &[u8])| file.write_all_at(data, 0);
        return files.iter().map(one).collect();
    }
    let inodes: Vec<_> = files
        .iter()
        .map(|(file, data)| (file.inode(), *data))
        .collect();
    let bytes = files.iter().map(|(_, data)| data.len()).sum();
    let write = || Ok(fs.write_new(&inodes));
    let done = traced(fs.disk(), Op::Write, |_| bytes, write).unwrap_or_default();
    done.into_iter().map(|done| Ok(done?)).collect()
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
    match nodes {
        [node, ..] if may_have_changed(&outcome.result, did) => outcome.and_changed(node),
        _ => outcome,
    }
}

fn may_have_changed<T>(result: &Result<T>, did: impl FnOnce(&T) -> bool) -> bool {
    match result {
        Ok(done) => did(done),
        // Found before a byte is changed, or after an edit, which is counted. When the volume was taken down,
        // nothing of the change is left.
        Err(Error::Caller(_) | Error::Unsupported(_) | Error::Down) => false,
        Err(_) => true,
    }
}
