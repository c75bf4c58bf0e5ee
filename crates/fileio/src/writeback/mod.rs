//! Write-back: one flusher for a device.

use std::sync::Arc;

use crate::cache::Backing;

/// The flusher's inbox and its thread, which starts with the first dirty file.
pub struct Writeback {}

impl Writeback {
    /// A file has become dirty: it is written in its turn, and kept alive until it is clean.
    pub(crate) fn dirtied(&self, host: &Arc<dyn Backing>) {
        let _ = host;
        todo!()
    }

    /// A sequential writer has left the file's bytes up to `until` behind.
    pub(crate) fn stream_passed(&self, host: &Arc<dyn Backing>, until: u64) {
        let _ = (host, until);
        todo!()
    }

    /// Memory is short: write although no threshold is passed.
    pub(crate) fn pressure(&self) {
        todo!()
    }
}
