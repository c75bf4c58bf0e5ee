//! Untrusted images: structures changed one by one and resealed, random bytes, truncated images. All of it is
//! read and changed, also in random order, and by requests to a mount's server. Errors are allowed; a panic,
//! a hang or unbounded memory is not.
//!
//! `THROUGHLINE_HOSTILE='ext4 rich:17'` runs one image again, `THROUGHLINE_SOAK=1` runs many more.

mod base;
mod choices;
mod edges;
mod exercise;
mod mutate;
mod resized;
mod sequence;
mod served;
mod waiting;

use crate::survey::Base;
use crate::watch::{WATCH, over_threads};

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use base::RECIPES;
use choices::Choices;
use throughline::OpenOptions;
use throughline::internal::OpenBlockDevice;
use throughline_device::BlockDevice;

/// All base images; empty if the tools are missing.
static BASES: LazyLock<Vec<(&str, Base)>> = LazyLock::new(bases);

/// As many seeds of damage, from that of the run on.
fn seeds(many: u64) -> Range<u64> {
    let first = throughline_testkit::seed::of_run(0);
    first..first + many
}

fn per_recipe() -> u64 {
    throughline_testkit::tier::pick(8, 60, 20_000)
}

fn bases() -> Vec<(&'static str, Base)> {
    let made = RECIPES
        .iter()
        .map(|recipe| Some((recipe.name, Base::new(base::make(recipe)?))));
    made.collect::<Option<_>>().unwrap_or_else(|| {
        throughline_testkit::missing!(
            "mke2fs, debugfs or e2fsck is missing or does not support a feature"
        );
        Vec::new()
    })
}

pub(crate) fn make_bases() {
    LazyLock::force(&BASES);
}

