//! Commits without a log: a transaction's blocks are written straight home.
//!
//! ```text
//!   data is written ─► flush ─► blocks made in the transaction ─► flush ─► all others ─► flush
//! ```
//!
//! Invariants:
//! - A block at home never refers to data or metadata whose content is not on the device.
//! - A power cut in the last step leaves a mix of old and new blocks, as ext2 always did; `e2fsck` repairs
//!   that.

use throughline_block::{Purpose, Result};

use crate::cache::{Cache, SealedBlock};

/// Makes a transaction durable.
pub(crate) fn commit(cache: &Cache, blocks: &[SealedBlock]) -> Result<()> {
    let (fresh, others): (Vec<_>, Vec<_>) = blocks.iter().partition(|block| block.fresh);
    Purpose::Metadata.during(|| {
        for part in [fresh, others] {
            if !part.is_empty() {
                cache.disk().flush()?;
                write(cache, &part)?;
            }
        }
        cache.disk().flush()
    })
}

/// Writes blocks home, ascending.
pub(crate) fn write(cache: &Cache, blocks: &[&SealedBlock]) -> Result<()> {
    let pieces: Vec<(u64, &[u8])> = blocks
        .iter()
        .map(|sealed| {
            (
                cache.offset_of_resident(sealed.buffer.block),
                &sealed.content[..],
            )
        })
        .collect();
    cache.disk().write_batch(&pieces)
}
