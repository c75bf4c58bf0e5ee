//! Random operations through buffered, direct and sync handles on the same files, compared with the reference
//! model, with a page cache so small that every turn evicts and writes back. `e2fsck` checks the image, the
//! model everything else.

use crate::oracle;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use oracle::image::{LATER, SHAPES, Scratch, Shape, shape_of, tools};
use oracle::seeds::{Counts, Deadline, Seeds, seeds, soak};
use oracle::subject::VolumeSubject;
use throughline::{DirtyLimits, OpenOptions};
use throughline_testing::model::{Bounds, Driver, Handle, Profile};

const SOAK_SEEDS: u64 = 10_000;
const OPERATIONS: u32 = 1000;

const PROFILES: [Profile; 7] = [
    Profile::Hot,
    Profile::Data,
    Profile::Hot,
    Profile::Extents,
    Profile::Hot,
    Profile::Mixed,
    Profile::Small,
];

/// A small cache; its size and its dirty limit depend on the seed.
fn options(seed: u64) -> OpenOptions {
    let mut random = fastrand::Rng::with_seed(seed ^ 0xcac4e);
    let mut limits = DirtyLimits::default();
    limits.limit_bytes = [None, Some(256 << 10), Some(1 << 20)][random.usize(..3)];
    let mut options = OpenOptions::new();
    options.write(true);
    options
        .cache_bytes(Some((1 << 20) << random.u32(..3)))
        .dirty_limits(limits);
    options
}

/// Compares everything through buffered handles, which leave most of it in the cache, and through direct
/// ones.
fn compare(driver: &mut Driver, subject: &mut VolumeSubject) -> Result<(), String> {
    for reader in [Handle::Buffered, Handle::Direct] {
        driver.reader = reader;
        driver
            .compare(subject)
            .map_err(|what| format!("{reader:?}: {what}"))?;
    }
    driver.reader = Handle::Buffered;
    Ok(())
}

/// Runs one seed: a shape, a profile and a cache.
fn run(seed: u64, scratch: &Scratch, shapes: &[Shape]) -> Result<Counts, String> {
    let shape: &Shape = &shapes[seed as usize % shapes.len()];
    let profile = PROFILES[(seed as usize / shapes.len() + seed as usize) % PROFILES.len()];
    let device = scratch.device(shape);
    let bounds = Bounds {
        mixed: true,
        ..shape.bounds()
    };
    let mut driver = Driver::new(seed, profile, bounds);
    driver.reader = Handle::Buffered;
    let named = |what: String| format!("seed {seed}, {}, {profile:?}: {what}", shape.name);
    let mut subject = VolumeSubject::open_with(Arc::clone(&device), &options(seed))
        .map_err(|refusal| named(format!("open: {refusal:?}")))?;
    driver.run(&mut subject, OPERATIONS).map_err(named)?;
    compare(&mut driver, &mut subject).map_err(|what| named(format!("at the end: {what}")))?;
    driver.tree.close_all_kept();
    subject
        .close()
        .map_err(|refusal| named(format!("close: {refusal:?}")))?;
    scratch
        .check(&*device)
        .map_err(|what| named(driver.report(&what)))?;
    let mut subject = VolumeSubject::open_with(device, &options(seed))
        .map_err(|refusal| named(format!("open again: {refusal:?}")))?;
    compare(&mut driver, &mut subject).map_err(|what| named(format!("opened again: {what}")))?;
    subject
        .close()
        .map_err(|refusal| named(format!("close again: {refusal:?}")))?;
    Ok(Counts {
        no_space: driver.no_space,
        refused: driver.unsupported,
        files: driver.tree.len(),
    })
}

#[test]
fn handles_of_all_kinds_do_what_the_model_does() {
    // Every shape twice, with a different profile each time.
    let seeds = Seeds {
        usual: 2 * SHAPES.len() as u64,
        soak: SOAK_SEEDS,
        found: &[],
    };
    let sum = seeds.run("mixed", |seed, scratch| run(seed, scratch, SHAPES));
    let says_enough = sum.is_none_or(|sum| sum.no_space > 50);
    assert!(says_enough, "the operations say too little");
}

/// The same with later features; with `bigalloc`, runs in flight share clusters.
#[test]
fn handles_of_all_kinds_on_later_shapes_do_what_the_model_does() {
    let seeds = Seeds {
        usual: 3 * LATER.len() as u64,
        soak: SOAK_SEEDS,
        found: &[],
    };
    let sum = seeds.run("mixed, later shapes", |seed, scratch| {
        run(seed, scratch, LATER)
    });
    let says_enough = sum.is_none_or(|sum| sum.files > 1_000);
    assert!(says_enough, "the operations say too little");
}

