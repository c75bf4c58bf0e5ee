//! Random operations on a volume and on the reference model, over the features of the format; `e2fsck` checks
//! the image, the model everything else.
//!
//! All handles are direct here; `random_mixed` uses all kinds.

use crate::oracle;

use std::sync::Arc;

use oracle::image::{LATER, SHAPES, Scratch, Shape, shape_of, tools};
use oracle::seeds::{Counts, Seeds};
use oracle::subject::VolumeSubject;
use throughline_testing::model::{Bounds, Driver, Profile};

const SOAK_SEEDS: u64 = 5000;
/// Seeds that once found a bug.
const FOUND: [u64; 5] = [245, 286, 450, 491, 696];
const OPERATIONS: u32 = 2000;

/// Runs one seed: a shape and a profile.
fn run(seed: u64, scratch: &Scratch, shapes: &[Shape]) -> Result<Counts, String> {
    let shape: &Shape = &shapes[seed as usize % shapes.len()];
    let profile = Profile::ALL[(seed as usize / shapes.len() + seed as usize) % Profile::ALL.len()];
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
        .map_err(|what| named(driver.report(&what)))?;
    let mut subject =
        VolumeSubject::open(device).map_err(|refusal| named(format!("open again: {refusal:?}")))?;
    driver
        .compare(&mut subject)
        .map_err(|what| named(format!("opened again: {what}")))?;
    subject
        .close()
        .map_err(|refusal| named(format!("close again: {refusal:?}")))?;
    Ok(Counts {
        no_space: driver.no_space,
        refused: driver.unsupported,
        files: driver.tree.len(),
    })
}

// A driver that does next to nothing must not pass.

#[test]
fn random_operations_do_what_the_model_does() {
    let seeds = Seeds {
        usual: 60,
        soak: SOAK_SEEDS,
        found: &FOUND,
    };
    let sum = seeds.run("direct", |seed, scratch| run(seed, scratch, SHAPES));
    let says_enough = sum.is_none_or(|sum| sum.no_space > 100 && sum.files > 10_000);
    assert!(says_enough, "the operations say too little");
}

#[test]
fn random_operations_on_later_shapes_do_what_the_model_does() {
    let seeds = Seeds {
        usual: 4 * LATER.len() as u64,
        soak: SOAK_SEEDS,
        found: &[],
    };
    let sum = seeds.run("direct, later shapes", |seed, scratch| {
        run(seed, scratch, LATER)
    });
    let says_enough = sum.is_none_or(|sum| sum.files > 5_000);
    assert!(says_enough, "the operations say too little");
}

/// Threads in separate directories of one volume; they contend in the allocators, the journal and the tables.
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
        "quota",
        "bigalloc 4k in 64k",
        "bigalloc 1k in 4k",
        "casefold",
        "encrypt, verity",
        "journal outside 4k",
    ];
    let step = throughline_testkit::tier::pick(5, 1, 1);
    for (index, name) in names.iter().enumerate().step_by(step) {
        let shape = shape_of(name);
        let device = scratch.device(&Shape { mib: 96, ..*shape });
        let bounds = Bounds {
            exclusive: false,
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
