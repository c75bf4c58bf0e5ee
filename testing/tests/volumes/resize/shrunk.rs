//! Volumes that become smaller, over the feature matrix, beside `resize2fs`.

use std::path::Path;

use throughline::NewSize;
use throughline_testkit::kernel::{Mount, may_use_loops};
use throughline_testkit::{e2fs, program};

use super::grown::{RECIPES, copy, made, tree_of, with_tools};
use super::tree::{self, Tree};

/// A tree without what moving changes: the numbers of inodes, and blocks of mappings.
pub(crate) fn content(image: &Path) -> Tree {
    let without = |line: String| {
        let mut words: Vec<&str> = line.split(' ').collect();
        words[0] = "-";
        words[5] = "-";
        words.join(" ")
    };
    let all = tree_of(image).into_iter();
    all.map(|(path, line)| (path, without(line))).collect()
}

/// An image of `kib` KiB whose files are all over it: files are made and removed, and larger ones fill up.
pub(crate) fn spread(image: &Path, words: &str, kib: u64) -> bool {
    if !made(image, words, kib) {
        return false;
    }
    let volume = tree::options().write(true).open(image).unwrap();
    let free = volume.stat_fs().unwrap().free_blocks * u64::from(volume.block_bytes());
    let inodes = volume.stat_fs().unwrap().free_inodes;
    let gap = volume.create_file("/gap").unwrap();
    for at in 0..(free * 7 / 10) >> 16 {
        gap.write_all_at(&vec![0x77; 1 << 16], at << 16).unwrap();
    }
    drop(gap);
    // Inodes up to the last groups.
    for number in 0..inodes.saturating_sub(200).min(3_000) {
        volume.write(format!("/empty{number}"), "").unwrap();
    }
    for number in 0..8_u8 {
        let dir = format!("/late{number}");
        volume.create_dir_all(format!("{dir}/inner/most")).unwrap();
        volume
            .write(format!("{dir}/inner/file"), vec![number; 20_000])
            .unwrap();
        volume
            .symlink("y".repeat(300), format!("{dir}/link"))
            .unwrap();
        volume
            .hard_link(format!("{dir}/inner/file"), format!("{dir}/same"))
            .unwrap();
        let colours = volume.xattrs(format!("{dir}/inner/file")).unwrap();
        colours.set("user.large", vec![b'c'; 400]).unwrap();
    }
    volume.remove_file("/gap").unwrap();
    for number in 0..inodes.saturating_sub(200).min(3_000) {
        if number % 50 != 7 {
            volume.remove_file(format!("/empty{number}")).unwrap();
        }
    }
    volume.close().unwrap();
    e2fs::assert_clean_after(image, words);
    true
}

/// The smallest size that `resize2fs` makes of a copy, in bytes.
fn smallest_of_theirs(image: &Path) -> u64 {
    let theirs = image.with_extension("theirs");
    copy(image, &theirs);
    let mut check = e2fs::tool("e2fsck");
    program::run(check.args(["-fy"]).arg(&theirs), e2fs::LIMIT);
    let mut tool = e2fs::tool("resize2fs");
    tool.arg("-M").arg(&theirs);
    program::run(&mut tool, e2fs::LIMIT).good("resize2fs -M");
    let block = super::number(&theirs, "Block size");
    super::number(&theirs, "Block count") * block
}

pub(crate) fn has_journal(image: &Path) -> bool {
    e2fs::dumpe2fs(image, &["-h"]).contains("has_journal")
}

fn shrinks(words: &str, kib: u64) {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    if !spread(&image, words, kib) {
        return;
    }
    let before = content(&image);
    let theirs = smallest_of_theirs(&image);
    let smallest = tree::options().plan_resize(&image, NewSize::Min);
    let smallest = smallest.unwrap_or_else(|error| panic!("{words}: {error}"));
    let bytes = smallest.size.blocks * u64::from(smallest.size.block_bytes);
    let more = bytes as f64 / theirs as f64;
    println!("{words}: {bytes} bytes, resize2fs {theirs}, {more:.3}");
    // Without a journal, inodes do not move: the volume ends with the last of them.
    assert!(
        more <= 1.01 || !has_journal(&image),
        "{words}: {bytes} bytes, resize2fs -M: {theirs}"
    );
    let half = (bytes + (kib << 10)) / 2;
    for size in [NewSize::Bytes(half), NewSize::Min] {
        let what = format!("{words}, from {kib} KiB to {size:?}");
        let planned = tree::options().plan_resize(&image, size);
        let planned = planned.unwrap_or_else(|error| panic!("{what}: {error}"));
        let done = tree::options().resize(&image, size);
        let done = done.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(planned.size, done.size, "{what}");
        e2fs::assert_clean_after(&image, &what);
        assert_eq!(content(&image), before, "{what}");
        assert_eq!(
            std::fs::metadata(&image).unwrap().len(),
            done.size.blocks * u64::from(done.size.block_bytes),
            "{what}"
        );
    }
    let grown = tree::options().resize(&image, NewSize::Bytes(kib << 10));
    grown.unwrap_or_else(|error| panic!("{words}, back to {kib} KiB: {error}"));
    e2fs::assert_clean_after(&image, words);
    tree::options().resize(&image, NewSize::Min).unwrap();
    e2fs::assert_clean_after(&image, words);
    assert_eq!(content(&image), before, "{words}");
}

