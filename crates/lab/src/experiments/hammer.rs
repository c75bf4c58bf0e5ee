//! Threads that read 4 KiB at random offsets for a fixed time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use throughline_device::AlignedBuf;

use crate::Result;
use crate::mounts::work::together;

pub(super) const READ_BYTES: usize = 4096;
/// Reads between two readings of the clock.
const BATCH: u64 = 256;

/// Reads into the buffer from this byte offset.
pub(super) type Io<'a> = &'a (dyn Fn(u64, &mut [u8]) -> Result<()> + Sync);

/// Reads with this many threads at random offsets in the first `len` bytes for `time`. Returns the time per
/// read and thread, in nanoseconds.
pub(super) fn hammer(threads: usize, len: u64, time: Duration, io: Io<'_>) -> Result<f64> {
    let (reads, busy_ns) = (AtomicU64::new(0), AtomicU64::new(0));
    together(threads, |thread| {
        let mut buffer = AlignedBuf::zeroed(READ_BYTES, 4096);
        let mut random = fastrand::Rng::with_seed(thread as u64);
        let (begun, mut done) = (Instant::now(), 0);
        while begun.elapsed() < time {
            for _ in 0..BATCH {
                let block = random.u64(..len / READ_BYTES as u64);
                io(block * READ_BYTES as u64, &mut buffer)?;
            }
            done += BATCH;
        }
        busy_ns.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        reads.fetch_add(done, Ordering::Relaxed);
        Ok(())
    })?;
    Ok(busy_ns.into_inner() as f64 / (reads.into_inner() as f64).max(1.0))
}

/// Thread counts to measure: powers of two, up to the number of processors.
pub(super) fn thread_counts() -> Vec<usize> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let doubled = std::iter::successors(Some(1), |n| Some(n * 2));
    doubled.take_while(|n| *n <= cpus).collect()
}

/// A note for machines on which scaling over threads cannot be measured.
pub(super) const ONE_PROCESSOR: &str = "one processor: scaling over threads cannot be seen here";
