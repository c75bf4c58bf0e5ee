//! What is refused, with nothing written; and hostile volumes.

use std::path::Path;

use throughline::{NewSize, ResizeError};
use throughline_testkit::e2fs;
use throughline_testkit::kernel::{Mount, may_use_loops};

use super::grown::{made, tree_of, with_tools};
use super::tree;

fn refused(image: &Path, size: NewSize) -> String {
    let before = std::fs::read(image).unwrap();
    let error = tree::options().resize(image, size).unwrap_err();
    assert!(std::fs::read(image).unwrap() == before, "written: {error}");
    error.to_string()
}

#[test]
fn what_is_not_possible_is_refused_before_anything_is_written() {
    if !e2fs::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    assert!(made(&image, "-t ext4 -b 1024 -J size=1 -O ^64bit", 9_000));
    let text = refused(&image, NewSize::Bytes(5 << 40));
    assert!(
        text.contains("at most 4294967295") && text.contains("64bit"),
        "{text}"
    );
    let text = refused(&image, NewSize::Bytes(1 << 20));
    assert!(text.contains("too small: at least"), "{text}");
    let same = tree::options()
        .resize(&image, NewSize::Bytes(9_000 << 10))
        .unwrap();
    assert_eq!(same.size.blocks, same.size.blocks_before);
    let text = refused_at_an_offset(&image);
    assert!(text.contains("inside of a file"), "{text}");

    let open = tree::options().write(true).open(&image).unwrap();
    let busy = tree::options()
        .resize(&image, NewSize::More(1 << 20))
        .unwrap_err();
    assert!(matches!(busy, ResizeError::Volume(_)), "{busy}");
    let planned = tree::options().plan_resize(&image, NewSize::More(1 << 20));
    assert_eq!(planned.unwrap_err().to_string(), busy.to_string());
    open.close().unwrap();
}

fn refused_at_an_offset(image: &Path) -> String {
    let mut options = tree::options();
    options.offset(4096);
    options.resize(image, NewSize::Max).unwrap_err().to_string()
}

/// A plan for what is mounted or cannot be written would be a promise that cannot be kept.
#[test]
fn a_plan_says_what_would_prevent_the_change() {
    if !with_tools() || !may_use_loops() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, point) = (folder.path().join("image"), folder.path().join("mount"));
    std::fs::create_dir(&point).unwrap();
    assert!(made(&image, "-t ext4 -b 1024 -J size=1", 9_000));
    if let Some(mount) = Mount::or_skip(&image, &point, &["-o", "loop"]) {
        for size in [NewSize::Min, NewSize::More(9 << 20)] {
            let error = tree::options().resize(&image, size).unwrap_err();
            assert!(error.to_string().contains("mounted"), "{error}");
            let planned = tree::options().plan_resize(&image, size).unwrap_err();
            assert_eq!(planned.to_string(), error.to_string());
        }
        drop(mount);
    }
    e2fs::debugfs_write(&image, "ssv journal_inum 0");
    let error = tree::options()
        .plan_resize(&image, NewSize::Min)
        .unwrap_err();
    assert!(error.to_string().contains("external journal"), "{error}");
}

#[test]
fn features_that_are_not_written_are_refused_by_name() {
    if !e2fs::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    for feature in ["bigalloc"] {
        if !e2fs::mke2fs_if_supported(&image, "20M", &["-t", "ext4", "-O", feature]) {
            continue;
        }
        let text = refused(&image, NewSize::More(20 << 20));
        assert!(text.contains(feature), "{feature}: {text}");
        // With -f, it leaves such a volume unsound.
        assert!(!text.contains("resize2fs"), "{feature}: {text}");
    }
}

#[test]
fn a_volume_with_quotas_does_not_shrink() {
    if !e2fs::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    assert!(made(&image, "-t ext4 -b 1024 -J size=1 -O quota", 20_000));
    let text = refused(&image, NewSize::Min);
    assert!(text.contains("tune2fs -O ^quota"), "{text}");
    e2fs::assert_clean(&image);
}

