//! [`Streams`]: long runs of the file that are written one behind another.
//!
//! What is short, or not aligned, is written through the system's cache ([`crate::image_file`]). So that the
//! disk is busy meanwhile, a long run of such writes begins to go to it at once, not with the next sync. That
//! is a hint, and promises nothing.

use throughline_locks::Mutex;

use super::cluster::long;
use crate::store::Store;

/// What is written before a hint.
const STEP_BYTES: u64 = 4 << 20;

/// See the head of this file.
#[derive(Default)]
pub(super) struct Streams {
    written: Mutex<Written>,
}

/// Bytes of the file that were written one behind another, since the last hint.
#[derive(Clone, Copy, Default)]
struct Written {
    from: u64,
    to: u64,
}

impl Streams {
    /// New clusters at `place` were written.
    pub(super) fn written(&self, file: &dyn Store, place: u64, len: usize) {
        let end = place.saturating_add(long(len));
        let mut written = self.written.lock();
        if written.to != place {
            written.from = place;
        }
        written.to = end;
        let Written { from, .. } = *written;
        if end.saturating_sub(from) < STEP_BYTES {
            return;
        }
        written.from = end;
        drop(written);
        file.begin_writing_back(from, end.saturating_sub(from));
    }
}
