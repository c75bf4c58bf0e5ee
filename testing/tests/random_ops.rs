//! Random operations on a volume and on the reference model, over the features of the format; `e2fsck` judges the
//! image, the model everything else.
//!
//! `THROUGHLINE_SEED=n` runs one seed, `THROUGHLINE_SEED=n..m` some; `THROUGHLINE_SOAK=1` runs many more.

mod oracle;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use oracle::image::{SHAPES, Scratch, Shape, tools};
use oracle::subject::VolumeSubject;
use throughline_testing::model::{Bounds, Driver, Profile, Subject};

const SEEDS: u64 = 200;
const SOAK_SEEDS: u64 = 5000;
/// Seeds that found something once.
const FOUND: [u64; 5] = [245, 286, 450, 491, 696];
const OPERATIONS: u32 = 2000;

/// How often the subject had no space, and refused as unsupported; and the files left at the end.
type Counts = (u32, u32, usize);

/// One seed: a shape, a profile, and what they lead to.
fn run(seed: u64, scratch: &Scratch) -> Result<Counts, String> {
    let shape: &Shape = &SHAPES[seed as usize % SHAPES.len()];
    let profile = Profile::ALL[(seed as usize / SHAPES.len() + seed as usize) % Profile::ALL.len()];
    let device = scratch.device(shape);
    let mut driver = Driver::new(seed, profile, shape.bounds());
    let named = |what: String| format!("seed {seed}, {}, {profile:?}: {what}", shape.name);
    let mut subject = VolumeSubject::open(Arc::clone(&device))
        .map_err(|refusal| named(format!("open: {refusal:?}")))?;
    driver.run(&mut subject, OPERATIONS).map_err(named)?;
    driver
        .compare(&mut subject)
        .map_err(|what| named(format!("at the end: {what}")))?;
    driver.tree.close_all_kept();
    subject
        .close()
        .map_err(|refusal| named(format!("close: {refusal:?}")))?;
    scratch
        .check(&*device)
        .map_err(|what| named(driver.tell(&what)))?;
    let mut subject =
        VolumeSubject::open(device).map_err(|refusal| named(format!("open again: {refusal:?}")))?;
    driver
        .compare(&mut subject)
        .map_err(|what| named(format!("opened again: {what}")))?;
    subject
        .close()
        .map_err(|refusal| named(format!("close again: {refusal:?}")))?;
    Ok((driver.no_space, driver.unsupported, driver.tree.len()))
}

/// `n` or `n..m`.
fn range(text: &str) -> (u64, u64) {
    let number = |text: &str| {
        text.parse()
            .expect("THROUGHLINE_SEED is a number, or two with .. between")
    };
    match text.split_once("..") {
        Some((first, end)) => (number(first), number(end)),
        None => (number(text), number(text) + 1),
    }
}

#[test]
fn random_operations_do_what_the_model_does() {
    if !tools() {
        return;
    }
    let soak = std::env::var_os("THROUGHLINE_SOAK").is_some();
    let chosen = std::env::var("THROUGHLINE_SEED")
        .ok()
        .map(|text| range(&text));
    let (first, end) = chosen.unwrap_or((0, if soak { SOAK_SEEDS } else { SEEDS }));
    let found = FOUND
        .into_iter()
        .filter(|seed| chosen.is_none() && *seed >= end);
    let seeds: Vec<u64> = (first..end).chain(found).collect();
    let next = AtomicU64::new(0);
    let sums = Mutex::new((0, 0, 0));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let scratch = Scratch::new();
                    let mut wrong = Vec::new();
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(&seed) = seeds.get(at as usize) else {
                            return wrong;
                        };
                        let result = std::panic::catch_unwind(|| run(seed, &scratch));
                        match result {
                            Ok(Ok(counts)) => {
                                let mut sums = sums.lock().unwrap();
                                *sums = (sums.0 + counts.0, sums.1 + counts.1, sums.2 + counts.2);
                            }
                            Ok(Err(what)) => wrong.push(what),
                            Err(_) => wrong.push(format!("seed {seed}: panicked")),
                        }
                    }
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("panics are caught"))
            .collect()
    });
    assert!(
        wrong.is_empty(),
        "{} seeds failed:\n{}",
        wrong.len(),
        wrong.join("\n\n")
    );
    let (no_space, unsupported, files) = sums.into_inner().unwrap();
    eprintln!(
        "{} seeds: {files} files left, {no_space} times no space, {unsupported} times unsupported",
        seeds.len()
    );
    // A driver that does next to nothing must not pass.
    assert!(
        chosen.is_some() || (no_space > 100 && files > 10_000),
        "the operations say too little"
    );
}

/// Threads that drive directories of their own on one volume: they meet in the allocators, the journal, the tables.
#[test]
fn threads_on_one_volume_do_what_their_models_do() {
    const THREADS: u64 = 4;
    if !tools() {
        return;
    }
    let scratch = Scratch::new();
    let names = [
        "ext4 4k",
        "ext3 1k",
        "meta_bg",
        "inline_data 1k",
        "uninit_bg",
        "no dir_index",
        "orphan_file",
        "ext2 1k",
    ];
    for (index, name) in names.iter().enumerate() {
        let shape = SHAPES
            .iter()
            .find(|shape| shape.name == *name)
            .expect("a shape of the table");
        let device = scratch.device(&Shape { mib: 96, ..*shape });
        let bounds = Bounds {
            alone: false,
            far_bytes: 64 << 20,
            ..shape.bounds()
        };
        let subject = VolumeSubject::open(Arc::clone(&device)).expect("opens");
        let mut parts: Vec<(Driver, VolumeSubject)> = (0..THREADS)
            .map(|thread| {
                let profile = Profile::ALL[(thread as usize + index) % Profile::ALL.len()];
                let seed = index as u64 * 100 + thread;
                (
                    Driver::new(seed, profile, bounds),
                    subject.below(&format!("/t{thread}")).expect("a directory"),
                )
            })
            .collect();
        std::thread::scope(|scope| {
            for (driver, part) in &mut parts {
                scope.spawn(|| {
                    let ran = driver
                        .run(part, OPERATIONS)
                        .and_then(|()| driver.compare(part));
                    ran.unwrap_or_else(|what| panic!("{name}: {what}"));
                });
            }
        });
        let mut parts: Vec<(Driver, VolumeSubject)> = parts
            .into_iter()
            .map(|(mut driver, mut part)| {
                driver.tree.close_all_kept();
                part.close_all_kept();
                (driver, part)
            })
            .collect();
        for (_, part) in &mut parts {
            part.release();
        }
        subject
            .close()
            .unwrap_or_else(|refusal| panic!("{name}: close: {refusal:?}"));
        scratch
            .check(&*device)
            .unwrap_or_else(|what| panic!("{name}: {what}"));
        let again = VolumeSubject::open(device).expect("opens again");
        for (driver, part) in &mut parts {
            let mut part = part.on(&again);
            driver
                .compare(&mut part)
                .unwrap_or_else(|what| panic!("{name}, opened again: {what}"));
        }
        again
            .close()
            .unwrap_or_else(|refusal| panic!("{name}: close again: {refusal:?}"));
    }
}
