//! Buffered writing: into folios, and nothing else. The device is the flusher's.

use std::io::IoSlice;
use std::sync::Arc;

use crate::cache::Backing;
use crate::error::Result;
use crate::throttle::Wait;

/// What a buffered write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Bytes in the cache now: fewer than given only where an error came after them.
    pub bytes: usize,
    /// Bytes that became dirty by it, for [`crate::throttle::Throttle::balance`].
    pub dirtied_bytes: u64,
}

/// See [`crate::buffered::write`].
pub(crate) fn write(
    host: &Arc<dyn Backing>,
    offset: u64,
    bufs: &[IoSlice<'_>],
    wait: Wait,
) -> Result<Accepted> {
    let _ = (host, offset, bufs, wait);
    todo!()
}
