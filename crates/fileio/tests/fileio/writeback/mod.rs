//! Write-back: dirty data reaches the device, in order, in turns, after errors, and only then the mapping.

mod backing;
use crate::common;
use crate::fake_mapper;
mod hold;

mod errors;
mod files;
mod order;

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use throughline_block::Disk;
use throughline_device::{BlockDevice, MemoryDevice};
use throughline_fileio::{Backing, CacheOptions, DirtyLimits, PageCache, Result, buffered};

pub(crate) const MIB: u64 = 1 << 20;

/// A cache with a budget and limits of dirty memory, over the device.
pub(crate) fn cache(
    device: Arc<dyn BlockDevice>,
    budget_bytes: u64,
    limit_bytes: Option<u64>,
    background_bytes: Option<u64>,
) -> Arc<PageCache> {
    let disk = Arc::new(Disk::new(device).unwrap());
    let mut dirty = DirtyLimits::default();
    dirty.limit_bytes = limit_bytes;
    dirty.background_bytes = background_bytes;
    let mut options = CacheOptions::default();
    options.budget_bytes = Some(budget_bytes);
    options.dirty = dirty;
    PageCache::new(disk, &options)
}

pub(crate) fn memory(bytes: u64) -> Arc<dyn BlockDevice> {
    Arc::new(MemoryDevice::new(bytes))
}

pub(crate) fn write(host: &Arc<dyn Backing>, offset: u64, data: &[u8]) -> Result<()> {
    let mut at = 0;
    while at < data.len() {
        let bufs = [IoSlice::new(&data[at..])];
        let accepted = buffered::write(host, offset + at as u64, &bufs)?;
        buffered::pause(host, accepted);
        at += accepted.bytes;
    }
    Ok(())
}

pub(crate) fn read(host: &Arc<dyn Backing>, offset: u64, len: usize) -> Vec<u8> {
    let mut data = vec![0x55; len];
    let stream = throughline_fileio::ReadStream::default();
    let mut at = 0;
    while at < len {
        let bufs = &mut [IoSliceMut::new(&mut data[at..])];
        let got = buffered::read(host, offset + at as u64, bufs, &stream).unwrap();
        if got == 0 {
            break;
        }
        at += got;
    }
    data.truncate(at);
    data
}

/// The file's contents on the device, up to the committed size.
pub(crate) fn on_device(disk: &Disk, host: &dyn Backing) -> Vec<u8> {
    let size = host.size_bytes();
    let mut data = vec![0; size as usize];
    let mapper = host as &dyn throughline_fileio::Map;
    let bufs = &mut [IoSliceMut::new(&mut data)];
    let got = throughline_fileio::direct::read(disk, mapper, 0, bufs).unwrap();
    assert_eq!(got as u64, size);
    data
}

/// Contents that differ by offset.
pub(crate) fn pattern(seed: u64, offset: u64, len: usize) -> Vec<u8> {
    let mut data = vec![0; len];
    for (i, chunk) in data.chunks_mut(8).enumerate() {
        let word = (offset + 8 * i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ seed;
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
    data
}

/// Waits until other threads make `done` true.
pub(crate) fn until(done: impl Fn() -> bool) {
    while !done() {
        std::thread::yield_now();
    }
}

/// Sets a flag when dropped, so that threads that poll it end even if a test failed.
pub(crate) struct AtEnd<'a>(pub(crate) &'a std::sync::atomic::AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}
