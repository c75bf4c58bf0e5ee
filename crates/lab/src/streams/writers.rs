//! Concurrent streaming writers. Each has its own target; all write from the same buffer.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use throughline_device::AlignedBuf;
use throughline_locks::{Mutex, Rank};

use crate::Result;
use crate::meter::Spent;
use crate::mounts::work::together;

/// Length of the buffer from which all data is written. It is larger than a processor's cache. All variants
/// share it, because memory placement matters more than most of them.
pub(crate) const SOURCE_BYTES: usize = 32 << 20;

/// The buffer, filled with incompressible data.
pub(crate) fn source() -> AlignedBuf {
    let mut source = AlignedBuf::zeroed(SOURCE_BYTES, 4096);
    fastrand::Rng::with_seed(3).fill(&mut source);
    source
}

/// The target of one writer.
pub(crate) trait Stream: Send {
    /// Writes `bytes` at offset `at` of the stream. Offsets ascend without gaps.
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()>;

    /// Returns once all data is durable.
    fn finish(&mut self) -> Result<()>;
}

/// The result of concurrent writing.
pub(crate) struct Race {
    /// Measured from the start of the first writer to the fsync of the last one.
    pub(crate) spent: Spent,
    /// The smallest and the largest share of a writer when the first one had written everything; 1 is a fair
    /// share.
    pub(crate) shares: (f64, f64),
    /// How long the calls took, without the fsyncs, in nanoseconds. Sorted.
    pub(crate) calls: Vec<f64>,
}

/// Writes `each_bytes` to each stream in calls of `call_bytes`, with one thread per stream, and finishes
/// each.
pub(crate) fn race(
    source: &[u8],
    each_bytes: u64,
    call_bytes: usize,
    streams: Vec<Box<dyn Stream + '_>>,
) -> Result<Race> {
    let written: Vec<CachePadded<AtomicU64>> = streams.iter().map(|_| Default::default()).collect();
    let at_the_end = OnceLock::new();
    let streams = streams.into_iter();
    let streams: Vec<_> = streams
        .map(|one| Mutex::ranked(Rank::Experiment, one))
        .collect();
    let calls = Mutex::new(Vec::new());
    let spent = together(streams.len(), |number| {
        // Locked only by this stream's thread.
        let mut stream = streams[number].lock();
        let mut took = Vec::new();
        let mut at = 0;
        while at < each_bytes {
            let from = (at % source.len() as u64) as usize;
            let len = call_bytes
                .min(source.len() - from)
                .min(usize::try_from(each_bytes - at).unwrap_or(usize::MAX));
            let begun = Instant::now();
            stream.write(at, &source[from..from + len])?;
            took.push(begun.elapsed().as_nanos() as f64);
            at += len as u64;
            written[number].store(at, Ordering::Relaxed);
        }
        at_the_end.get_or_init(|| shares(&written));
        calls.lock().append(&mut took);
        stream.finish()
    })?;
    let shares = at_the_end.into_inner().unwrap_or((1.0, 1.0));
    let mut calls = calls.into_inner();
    calls.sort_by(f64::total_cmp);
    Ok(Race {
        spent,
        shares,
        calls,
    })
}

fn shares(written: &[CachePadded<AtomicU64>]) -> (f64, f64) {
    let written: Vec<f64> = written
        .iter()
        .map(|w| w.load(Ordering::Relaxed) as f64)
        .collect();
    let fair = (written.iter().sum::<f64>() / written.len() as f64).max(1.0);
    let smallest = written.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = written.iter().copied().fold(0.0, f64::max);
    (smallest / fair, largest / fair)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Collects<'a>(&'a mut Vec<u8>, &'a AtomicU64);

    impl Stream for Collects<'_> {
        fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
            assert_eq!(at, self.0.len() as u64);
            self.0.extend_from_slice(bytes);
            Ok(())
        }

        fn finish(&mut self) -> Result<()> {
            self.1.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    #[test]
    fn every_writer_writes_all_of_its_stream() {
        let source: Vec<u8> = (0..100).collect();
        let (mut got, finished): ([Vec<u8>; 3], _) = (Default::default(), AtomicU64::new(0));
        let streams: Vec<Box<dyn Stream + '_>> = got
            .iter_mut()
            .map(|to| Box::new(Collects(to, &finished)) as Box<dyn Stream + '_>)
            .collect();
        let race = race(&source, 250, 30, streams).unwrap();
        assert!(race.shares.0 <= 1.0 && race.shares.1 >= 1.0);
        assert_eq!(race.calls.len(), 3 * 10);
        assert!(race.calls.is_sorted());
        assert_eq!(finished.into_inner(), 3);
        let expected: Vec<u8> = source.iter().cycle().take(250).copied().collect();
        assert!(got.iter().all(|one| *one == expected));
    }
}
