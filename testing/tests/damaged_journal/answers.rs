//! Damage on which the kernel, `e2fsck` and we could decide differently: the three answers side by side. Ours
//! is fixed here; why, is in the head of `journal/src/recovery/mod.rs`.

use std::path::Path;
use std::sync::Arc;

use throughline::OpenOptions;
use throughline::internal::OpenBlockDevice;
use throughline_extfmt::jbd2::JournalCsum;
use throughline_testing::Mount;
use throughline_testkit::{e2fs, kernel};

use crate::craft::{Base, Crafted, Part, Place};
use crate::disk::{bytes_of, load};
use crate::ring::is_state;
use crate::{BASES, PLACE};

const SECTOR: usize = 512;

/// What is damaged: the kind of block, of the n-th transaction, and how.
struct Damage {
    name: &'static str,
    block: Part,
    transaction: u32,
    /// Overwritten in the block, relative to its start.
    bytes: std::ops::Range<usize>,
    ours: &'static str,
}

const fn torn(
    name: &'static str,
    transaction: u32,
    bytes: std::ops::Range<usize>,
    ours: &'static str,
) -> Damage {
    Damage {
        name,
        block: Part::Commit,
        transaction,
        bytes,
        ours,
    }
}

const fn revoke(name: &'static str, transaction: u32, bytes: std::ops::Range<usize>) -> Damage {
    Damage {
        name,
        block: Part::Revoke,
        transaction,
        bytes,
        ours: "refused",
    }
}

const ALL: &[Damage] = &[
    torn(
        "last commit block, its second sector is old",
        2,
        SECTOR..2 * SECTOR,
        "all 3",
    ),
    torn(
        "last commit block, its first sector is old",
        2,
        0..SECTOR,
        "2 of 3",
    ),
    torn("last commit block, a field", 2, 16..20, "2 of 3"),
    torn(
        "commit block in the middle, its second sector",
        1,
        SECTOR..2 * SECTOR,
        "all 3",
    ),
    torn("commit block in the middle, a field", 1, 16..20, "refused"),
    revoke("revoke block in the middle, a record", 1, 16..18),
    revoke(
        "revoke block in the middle, its second sector is old",
        1,
        SECTOR..2 * SECTOR,
    ),
    revoke("revoke block of the last transaction, a record", 2, 16..18),
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

/// How many transactions an image has.
fn answer(base: &Base, bytes: &[u8]) -> String {
    match (0..base.states.len()).find(|state| is_state(base, bytes, *state).is_ok()) {
        Some(3) => "all 3".into(),
        Some(state) => format!("{state} of 3"),
        None => "none of the states".into(),
    }
}

fn ours(base: &Base, bytes: &[u8]) -> String {
    let device = load(bytes);
    let opened = OpenOptions::new()
        .write(true)
        .open_block_device(Arc::clone(&device) as _);
    match opened.and_then(|volume| volume.close()) {
        Ok(()) => answer(base, &bytes_of(&*device)),
        Err(_) => "refused".into(),
    }
}

fn of_e2fsck(base: &Base, image: &Path, bytes: &[u8]) -> String {
    std::fs::write(image, bytes).unwrap();
    let ran = e2fs::e2fsck(image, &["-fy"]);
    let left = answer(base, &std::fs::read(image).unwrap());
    format!("{left}, exit {}", ran.code())
}

fn of_the_kernel(base: &Base, image: &Path, bytes: &[u8]) -> String {
    if !kernel::may_use_loops() {
        return "not asked".into();
    }
    std::fs::write(image, bytes).unwrap();
    match Mount::with_options(image, "loop,rw,noinit_itable") {
        Ok(mount) => {
            drop(mount);
            answer(base, &std::fs::read(image).unwrap())
        }
        Err(_) => "refused".into(),
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
        for damage in ALL {
            let bytes = damage.done(&sound);
            let ours = ours(base, &bytes);
            let (e2fsck, kernel) = (
                of_e2fsck(base, &image, &bytes),
                of_the_kernel(base, &image, &bytes),
            );
            let name = format!("{}: {}", base.kind.name, damage.name);
            println!("{name} | we {ours} | the kernel {kernel} | e2fsck {e2fsck}");
            if ours != damage.ours {
                wrong.push(format!("{name}: {ours}, not {}", damage.ours));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
