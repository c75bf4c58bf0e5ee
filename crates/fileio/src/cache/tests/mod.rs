//! Tests of the cache as a whole, with its flusher, over a device in memory.

mod basics;
mod model;
mod pressure;
mod stress;
mod writeback;

use std::sync::Arc;

use crate::cache::testing::{FakeFile, Volume};

/// Contents that differ by offset.
pub(super) fn pattern(seed: u64, offset: u64, len: usize) -> Vec<u8> {
    let byte = |at: u64| (at.wrapping_mul(31) ^ (at >> 8).wrapping_mul(7) ^ seed) as u8 % 251;
    (offset..offset + len as u64).map(byte).collect()
}

/// Flushes everything and checks that no count, reservation or memory is left over.
pub(super) fn finish(volume: &Arc<Volume>, files: Vec<Arc<FakeFile>>) {
    volume.cache.flush_all().expect("a flush");
    for file in &files {
        assert_eq!(crate::Backing::space(&**file).dirty_bytes(), 0);
    }
    assert_eq!(volume.cache.throttle().dirty_bytes(), 0);
    assert_eq!(volume.promised(), 0, "reservations are left over");
    drop(files);
    // The flusher drops its last references asynchronously.
    volume.cache.close();
    assert_eq!(volume.cache.pool.used_bytes(), 0, "memory is left over");
}
