//! Power cuts at any moment of a change of the size. Each state is repaired by `e2fsck -fy`, and completed by
//! a second run, and each time every file is there.

use std::sync::Arc;

use throughline::NewSize;
use throughline::internal::OpenBlockDevice;
use throughline_testing::{Image, PowerDevice};
use throughline_testkit::e2fs;
use throughline_testkit::tier::{pick, soak};

use super::grown::{made, tree_of};
use super::shrunk;
use super::tree::{self, Tree};

/// The arguments of `mke2fs`, the size before and after, in KiB.
const RECIPES: &[(&str, u64, u64)] = &[
    ("-t ext4 -b 1024 -J size=1", 9_000, 60_000),
    ("-t ext4 -b 1024 -J size=1", 9_000, 12_000),
    ("-t ext4 -b 4096 -J size=4", 40_000, 160_000),
    ("-t ext3 -b 1024 -J size=1", 9_000, 30_000),
    ("-t ext2 -b 1024", 9_000, 40_000),
    (
        "-t ext4 -b 1024 -J size=1 -g 256 -E resize=20000",
        9_000,
        60_000,
    ),
    (
        "-t ext4 -b 1024 -J size=1 -O meta_bg,^resize_inode -g 512",
        9_000,
        30_000,
    ),
    (
        "-t ext4 -b 1024 -J size=1 -O ^uninit_bg,^metadata_csum",
        9_000,
        30_000,
    ),
];

/// How the tree of an image is read.
type Reader = fn(&std::path::Path) -> Tree;

fn judge(state: &Image, path: &std::path::Path, (before, read): (&Tree, Reader), size: NewSize) {
    std::fs::remove_file(path).ok();
    let file = std::fs::File::create(path).unwrap();
    state.write_file(&file, None).unwrap();
    drop(file);
    e2fs::repair(path);
    e2fs::assert_clean(path);
    assert_eq!(&read(path), before, "after e2fsck -fy");

    let start = match size {
        // Without a journal, a volume that was about to shrink has to be repaired first.
        NewSize::Bytes(bytes) if !shrunk::has_journal(path) && bytes < state.len_bytes() => {
            let mut repaired = Image::zeros(state.len_bytes());
            repaired.write(0, &std::fs::read(path).unwrap());
            repaired
        }
        _ => state.clone(),
    };
    let device = Arc::new(PowerDevice::new(start, 1));
    let second = tree::options().resize_block_device(Arc::clone(&device) as _, size);
    let second = second.unwrap_or_else(|error| panic!("the second run: {error}"));
    std::fs::remove_file(path).unwrap();
    let file = std::fs::File::create(path).unwrap();
    device.contents().write_file(&file, None).unwrap();
    drop(file);
    e2fs::assert_clean(path);
    assert_eq!(&read(path), before, "after a second run");
    assert_eq!(super::number(path, "Block count"), second.size.blocks);
}

/// Returns the number of states.
fn survives(words: &str, old: u64, new: u64, many: usize) -> usize {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let folder = folder.unwrap();
    let path = folder.path().join("image");
    if !made(&path, words, old) {
        return 0;
    }
    let before = tree_of(&path);
    let bytes = std::fs::read(&path).unwrap();
    // What is beyond the end is not blank.
    let mut base = Image::zeros((new << 10).next_multiple_of(4096));
    let stale = vec![0xa5; (base.len_bytes() - bytes.len() as u64) as usize];
    base.write(0, &bytes);
    base.write(bytes.len() as u64, &stale);
    let device = Arc::new(PowerDevice::new(base, throughline_testkit::seed::of_run(7)));
    let size = NewSize::Bytes(new << 10);
    let done = tree::options().resize_block_device(Arc::clone(&device) as _, size);
    done.unwrap_or_else(|error| panic!("{words}: {error}"));
    let record = device.record();
    let what = format!("{words}, {old} to {new} KiB");
    record.judge_states(
        record.cuts(few(many), throughline_testkit::seed::of_run(many as u64)),
        &what,
        |state| {
            judge(state, &path, (&before, tree_of), size);
        },
    )
}

/// In the quick tier, a twentieth.
fn few(many: usize) -> usize {
    pick(many / 20, many, many)
}

#[test]
fn growth_survives_power_cuts() {
    if !e2fs::is_there() {
        return;
    }
    let all: usize = RECIPES
        .iter()
        .map(|(words, old, new)| survives(words, *old, *new, 400))
        .sum();
    throughline_testkit::ledger::judged(all as u64, "crash states of resize");
    assert!(all >= few(300), "only {all} states");
}

/// The arguments of `mke2fs`, the size before, in KiB, and that after, or 0 for the smallest.
const SMALLER: &[(&str, u64, u64)] = &[
    ("-t ext4 -b 1024 -J size=1", 30_000, 0),
    ("-t ext4 -b 1024", 61_440, 38_405),
    ("-t ext4 -b 1024 -J size=1 -g 1024 -G 4", 12_000, 0),
    ("-t ext3 -b 1024 -J size=1", 20_000, 0),
    ("-t ext4 -b 4096 -J size=4", 60_000, 0),
    (
        "-t ext4 -b 1024 -J size=1 -O orphan_file,ea_inode,^flex_bg -g 2048",
        14_000,
        0,
    ),
    (
        "-t ext4 -b 1024 -J size=1 -O meta_bg,^resize_inode,^metadata_csum,uninit_bg -g 512",
        14_000,
        0,
    ),
    ("-t ext2 -b 1024", 20_000, 0),
    ("-t ext4 -b 1024 -O ^has_journal", 20_000, 0),
];

fn shrinking_survives(words: &str, (kib, smaller): (u64, u64), many: usize) -> usize {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let folder = folder.unwrap();
    let path = folder.path().join("image");
    if !shrunk::spread(&path, words, kib) {
        return 0;
    }
    let before = shrunk::content(&path);
    let bytes = std::fs::read(&path).unwrap();
    let mut base = Image::zeros((kib << 10).next_multiple_of(4096));
    base.write(0, &bytes);
    let device = Arc::new(PowerDevice::new(
        base,
        throughline_testkit::seed::of_run(11),
    ));
    let wanted = match smaller {
        0 => NewSize::Min,
        kib => NewSize::Bytes(kib << 10),
    };
    let done = tree::options().resize_block_device(Arc::clone(&device) as _, wanted);
    let size = done.unwrap_or_else(|error| panic!("{words}: {error}")).size;
    let target = NewSize::Bytes(size.blocks * u64::from(size.block_bytes));
    let record = device.record();
    let what = format!("{words}, from {kib} KiB to {wanted:?}");
    record.judge_states(
        record.cuts(few(many), throughline_testkit::seed::of_run(many as u64)),
        &what,
        |state| {
            judge(state, &path, (&before, shrunk::content), target);
        },
    )
}

#[test]
fn shrinking_survives_power_cuts() {
    if !e2fs::is_there() {
        return;
    }
    let many = if soak() { 200 } else { 45 };
    let all: usize = SMALLER
        .iter()
        .map(|(words, kib, smaller)| shrinking_survives(words, (*kib, *smaller), many))
        .sum();
    throughline_testkit::ledger::judged(all as u64, "crash states of resize");
    assert!(all >= few(300), "only {all} states");
}
