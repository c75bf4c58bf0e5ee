//! Power loss between any two transactions of operations that truncate, extend, or remove ranges of a file.
//!
//! Afterwards nothing forbidden is past the size, no block is lost, the size is the old or the new one, and
//! every byte is old, new, or zero: data of earlier owners of the blocks never appears.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use throughline_testing::{Cut, Image as Medium, Keep};

use crate::handle::commit_each_handle;
use crate::testing::{Image, Rng, power_on};
use crate::{Fallocate, Fs, Inode, Last, NewInode, NewKind};

const OWNER: NewInode = NewInode {
    permissions: 0o644,
    uid: 0,
    gid: 0,
    umask: 0,
};

/// Byte left in free blocks by deleted files.
const FOREIGN: u8 = 0xEE;

/// Name, arguments of `mke2fs`, number of free blocks.
const VOLUMES: [(&str, &[&str], u64); 6] = [
    (
        "extents",
        &["-t", "ext4", "-b", "1024", "-J", "size=1"],
        2000,
    ),
    (
        "indirect",
        &["-t", "ext3", "-b", "1024", "-J", "size=1"],
        2000,
    ),
    ("full", &["-t", "ext4", "-b", "1024", "-J", "size=1"], 160),
    (
        "clusters",
        &[
            "-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "bigalloc", "-C", "4096",
        ],
        2000,
    ),
    (
        "full, indirect",
        &["-t", "ext3", "-b", "1024", "-J", "size=1"],
        160,
    ),
    (
        "inline",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-I",
            "256",
            "-J",
            "size=1",
            "-O",
            "inline_data,orphan_file",
        ],
        2000,
    ),
];

/// A file before and after an operation, and the recording positions at which it was durable.
struct Step {
    what: String,
    before: (Vec<u8>, usize),
    after: (Vec<u8>, usize),
    /// The operation shifts bytes.
    moves: bool,
}

fn read(fs: &Fs, file: &Inode) -> Vec<u8> {
    let size = fs.metadata(file).expect("attributes").size_bytes;
    let mut bytes = vec![0; size as usize];
    let done = fs.read_at(file, 0, &mut [IoSliceMut::new(&mut bytes)]);
    assert_eq!(done.expect("read"), bytes.len());
    bytes
}

/// Fills the volume to this many free blocks, which contain a deleted file's bytes.
fn fill(fs: &Fs, free: u64) {
    let root = fs.root().expect("a root");
    let make = |name: &str, blocks: u64| {
        let file = fs.create(&root, name.as_bytes(), NewKind::File, OWNER);
        let file = file.expect("made");
        let bytes = vec![FOREIGN; (blocks * u64::from(fs.geo.block_bytes)) as usize];
        // As far as there is space.
        fs.write_at(&file, 0, &[IoSlice::new(&bytes)])
            .expect("written");
    };
    make("deleted", free);
    let left = fs.statfs().expect("numbers").free_blocks;
    make("kept", left.saturating_sub(60));
    fs.unlink(&root, b"deleted").expect("unlinked");
    fs.sync().expect("synced");
}

/// One random operation; returns whether it shifted bytes, and its description.
fn operate(fs: &Fs, file: &Inode, random: &mut Rng, stamp: u8) -> (bool, String) {
    let block = u64::from(fs.geo.block_bytes);
    let (at, len) = (random.below(120 * block), 1 + random.below(9 * block));
    let (first, blocks) = (random.below(120) * block, (1 + random.below(40)) * block);
    let (mode, at, len) = match random.below(12) {
        0..4 => {
            // Scattered blocks, so that there is much to remove.
            for place in 0..6 {
                let at = (at + place * 2 * block) / block * block;
                let bytes = vec![stamp; len.min(block) as usize];
                if fs.write_at(file, at, &[IoSlice::new(&bytes)]).is_err() {
                    break;
                }
            }
            return (false, format!("writes at {at}, {len} each"));
        }
        4 | 5 => {
            let done = fs.truncate(file, at).is_ok();
            return (false, format!("truncate to {at}: {done}"));
        }
        6 => (Fallocate::PunchHole, at, blocks),
        7 => (Fallocate::ZeroRange, at, len),
        8 => (Fallocate::Allocate, at, blocks),
        9 => (Fallocate::KeepSize, at, blocks),
        10 => (Fallocate::Collapse, first, blocks),
        _ => (Fallocate::Insert, first, blocks),
    };
    let done = fs.fallocate(file, mode, at, len).is_ok();
    let moves = matches!(mode, Fallocate::Collapse | Fallocate::Insert);
    (moves, format!("{mode:?} {at}+{len}: {done}"))
}

