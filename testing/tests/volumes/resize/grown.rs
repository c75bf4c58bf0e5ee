//! Growth over the feature matrix, beside `resize2fs`.

use std::fs::File;
use std::path::Path;

use throughline::{NewSize, Volume};
use throughline_testkit::kernel::{Loop, Mount, may_use_loops};
use throughline_testkit::{e2fs, program};

use super::number;
use super::tree::{self, Tree};

/// The arguments of `mke2fs`, the size at first, and the sizes to grow to, in KiB. Sizes at the edges of
/// groups, one block behind them, and far beyond the reserved descriptors.
pub(crate) const RECIPES: &[(&str, u64, &[u64])] = &[
    ("-t ext2 -r 0 -b 1024", 6_000, &[7_000, 20_000, 90_001]),
    ("-t ext2 -b 1024", 9_000, &[16_385, 40_000, 300_000]),
    ("-t ext2 -b 4096", 20_000, &[20_004, 131_072, 700_000]),
    (
        "-t ext2 -b 1024 -O ^sparse_super,^resize_inode -g 1024",
        9_000,
        &[12_000, 40_001],
    ),
    ("-t ext3 -b 1024 -J size=1", 9_000, &[50_000, 300_000]),
    (
        "-t ext4 -b 1024 -J size=1",
        9_000,
        &[9_001, 16_400, 60_000, 400_000],
    ),
    ("-t ext4 -b 2048 -J size=2", 20_000, &[70_000, 500_000]),
    (
        "-t ext4 -b 4096 -J size=4",
        40_000,
        &[131_072, 131_076, 262_144, 2_000_000],
    ),
    ("-t ext4 -b 1024 -J size=1 -O ^64bit", 9_000, &[100_000]),
    ("-t ext4 -b 1024 -J size=1 -O ^flex_bg", 9_000, &[100_000]),
    (
        "-t ext4 -b 1024 -J size=1 -O ^flex_bg -E stride=4,stripe_width=16",
        9_000,
        &[100_000],
    ),
    (
        "-t ext4 -b 1024 -J size=1 -G 4 -g 2048",
        9_000,
        &[30_000, 200_000],
    ),
    (
        "-t ext4 -b 1024 -J size=1 -O meta_bg,^resize_inode -g 512",
        9_000,
        &[10_000, 40_000, 200_000],
    ),
    (
        "-t ext4 -b 1024 -J size=1 -O ^resize_inode -g 256",
        9_000,
        &[12_000, 60_000, 90_000],
    ),
    (
        "-t ext4 -b 1024 -J size=1 -g 256 -E resize=20000",
        9_000,
        &[15_000, 120_000, 200_000],
    ),
    (
        "-t ext4 -b 1024 -J size=1 -O sparse_super2,^resize_inode",
        9_000,
        &[60_000, 100_000],
    ),
    (
        "-t ext4 -b 1024 -J size=1 -O sparse_super2 -g 1024",
        20_000,
        &[60_000, 100_000],
    ),
    (
        "-t ext4 -b 1024 -J size=1 -O uninit_bg,^metadata_csum",
        9_000,
        &[9_500, 100_000],
    ),
    (
        "-t ext4 -b 1024 -J size=1 -O ^uninit_bg,^metadata_csum",
        9_000,
        &[9_500, 100_000],
    ),
    (
        "-t ext4 -b 1024 -J size=1 -O metadata_csum,metadata_csum_seed",
        9_000,
        &[100_000],
    ),
    (
        "-t ext4 -b 1024 -J size=1 -O orphan_file",
        9_000,
        &[100_000],
    ),
    (
        "-t ext4 -b 1024 -J size=1 -O quota,project",
        9_000,
        &[9_500, 100_000],
    ),
    (
        "-t ext4 -b 1024 -J size=1 -O inline_data",
        9_000,
        &[100_000],
    ),
    (
        "-t ext4 -b 1024 -J size=1 -O ea_inode,large_dir",
        9_000,
        &[100_000],
    ),
    ("-t ext4 -b 1024 -J size=1 -O project", 9_000, &[100_000]),
    (
        "-t ext4 -b 1024 -J size=1 -O mmp -E mmp_update_interval=1",
        9_000,
        &[100_000],
    ),
    ("-t ext4 -b 1024 -O ^has_journal -I 128", 9_000, &[100_000]),
    (
        "-t ext4 -b 4096 -O ^has_journal -I 1024",
        20_000,
        &[300_000],
    ),
    (
        "-t ext4 -b 1024 -J size=1 -E lazy_itable_init=0",
        9_000,
        &[100_000],
    ),
    ("-t ext4 -b 65536 -J size=4 -N 64", 60_000, &[200_000]),
];

/// Makes an image with a tree in it.
pub(crate) fn made(image: &Path, words: &str, kib: u64) -> bool {
    let words: Vec<&str> = words.split(' ').collect();
    if !e2fs::mke2fs_if_supported(image, &format!("{kib}k"), &words) {
        return false;
    }
    let mut options = tree::options();
    let volume = options.write(true).open(image).unwrap();
    tree::fill(&volume).unwrap();
    volume.close().unwrap();
    true
}

pub(crate) fn tree_of(image: &Path) -> Tree {
    let volume: Volume = tree::options().open(image).unwrap();
    tree::read(&volume).unwrap()
}

fn resize2fs(image: &Path, kib: u64) {
    let mut check = e2fs::tool("e2fsck");
    program::run(check.args(["-fy"]).arg(image), e2fs::LIMIT);
    let mut tool = e2fs::tool("resize2fs");
    tool.arg(image).arg(format!("{kib}K"));
    program::run(&mut tool, e2fs::LIMIT).good("resize2fs");
}

