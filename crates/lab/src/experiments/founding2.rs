//! `founding/2`, report 2: many threads, 4 KiB direct I/O on one shared device and on one shared file, with what keeps
//! truncation away counted not at all, by a lock whose readers share no cache line, or by one shared counter.
//!
//! The devices move nothing: what is measured is the path. The shared counter is the report's, two atomic operations
//! on one cache line per I/O; it lives here and not in the engine.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use throughline::Volume;
use throughline_block::Disk;
use throughline_device::{AlignedBuf, BlockDevice, NullDevice};
use throughline_fileio::RawFile;

use super::Experiment;
use crate::hollow::HollowDevice;
use crate::interleave::{Sample, Variant, interleave};
use crate::kernel::mke2fs;
use crate::outcome::Outcome;
use crate::{Error, Result, Settings};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "founding/2",
    about: "report 2: threads on one shared raw device and file, 4 KiB direct; no count, sharded, one shared counter",
    run,
};

const IO_BYTES: usize = 4096;
const SHARED_BYTES: u64 = 16 << 20;
/// I/Os between two looks at the clock.
const BATCH: u64 = 256;

/// The counter of the report: every I/O of every thread writes this line, twice.
#[derive(Default)]
struct DioCount(AtomicI64);

impl DioCount {
    fn around<R>(&self, io: impl FnOnce() -> R) -> R {
        self.0.fetch_add(1, Ordering::AcqRel);
        let result = io();
        self.0.fetch_sub(1, Ordering::AcqRel);
        result
    }
}

fn run(settings: &Settings<'_>) -> Result<Outcome> {
    let mut outcome = Outcome::new(EXPERIMENT.name);
    let sample_time = Duration::from_millis(settings.scaled(400, 20));
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let disk =
        Disk::new(Arc::new(NullDevice::new(1 << 30))).map_err(|e| Error::new(e.to_string()))?;
    let raw = RawFile::new(Arc::new(disk));
    let (volume, file) = hollow_file(settings)?;
    let shared = DioCount::default();
    let sharded = crossbeam_utils::sync::ShardedLock::new(());

    let raw_io = |buffer: &mut AlignedBuf, offset: u64| {
        raw.read_at(offset, buffer)
            .map(drop)
            .map_err(|e| Error::new(e.to_string()))
    };
    let file_io = |buffer: &mut AlignedBuf, offset: u64| {
        file.read_at(offset, buffer)
            .map(drop)
            .map_err(|e| Error::new(e.to_string()))
    };
    let raw_shared = |b: &mut AlignedBuf, o: u64| shared.around(|| raw_io(b, o));
    let raw_sharded = |b: &mut AlignedBuf, o: u64| {
        let _guard = sharded.read();
        raw_io(b, o)
    };
    let file_shared = |b: &mut AlignedBuf, o: u64| shared.around(|| file_io(b, o));
    type Io<'a> = &'a (dyn Fn(&mut AlignedBuf, u64) -> Result<()> + Sync);
    let ways: [(&str, Io<'_>); 5] = [
        ("raw, none (ours)", &raw_io),
        ("raw, sharded", &raw_sharded),
        ("raw, one shared counter", &raw_shared),
        ("file, sharded (ours)", &file_io),
        ("file, one shared counter", &file_shared),
    ];
    let mut variants = Vec::new();
    let counts: Vec<usize> = std::iter::successors(Some(1usize), |n| Some(n * 2))
        .take_while(|n| *n <= cpus)
        .collect();
    for threads in &counts {
        for (name, io) in ways {
            let threads = *threads;
            variants.push(Variant::new(
                format!("{name}, {threads} threads"),
                move || hammer(threads, sample_time, io),
            ));
        }
    }
    interleave(
        &mut outcome,
        &mut variants,
        settings.rounds.unwrap_or(15),
        settings.progress,
    )?;
    drop(variants);
    drop((file, volume));
    bars(&mut outcome, &counts);
    Ok(outcome)
}

/// An ext4 file whose blocks are on a device that moves nothing where the file's data is.
fn hollow_file(settings: &Settings<'_>) -> Result<(Volume, throughline::File)> {
    let scratch = settings.scratch()?;
    let image = scratch.path().join("image");
    mke2fs(&image, 128 << 20, &["-t", "ext4", "-b", "4096"])?;
    let device = Arc::new(HollowDevice::load(&image)?);
    let as_error = |e: throughline::Error| Error::new(e.to_string());
    let volume = throughline::OpenOptions::new()
        .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
        .map_err(as_error)?;
    let file = volume
        .create_file("/shared", &throughline::Attributes::new())
        .and_then(|file| file.reopen(throughline::FileOptions::new().direct(true)))
        .map_err(as_error)?;
    let content = vec![1u8; SHARED_BYTES as usize];
    file.write_at(0, &content).map_err(as_error)?;
    volume.sync().map_err(as_error)?;
    device.hollow_out();
    Ok((volume, file))
}

/// `threads` threads at random places for a while; I/Os per second in all.
fn hammer(
    threads: usize,
    time: Duration,
    io: &(dyn Fn(&mut AlignedBuf, u64) -> Result<()> + Sync),
) -> Result<Sample> {
    let (total, start) = (AtomicU64::new(0), Barrier::new(threads));
    let began = Instant::now();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                let (total, start) = (&total, &start);
                scope.spawn(move || -> Result<()> {
                    let mut buffer = AlignedBuf::zeroed(IO_BYTES, 4096);
                    let mut random = fastrand::Rng::with_seed(number as u64);
                    start.wait();
                    let (begin, mut count) = (Instant::now(), 0u64);
                    while begin.elapsed() < time {
                        for _ in 0..BATCH {
                            io(
                                &mut buffer,
                                random.u64(..SHARED_BYTES / IO_BYTES as u64) * IO_BYTES as u64,
                            )?;
                        }
                        count += BATCH;
                    }
                    total.fetch_add(count, Ordering::Relaxed);
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|w| {
            w.join()
                .unwrap_or_else(|_| Err(Error::new("a worker panicked")))
        })
    })?;
    let iops = total.into_inner() as f64 / began.elapsed().as_secs_f64();
    Ok(vec![("rate", "kIOPS", iops / 1000.0)])
}

fn bars(outcome: &mut Outcome, counts: &[usize]) {
    let name = |way: &str, threads: usize| format!("{way}, {threads} threads");
    let (raw, file) = ("raw, none (ours)", "file, sharded (ours)");
    for &threads in counts.iter().filter(|n| **n > 1) {
        for ours in [raw, file] {
            let target = if threads == 2 { 1.8 } else { 0.0 };
            let (many, one) = (name(ours, threads), name(ours, 1));
            let title = format!("{ours}: {threads} threads / 1 thread");
            match outcome.ratio(&title, "rate", &many, &one) {
                Some(ratio) if threads == 2 => outcome.at_least(&title, ratio.value, target),
                _ => {}
            }
        }
        for (ours, others) in [
            (raw, &["raw, sharded", "raw, one shared counter"][..]),
            (file, &["file, one shared counter"][..]),
        ] {
            for other in others {
                let title = format!("{ours} / {other}, {threads} threads");
                if let Some(ratio) =
                    outcome.ratio(&title, "rate", &name(ours, threads), &name(other, threads))
                {
                    // "Not below": the interval reaches 1.
                    outcome.at_least(
                        &format!("{title}, upper end of the interval"),
                        ratio.high,
                        1.0,
                    );
                }
            }
        }
    }
    if counts.len() == 1 {
        outcome
            .notes
            .push("one processor: scaling over threads cannot be seen here".into());
    }
}