/// Does `work` with damaged images of all recipes, on several threads. Returns the number of images.
fn each_image<T>(
    bases: &[(&str, Base)],
    seeds: &Range<u64>,
    work: impl Fn(&[u8], u64) -> T + Sync,
    done: impl Fn(T) + Sync,
) -> u64 {
    let watch = &*WATCH;
    let (next, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    over_threads(|| {
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let (seed, recipe) = (
                seeds.start + n / bases.len() as u64,
                n as usize % bases.len(),
            );
            if seed >= seeds.end {
                return;
            }
            let (name, base) = &bases[recipe];
            let what = format!("THROUGHLINE_HOSTILE='{name}:{seed}'");
            match watch.over(&what, || work(&mutate::mutate(base, seed), seed)) {
                Some(reached) => done(reached),
                None => {
                    failed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    });
    eprintln!("slowest: {:?}", watch.slowest());
    let failed = failed.into_inner();
    assert_eq!(failed, 0, "images caused a panic; they are named above");
    (seeds.end - seeds.start) * bases.len() as u64
}

/// Does `work` with the image that `THROUGHLINE_HOSTILE` names, if it names one.
fn one_image(bases: &[(&str, Base)], work: impl Fn(&[u8], u64)) -> bool {
    let Ok(one) = std::env::var("THROUGHLINE_HOSTILE") else {
        return false;
    };
    let (name, seed) = one.rsplit_once(':').expect("NAME:SEED");
    let base = &bases
        .iter()
        .find(|(found, _)| *found == name)
        .expect("a recipe's name")
        .1;
    let seed = seed.parse().expect("a number");
    let bytes = mutate::mutate(base, seed);
    if let Some(path) = std::env::var_os("THROUGHLINE_HOSTILE_IMAGE") {
        std::fs::write(path, &bytes).expect("a place for the image");
    }
    assert!(WATCH.over(&one, || work(&bytes, seed)).is_some());
    true
}

/// Reads and changes damaged images of all recipes.
fn change_images(bases: &[(&str, Base)], seeds: Range<u64>) {
    let (opened, writable, changed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let all = each_image(
        bases,
        &seeds,
        |bytes, _| exercise::exercise(bytes),
        |reached| {
            opened.fetch_add(reached.opened.into(), Ordering::Relaxed);
            writable.fetch_add(reached.writable.into(), Ordering::Relaxed);
            changed.fetch_add((reached.changes > 20).into(), Ordering::Relaxed);
        },
    );
    let [opened, writable, changed] = [opened, writable, changed].map(AtomicU64::into_inner);
    eprintln!("{opened} could be read, {writable} opened for writing, {changed} changed");
    throughline_testkit::ledger::judged(all, "damaged images");
    // Damage that the open rejects tests only the open.
    assert!(opened * 2 > all && changed * 4 > all);
}

#[test]
fn damaged_images() {
    let (bases, watch) = (&*BASES, &*WATCH);
    for (name, base) in bases {
        let reached = watch
            .over(name, || exercise::exercise(&base.bytes))
            .expect("a sound image");
        assert!(reached.opened && reached.names > 200, "{name}: {reached:?}");
        assert!(
            reached.writable != name.contains("read only"),
            "{name}: {reached:?}"
        );
    }
    let again = one_image(bases, |bytes, _| {
        exercise::exercise(bytes);
    });
    if !again && !bases.is_empty() {
        change_images(bases, seeds(per_recipe()));
    }
}

/// Damaged images that grow and shrink.
#[test]
fn damaged_images_get_another_size() {
    let bases = &*BASES;
    for (name, base) in bases {
        for kind in 0..resized::KINDS {
            let resized = WATCH
                .over(name, || resized::resize(&base.bytes, kind))
                .expect("a sound image");
            let is_refused = name.contains("read only") || name.contains("of clusters");
            assert!(resized || is_refused, "{name}, {kind}");
        }
    }
    let again = one_image(bases, |bytes, seed| {
        resized::resize(bytes, seed);
    });
    if again || bases.is_empty() {
        return;
    }
    let resized = AtomicU64::new(0);
    let all = each_image(bases, &seeds(per_recipe() / 3), resized::resize, |done| {
        resized.fetch_add(done.into(), Ordering::Relaxed);
    });
    let resized = resized.into_inner();
    eprintln!("{resized} got another size");
    throughline_testkit::ledger::judged(all, "damaged images that were resized");
    // Damage that the first check finds tests only that.
    assert!(resized * 10 > all);
}

/// Random operations, and requests to a mount's server, on damaged images.
#[test]
fn damaged_images_in_sequences() {
    in_sequences(
        "damaged images, with sequences of operations",
        |device, seed| sequence::run(device, Choices::of_seed(seed ^ 0x5e9)),
        40,
    );
}

#[test]
fn damaged_images_are_served() {
    in_sequences(
        "damaged images that were served",
        |device, seed| served::run(device, Choices::of_seed(seed ^ 0xf05e)),
        30,
    );
}

/// `steps` returns how many steps succeeded: on a sound image, at least `least`.
fn in_sequences(what: &str, steps: fn(&Arc<dyn BlockDevice>, u64) -> usize, least: usize) {
    let run = |bytes: &[u8], seed| {
        let device = exercise::load(bytes, 0);
        let done = steps(&device, seed);
        if let Ok(volume) = OpenOptions::new().open_block_device(device) {
            exercise::read_all(&volume);
        }
        done
    };
    let bases = &*BASES;
    for (name, base) in bases {
        let most = (0..8).map(|seed| WATCH.over(name, || run(&base.bytes, seed)));
        let most = most.map(|done| done.expect("a sound image")).max();
        let is_refused = name.contains("read only");
        assert!(is_refused || most >= Some(least), "{name}: {most:?} steps");
    }
    let again = one_image(bases, |bytes, seed| {
        run(bytes, seed);
    });
    if again || bases.is_empty() {
        return;
    }
    let reached = AtomicU64::new(0);
    let all = each_image(bases, &seeds(per_recipe() / 6), run, |done| {
        reached.fetch_add((done > 10).into(), Ordering::Relaxed);
    });
    let reached = reached.into_inner();
    eprintln!("{reached} of {all} with more than 10 steps that succeeded");
    throughline_testkit::ledger::judged(all, what);
    // Damage that the open rejects tests only the open.
    assert!(reached * 3 > all);
}

/// Checks the checker: a panic must be noticed.
#[test]
fn a_panic_is_noticed() {
    let panics = || -> usize { Vec::<u8>::new().iter().position(|_| true).unwrap() };
    assert!(
        WATCH
            .over("an image that panics on purpose", panics)
            .is_none()
    );
    assert_eq!(WATCH.over("one that does not", || 7), Some(7));
}