pub(crate) fn copy(from: &Path, to: &Path) {
    let mut command = program::command("cp");
    command.arg("--sparse=always").arg(from).arg(to);
    program::run(&mut command, e2fs::LIMIT).good("cp");
}

/// Grows step by step, each beside `resize2fs` of the same step.
fn grows(words: &str, kib: u64, steps: &[u64]) {
    let folder = tempfile::tempdir().unwrap();
    let (image, theirs) = (folder.path().join("image"), folder.path().join("theirs"));
    if !made(&image, words, kib) {
        return;
    }
    let before = tree_of(&image);
    for &step in steps {
        let what = format!("{words}, to {step} KiB");
        copy(&image, &theirs);
        let planned = tree::options().plan_resize(&image, NewSize::Bytes(step << 10));
        let planned = planned.unwrap_or_else(|error| panic!("{what}: {error}"));
        let done = tree::options().resize(&image, NewSize::Bytes(step << 10));
        let done = done.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(planned.size, done.size, "{what}");
        e2fs::assert_clean_after(&image, &what);
        assert_eq!(tree_of(&image), before, "{what}");
        assert_eq!(number(&image, "Block count"), done.size.blocks, "{what}");
        assert_eq!(
            std::fs::metadata(&image).unwrap().len(),
            done.size.blocks * u64::from(done.size.block_bytes),
            "{what}"
        );
        resize2fs(&theirs, step);
        // `resize2fs` counts the blocks of the descriptors otherwise where it moved them.
        for name in [
            "Block count",
            "Inode count",
            "Inodes per group",
            "Reserved block count",
        ] {
            let (ours, theirs) = (number(&image, name), number(&theirs, name));
            let near = if name.starts_with("Reserved") { 1 } else { 0 };
            assert!(
                ours.abs_diff(theirs) <= near,
                "{what}: {name}: {ours}, theirs {theirs}"
            );
        }
    }
    // The new space can be filled, and the volume still grows.
    let volume = tree::options().write(true).open(&image).unwrap();
    let free = volume.stat_fs().unwrap().free_blocks * u64::from(volume.block_bytes());
    let piece = vec![0xc3; 1 << 20];
    let file = volume.create_file("/fill").unwrap();
    for at in 0..(free >> 20).min(64).saturating_sub(1) {
        file.write_all_at(&piece, at << 20).unwrap();
    }
    drop(file);
    volume.close().unwrap();
    e2fs::assert_clean_after(&image, &format!("{words}, filled"));
}

pub(crate) fn with_tools() -> bool {
    e2fs::is_there()
}

#[test]
fn grown_volumes_are_clean_and_as_large_as_those_of_resize2fs() {
    if !with_tools() {
        return;
    }
    for (words, kib, steps) in RECIPES
        .iter()
        .step_by(throughline_testkit::tier::pick(4, 1, 1))
    {
        grows(words, *kib, steps);
    }
}

#[test]
fn old_content_beyond_the_end_does_no_harm() {
    if !with_tools() {
        return;
    }
    for words in [
        "-t ext4 -b 1024 -J size=1",
        "-t ext2 -b 1024",
        "-t ext4 -b 4096 -O ^uninit_bg,^metadata_csum",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        if !made(&image, words, 9_000) {
            continue;
        }
        let file = File::options().write(true).open(&image).unwrap();
        let garbage = vec![0xa5; 61 << 20];
        std::os::unix::fs::FileExt::write_all_at(&file, &garbage, 9_000 << 10).unwrap();
        drop(file);
        let done = tree::options().resize(&image, NewSize::Max).unwrap();
        assert!(done.size.blocks > done.size.blocks_before);
        e2fs::assert_clean_after(&image, words);
    }
}

#[test]
fn the_kernel_mounts_and_fills_what_has_grown() {
    if !with_tools() || !may_use_loops() {
        return;
    }
    for (words, kib, steps) in RECIPES {
        if words.contains("65536") || words.contains("mmp") {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let (image, point) = (folder.path().join("image"), folder.path().join("point"));
        std::fs::create_dir(&point).unwrap();
        if !made(&image, words, *kib) {
            continue;
        }
        let last = *steps.last().unwrap();
        tree::options()
            .resize(&image, NewSize::Bytes(last << 10))
            .unwrap();
        let Some(mount) = Mount::or_skip(&image, &point, &["-o", "loop"]) else {
            return;
        };
        assert_eq!(
            std::fs::read(point.join("large")).unwrap(),
            vec![0x5a; 700_001]
        );
        for dir in 0..40 {
            let dir = point.join(format!("new{dir}"));
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("file"), vec![1; 300_000]).unwrap();
        }
        mount.unmount();
        e2fs::assert_clean_after(&image, &format!("{words}, filled by the kernel"));
    }
}

#[test]
fn a_block_device_grows_to_its_size() {
    if !with_tools() || !may_use_loops() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    if !made(&image, "-t ext4 -b 4096 -J size=4", 40_000) {
        return;
    }
    let before = tree_of(&image);
    File::options()
        .write(true)
        .open(&image)
        .unwrap()
        .set_len(300 << 20)
        .unwrap();
    let Some(device) = Loop::new(&image, &[]) else {
        return;
    };
    let node = Path::new(device.node()).to_owned();
    let done = tree::options().resize(&node, NewSize::Max).unwrap();
    assert_eq!(done.size.blocks * 4096, 300 << 20);
    let larger = tree::options()
        .resize(&node, NewSize::More(4096))
        .unwrap_err();
    assert!(
        larger.to_string().contains("do not fit the device"),
        "{larger}"
    );
    device.detach();
    e2fs::assert_clean(&image);
    assert_eq!(tree_of(&image), before);
}
