//! Damage on which the kernel, `e2fsck` and we decide differently: the three answers side by side, each fixed
//! here. Why ours is so, is in the head of `journal/src/recovery/mod.rs`. Those of the others were found with
//! Linux 6.18 and e2fsck 1.47.0; if a later one decides differently, ours has to be thought about again.

use std::path::Path;
use std::sync::Arc;

use throughline::OpenOptions;
use throughline::internal::OpenBlockDevice;
use throughline_extfmt::jbd2::JournalCsum;
use throughline_testing::Mount;
use throughline_testkit::{e2fs, kernel};

use super::craft::{Base, Crafted, Part, Place};
use super::disk::{bytes_of, load};
use super::ring::is_state;
use super::{BASES, PLACE};

const SECTOR: usize = 512;

/// How many transactions an image has after it was opened, or that it was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// So many, of three.
    Has(usize),
    Refused,
    /// It is in none of the states.
    Mixed,
}

use Answer::{Has, Refused};

/// The answers to a damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answers {
    ours: Answer,
    /// `None`: it was not asked.
    kernel: Option<Answer>,
    e2fsck: Answer,
}

/// What is damaged: the kind of block, of the n-th transaction, and how.
struct Damage {
    name: &'static str,
    block: Part,
    transaction: u32,
    /// Overwritten in the block, relative to its start.
    bytes: std::ops::Range<usize>,
    answers: Answers,
}

const fn damage(
    name: &'static str,
    block: Part,
    transaction: u32,
    bytes: std::ops::Range<usize>,
    (ours, kernel, e2fsck): (Answer, Answer, Answer),
) -> Damage {
    Damage {
        name,
        block,
        transaction,
        bytes,
        answers: Answers {
            ours,
            kernel: Some(kernel),
            e2fsck,
        },
    }
}

/// With the answers: ours, the kernel's, that of `e2fsck`.
const ALL: &[Damage] = &[
    damage(
        "last commit block, its second sector is old",
        Part::Commit,
        2,
        SECTOR..2 * SECTOR,
        (Has(3), Has(3), Has(2)),
    ),
    damage(
        "last commit block, its first sector is old",
        Part::Commit,
        2,
        0..SECTOR,
        (Has(2), Has(2), Has(2)),
    ),
    damage(
        "last commit block, a field",
        Part::Commit,
        2,
        16..20,
        (Has(2), Refused, Has(2)),
    ),
    damage(
        "commit block in the middle, its second sector",
        Part::Commit,
        1,
        SECTOR..2 * SECTOR,
        (Has(3), Has(3), Has(1)),
    ),
    damage(
        "commit block in the middle, a field",
        Part::Commit,
        1,
        16..20,
        (Refused, Refused, Has(1)),
    ),
    damage(
        "revoke block in the middle, a record",
        Part::Revoke,
        1,
        16..18,
        (Refused, Refused, Has(0)),
    ),
    damage(
        "revoke block in the middle, its second sector is old",
        Part::Revoke,
        1,
        SECTOR..2 * SECTOR,
        (Refused, Refused, Has(0)),
    ),
    damage(
        "revoke block of the last transaction, a record",
        Part::Revoke,
        2,
        16..18,
        (Refused, Refused, Has(0)),
    ),
];

impl Damage {
    fn done(&self, sound: &Crafted) -> Vec<u8> {
        let mut bytes = sound.bytes.clone();
        let sequence = PLACE.sequence + self.transaction;
        let parts = sound.parts.iter();
        let mut found = parts.filter(|(_, of, part)| *of == sequence && *part == self.block);
        let (at, ..) = found.next().expect("the log has it");
        for at in self.bytes.clone().map(|byte| at + byte) {
            bytes[at] = 0x5a;
        }
        bytes
    }
}

fn answer(base: &Base, bytes: &[u8]) -> Answer {
    let mut states = 0..base.states.len();
    let found = states.find(|state| is_state(base, bytes, *state).is_ok());
    found.map_or(Answer::Mixed, Has)
}

fn ours(base: &Base, bytes: &[u8]) -> Answer {
    let device = load(bytes);
    let opened = OpenOptions::new()
        .write(true)
        .open_block_device(Arc::clone(&device) as _);
    match opened.and_then(|volume| volume.close()) {
        Ok(()) => answer(base, &bytes_of(&*device)),
        Err(_) => Refused,
    }
}

fn of_e2fsck(base: &Base, image: &Path, bytes: &[u8]) -> Answer {
    std::fs::write(image, bytes).unwrap();
    match e2fs::e2fsck(image, &["-fy"]).code() {
        0 | 1 => answer(base, &std::fs::read(image).unwrap()),
        _ => Refused,
    }
}

/// If it does not open the image, also what it says.
fn of_the_kernel(base: &Base, image: &Path, bytes: &[u8]) -> Result<Answer, String> {
    std::fs::write(image, bytes).unwrap();
    Mount::with_options(image, "loop,rw,noinit_itable").map(|mount| {
        drop(mount);
        answer(base, &std::fs::read(image).unwrap())
    })
}

/// Whether the kernel opens the valid log here: only then is it an answer if it refuses another one.
fn may_ask_the_kernel(base: &Base, image: &Path, sound: &Crafted) -> bool {
    match of_the_kernel(base, image, &sound.bytes) {
        Ok(answer) => {
            assert_eq!(answer, Has(3), "{}: a valid log", base.kind.name);
            true
        }
        Err(why) => {
            kernel::skip(&why);
            false
        }
    }
}

#[test]
fn the_three_answers() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let mut wrong = Vec::new();
    // Only these checksums cover the blocks in question.
    let summed = BASES
        .iter()
        .filter(|base| base.kind.csum == JournalCsum::V2 || base.kind.csum == JournalCsum::V3);
    for base in summed {
        let sound = base.craft(Place { start: 1, ..PLACE });
        assert_eq!(of_e2fsck(base, &image, &sound.bytes), Has(3), "a valid log");
        let may_ask = may_ask_the_kernel(base, &image, &sound);
        for damage in ALL {
            let bytes = damage.done(&sound);
            let kernel = may_ask.then(|| of_the_kernel(base, &image, &bytes).unwrap_or(Refused));
            let found = Answers {
                ours: ours(base, &bytes),
                kernel,
                e2fsck: of_e2fsck(base, &image, &bytes),
            };
            let expected = Answers {
                kernel: damage.answers.kernel.filter(|_| may_ask),
                ..damage.answers
            };
            let name = format!("{}: {}", base.kind.name, damage.name);
            println!("{name}: {found:?}");
            if found != expected {
                wrong.push(format!("{name}: {found:?}, not {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