/// Threads in separate directories share one small cache, while another thread changes its limits and syncs.
/// They contend in the cache, the flusher, the throttle, the allocators and the journal.
#[test]
fn threads_in_one_cache_do_what_their_models_do() {
    if !tools() {
        return;
    }
    let names = [
        "ext4 4k",
        "ext4 1k",
        "ext3 1k",
        "inline_data 4k",
        "ext2 4k",
        "bigalloc 4k in 16k",
        "bigalloc 1k in 4k",
        "encrypt, casefold, verity",
        "journal outside",
    ];
    let most = if soak() { 2000 } else { names.len() as u64 };
    let seeds = seeds(most);
    let scratch = Scratch::new();
    for seed in seeds {
        let name = names[seed as usize % names.len()];
        let _deadline = Deadline::new(format!("threads, seed {seed}"));
        together(seed, name, &scratch).unwrap_or_else(|what| {
            panic!("threads, THROUGHLINE_SEED={seed} (not all of it repeats), {name}: {what}")
        });
    }
}

const THREADS: u64 = 4;

fn together(seed: u64, name: &str, scratch: &Scratch) -> Result<(), String> {
    let shape = shape_of(name);
    let device = scratch.device(&Shape { mib: 96, ..*shape });
    let bounds = Bounds {
        exclusive: false,
        far_bytes: 64 << 20,
        mixed: true,
        ..shape.bounds()
    };
    let failed = |call: &str| {
        let call = call.to_owned();
        move |refusal| format!("{call}: {refusal:?}")
    };
    let subject =
        VolumeSubject::open_with(Arc::clone(&device), &options(seed)).map_err(failed("open"))?;
    let mut parts = Vec::new();
    for thread in 0..THREADS {
        let profile = PROFILES[(seed as usize + thread as usize * 3) % PROFILES.len()];
        let part = subject
            .below(&format!("/t{thread}"))
            .map_err(failed("mkdir"))?;
        parts.push((Driver::new(seed * 100 + thread, profile, bounds), part));
    }
    let ended = AtomicBool::new(false);
    let ran: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let disturbing = scope.spawn(|| disturb(&subject, seed, &ended));
        let workers: Vec<_> = parts
            .iter_mut()
            .map(|(driver, part)| {
                scope.spawn(|| {
                    driver.reader = Handle::Buffered;
                    driver.run(part, OPERATIONS)?;
                    compare(driver, part)
                })
            })
            .collect();
        let mut ran: Vec<_> = workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|_| Err("panicked".into())))
            .collect();
        ended.store(true, Ordering::Relaxed);
        ran.push(disturbing.join().expect("no panic"));
        ran
    });
    for (driver, part) in &mut parts {
        driver.tree.close_all_kept();
        part.release();
    }
    ran.into_iter().collect::<Result<(), String>>()?;
    subject.close().map_err(failed("close"))?;
    scratch.check(&*device)?;
    let again = VolumeSubject::open_with(device, &options(seed)).map_err(failed("open again"))?;
    for (driver, part) in &mut parts {
        let mut part = part.on(&again);
        compare(driver, &mut part).map_err(|what| format!("opened again: {what}"))?;
    }
    again.close().map_err(failed("close again"))
}

/// Changes no content: varies limits and budgets, and syncs.
fn disturb(subject: &VolumeSubject, seed: u64, ended: &AtomicBool) -> Result<(), String> {
    let mut random = fastrand::Rng::with_seed(seed ^ 0xd157);
    let volume = subject.volume();
    while !ended.load(Ordering::Relaxed) {
        match random.u8(..4) {
            0 => volume.sync().map_err(|error| format!("sync: {error}"))?,
            1 => {
                let bytes = (1 << 20) << random.u32(..4);
                volume.tune().cache_bytes(Some(bytes));
            }
            2 => {
                let mut limits = DirtyLimits::default();
                limits.limit_bytes = [None, Some(256 << 10), Some(2 << 20)][random.usize(..3)];
                volume.tune().dirty_limits(limits);
            }
            _ => drop(
                volume
                    .stat_fs()
                    .map_err(|error| format!("statfs: {error}"))?,
            ),
        }
        std::thread::yield_now();
    }
    Ok(())
}
