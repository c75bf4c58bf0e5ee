//! The journals that recovery and the log writer support.

use throughline_extfmt::jbd2::{JournalGeometry, JournalIncompat, JournalSuperblock};

use crate::error::{Error, Result};

const KNOWN: JournalIncompat = JournalIncompat::REVOKE
    .union(JournalIncompat::BIT64)
    .union(JournalIncompat::ASYNC_COMMIT)
    .union(JournalIncompat::CSUM_V2)
    .union(JournalIncompat::CSUM_V3)
    .union(JournalIncompat::FAST_COMMIT);

/// Refuses unknown features.
pub(crate) fn check(sb: &JournalSuperblock) -> Result<()> {
    let unknown = sb.incompat().difference(KNOWN).bits();
    let unknown_ro = sb.ro_compat();
    if unknown | unknown_ro == 0 {
        return Ok(());
    }
    let text =
        format!("unknown journal features: incompat {unknown:#x}, ro_compat {unknown_ro:#x}");
    Err(Error::Unsupported(text))
}

/// The kernel's minimum.
const MIN_LOG_BLOCKS: u32 = 256;

/// Refuses a journal that is too short to be written to.
pub(crate) fn check_size(geometry: &JournalGeometry) -> Result<()> {
    let blocks = geometry.end.saturating_sub(geometry.first);
    match blocks < MIN_LOG_BLOCKS {
        true => Err(Error::Unsupported(format!(
            "a journal with {blocks} log blocks, fewer than {MIN_LOG_BLOCKS}"
        ))),
        false => Ok(()),
    }
}
