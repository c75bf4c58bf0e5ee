//! Writing to volumes with a damaged group: the other groups take new files.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use throughline_testing::{DiskImage, Mounted, program};
use throughline_testkit::e2fs;

const BLOCK: u64 = 1024;
/// However slow the machine is.
const LIMIT: Duration = Duration::from_secs(120);

/// A damaged image with four groups; `None` if something needed is missing.
fn damaged(recipe: &str, damage: impl Fn(&DiskImage)) -> Option<DiskImage> {
    if !Mounted::possible() || !program::has(&["debugfs"]) {
        return None;
    }
    let recipe = format!("-b {BLOCK} -g 8192 -E lazy_itable_init=0 {recipe}");
    let image = DiskImage::make(&recipe, "32m")?;
    // So that the bitmap of the group used for files is initialised on disk.
    let mounted = Mounted::new(image.path(), "");
    fs::write(mounted.path("first"), vec![1; 100 << 10]).expect("a file");
    mounted.unmount();
    damage(&image);
    Some(image)
}

/// The blocks with the groups' block bitmaps.
fn block_bitmaps(image: &DiskImage) -> Vec<u64> {
    let text = image.debugfs("stats");
    let behind = text.split("block bitmap at ").skip(1);
    let numbers = behind.filter_map(|behind| behind.split(',').next()?.trim().parse().ok());
    let all: Vec<_> = numbers.collect();
    assert_eq!(all.len(), 4, "{text}");
    all
}

/// Sets a count of a group, and the checksum that fits it: in one run, as `debugfs` opens no volume with a
/// wrong one for writing.
fn set_count(image: &DiskImage, group: u32, count: &str, value: u32) {
    let requests = format!("set_bg {group} {count} {value}\nset_bg {group} checksum calc");
    e2fs::debugfs_write(image.path(), &requests);
}

fn flip(image: &DiskImage, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(image.path());
    let file = file.expect("the image");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("a byte");
    file.write_all_at(&[!byte[0]], at).expect("damage");
}

/// Writes files of 4 MiB in total on a mount of it. They are intact after a remount, and the damage is
/// reported.
fn takes_files(image: &DiskImage, what: &str) {
    let mounted = Mounted::new(image.path(), "errors=continue");
    let bytes = vec![0x5A; 1 << 20];
    for number in 0..4 {
        let path = mounted.path(&format!("file-{number}"));
        let file = fs::File::create(&path).unwrap_or_else(|e| panic!("{what}: {e}"));
        let written = file.write_all_at(&bytes, 0).and_then(|()| file.sync_all());
        written.unwrap_or_else(|e| panic!("{what}, file {number}: {e}"));
    }
    let status: serde_json::Value = serde_json::from_str(&mounted.status()).expect("JSON");
    assert_ne!(status["damaged_places"], 0, "{what}");
    mounted.unmount();
    let mounted = Mounted::new(image.path(), "ro");
    for number in 0..4 {
        let read = fs::read(mounted.path(&format!("file-{number}"))).expect("a file");
        assert!(read == bytes, "{what}: file {number} has other bytes");
    }
    mounted.unmount();
}

#[test]
fn a_damaged_block_bitmap_stops_its_group_only() {
    for recipe in ["-t ext4 -O ^uninit_bg", "-t ext3"] {
        let wrong = |image: &DiskImage| {
            // These bitmaps mark fixed metadata as free; on some volumes their checksum is wrong too.
            for bitmap in &block_bitmaps(image)[..3] {
                flip(image, bitmap * BLOCK);
            }
        };
        let Some(image) = damaged(recipe, wrong) else {
            return;
        };
        takes_files(&image, recipe);
    }
}

/// The blocks with the groups' inode bitmaps.
fn inode_bitmaps(image: &DiskImage) -> Vec<u64> {
    let text = image.debugfs("stats");
    let behind = text.split("inode bitmap at ").skip(1);
    let numbers = behind.filter_map(|behind| behind.split(',').next()?.trim().parse().ok());
    numbers.collect()
}

/// As with the kernel's ext4, a file can be removed even if its blocks cannot be freed; `e2fsck` reports
/// these. Everything else is intact.
fn frees_files(recipe: &str, damage: impl Fn(&DiskImage)) {
    let made = |image: &DiskImage| {
        let mounted = Mounted::new(image.path(), "");
        fs::create_dir(mounted.path("dir")).expect("a directory");
        for name in ["gone", "dir/gone", "kept"] {
            fs::write(mounted.path(name), vec![7; 300 << 10]).expect("a file");
        }
        mounted.unmount();
        damage(image);
    };
    let Some(image) = damaged(recipe, made) else {
        return;
    };
    let mounted = Mounted::new(image.path(), "errors=continue");
    fs::remove_file(mounted.path("gone")).expect("removed");
    fs::remove_dir_all(mounted.path("dir")).expect("removed with what is in it");
    let kept = fs::OpenOptions::new()
        .write(true)
        .open(mounted.path("kept"));
    kept.and_then(|file| file.set_len(1000)).expect("cut");
    // The kernel forgets the files some time after their removal. Only then are their blocks freed.
    let end = Instant::now() + LIMIT;
    let damaged_places = || -> serde_json::Value {
        let status: serde_json::Value = serde_json::from_str(&mounted.status()).expect("JSON");
        status["damaged_places"].clone()
    };
    while damaged_places() == 0 {
        assert!(Instant::now() < end, "no damage was found");
        std::thread::yield_now();
    }
    mounted.unmount();
    let done = e2fs::e2fsck(image.path(), &["-fy"]);
    let printed = &done.stdout;
    assert_eq!(done.code(), 1, "{printed}");
    image.check("repaired");
    let mounted = Mounted::new(image.path(), "");
    assert!(!mounted.path("gone").exists() && !mounted.path("dir").exists());
    let kept = fs::read(mounted.path("kept")).expect("a file");
    assert!(kept == [7; 1000]);
    let left = fs::read_dir(mounted.path("lost+found")).expect("a directory");
    assert_eq!(left.count(), 0, "{printed}");
    mounted.unmount();
}

#[test]
fn files_in_a_damaged_group_can_be_removed() {
    frees_files("-t ext4", |image| {
        let all = block_bitmaps(image);
        all.iter().for_each(|at| flip(image, at * BLOCK + 700));
    });
    frees_files("-t ext4", |image| {
        let all = inode_bitmaps(image);
        all.iter().for_each(|at| flip(image, at * BLOCK + 7));
    });
    frees_files("-t ext4", |image| {
        for group in 0..4 {
            set_count(image, group, "free_blocks_count", 60_000);
        }
    });
}

#[test]
fn inodes_are_found_beside_groups_whose_counts_cannot_be() {
    let wrong = |image: &DiskImage| {
        for group in 0..3 {
            set_count(image, group, "free_inodes_count", 60_000);
        }
    };
    let Some(image) = damaged("-t ext4", wrong) else {
        return;
    };
    takes_files(&image, "60000 free inodes");
    let mounted = Mounted::new(image.path(), "errors=continue");
    fs::create_dir(mounted.path("dir")).expect("a directory");
    fs::write(mounted.path("dir/file"), b"in it").expect("a file");
    mounted.unmount();
}

#[test]
fn a_free_count_that_cannot_be_stops_its_group_only() {
    for count in [60_000, 4] {
        let wrong = |image: &DiskImage| {
            for group in 1..3 {
                set_count(image, group, "free_blocks_count", count);
            }
        };
        let Some(image) = damaged("-t ext4", wrong) else {
            return;
        };
        takes_files(&image, &format!("{count} free blocks"));
    }
}
