//! `cache/hit`: threads read 4 KiB at random from a file that is all cached: through our page cache, as a file on an ext4
//! volume and as a plain file, against `pread` on a file that the kernel has cached, and against a bare copy from memory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use throughline::Handle;
use throughline_device::{AlignedBuf, Op};

use super::Experiment;
use crate::command::make_data;
use crate::interleave::{Sample, Variant, interleave};
use crate::kernel::mke2fs;
use crate::outcome::Outcome;
use crate::{Error, Result, Settings};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "cache/hit",
    about: "4 KiB random reads of a cached file over threads: our page cache, pread on the kernel's, a bare copy",
    run,
};

const READ_BYTES: usize = 4096;
const FILE_BYTES: u64 = 256 << 20;
const CALL_BYTES: usize = 1 << 20;
/// Reads between two looks at the clock.
const BATCH: u64 = 256;

const FILE: &str = "File (ours)";
const RAW: &str = "RawFile (ours)";
const PREAD: &str = "pread";
const COPY: &str = "bare copy";

type Io<'a> = &'a (dyn Fn(u64, &mut [u8]) -> Result<()> + Sync);

fn run(settings: &Settings<'_>) -> Result<Outcome> {
    let mut outcome = Outcome::new(EXPERIMENT.name);
    let sample_time = Duration::from_millis(settings.scaled(400, 20));
    let len = settings.scaled(FILE_BYTES, 8 << 20) / CALL_BYTES as u64 * CALL_BYTES as u64;
    let scratch = settings.scratch()?;
    let (plain, image) = (scratch.path().join("plain"), scratch.path().join("image"));
    make_data(&plain, len)?;
    mke2fs(
        &image,
        len + len / 4 + (64 << 20),
        &["-t", "ext4", "-b", "4096"],
    )?;

    let mut options = settings.opening();
    options.cache_bytes(Some(len * 2));
    let volume = options.open(&image).map_err(as_error)?;
    settings.hear_cache(volume.cache());
    let file = volume.create_file("/cached").map_err(as_error)?;
    fill(&file, &plain)?;
    let raw = options.open_raw(&plain).map_err(as_error)?;
    settings.hear_cache_of(&raw);
    let kernel = File::open(&plain)?;
    let memory = bring_in(&file, &raw, &kernel, len)?;

    let read_file = |at: u64, buf: &mut [u8]| whole(file.read_at(buf, at), buf.len());
    let read_raw = |at: u64, buf: &mut [u8]| whole(raw.read_at(buf, at), buf.len());
    let pread = |at: u64, buf: &mut [u8]| Ok(kernel.read_exact_at(buf, at)?);
    let copy = |at: u64, buf: &mut [u8]| {
        buf.copy_from_slice(&memory[at as usize..at as usize + buf.len()]);
        Ok(())
    };
    let ways: [(&str, Io<'_>); 4] = [
        (FILE, &read_file),
        (RAW, &read_raw),
        (PREAD, &pread),
        (COPY, &copy),
    ];
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let counts: Vec<usize> = std::iter::successors(Some(1_usize), |n| Some(n * 2))
        .take_while(|n| *n <= cpus)
        .collect();
    let mut variants = Vec::new();
    for &threads in &counts {
        for (name, io) in ways {
            variants.push(Variant::new(variant(name, threads), move || {
                hammer(threads, len, sample_time, io)
            }));
        }
    }
    let before = (volume.disk().counters(), raw.disk().counters());
    interleave(
        &mut outcome,
        &mut variants,
        settings.rounds.unwrap_or(15),
        settings,
    )?;
    drop(variants);
    let missed = volume.disk().counters().since(&before.0).bytes(Op::Read)
        + raw.disk().counters().since(&before.1).bytes(Op::Read);
    outcome
        .counters
        .insert("bytes our reads took from the device".into(), missed as f64);
    bars(&mut outcome, &counts);
    drop(file);
    volume.close().map_err(as_error)?;
    Ok(outcome)
}

fn as_error(error: throughline::Error) -> Error {
    Error::new(error.to_string())
}

fn variant(name: &str, threads: usize) -> String {
    format!("{name}, {threads} threads")
}

fn whole(read: throughline::Result<usize>, wanted: usize) -> Result<()> {
    match read.map_err(as_error)? {
        got if got == wanted => Ok(()),
        got => Err(Error::new(format!("read {got} bytes of {wanted}"))),
    }
}

/// Copies the plain file into a file on the volume, to its device: what is timed later is clean memory.
fn fill(file: &Handle, plain: &Path) -> Result<()> {
    let from = File::open(plain)?;
    let len = from.metadata()?.len();
    let mut buf = vec![0; CALL_BYTES];
    for at in (0..len).step_by(CALL_BYTES) {
        from.read_exact_at(&mut buf, at)?;
        file.write_all_at(&buf, at).map_err(as_error)?;
    }
    file.sync().map_err(as_error)
}

/// Has every cache hold its file, and a copy in plain memory.
fn bring_in(file: &Handle, raw: &Handle, kernel: &File, len: u64) -> Result<AlignedBuf> {
    let mut memory = AlignedBuf::zeroed(len as usize, 4096);
    for (number, piece) in memory.chunks_mut(CALL_BYTES).enumerate() {
        let at = (number * CALL_BYTES) as u64;
        whole(file.read_at(piece, at), CALL_BYTES)?;
        whole(raw.read_at(piece, at), CALL_BYTES)?;
        kernel.read_exact_at(piece, at)?;
    }
    Ok(memory)
}

/// `threads` threads at random places for a while: what one read takes a thread.
fn hammer(threads: usize, len: u64, time: Duration, io: Io<'_>) -> Result<Sample> {
    let (total, start) = (AtomicU64::new(0), Barrier::new(threads));
    let busy_ns = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                let (total, busy_ns, start) = (&total, &busy_ns, &start);
                scope.spawn(move || -> Result<()> {
                    let mut buffer = AlignedBuf::zeroed(READ_BYTES, 4096);
                    let mut random = fastrand::Rng::with_seed(number as u64);
                    start.wait();
                    let (begin, mut count) = (Instant::now(), 0_u64);
                    while begin.elapsed() < time {
                        for _ in 0..BATCH {
                            let block = random.u64(..len / READ_BYTES as u64);
                            io(block * READ_BYTES as u64, &mut buffer)?;
                        }
                        count += BATCH;
                    }
                    busy_ns.fetch_add(begin.elapsed().as_nanos() as u64, Ordering::Relaxed);
                    total.fetch_add(count, Ordering::Relaxed);
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| {
            worker
                .join()
                .unwrap_or_else(|_| Err(Error::new("a worker panicked")))
        })
    })?;
    let read_ns = busy_ns.into_inner() as f64 / (total.into_inner() as f64).max(1.0);
    Ok(vec![
        ("a read", "ns", read_ns),
        ("rate", "M/s", threads as f64 * 1000.0 / read_ns.max(1e-9)),
    ])
}

fn bars(outcome: &mut Outcome, counts: &[usize]) {
    for ours in [FILE, RAW] {
        for &threads in counts {
            let (over, under) = (variant(ours, threads), variant(PREAD, threads));
            let title = format!("{ours} / pread, {threads} threads");
            match threads {
                1 | 2 => outcome.ratio_at_least(&title, "rate", &over, &under, 1.5),
                _ => drop(outcome.ratio(&title, "rate", &over, &under)),
            }
        }
    }
    for way in [FILE, RAW, PREAD, COPY] {
        for &threads in counts.iter().filter(|n| **n > 1) {
            let (many, one) = (variant(way, threads), variant(way, 1));
            let title = format!("{way}: {threads} threads / 1 thread");
            match (way, threads) {
                (FILE | RAW, 2) => outcome.ratio_at_least(&title, "rate", &many, &one, 1.8),
                _ => drop(outcome.ratio(&title, "rate", &many, &one)),
            }
        }
    }
    if counts.len() == 1 {
        outcome
            .notes
            .push("one processor: scaling over threads cannot be seen here".into());
    }
}