#[test]
fn a_damaged_volume_is_left_to_e2fsck() {
    if !e2fs::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    assert!(made(&image, "-t ext4 -b 1024 -J size=1", 9_000));
    e2fs::debugfs_write(&image, "ssv free_blocks_count 17");
    let error = tree::options()
        .resize(&image, NewSize::More(9 << 20))
        .unwrap_err();
    assert!(matches!(error, ResizeError::NeedsCheck(_)), "{error}");
    e2fs::repair(&image);
    tree::options()
        .resize(&image, NewSize::More(9 << 20))
        .unwrap();
    e2fs::assert_clean(&image);

    assert!(made(&image, "-t ext2 -b 1024", 9_000));
    e2fs::debugfs_write(&image, "ssv state 0");
    let error = tree::options()
        .resize(&image, NewSize::More(9 << 20))
        .unwrap_err();
    assert!(error.to_string().contains("not closed cleanly"), "{error}");

    // tune2fs marks a volume so, although it has a journal.
    assert!(made(&image, "-t ext4 -b 1024 -J size=1", 9_000));
    e2fs::debugfs_write(&image, "ssv state 0");
    let text = refused(&image, NewSize::More(9 << 20));
    assert!(text.contains("nothing to replay"), "{text}");
}

/// The backups repair a damaged superblock, so they are not overwritten with it.
#[test]
fn a_superblock_that_differs_from_its_backups_is_left_to_e2fsck() {
    if !e2fs::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    for words in [
        "-t ext2 -b 1024",
        "-t ext4 -b 1024 -O ^metadata_csum -J size=1",
    ] {
        for at in [0x1c, 0x24, 0x5c] {
            assert!(made(&image, words, 20_000));
            let mut bytes = std::fs::read(&image).unwrap();
            bytes[1024 + at] ^= 0x11;
            std::fs::write(&image, &bytes).unwrap();
            refused(&image, NewSize::More(20 << 20));
            e2fs::repair(&image);
            e2fs::assert_clean(&image);
        }
    }
}

/// Also the length of the file is as before.
#[test]
fn a_damaged_resize_inode_is_found_before_the_file_grows() {
    if !e2fs::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    assert!(made(
        &image,
        "-t ext4 -b 1024 -J size=1 -O ^metadata_csum",
        20_000
    ));
    e2fs::debugfs_write(&image, "sif <7> block[DIND] 3");
    let text = refused(&image, NewSize::More(200 << 20));
    assert!(text.contains("inode 7"), "{text}");
    let planned = tree::options().plan_resize(&image, NewSize::More(200 << 20));
    assert_eq!(planned.unwrap_err().to_string(), text);
}

#[test]
fn a_hash_tree_behind_the_volume_is_not_overwritten() {
    if !e2fs::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    assert!(made(&image, "-t ext4 -b 1024 -J size=1", 9_001));
    let mut bytes = std::fs::read(&image).unwrap();
    bytes.resize(9_004 << 10, 0);
    bytes.extend_from_slice(b"verity\0\0");
    bytes.resize(9_064 << 10, 0);
    std::fs::write(&image, &bytes).unwrap();
    let text = refused(&image, NewSize::Max);
    assert!(text.contains("dm-verity"), "{text}");
}

#[test]
fn what_needs_recovery_is_recovered_first() {
    if !e2fs::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let crashed = folder.path().join("crashed");
    assert!(made(&image, "-t ext4 -b 1024 -J size=1", 9_000));
    let volume = tree::options().write(true).open(&image).unwrap();
    volume.write("/late", "news").unwrap();
    volume.sync().unwrap();
    std::fs::copy(&image, &crashed).unwrap();
    volume.close().unwrap();
    let planned = tree::options()
        .plan_resize(&crashed, NewSize::More(30 << 20))
        .unwrap();
    let done = tree::options()
        .resize(&crashed, NewSize::More(30 << 20))
        .unwrap();
    assert_eq!(planned.size, done.size);
    assert!(done.recovery.replayed.is_some());
    e2fs::assert_clean(&crashed);
    assert_eq!(tree_of(&crashed), tree_of(&image));
}

#[test]
fn mutated_volumes_end_in_an_error_or_in_a_result() {
    if !e2fs::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, changed) = (folder.path().join("image"), folder.path().join("changed"));
    for words in [
        "-t ext4 -b 1024 -J size=1 -O ^metadata_csum",
        "-t ext2 -b 1024 -g 512",
    ] {
        assert!(made(&image, words, 9_000));
        let whole = std::fs::read(&image).unwrap();
        let mut random = fastrand::Rng::with_seed(17);
        for _ in 0..150 {
            let mut bytes = whole.clone();
            for _ in 0..random.usize(1..6) {
                // Superblock and descriptors.
                let at = random.usize(1024..3 * 1024);
                bytes[at] = random.u8(..);
            }
            std::fs::write(&changed, &bytes).unwrap();
            // The image names its own size and that of its blocks: not more than 64 MiB are asked for.
            let _ = tree::options().resize(&changed, NewSize::Bytes(64 << 20));
        }
    }
}
