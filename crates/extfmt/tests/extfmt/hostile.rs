//! Hostile bytes: nothing panics on random input, nor on mutations of structures from real images.

use crate::exercise;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use exercise::TARGETS;
use proptest::prelude::*;
use throughline_testkit::cases::config;

/// Seeds of the fuzz targets, taken from images that `mke2fs` made, in the order of [`TARGETS`].
static CORPORA: LazyLock<Vec<Vec<Vec<u8>>>> =
    LazyLock::new(|| TARGETS.iter().map(|(name, _)| corpus(name)).collect());

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/seeds")
        .join(target);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&seeds)
        .unwrap_or_else(|error| panic!("{}: {error}", seeds.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no seeds for {target}");
    files
        .into_iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect()
}

#[test]
fn seeds() {
    for ((_, exercise), seeds) in TARGETS.iter().zip(CORPORA.iter()) {
        seeds.iter().for_each(|seed| exercise(seed));
    }
}

/// One change of some bytes: overwritten, moved, or cut off.
#[derive(Clone, Debug)]
enum Mutation {
    Set(usize, Vec<u8>),
    Copy(usize, usize, usize),
    Cut(usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    // Sizes and offsets at the limits of their types find more errors than others.
    let edge = proptest::sample::select(vec![
        vec![0],
        vec![0xFF],
        vec![0, 0],
        vec![0xFF, 0xFF],
        vec![0, 0, 0, 0],
        vec![0xFF, 0xFF, 0xFF, 0xFF],
        vec![0xFF, 0xFF, 0xFF, 0x7F],
    ]);
    prop_oneof![
        4 => (any::<usize>(), proptest::collection::vec(any::<u8>(), 1..8))
            .prop_map(|(at, bytes)| Mutation::Set(at, bytes)),
        4 => (any::<usize>(), edge).prop_map(|(at, bytes)| Mutation::Set(at, bytes)),
        1 => (any::<usize>(), any::<usize>(), 1usize..64)
            .prop_map(|(from, to, len)| Mutation::Copy(from, to, len)),
        1 => any::<usize>().prop_map(Mutation::Cut),
    ]
}

fn apply(bytes: &mut Vec<u8>, mutation: &Mutation) {
    let len = bytes.len().max(1);
    match mutation {
        Mutation::Set(at, new) => {
            // Half of the changes go to the first bytes, where headers are.
            let at = if at % 2 == 0 {
                at / 2 % len.min(72)
            } else {
                at / 2 % len
            };
            bytes
                .iter_mut()
                .skip(at)
                .zip(new)
                .for_each(|(to, from)| *to = *from);
        }
        Mutation::Copy(from, to, count) => {
            let piece: Vec<u8> = bytes
                .iter()
                .skip(from % len)
                .take(*count)
                .copied()
                .collect();
            bytes
                .iter_mut()
                .skip(to % len)
                .zip(piece)
                .for_each(|(to, from)| *to = from);
        }
        Mutation::Cut(at) => bytes.truncate(at % len),
    }
}

proptest! {
    #![proptest_config(config(4096))]

    #[test]
    fn mutated_seeds(pick: usize, mutations in proptest::collection::vec(mutation(), 1..6)) {
        for ((_, exercise), seeds) in TARGETS.iter().zip(CORPORA.iter()) {
            let mut bytes = seeds[pick % seeds.len()].clone();
            for mutation in &mutations {
                apply(&mut bytes, mutation);
            }
            exercise(&bytes);
        }
    }

    #[test]
    fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
        for (_, exercise) in TARGETS {
            exercise(&bytes);
        }
    }
}
