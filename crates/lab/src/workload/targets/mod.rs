//! Targets as the workload uses them: files that are opened, read, written, synced, whoever serves them.
//!
//! Invariants:
//! - Opening a target is all that makes anything; dropping it takes away what was made, also when opening failed half-way.
//! - What was there before is written only where [`Needs::overwrite`] allows it.

mod kernel;
mod made;
mod ours;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use throughline::OpenOptions;
use throughline_device::AlignedBuf;

use self::ours::Ours;
use super::{Layout, TargetKind, TargetSpec, Workload};
use crate::explain::ours::Watch;
use crate::streams::writers;
use crate::{Error, Result};

/// An open file.
pub(super) trait Access: Send + Sync {
    /// Fills `buf` from byte `at` on; an error where the file ends before.
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()>;

    /// Writes all of `bytes` at byte `at`.
    fn write(&self, at: u64, bytes: &[u8]) -> Result<()>;

    /// `fsync`.
    fn sync(&self) -> Result<()>;

    /// Takes all bytes out of it; a device stays as it is.
    fn empty(&self) -> Result<()>;

    /// Has what is dirty written, and with `forget` drops what the caches hold of it.
    fn settle(&self, forget: bool) -> Result<()>;
}

/// Whoever is measured.
pub(super) trait Target {
    /// Opens its file of this number, as the workload wants it opened; makes it where there is none.
    fn open(&self, number: u32) -> Result<Arc<dyn Access>>;

    /// Whether it can have several files.
    fn has_many(&self) -> bool;

    /// Whether its bytes were there before and are to be left alone.
    fn as_it_is(&self) -> bool {
        false
    }

    /// What a reader of the figures must know of it.
    fn facts(&self) -> BTreeMap<String, Value>;

    /// Takes it down, with what only then turns out to be wrong.
    fn close(self: Box<Self>) -> Result<()>;
}

/// What targets are opened for.
pub(super) struct Needs<'a> {
    pub(super) workload: &'a Workload,
    /// Where files are made.
    pub(super) dir: &'a Path,
    /// What is there may be written over.
    pub(super) overwrite: bool,
    /// How our engine opens what was there before.
    pub(super) options: &'a OpenOptions,
    pub(super) interrupted: &'a (dyn Fn() -> bool + Sync),
    /// Told of what our engine does with images, if the run is explained.
    pub(super) watch: Option<&'a Watch>,
}

impl Needs<'_> {
    /// Refuses to write over what is there, unless that was said. Whether it is to be read as it is.
    fn existing(&self, what: &str) -> Result<bool> {
        if !self.workload.direction.writes() {
            return Ok(!self.overwrite);
        }
        match self.overwrite {
            true => Ok(false),
            false => Err(Error::new(format!(
                "{what} is there already, and the workload would overwrite it; --overwrite allows that"
            ))),
        }
    }

    /// How our engine opens what is made for the run: from its beginning.
    fn options_of_new(&self) -> OpenOptions {
        let mut options = self.options.clone();
        options.offset(0);
        options
    }

    /// An error when the person wants to end.
    fn check(&self) -> Result<()> {
        match (self.interrupted)() {
            true => Err(Error::new("interrupted")),
            false => Ok(()),
        }
    }
}

/// Opens a target and lays out its files.
pub(super) fn open(spec: &TargetSpec, needs: &Needs<'_>) -> Result<Box<dyn Target>> {
    let met = |error: Error| Error::new(format!("target '{}': {error}", spec.label()));
    needs.check()?;
    let target = opened(spec, needs).map_err(met)?;
    if needs.workload.layout == Layout::Written && !target.as_it_is() {
        lay_out(&*target, needs).map_err(met)?;
    }
    Ok(target)
}

fn opened(spec: &TargetSpec, needs: &Needs<'_>) -> Result<Box<dyn Target>> {
    if let (Some(watch), Some(how)) = (needs.watch, spec.kind.explained_by()) {
        let label = spec.label();
        watch.leave_out(format!("target '{label}' is not in the account: {how}"));
    }
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
        TargetKind::Made { by, mkfs, mount } => {
            Box::new(made::Made::mount(by, mkfs, mount.as_deref(), needs)?)
        }
    })
}

/// Writes every file of the workload out, in whole calls as long as buffers are elsewhere in the lab.
fn lay_out(target: &dyn Target, needs: &Needs<'_>) -> Result<()> {
    const CALL_BYTES: u64 = 1 << 20;
    let source: AlignedBuf = writers::source();
    let (files, bytes) = match target.has_many() {
        true => (needs.workload.files(), needs.workload.file_bytes()),
        false => (1, needs.workload.file_end()),
    };
    for number in 0..files {
        let access = target.open(number)?;
        // What is before the offset is nobody's business.
        let mut at = needs.workload.offset_bytes;
        while at < bytes {
            needs.check()?;
            let from = (at % (source.len() as u64 - CALL_BYTES)) / 4096 * 4096;
            let len = CALL_BYTES.min(bytes - at);
            access.write(at, &source[from as usize..][..len as usize])?;
            at += len;
        }
        access.settle(false)?;
    }
    Ok(())
}

/// An error where the file system that this is on has no room for so many bytes: to find that out by writing takes long, and
/// takes the room away from all others.
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

/// A target that is not to be lengthened ends before the workload does.
fn too_short(len: u64, end: u64) -> Error {
    Error::new(format!(
        "it has {len} bytes, and the workload reaches to byte {end}: make size or offset smaller"
    ))
}

/// A name for a file that is made among others.
fn file_name(number: u32) -> String {
    format!("throughline-lab-{}-{number}", std::process::id())
}
