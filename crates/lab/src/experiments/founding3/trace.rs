//! A run that is traced instead of measured: every bio with the thread that submitted it, and dirty memory
//! every millisecond.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use throughline_block::{Event, Listener};
use throughline_device::Op;
use throughline_fileio::PageCache;
use throughline_fileio::throttle::Pauses;
use throughline_locks::Mutex;

use crate::Result;
use crate::kernel::run;
use crate::streams::targets::{Ours, stream_name};

/// The name of the only thread that should write data.
const FLUSHER: &str = "tl-flusher";

/// Block size of the images that are traced.
pub(super) const BLOCK_BYTES: u64 = 4096;

const SAMPLE_EVERY: Duration = Duration::from_millis(1);

/// The result of a trace.
pub(super) struct Seen {
    writes: Vec<Write>,
    pub(super) dirty: Dirty,
    /// Pauses during this run only.
    pub(super) pauses: Pauses,
    pub(super) waits: Pauses,
    pub(super) balance_calls: u64,
}

#[derive(Clone, Copy)]
struct Write {
    offset_bytes: u64,
    len_bytes: u64,
    by_flusher: bool,
}

/// Dirty memory relative to its limits.
#[derive(Clone, Copy, Default)]
pub(super) struct Dirty {
    pub(super) samples: u64,
    pub(super) most_bytes: u64,
    /// The largest share of a limit, that of the device or of the process.
    pub(super) most_of_limit: f64,
}

/// An extent of a file on the device: device offset, length, file, file offset.
pub(super) type Extent = (u64, u64, usize, u64);

/// How the files' data reached the device.
pub(super) struct DataBios {
    pub(super) bios: u64,
    pub(super) bytes: u64,
    /// The share of bios that start at or after the end of the previous bio of their file.
    pub(super) ascending: f64,
    /// Bios not submitted by the flusher.
    pub(super) by_others: u64,
}

#[derive(Default)]
struct Log(Mutex<Vec<Write>>);

impl Listener for Log {
    fn event(&self, event: &Event) {
        let Event::Submit { bio, .. } = event else {
            return;
        };
        if bio.op == Op::Write {
            let write = Write {
                offset_bytes: bio.offset_bytes,
                len_bytes: bio.len_bytes,
                by_flusher: thread::current().name() == Some(FLUSHER),
            };
            self.0.lock().push(write);
        }
    }
}

/// Traces `work` on `ours`.
pub(super) fn watch<R>(ours: &Ours, work: impl FnOnce() -> Result<R>) -> Result<(Seen, R)> {
    let log = Arc::new(Log::default());
    let subscription = ours
        .opened()
        .disk()
        .subscribe(Arc::clone(&log) as Arc<dyn Listener>);
    let before = ours.throttled();
    let cache = ours.opened().cache().map(Arc::clone);
    let stop = AtomicBool::new(false);
    let (worked, dirty) = thread::scope(|threads| {
        let sampler = cache.map(|cache| threads.spawn(|| sample_dirty(cache, &stop)));
        let worked = work();
        stop.store(true, Ordering::Relaxed);
        let dirty = sampler.and_then(|sampler| sampler.join().ok());
        (worked, dirty.unwrap_or_default())
    });
    drop(subscription);
    let worked = worked?;
    let writes = std::mem::take(&mut *log.0.lock());
    let mut seen = Seen {
        writes,
        dirty,
        pauses: Pauses::default(),
        waits: Pauses::default(),
        balance_calls: 0,
    };
    if let (Some(before), Some(after)) = (before, ours.throttled()) {
        seen.pauses = since(after.pauses, &before.pauses);
        seen.waits = since(after.waits, &before.waits);
        seen.balance_calls = after.balance_calls - before.balance_calls;
    }
    Ok((seen, worked))
}

fn sample_dirty(cache: Arc<PageCache>, stop: &AtomicBool) -> Dirty {
    let mut dirty = Dirty::default();
    while !stop.load(Ordering::Relaxed) {
        let now = cache.throttle().state();
        let share = |of: u64, limit: u64| of as f64 / limit.max(1) as f64;
        dirty.samples += 1;
        dirty.most_bytes = dirty.most_bytes.max(now.dirty_bytes);
        dirty.most_of_limit = dirty
            .most_of_limit
            .max(share(now.dirty_bytes, now.limit_bytes))
            .max(share(now.process_dirty_bytes, now.process_limit_bytes));
        thread::sleep(SAMPLE_EVERY);
    }
    dirty
}

/// The pauses since `before`. The maximum is that of all time, and so an upper bound.
fn since(mut after: Pauses, before: &Pauses) -> Pauses {
    after.count -= before.count;
    after.total -= before.total;
    after
}

