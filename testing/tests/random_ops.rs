//! Random operations on a volume and on the reference model, over the features of the format; `e2fsck` judges the
//! image, the model everything else.
//!
//! `THROUGHLINE_SEED=n` runs one seed; `THROUGHLINE_SOAK=1` runs many more.

mod oracle;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use oracle::image::{SHAPES, Scratch, Shape, tools};
use oracle::subject::VolumeSubject;
use throughline_testing::model::{Driver, Profile};

const SEEDS: u64 = 200;
const SOAK_SEEDS: u64 = 5000;
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
    driver.tree.close_kept();
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

#[test]
fn random_operations_do_what_the_model_does() {
    if !tools() {
        return;
    }
    let soak = std::env::var_os("THROUGHLINE_SOAK").is_some();
    let one: Option<u64> = std::env::var("THROUGHLINE_SEED")
        .ok()
        .map(|seed| seed.parse().expect("a number"));
    let (first, end) = match one {
        Some(seed) => (seed, seed + 1),
        None => (0, if soak { SOAK_SEEDS } else { SEEDS }),
    };
    let next = AtomicU64::new(first);
    let sums = Mutex::new((0, 0, 0));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let scratch = Scratch::new();
                    let mut wrong = Vec::new();
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= end {
                            return wrong;
                        }
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
        "seeds {first} to {end}: {files} files left, {no_space} times no space, {unsupported} times unsupported"
    );
    // A driver that does next to nothing must not pass.
    assert!(
        one.is_some() || (no_space > 100 && files > 10_000),
        "the operations say too little"
    );
}
