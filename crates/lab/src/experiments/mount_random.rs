//! `mount/random`: 4 KiB at random offsets of one file through a mount. Cached reads by 1 and 4 threads, on
//! read-only and on writable descriptors; writes with one fsync at the end; and `O_SYNC` writes.

use std::os::unix::fs::FileExt;

use rustix::fs::OFlags;

use crate::interleave::Sample;
use crate::mounts::contestants::{Aim, Contestant};
use crate::mounts::work::{NEW, read_stream, together, write_stream};
use crate::mounts::{Bench, Session};
use crate::outcome::Outcome;
use crate::{Result, Settings};

const MIB: u64 = 1 << 20;
const BLOCK_BYTES: usize = 4096;
const CALL_BYTES: usize = 1 << 20;

/// The work of one sample.
struct Sizes {
    file_bytes: u64,
    /// Totals, over all threads.
    reads: u64,
    writes: u64,
    sync_writes: u64,
}

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let sizes = Sizes {
        file_bytes: settings.scaled(256 * MIB, 32 * MIB) / MIB * MIB,
        reads: settings.scaled(400_000, 20_000),
        writes: settings.scaled(50_000, 2_000),
        sync_writes: settings.scaled(4_000, 200),
    };
    let contestants = Contestant::all(outcome);
    let bench = Bench::new(settings, sizes.file_bytes * 2 + 256 * MIB, &[])?;
    bench.compare(outcome, &contestants, 7, &|session| sample(session, &sizes))?;
    outcome.count("file, MiB", (sizes.file_bytes / MIB) as f64);
    for quantity in ["reads", "reads, 4 threads"] {
        Aim::new(quantity).kernel(0.8, 0.8).judge(outcome);
    }
    for quantity in ["reads, O_RDWR", "writes", "O_SYNC writes"] {
        Aim::new(quantity).judge(outcome);
    }
    Ok(())
}

fn sample(session: &mut Session<'_>, sizes: &Sizes) -> Result<Sample> {
    let source = &session.bench.source;
    let file = session.root().open("file", NEW)?;
    write_stream(&file, source, sizes.file_bytes, CALL_BYTES)?;
    drop(file);
    session.cold()?;
    let root = session.root();
    let open = |flags| root.open("file", flags);
    // This read brings the file into the cache of the mount or of the kernel.
    read_stream(&open(OFlags::RDONLY)?, sizes.file_bytes, CALL_BYTES)?;
    let reads = |threads, flags| {
        let each = sizes.reads / threads as u64;
        let spent = together(threads, |thread| {
            let file = open(flags)?;
            let mut block = [0; BLOCK_BYTES];
            at_random(sizes, thread, each, |at| file.read_exact_at(&mut block, at))
        })?;
        Ok::<f64, crate::Error>((each * threads as u64) as f64 / spent.wall.as_secs_f64())
    };
    let writes = |count, flags| {
        let spent = together(1, |thread| {
            let file = open(OFlags::RDWR | flags)?;
            at_random(sizes, thread, count, |at| {
                let from = (at % source.len() as u64) as usize;
                file.write_all_at(&source[from..from + BLOCK_BYTES], at)
            })?;
            Ok(file.sync_all()?)
        })?;
        Ok::<f64, crate::Error>(count as f64 / spent.wall.as_secs_f64())
    };
    let (cached, both) = (OFlags::RDONLY, OFlags::RDWR);
    let rates = [
        ("reads", reads(1, cached)?),
        ("reads, 4 threads", reads(4, cached)?),
        ("reads, O_RDWR", reads(1, both)?),
        ("writes", writes(sizes.writes, OFlags::empty())?),
        ("O_SYNC writes", writes(sizes.sync_writes, OFlags::SYNC)?),
    ];
    Ok(rates.map(|(name, rate)| (name, "per s", rate)).into())
}

/// Calls `each` with this many offsets in the file. They are the same for every contestant.
fn at_random(
    sizes: &Sizes,
    thread: usize,
    count: u64,
    mut each: impl FnMut(u64) -> std::io::Result<()>,
) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(thread as u64);
    let blocks = sizes.file_bytes / BLOCK_BYTES as u64;
    for _ in 0..count {
        each(random.u64(..blocks) * BLOCK_BYTES as u64)?;
    }
    Ok(())
}
