//! [`Streams`]: long runs of the file that are written or read one behind another.
//!
//! The file is read and written through the system's cache, in the thread of the caller. So that the disk is
//! busy meanwhile, a long run that was written begins to go to it at once, not with the next sync, and of one
//! that is read, what follows is fetched ahead. Both are hints, and promise nothing.

use parking_lot::Mutex;

use super::cluster::long;
use crate::store::Store;

/// What is written before a hint, and the longest hint for reading.
const STEP_BYTES: u64 = 4 << 20;
/// What is read before anything is read ahead, and how far ahead that is kept.
const MIN_READ_BYTES: u64 = 1 << 20;
const AHEAD_BYTES: u64 = 8 << 20;

/// See the head of this file.
#[derive(Default)]
pub(super) struct Streams {
    written: Mutex<Written>,
    read: Mutex<Read>,
}

/// Bytes of the file that were written one behind another, since the last hint.
#[derive(Clone, Copy, Default)]
struct Written {
    from: u64,
    to: u64,
}

#[derive(Clone, Copy, Default)]
struct Read {
    from: u64,
    to: u64,
    /// Up to here, reading has begun.
    ahead: u64,
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

    /// The bytes at `place` are about to be read.
    pub(super) fn reading(&self, file: &dyn Store, place: u64, len: usize) {
        let end = place.saturating_add(long(len));
        let mut read = self.read.lock();
        if read.to != place {
            *read = Read {
                from: place,
                to: end,
                ahead: end,
            };
            return;
        }
        read.to = end;
        let is_long = end.saturating_sub(read.from) >= MIN_READ_BYTES;
        let from = read.ahead.max(end);
        // In steps, not with each call.
        if !is_long || from > end.saturating_add(AHEAD_BYTES / 2) {
            return;
        }
        let to = from.saturating_add(STEP_BYTES);
        read.ahead = to;
        drop(read);
        file.begin_reading(from, to.saturating_sub(from));
    }
}
