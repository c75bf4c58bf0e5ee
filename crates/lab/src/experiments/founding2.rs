//! `founding/2`, report 2: direct I/O of 4 KiB by many threads, on one shared device and on one shared file.
//! I/O in flight is protected from truncation in three ways: not at all, by a lock whose readers share no
//! cache line, and by one shared counter.
//!
//! The devices move no data, so only the path is measured. The shared counter is the report's, with two
//! atomic operations on one cache line per I/O. It is part of the lab, not of the engine.
//!
//! For more cores than this machine has, [`Scaling`] computes the result from the cost of one I/O on one core
//! and the cost of one cache line transfer between two cores, both measured here. It is reported as a model.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use throughline::Volume;
use throughline::internal::OpenBlockDevice;
use throughline_block::Disk;
use throughline_device::{BlockDevice, NullDevice};
use throughline_fileio::{self as fileio, RawFile};
use throughline_models::{MANY_CORES, Scaling};

use super::hammer::{Io, ONE_PROCESSOR, hammer, thread_counts};
use crate::interleave::Variant;
use crate::kernel::mke2fs;
use crate::modelled::load_image;
use crate::outcome::Outcome;
use crate::tap::{Hollow, Tapped};
use crate::{Result, Settings};

const SHARED_BYTES: u64 = 16 << 20;

/// The report's counter: every I/O of every thread writes this cache line twice.
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

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let sample_time = Duration::from_millis(settings.scaled(400, 20));
    let disk = Disk::new(Arc::new(NullDevice::new(1 << 30))).map_err(fileio::Error::from)?;
    let raw = RawFile::new(Arc::new(disk));
    let (volume, file) = hollow_file(settings)?;
    let shared = DioCount::default();
    let sharded = crossbeam_utils::sync::ShardedLock::new(());

    let raw_io = |at: u64, buffer: &mut [u8]| Ok(raw.read_at(at, buffer).map(drop)?);
    let file_io = |at: u64, buffer: &mut [u8]| Ok(file.read_at(buffer, at).map(drop)?);
    let raw_shared = |at: u64, buffer: &mut [u8]| shared.around(|| raw_io(at, buffer));
    let raw_sharded = |at: u64, buffer: &mut [u8]| {
        let _guard = sharded.read();
        raw_io(at, buffer)
    };
    let file_shared = |at: u64, buffer: &mut [u8]| shared.around(|| file_io(at, buffer));
    let ways: [(&str, Io<'_>); 5] = [
        ("raw, none (ours)", &raw_io),
        ("raw, sharded", &raw_sharded),
        ("raw, one shared counter", &raw_shared),
        ("file, sharded (ours)", &file_io),
        ("file, one shared counter", &file_shared),
    ];
    let mut variants = Vec::new();
    let counts = thread_counts();
    for &threads in &counts {
        for (name, io) in ways {
            let name = format!("{name}, {threads} threads");
            variants.push(Variant::new(name, move || {
                let ns = hammer(threads, SHARED_BYTES, sample_time, io)?;
                Ok(vec![("rate", "kIOPS", threads as f64 * 1e6 / ns)])
            }));
        }
    }
    if counts.len() > 1 {
        let measure = move || Ok(vec![("transfer", "ns", line_transfer_ns(sample_time))]);
        variants.push(Variant::new(LINE, measure));
    }
    outcome.measure(settings, 15, variants)?;
    drop((file, volume));
    bars(outcome, &counts);
    many_cores(outcome);
    Ok(())
}

/// The quantity measured for the many-core model.
const LINE: &str = "a cache line from core to core";

/// Transfers in each direction between two readings of the clock.
const HANDOVERS: u64 = 64;

/// Nanoseconds to transfer a cache line from the core that last wrote it to the next writer. Takes the
/// fastest batch within `time`, since interference can only add.
fn line_transfer_ns(time: Duration) -> f64 {
    let turn = crossbeam_utils::CachePadded::new(AtomicU64::new(0));
    let ended = AtomicBool::new(false);
    // Waits until the value is odd or even, whichever is its own, and increments it.
    let take_turn = |own: u64| {
        while turn.load(Ordering::Acquire) % 2 != own {
            if ended.load(Ordering::Relaxed) {
                return false;
            }
            std::hint::spin_loop();
        }
        turn.fetch_add(1, Ordering::AcqRel);
        true
    };
    std::thread::scope(|scope| {
        scope.spawn(|| while take_turn(1) {});
        let (begun, mut fastest_ns) = (Instant::now(), f64::INFINITY);
        while begun.elapsed() < time {
            let batch = Instant::now();
            for _ in 0..HANDOVERS {
                take_turn(0);
            }
            // One transfer in each direction.
            let ns = batch.elapsed().as_nanos() as f64 / (2 * HANDOVERS) as f64;
            fastest_ns = fastest_ns.min(ns);
        }
        ended.store(true, Ordering::Relaxed);
        fastest_ns
    })
}

