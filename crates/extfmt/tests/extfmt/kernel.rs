//! Images that the kernel's ext4 changed, and journals that it left behind, read block by block.
//! Needs root and loop devices; skips with a message if they are missing.

use crate::walk;

use std::path::Path;
use std::process::Command;

use throughline_extfmt::features::Incompat;
use throughline_extfmt::inode::Time;
use throughline_extfmt::jbd2::{BlockHeader, BlockType, JournalCsum, TagFlags};
use throughline_testing::Mount;
use throughline_testkit::e2fs;
use walk::Image;

fn mke2fs(path: &Path, features: &str) -> bool {
    let arguments = ["-t", "ext4", "-b", "1024", "-N", "4096", "-O", features];
    let made = e2fs::try_mke2fs(path, "48M", &arguments);
    if made.as_ref().is_some_and(|made| !made.status.success()) {
        throughline_testkit::missing!("mke2fs does not support {features}");
    }
    made.is_some_and(|made| made.status.success())
}

/// Fills a mounted volume; returns the number of names.
fn fill(root: &Path) -> usize {
    let many = root.join("many");
    std::fs::create_dir(&many).unwrap();
    for index in 0..1200 {
        let name = many.join(format!("{index:04}-{}", "n".repeat(60)));
        std::fs::write(name, if index % 10 == 0 { "inline" } else { "" }).unwrap();
    }
    // Holes and gaps: half of the names are removed.
    for index in (0..1200).filter(|index| index % 2 == 1) {
        std::fs::remove_file(many.join(format!("{index:04}-{}", "n".repeat(60)))).unwrap();
    }
    let few = root.join("few");
    std::fs::create_dir(&few).unwrap();
    for index in 0..6 {
        std::fs::write(
            few.join(format!("name-{index}")),
            vec![index; 50 + 30 * usize::from(index)],
        )
        .unwrap();
    }
    std::os::unix::fs::symlink("x".repeat(90), root.join("link")).unwrap();
    let sparse = std::fs::File::create(root.join("sparse")).unwrap();
    for piece in 0..400 {
        std::os::unix::fs::FileExt::write_all_at(&sparse, b"piece", piece * 20_000).unwrap();
    }
    sparse.sync_all().unwrap();
    // lost+found, many, few, link and sparse in the root.
    5 + 600 + 6
}

#[test]
fn volumes_written_by_the_kernel_are_read() {
    for features in [
        "metadata_csum,64bit",
        "inline_data",
        "^metadata_csum,uninit_bg",
        "^extent,^64bit",
        "^has_journal,large_dir",
        "meta_bg,^resize_inode",
        "orphan_file,metadata_csum_seed",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        if !mke2fs(&path, features) {
            continue;
        }
        let names = {
            let Some(mount) = Mount::or_skip(&path, true) else {
                return;
            };
            fill(mount.root())
        };
        let image = Image::open(&path);
        let summary = image.walk();
        assert_eq!(
            (summary.names, summary.directories),
            (names, 4),
            "{features}"
        );
        assert!(summary.hashed >= 1, "{features}: {summary:?}");
        let file = image.lookup("few/name-3");
        assert_eq!(file.size_bytes(&image.geometry), Ok(140), "{features}");
        assert!(
            file.time(Time::Modify) >= file.time(Time::Create),
            "{features}"
        );
    }
}

/// A copy of a mounted image has transactions in its journal: all of them are well-formed, and the
/// checksum of every data block is correct.
#[test]
fn the_kernels_journal() {
    for (features, csum) in [
        ("metadata_csum,64bit", JournalCsum::V3),
        ("^metadata_csum,^64bit", JournalCsum::None),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (path, copy) = (dir.path().join("image"), dir.path().join("copy"));
        if !mke2fs(&path, features) {
            continue;
        }
        {
            let Some(mount) = Mount::or_skip(&path, true) else {
                return;
            };
            fill(mount.root());
            let flushed = Command::new("sync")
                .arg("-f")
                .arg(mount.root())
                .status()
                .unwrap();
            assert!(flushed.success());
            std::fs::remove_dir_all(mount.root().join("many")).unwrap();
            let flushed = Command::new("sync")
                .arg("-f")
                .arg(mount.root())
                .status()
                .unwrap();
            assert!(flushed.success());
            std::fs::copy(&path, &copy).unwrap();
        }
        let image = Image::open(&copy);
        assert!(image.geometry.incompat.contains(Incompat::RECOVER));
        let commits = read_log(&image, csum);
        assert!(commits >= 1, "{features}: {commits} commits");
    }
}

/// Reads the log to its end; returns the number of transactions.
fn read_log(image: &Image, csum: JournalCsum) -> usize {
    let journal = image.journal().unwrap();
    assert_eq!(journal.format.csum, csum);
    let (mut at, mut sequence, mut commits) = (journal.start.unwrap(), journal.sequence, 0);
    let step = |at: &mut u32| {
        *at = if *at + 1 == journal.end {
            journal.first
        } else {
            *at + 1
        }
    };
    loop {
        let block = image.journal_block(at);
        match BlockHeader::read(block) {
            Some((BlockType::Descriptor, number)) if number == sequence => {
                journal.format.verify_tail(block).unwrap();
                let tags: Vec<_> = journal.format.tags(block).collect();
                assert!(tags.last().unwrap().flags.contains(TagFlags::LAST_TAG));
                for tag in tags {
                    step(&mut at);
                    let data = image.journal_block(at);
                    assert_eq!(tag.checksum, journal.format.data_checksum(sequence, data));
                    assert!(tag.block.0 < image.geometry.blocks);
                }
            }
            Some((BlockType::Revoke, number)) if number == sequence => {
                journal.format.verify_tail(block).unwrap();
                for block in journal.format.revokes(block).unwrap() {
                    assert!(block.0 < image.geometry.blocks);
                }
            }
            Some((BlockType::Commit, number)) if number == sequence => {
                journal.format.read_commit(block).unwrap();
                (sequence, commits) = (sequence + 1, commits + 1);
            }
            _ => return commits,
        }
        step(&mut at);
    }
}
