//! What the targets of whole volumes share: sound images of all kinds, damaged as an input says, with
//! checksums made right.
//!
//! The images are made at the start; that needs e2fsprogs. The first byte of an input chooses the image.

macro_rules! of_the_tests {
    ($($module:ident, $path:literal;)*) => {$(
        // Each has more than the targets use.
        #[allow(dead_code)]
        #[path = $path]
        mod $module;
    )*};
}

of_the_tests! {
    base, "../../testing/tests/untrusted/hostile/base.rs";
    choices, "../../testing/tests/untrusted/hostile/choices.rs";
    exercise, "../../testing/tests/untrusted/hostile/exercise.rs";
    mutate, "../../testing/tests/untrusted/hostile/mutate.rs";
    resized, "../../testing/tests/untrusted/hostile/resized.rs";
    sequence, "../../testing/tests/untrusted/hostile/sequence.rs";
    served, "../../testing/tests/untrusted/hostile/served.rs";
    survey, "../../testing/tests/untrusted/survey.rs";
}

use std::sync::{Arc, LazyLock};

use throughline_device::BlockDevice;

use choices::Choices;
use survey::Base;

static BASES: LazyLock<Vec<Base>> = LazyLock::new(|| {
    let made = base::RECIPES
        .iter()
        .map(|recipe| base::make(recipe).map(Base::new));
    made.collect::<Option<_>>()
        .expect("mke2fs, debugfs and e2fsck are needed")
});

/// Makes the images, so that the time of the first input does not include it.
pub fn make_images() {
    LazyLock::force(&BASES);
}

fn damaged(choice: u8, patches: &[u8]) -> Vec<u8> {
    mutate::patch(&BASES[usize::from(choice) % BASES.len()], patches)
}

/// Reads and changes all of a volume. The input: image, patches.
pub fn volume(data: &[u8]) {
    if let [choice, patches @ ..] = data {
        exercise::exercise(&damaged(*choice, patches));
    }
}

/// Gives a volume another size. The input: image, size, patches.
pub fn resize(data: &[u8]) {
    if let [choice, kind, patches @ ..] = data {
        resized::resize(&damaged(*choice, patches), u64::from(*kind));
    }
}

/// A sequence of operations on a volume. The input: image, number of bytes of patches, patches, choices.
pub fn operations(data: &[u8]) {
    steps(data, sequence::run);
}

/// A sequence of requests to the server of a mount. The input is that of [`operations`].
pub fn served(data: &[u8]) {
    steps(data, served::run);
}

fn steps(data: &[u8], run: fn(&Arc<dyn BlockDevice>, Choices<'_>) -> usize) {
    if let [choice, len, rest @ ..] = data {
        let (patches, choices) = rest.split_at(rest.len().min(usize::from(*len)));
        run(
            &exercise::load(&damaged(*choice, patches), 0),
            Choices::Input(choices),
        );
    }
}
