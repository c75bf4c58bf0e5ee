//! Blocks that are data again, while the journal still has to write their last change home, because it found
//! no room on the host.
//!
//! Invariant: until the journal has given them up, no change begins and no data is written, so nothing else
//! writes these blocks or frees them. Each attempt tries again first, and fails as long as there is no room.

use std::sync::atomic::{AtomicBool, Ordering};

use throughline_extfmt::FsBlock;
use throughline_locks::{Mutex, Place, Rank};

use crate::base::Base;
use crate::error::{Error, Result};

/// See the head of this file.
pub(crate) struct GivenUp {
    is_any: AtomicBool,
    blocks: Mutex<Vec<FsBlock>>,
}

impl Default for GivenUp {
    fn default() -> Self {
        Self {
            is_any: AtomicBool::new(false),
            blocks: Mutex::ranked(Rank::GivenUp, Vec::new()),
        }
    }
}

/// The journal stops managing blocks whose last change is in a transaction so far: `durable` is the result of
/// making that durable. No other thread may use the blocks during the call.
///
/// # Errors
/// That of `durable`; errors of the journal. If there was no room, it is tried again before anything else is
/// changed; after another error, the volume refuses changes.
pub(crate) fn give_up(
    base: &Base,
    durable: Result<()>,
    blocks: impl Iterator<Item = FsBlock> + Clone,
) -> Result<()> {
    let mut each = blocks.clone();
    let done = durable.and_then(|()| each.try_for_each(|block| Ok(base.journal.give_up(block)?)));
    if done.as_ref().is_err_and(Error::is_host_full) {
        let mut left = base.given_up.blocks.lock();
        left.extend(blocks);
        base.given_up
            .is_any
            .store(!left.is_empty(), Ordering::Release);
    } else if done.is_err() && base.stopped().is_none() {
        base.journal.refuse_changes("a block was not written");
    }
    done
}

/// Tries again what [`give_up`] could not do. No handle may be open.
///
/// # Errors
/// Errors of the journal.
pub(crate) fn finish(base: &Base) -> Result<()> {
    if !base.given_up.is_any.load(Ordering::Acquire) {
        return Ok(());
    }
    let _nothing_held = Place::enter(Rank::Handle, 0);
    let mut blocks = base.given_up.blocks.lock();
    if blocks.is_empty() {
        return Ok(());
    }
    base.journal.sync()?;
    while let Some(block) = blocks.last() {
        base.journal.give_up(*block)?;
        blocks.pop();
    }
    base.given_up.is_any.store(false, Ordering::Release);
    Ok(())
}
