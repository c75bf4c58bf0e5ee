//! Room on the host for blocks as they are claimed ([`crate::OpenOptions::allocate`]), so that a later write
//! of them finds it.

use throughline_block::{Disk, Error as DiskError};
use throughline_extfmt::Geometry;
use throughline_journal::recovery::JournalRun;

use super::{Blocks, Run};
use crate::error::{Error, Reason, Result};

/// A run that was just claimed, with room for it on the host.
///
/// # Errors
/// `NoSpace` if the host has none, and the run is not claimed any more: as on a full volume, since the caller
/// must be able to go on.
pub(super) fn for_run(blocks: &Blocks, run: Run) -> Result<Run> {
    let log = blocks.geo.block_log;
    let (offset, len) = (run.start.0 << log, u64::from(run.len) << log);
    blocks
        .disk
        .reserve(offset, len)
        .map(|()| run)
        .map_err(|error| {
            blocks.release(run);
            match error.is_full() {
                true => Reason::NoSpace.into(),
                false => error.into(),
            }
        })
}

/// Makes room on the host for the journal, inside the volume if `log` says where.
///
/// # Errors
/// `Unsupported` if the host cannot promise room; device errors.
pub(crate) fn for_journal(disk: &Disk, geo: &Geometry, log: Option<&[JournalRun]>) -> Result<()> {
    let log_bytes = geo.block_log;
    let runs = log.unwrap_or_default().iter();
    let first = (0, u64::from(geo.block_bytes));
    let ranges = runs.map(|run| (run.first.0 << log_bytes, u64::from(run.len) << log_bytes));
    for (offset, len) in std::iter::once(first).chain(ranges) {
        disk.reserve(offset, len).map_err(|error| match &error {
            DiskError::Device { source, .. }
                if source.kind() == std::io::ErrorKind::Unsupported =>
            {
                Error::Unsupported("allocate: the host cannot promise room for this image".into())
            }
            _ => error.into(),
        })?;
    }
    Ok(())
}