/// A volume with a history: operations on one file, each handle its own transaction.
fn work(
    medium: &Medium,
    free: u64,
    seed: u64,
    operations: u8,
) -> (throughline_testing::Record, Vec<Step>) {
    let (device, fs) = power_on(medium);
    let fs = fs.expect("opens");
    fill(&fs, free);
    let root = fs.root().expect("a root");
    let file: Arc<Inode> = fs.create(&root, b"f", NewKind::File, OWNER).expect("made");
    fs.sync().expect("synced");
    let mut random = Rng::new(seed);
    let mut now = (read(&fs, &file), device.position());
    let mut steps = Vec::new();
    let _each = commit_each_handle();
    for stamp in 1..=operations {
        let (moves, what) = operate(&fs, &file, &mut random, stamp);
        fs.sync().expect("synced");
        let after = (read(&fs, &file), device.position());
        let before = std::mem::replace(&mut now, after.clone());
        steps.push(Step {
            what,
            before,
            after,
            moves,
        });
    }
    (device.record(), steps)
}

/// What is wrong with the file's bytes, if anything.
fn complaint(step: &Step, found: &[u8]) -> Option<String> {
    let (before, after) = (&step.before.0, &step.after.0);
    let foreign = found.iter().position(|byte| *byte == FOREIGN);
    if let Some(at) = foreign {
        return Some(format!("byte {at} is another file's"));
    }
    // An extension takes several steps in order; a truncation takes one.
    let between = before.len().min(after.len())..=before.len().max(after.len());
    let grows = !step.what.starts_with("truncate") && between.contains(&found.len());
    let sizes = [before.len(), after.len()];
    if !step.moves && !grows && !sizes.contains(&found.len()) {
        return Some(format!("{} bytes, neither of {sizes:?}", found.len()));
    }
    let at = |bytes: &[u8], place: usize| bytes.get(place).copied().unwrap_or(0);
    let strange = (0..found.len()).find(|&place| {
        let byte = found[place];
        byte != 0 && byte != at(before, place) && byte != at(after, place)
    });
    strange.filter(|_| !step.moves).map(|place| {
        format!(
            "byte {place} is {}, neither old nor new nor zero",
            found[place]
        )
    })
}

#[test]
fn after_a_cut_no_block_is_lost_and_none_shows_what_was_in_it() {
    let soak = throughline_testkit::tier::soak();
    let (rounds, operations) = if soak { (10, 200) } else { (1, 24) };
    for (at, (what, args, free)) in VOLUMES.into_iter().enumerate() {
        let Some(image) = Image::make("8M", args) else {
            return;
        };
        let medium = Medium::read_file(image.path()).expect("the image");
        for round in 0..rounds {
            let seed = 0xF11E + (at + 100 * round) as u64;
            let (record, steps) = work(&medium, free, seed, operations);
            let barriers = record.barriers();
            let mut random = Rng::new(seed);
            let mut states = record.states();
            for (number, step) in steps.iter().enumerate() {
                let within = step.before.1 + 1..=step.after.1;
                let within: Vec<_> = barriers.iter().filter(|at| within.contains(at)).collect();
                let Some(&&at) = within.get(random.below(within.len() as u64) as usize) else {
                    continue;
                };
                let keep = match random.below(3) {
                    0 => Keep::Some(random.below(u64::MAX)),
                    _ => Keep::Nothing,
                };
                let cut = Cut { at, keep };
                let place = format!(
                    "{what}, seed {seed:#x}, step {number}, {}, {cut:?}",
                    step.what
                );
                judge(step, &image, &states.state(cut), number % 8 == 4, &place);
            }
        }
    }
}

/// Recovers the remains and checks them; with `e2fsck` too if `asked`.
fn judge(step: &Step, image: &Image, crashed: &Medium, asked: bool, place: &str) {
    let (device, fs) = power_on(crashed);
    let fs = fs.unwrap_or_else(|error| panic!("{place}: {error}"));
    let file = fs.resolve(b"/f", Last::Follow).expect("the file");
    let found = read(&fs, &file);
    if let Some(what) = complaint(step, &found) {
        panic!("{place}: {what}");
    }
    drop(file);
    fs.close()
        .unwrap_or_else(|error| panic!("{place}: {error}"));
    image.hold(&device.contents());
    image.check(place);
    if asked {
        image.hold(crashed);
        image.repair();
        image.check(place);
        let theirs = image.open();
        let file = theirs.resolve(b"/f", Last::Follow).expect("the file");
        assert!(
            read(&theirs, &file) == found,
            "{place}: e2fsck leaves different bytes"
        );
    }
}
