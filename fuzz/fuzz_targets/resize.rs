//! Whole volumes grow and shrink: a small sound image, patched as the input says and with its checksums
//! corrected, gets another size.
//!
//! The images are made at the start; that needs e2fsprogs. The first byte of an input chooses the image, the
//! second the size; the rest goes to `mutate::patch`.
#![no_main]

#[allow(dead_code)] // used by the tests
#[path = "../../testing/tests/hostile/base.rs"]
mod base;
#[allow(dead_code)] // used by the tests
#[path = "../../testing/tests/hostile/exercise.rs"]
mod exercise;
#[allow(dead_code)] // used by the tests
#[path = "../../testing/tests/hostile/mutate.rs"]
mod mutate;
#[allow(dead_code)] // used by the tests
#[path = "../../testing/tests/hostile/resized.rs"]
mod resized;
#[allow(dead_code)] // used by the tests
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
    if let [choice, kind, patches @ ..] = data {
        let base = &BASES[usize::from(*choice) % BASES.len()];
        resized::resize(&mutate::patch(base, patches), u64::from(*kind));
    }
});