#[test]
fn shrunk_volumes_are_clean_and_whole() {
    if !with_tools() {
        return;
    }
    // With quotas, shrinking is refused (`refused.rs`).
    let shrinkable = RECIPES
        .iter()
        .filter(|(words, ..)| !words.contains("quota"));
    for (words, _, steps) in shrinkable.step_by(throughline_testkit::tier::pick(14, 1, 1)) {
        let kib = steps.iter().copied().filter(|kib| *kib <= 130_000).max();
        // `mke2fs` refuses to reserve descriptors for less than it makes.
        let words = words.replace(" -E resize=20000", "");
        if let Some(kib) = kib {
            shrinks(&words, kib);
        }
    }
}

#[test]
fn the_kernel_mounts_and_fills_what_has_shrunk_and_so_do_we() {
    if !with_tools() || !may_use_loops() {
        return;
    }
    for (words, kib) in [
        ("-t ext4 -b 1024 -J size=1", 30_000),
        ("-t ext4 -b 4096 -J size=4", 60_000),
        (
            "-t ext4 -b 1024 -J size=1 -O meta_bg,^resize_inode -g 512",
            14_000,
        ),
        ("-t ext3 -b 1024 -J size=1", 20_000),
        ("-t ext2 -b 1024", 20_000),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (image, point) = (folder.path().join("image"), folder.path().join("mount"));
        std::fs::create_dir(&point).unwrap();
        assert!(spread(&image, words, kib), "{words}");
        let before = content(&image);
        let smallest = tree::options()
            .plan_resize(&image, NewSize::Min)
            .unwrap()
            .size;
        let bytes = smallest.blocks * u64::from(smallest.block_bytes) + (2 << 20);
        let bytes = bytes.min(kib << 10);
        tree::options()
            .resize(&image, NewSize::Bytes(bytes))
            .unwrap();
        let Some(mount) = Mount::or_skip(&image, &point, &["-o", "loop"]) else {
            return;
        };
        let filling = std::fs::File::create(point.join("filling")).unwrap();
        let mut written = 0;
        while let Ok(more @ 1..) = std::io::Write::write(&mut &filling, &[0x33; 1 << 16]) {
            written += more;
        }
        assert!(written > 1 << 20, "{words}: {written} bytes");
        drop(filling);
        mount.unmount();
        e2fs::assert_clean_after(&image, &format!("{words}, filled by the kernel"));
        let volume = tree::options().write(true).open(&image).unwrap();
        volume.remove_file("/filling").unwrap();
        let ours = volume.create_file("/ours").unwrap();
        let mut at = 0;
        while ours.write_all_at(&[0x44; 1 << 14], at).is_ok() {
            at += 1 << 14;
        }
        drop(ours);
        volume.close().unwrap();
        e2fs::assert_clean_after(&image, &format!("{words}, filled by us"));
        assert!(at > 1 << 20, "{words}: {at} bytes");
        let volume = tree::options().write(true).open(&image).unwrap();
        volume.remove_file("/ours").unwrap();
        volume.close().unwrap();
        let mut after = content(&image);
        let mut before = before;
        // The times of the root changed with the names in it.
        for tree in [&mut before, &mut after] {
            tree.remove("/");
        }
        assert_eq!(after, before, "{words}");
    }
}

/// A last group that is smaller than those that we make, and that cannot go: without a journal, inodes do
/// not move.
#[test]
fn a_small_last_group_that_stays_is_not_cut_off() {
    if !e2fs::is_there() {
        return;
    }
    const GROUP_BLOCKS: u64 = 2048;
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let words = "-t ext2 -b 1024 -g 2048 -O ^resize_inode";
    assert!(spread(&image, words, 5 * GROUP_BLOCKS));
    // The fifth group has no copy of the superblock: bitmaps and inode table, and a few blocks more.
    let inodes = super::number(&image, "Inode blocks per group");
    let blocks = 1 + 4 * GROUP_BLOCKS + 2 + inodes + 20;
    e2fs::debugfs_write(&image, &format!("set_super_value blocks_count {blocks}"));
    e2fs::repair(&image);
    e2fs::assert_clean(&image);
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    file.set_len(blocks << 10).unwrap();
    let before = content(&image);
    for size in [NewSize::Min, NewSize::Bytes(blocks << 10), NewSize::Max] {
        let planned = tree::options().plan_resize(&image, size).unwrap();
        let done = tree::options().resize(&image, size).unwrap();
        assert_eq!(planned.size, done.size, "{size:?}");
        assert_eq!(done.size.blocks, blocks, "{size:?}");
        assert_eq!(file.metadata().unwrap().len(), blocks << 10, "{size:?}");
        e2fs::assert_clean_after(&image, &format!("{size:?}"));
        assert_eq!(content(&image), before, "{size:?}");
    }
}