impl Seen {
    /// Evaluates the bios in `extents`, which do not overlap.
    pub(super) fn data_bios(&self, mut extents: Vec<Extent>) -> DataBios {
        extents.sort_unstable();
        let files = extents.iter().map(|extent| extent.2 + 1).max().unwrap_or(0);
        let mut reached = vec![0; files];
        let mut seen = DataBios {
            bios: 0,
            bytes: 0,
            ascending: 1.0,
            by_others: 0,
        };
        let mut ascending = 0_u64;
        for write in &self.writes {
            let (mut at, end) = (write.offset_bytes, write.offset_bytes + write.len_bytes);
            let first = extents.partition_point(|extent| extent.0 + extent.1 <= at);
            let (mut is_data, mut ascends) = (false, true);
            // A bio may continue from one file into the next.
            for &(begin, len, file, file_offset) in &extents[first..] {
                if begin > at || at == end {
                    break;
                }
                let offset = file_offset + (at - begin);
                let here = end.min(begin + len) - at;
                is_data = true;
                ascends &= offset >= reached[file];
                reached[file] = offset + here;
                at += here;
            }
            if is_data {
                seen.bios += 1;
                seen.bytes += at - write.offset_bytes;
                seen.by_others += u64::from(!write.by_flusher);
                ascending += u64::from(ascends);
            }
        }
        if seen.bios > 0 {
            seen.ascending = ascending as f64 / seen.bios as f64;
        }
        seen
    }
}

/// The extents of the streams' files in a closed ext4 image with blocks of [`BLOCK_BYTES`], from `debugfs`.
pub(super) fn extents_of(image: &Path, files: u64) -> Result<Vec<Extent>> {
    let mut extents = Vec::new();
    for file in 0..files {
        let request = format!("dump_extents -l /{}", stream_name(file));
        let listing = run("debugfs", &["-R", &request, &image.to_string_lossy()])?;
        extents.extend(
            listing
                .lines()
                .filter_map(|line| parse_extent(line, file as usize)),
        );
    }
    Ok(extents)
}

/// Parses `level/levels entry/entries first - last first - last length`: the first pair in the file, the
/// second on the device.
fn parse_extent(line: &str, file: usize) -> Option<Extent> {
    let words = line.split(|c: char| c.is_whitespace() || c == '/' || c == '-');
    let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
    let [_, _, _, _, first, _, device, _, len] = numbers[..] else {
        return None;
    };
    Some((
        device * BLOCK_BYTES,
        len * BLOCK_BYTES,
        file,
        first * BLOCK_BYTES,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(writes: &[(u64, u64, bool)]) -> Seen {
        let write = |&(offset_bytes, len_bytes, by_flusher): &(u64, u64, bool)| Write {
            offset_bytes,
            len_bytes,
            by_flusher,
        };
        Seen {
            writes: writes.iter().map(write).collect(),
            dirty: Dirty::default(),
            pauses: Pauses::default(),
            waits: Pauses::default(),
            balance_calls: 0,
        }
    }

    #[test]
    fn bios_are_judged_in_their_files() {
        // File 0 is placed after file 1, with its second half first.
        let extents = vec![(1000, 100, 0, 100), (2000, 100, 0, 0), (0, 500, 1, 0)];
        let seen = seen(&[
            (2000, 50, true),
            (0, 100, true),
            (2050, 50, true),
            (5000, 10, false), // metadata
            (500, 10, false),  // metadata
            (1000, 100, true),
            (50, 10, false), // backwards, and submitted by a writer
            (100, 100, true),
        ]);
        let data = seen.data_bios(extents);
        assert_eq!((data.bios, data.bytes, data.by_others), (6, 410, 1));
        assert!((data.ascending - 5.0 / 6.0).abs() < 1e-9);
    }

    #[test]
    fn a_bio_over_two_files_moves_both_on() {
        let extents = vec![(0, 100, 0, 0), (100, 100, 1, 0), (200, 100, 0, 100)];
        let data = seen(&[(50, 100, true), (200, 100, true), (150, 50, true)]).data_bios(extents);
        assert_eq!((data.bios, data.bytes, data.ascending), (3, 250, 1.0));
    }

    #[test]
    fn debugfs_lists_extents() {
        let line = " 1/ 1   2/  8  32768 -  65535   67584 -  100351  32768 ";
        let expected = (67584 * 4096, 32768 * 4096, 3, 32768 * 4096);
        assert_eq!(parse_extent(line, 3), Some(expected));
        assert_eq!(
            parse_extent("Level Entries Logical Physical Length Flags", 0),
            None
        );
    }
}
