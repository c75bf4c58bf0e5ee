//! Dirty throttling: writers pause, and never write.

use std::time::Duration;

use crate::error::Result;

/// Whether a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Wait {
    /// As long as it takes.
    #[default]
    Yes,
    /// It answers [`crate::Reason::WouldBlock`] instead.
    No,
}

/// Limits of dirty memory, of one device or of the process. Changeable at run time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirtyLimits {
    /// Never more dirty than this, in bytes; `None`: a fifth of the budget.
    pub limit_bytes: Option<u64>,
    /// From here on the flusher writes without being asked; `None`: half of the limit.
    pub background_bytes: Option<u64>,
}

/// The dirty memory of one device, and the process's.
pub struct Throttle {}

impl Throttle {
    /// With a device's limits, of a cache with `budget_bytes`.
    pub fn new(limits: DirtyLimits, budget_bytes: u64) -> Throttle {
        let _ = (limits, budget_bytes);
        todo!()
    }

    /// Makes room for `bytes` that are about to become dirty, so that the limits hold afterwards. Waits for write-back
    /// where there is none, and may. A request larger than the limit is the caller's bug: ask in pieces of at most [`Throttle::most_at_once`].
    ///
    /// # Errors
    /// `WouldBlock`; the error of a write-back that fails, where waiting for it is in vain.
    pub(crate) fn acquire(&self, bytes: u64, wait: Wait) -> Result<()> {
        let _ = (bytes, wait);
        todo!()
    }

    /// The most bytes that one [`Throttle::acquire`] should ask for.
    pub(crate) fn most_at_once(&self) -> u64 {
        todo!()
    }

    /// Room that was acquired and not used, or whose dirty bytes were thrown away.
    pub(crate) fn release(&self, bytes: u64) {
        let _ = bytes;
        todo!()
    }

    /// Dirty bytes are on the device: they make room, and count for its bandwidth.
    pub(crate) fn cleaned(&self, bytes: u64) {
        let _ = bytes;
        todo!()
    }

    /// Write-back does not get on (`Some`), or does again. Those who wait for room hear of it.
    pub(crate) fn stuck(&self, error: Option<crate::Error>) {
        let _ = error;
        todo!()
    }

    /// Pauses the calling thread for what it dirtied since it was here last, 200 ms at most. The pause it made.
    pub fn balance(&self, dirtied_bytes: u64) -> Duration {
        let _ = dirtied_bytes;
        todo!()
    }

    /// Whether the flusher should write without being asked.
    pub(crate) fn over_background(&self) -> bool {
        todo!()
    }

    /// What the flusher writes of one file before it turns to the next, in bytes.
    pub(crate) fn chunk_bytes(&self) -> u64 {
        todo!()
    }

    /// Dirty bytes of this device, those under write-back among them.
    pub fn dirty_bytes(&self) -> u64 {
        todo!()
    }
}
