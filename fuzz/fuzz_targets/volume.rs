//! Whole volumes: a small sound image, patched as the input says and sealed again, is read and changed.
//!
//! The image is made at the start and needs e2fsprogs; the first byte of an input chooses which, the rest is
//! `mutate::patch`'s.
#![no_main]

#[allow(dead_code)] // the tests'
#[path = "../../testing/tests/hostile/base.rs"]
mod base;
#[path = "../../testing/tests/hostile/exercise.rs"]
mod exercise;
#[allow(dead_code)] // the tests'
#[path = "../../testing/tests/hostile/mutate.rs"]
mod mutate;
#[allow(dead_code)] // the tests'
#[path = "../../testing/tests/hostile/survey.rs"]
mod survey;

use std::sync::LazyLock;

use survey::Base;

static BASES: LazyLock<Vec<Base>> = LazyLock::new(|| {
    let made = base::RECIPES
        .iter()
        .map(|recipe| base::make(recipe).map(Base::new));
    made.collect::<Option<_>>()
        .expect("mke2fs, debugfs and e2fsck are needed")
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let [choice, patches @ ..] = data {
        let base = &BASES[usize::from(*choice) % BASES.len()];
        exercise::exercise(&mutate::patch(base, patches));
    }
});
