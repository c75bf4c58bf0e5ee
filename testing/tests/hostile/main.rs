//! Untrusted images: structures changed one by one and resealed, random bytes, truncated images. All of it is
//! read and changed. Errors are allowed; a panic, a hang or unbounded memory is not.
//!
//! `THROUGHLINE_HOSTILE='ext4 rich:17'` runs one image again, `THROUGHLINE_SOAK=1` runs many more.

mod base;
mod edges;
mod exercise;
mod mutate;
mod survey;
mod watch;

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use base::RECIPES;
use survey::Base;
use watch::Watch;

/// Two threads, as many as the reference machine has.
const THREADS: usize = 2;

/// Its bounds are those of work on images. The base images are the test's own, so they are made before.
static WATCH: LazyLock<Watch> = LazyLock::new(|| {
    LazyLock::force(&BASES);
    Watch::start()
});
/// All base images; empty if the tools are missing.
static BASES: LazyLock<Vec<(&str, Base)>> = LazyLock::new(bases);

fn per_recipe() -> u64 {
    if std::env::var_os("THROUGHLINE_SOAK").is_some() {
        20_000
    } else {
        300
    }
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

/// One test at a time: the bounds of [`watch`] apply to all threads together.
fn over_threads(work: impl Fn() + Sync) {
    static TURN: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
    let _turn = TURN.lock();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(&work);
        }
    });
}

/// Runs images of all recipes on several threads.
fn run_all(watch: &Watch, bases: &[(&str, Base)], seeds: std::ops::Range<u64>) {
    let (next, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let (opened, writable, changed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
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
            match watch.over(&what, || exercise::exercise(&mutate::mutate(base, seed))) {
                Some(reached) => {
                    opened.fetch_add(reached.opened.into(), Ordering::Relaxed);
                    writable.fetch_add(reached.writable.into(), Ordering::Relaxed);
                    changed.fetch_add((reached.changes > 20).into(), Ordering::Relaxed);
                }
                None => {
                    failed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    };
    over_threads(work);
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let all = (seeds.end - seeds.start) * bases.len() as u64;
    eprintln!("slowest: {:?}", watch.slowest());
    eprintln!(
        "{all} images: {} could be read, {} opened for writing, {} changed",
        count(&opened),
        count(&writable),
        count(&changed)
    );
    assert_eq!(
        count(&failed),
        0,
        "images caused a panic; they are named above"
    );
    // Damage that the open rejects tests only the open.
    assert!(count(&opened) * 2 > all && count(&changed) * 4 > all);
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
    if let Ok(one) = std::env::var("THROUGHLINE_HOSTILE") {
        let (name, seed) = one.rsplit_once(':').expect("NAME:SEED");
        let base = &bases
            .iter()
            .find(|(found, _)| *found == name)
            .expect("a recipe's name")
            .1;
        let bytes = mutate::mutate(base, seed.parse().expect("a number"));
        if let Some(path) = std::env::var_os("THROUGHLINE_HOSTILE_IMAGE") {
            std::fs::write(path, &bytes).expect("a place for the image");
        }
        assert!(watch.over(&one, || exercise::exercise(&bytes)).is_some());
    } else if !bases.is_empty() {
        run_all(watch, bases, 0..per_recipe());
    }
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
