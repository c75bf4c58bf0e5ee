//! Targets as a workload uses them: files to open, read, write and sync, on any system.
//!
//! Invariants:
//! - Only opening a target creates files. Dropping it removes what was created, also if opening failed
//!   half-way.
//! - Existing data is overwritten only if [`Needs::overwrite`] allows it.

mod kernel;
pub(super) mod made;
mod ours;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use throughline::OpenOptions;
use throughline_device::AlignedBuf;
use throughline_explain::ours::Watch;

use self::made::{InMade, Made, Site};
use self::ours::Ours;
use super::{Layout, MadeSpec, TargetKind, TargetSpec, Workload};
use crate::streams::writers;
use crate::{Error, Result};

/// An open file.
pub(super) trait Access: Send + Sync {
    /// Fills `buf` from offset `at`. An error if the file ends before.
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()>;

    /// Writes all of `bytes` at offset `at`.
    fn write(&self, at: u64, bytes: &[u8]) -> Result<()>;

    /// Makes written data durable, as `fsync`.
    fn sync(&self) -> Result<()>;

    /// Truncates the file to length 0. A device keeps its data.
    fn empty(&self) -> Result<()>;

    /// Writes back dirty data. With `forget`, also drops the file from the caches.
    fn write_back(&self, forget: bool) -> Result<()>;
}

/// A target to measure.
pub(super) trait Target {
    /// Opens the file with this number, with the workload's flags. Creates it if it is missing.
    fn open(&self, number: u32) -> Result<Arc<dyn Access>>;

    /// Whether it can have several files.
    fn has_many(&self) -> bool;

    /// Whether its data existed before and must not be changed.
    fn as_it_is(&self) -> bool {
        false
    }

    /// Properties of the target, for the record.
    fn facts(&self) -> BTreeMap<String, Value>;

    /// Closes and removes it. Returns errors that are found only then.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Parameters for opening targets.
pub(super) struct Needs<'a> {
    pub(super) workload: &'a Workload,
    /// Where files are created.
    pub(super) dir: &'a Path,
    /// Whether existing data may be overwritten.
    pub(super) overwrite: bool,
    /// Options for opening existing targets with our engine.
    pub(super) options: &'a OpenOptions,
    pub(super) interrupted: &'a (dyn Fn() -> bool + Sync),
    /// Records what our engine does with images, if the run is explained.
    pub(super) watch: Option<&'a Watch>,
}

impl Needs<'_> {
    /// An error if existing data would be overwritten without permission. Returns whether to use it as it is.
    fn existing(&self, what: &str) -> Result<bool> {
        if !self.workload.direction.writes() {
            return Ok(!self.overwrite);
        }
        match self.overwrite {
            true => Ok(false),
            false => Err(Error::new(format!(
                "{what} already exists, and the workload would overwrite it; --overwrite allows that"
            ))),
        }
    }

    /// Options for opening targets that were created for the run, which start at offset 0.
    fn options_of_new(&self) -> OpenOptions {
        let mut options = self.options.clone();
        options.offset(0);
        options
    }

    /// Where images for the workload's files are made.
    fn site(&self) -> Site<'_> {
        let w = self.workload;
        Site {
            dir: self.dir,
            data_bytes: w.file_bytes().saturating_mul(u64::from(w.files())),
            interrupted: self.interrupted,
        }
    }
}

/// An error if the user wants to stop.
pub(super) fn check(interrupted: &dyn Fn() -> bool) -> Result<()> {
    match interrupted() {
        true => Err(Error::new("interrupted")),
        false => Ok(()),
    }
}

/// Opens a target and lays out its files.
pub(super) fn open(spec: &TargetSpec, needs: &Needs<'_>) -> Result<Box<dyn Target>> {
    let met = |error: Error| Error::new(format!("target '{}': {error}", spec.label()));
    check(needs.interrupted)?;
    let target = opened(spec, needs).map_err(met)?;
    if needs.workload.layout == Layout::Written && !target.as_it_is() {
        lay_out(&*target, needs).map_err(met)?;
    }
    Ok(target)
}

/// Notes in the account that a target is not in it, because its I/O is not done by this process.
pub(super) fn note_omission(spec: &TargetSpec, watch: Option<&Watch>) {
    if let (Some(watch), Some(how)) = (watch, spec.kind.explained_by()) {
        let label = spec.label();
        watch.note_omission(format!("target '{label}' is not in the account: {how}"));
    }
}

fn opened(spec: &TargetSpec, needs: &Needs<'_>) -> Result<Box<dyn Target>> {
    note_omission(spec, needs.watch);
    Ok(match &spec.kind {
        TargetKind::Command { .. } => {
            return Err(Error::new(
                "a command does its own work: it is measured beside other commands, without a workload file",
            ));
        }
        TargetKind::Image { path, file } => Box::new(Ours::image(path, file.as_deref(), needs)?),
        TargetKind::NewImage { mkfs } => Box::new(Ours::new_image(mkfs, needs)?),
        TargetKind::Raw(path) => Box::new(Ours::raw(path, needs)?),
        TargetKind::Memory => Box::new(Ours::memory(needs)?),
        TargetKind::Model(name) => Box::new(Ours::model(name, needs)?),
        TargetKind::Dir(path) => Box::new(kernel::Dir::open(path, needs)?),
        TargetKind::File(path) => Box::new(kernel::OneFile::open(path, needs)?),
        TargetKind::Made(spec) => Box::new(InMade {
            made: Made::mount(spec, &needs.site())?,
            flags: kernel::flags(needs.workload),
        }),
    })
}

/// Writes all files of the workload in full, in calls of 1 MiB, from the lab's usual source buffer.
fn lay_out(target: &dyn Target, needs: &Needs<'_>) -> Result<()> {
    const CALL_BYTES: u64 = 1 << 20;
    let source: AlignedBuf = writers::source();
    let (files, bytes) = match target.has_many() {
        true => (needs.workload.files(), needs.workload.file_bytes()),
        false => (1, needs.workload.file_end()),
    };
    for number in 0..files {
        let access = target.open(number)?;
        // The part before the workload's offset is not used.
        let mut at = needs.workload.offset_bytes;
        while at < bytes {
            check(needs.interrupted)?;
            let from = (at % (source.len() as u64 - CALL_BYTES)) / 4096 * 4096;
            let len = CALL_BYTES.min(bytes - at);
            access.write(at, &source[from as usize..][..len as usize])?;
            at += len;
        }
        access.write_back(false)?;
    }
    Ok(())
}

/// An error if the file system lacks room for this many bytes. Writing until the disk is full would take
/// long, and would take the space from everything else.
fn room(on: impl AsFd, wanted_bytes: u64) -> Result<()> {
    let free = rustix::fs::fstatvfs(on)?;
    let free_bytes = free.f_bavail.saturating_mul(free.f_frsize);
    match wanted_bytes > free_bytes {
        true => Err(Error::new(format!(
            "it has no room for {} MiB, {} MiB are free: make size smaller",
            wanted_bytes >> 20,
            free_bytes >> 20
        ))),
        false => Ok(()),
    }
}

/// The error if a target of fixed length ends before the workload's range.
fn too_short(len: u64, end: u64) -> Error {
    Error::new(format!(
        "it has {len} bytes, and the workload reaches to byte {end}: make size or offset smaller"
    ))
}

/// The name of a created file.
fn file_name(number: u32) -> String {
    format!("throughline-lab-{}-{number}", std::process::id())
}