/// The core count for which the reported gain is computed. The report names none; a two-socket server had 32
/// in 2015.
const REPORTED_CORES: u32 = 32;

/// The many-core model, from the measurements.
fn many_cores(outcome: &mut Outcome) {
    // Use the best sample of each, because interference can only slow them down.
    let rate = outcome.most("raw, none (ours), 1 threads", "rate");
    let line_ns = outcome
        .range(LINE, "transfer")
        .map_or(0.0, |(least, _)| least);
    if rate <= 0.0 || line_ns <= 0.0 {
        outcome.note(
            "the model of many cores was left out: it takes two processors to measure its input",
        );
        return;
    }
    let law = Scaling {
        op_ns: 1e6 / rate,
        line_ns,
    };
    for &cores in MANY_CORES {
        let mut count = |what: &str, value: f64| {
            outcome.count(format!("model, {cores:>3} cores: {what}"), value);
        };
        count("no count, kIOPS", law.without_counter(cores) / 1e3);
        count("one shared counter, kIOPS", law.with_counter(cores) / 1e3);
        count("gain", law.gain(cores));
    }
    if let Some(cores) = law.cores_for_gain(3.6) {
        let name = "model: cores from which the gain is 3.6";
        outcome.count(name, f64::from(cores));
    }
    let name = format!("model: gain of no count over one shared counter, {REPORTED_CORES} cores");
    outcome.at_least(&name, law.gain(REPORTED_CORES), 3.6);
    outcome.note(format!(
        "the figures for many cores are computed, not measured: n cores do n / {:.0} ns without the \
         counter, and with it at most 1 / (2 x {:.0} ns), because the counter's cache line then moves \
         between cores twice; both times are the shortest measured here",
        law.op_ns, law.line_ns
    ));
}

/// An ext4 file whose data lies on a device that moves none of it.
fn hollow_file(settings: &Settings<'_>) -> Result<(Volume, throughline::File)> {
    let scratch = settings.scratch()?;
    let image = scratch.path().join("image");
    mke2fs(&image, 128 << 20, &["-t", "ext4", "-b", "4096"])?;
    let memory = Arc::new(load_image(&image)?);
    let device = Arc::new(Tapped::new(memory, Hollow::default(), None));
    let volume = settings
        .opening()
        .open_block_device(Arc::clone(&device) as Arc<dyn BlockDevice>)?;
    let file = volume
        .create_file("/shared")
        .and_then(|file| file.reopen(throughline::FileOptions::new().direct(true)))?;
    file.write_at(&vec![1; SHARED_BYTES as usize], 0)?;
    volume.sync()?;
    device.tap.0.store(true, Ordering::Release);
    Ok((volume, file))
}

fn bars(outcome: &mut Outcome, counts: &[usize]) {
    let name = |way: &str, threads: usize| format!("{way}, {threads} threads");
    let (raw, file) = ("raw, none (ours)", "file, sharded (ours)");
    for &threads in counts.iter().filter(|n| **n > 1) {
        for ours in [raw, file] {
            let title = format!("{ours}: {threads} threads / 1 thread");
            let (many, one) = (name(ours, threads), name(ours, 1));
            let limit = (threads == 2).then_some(1.8);
            outcome.ratio_at_least(&title, "rate", (&many, &one), limit);
        }
        for (ours, other) in [
            (raw, "raw, sharded"),
            (raw, "raw, one shared counter"),
            (file, "file, one shared counter"),
        ] {
            let title = format!("{ours} / {other}, {threads} threads");
            let (over, under) = (name(ours, threads), name(other, threads));
            if let Some(ratio) = outcome.ratio(&title, "rate", &over, &under) {
                // "Not below": the interval reaches 1.
                let title = format!("{title}, upper end of the interval");
                outcome.at_least(&title, ratio.high, 1.0);
            }
        }
    }
    if counts.len() == 1 {
        outcome.note(ONE_PROCESSOR);
    }
}
