//! Images that `mke2fs` makes, over the feature matrix, read block by block: every checksum,
//! count and location that the tools wrote must be the one that this crate computes.

use crate::walk;

use std::path::{Path, PathBuf};

use throughline_extfmt::features::Incompat;
use throughline_extfmt::inode::FileType;
use throughline_extfmt::jbd2::{
    self, BlockHeader, BlockType, JBD2_MAGIC, JournalCsum, JournalGeometry, TagFlags,
};
use throughline_extfmt::{Superblock, checksum};
use throughline_testkit::tier::{each_at_once, pick};
use throughline_testkit::{e2fs, program};
use walk::{Image, Summary};

/// A tree with what an image should show: a directory of many long names, files of all maps, links of both
/// kinds.
fn make_tree(root: &Path, many_files: usize) {
    let many = root.join("many");
    std::fs::create_dir_all(&many).unwrap();
    for index in 0..many_files {
        std::fs::write(many.join(format!("{index:04}-{}", "n".repeat(56))), b"").unwrap();
    }
    std::fs::create_dir_all(root.join("few/deeper")).unwrap();
    std::fs::write(root.join("few/small"), b"in the inode, if inline_data").unwrap();
    std::fs::write(root.join("few/page"), vec![7u8; 4096]).unwrap();
    std::fs::write(root.join("large"), vec![9u8; 900 * 1024]).unwrap();
    let sparse = std::fs::File::create(root.join("sparse")).unwrap();
    for offset in (0..300u64).map(|piece| piece * 128 * 1024) {
        std::os::unix::fs::FileExt::write_all_at(&sparse, b"piece", offset).unwrap();
    }
    std::os::unix::fs::symlink("large", root.join("short-link")).unwrap();
    std::os::unix::fs::symlink("x".repeat(400), root.join("long-link")).unwrap();
}

/// Entries of [`make_tree`], `lost+found` and the root included; "." and ".." are not.
const DIRECTORIES: usize = 5;
const FILES: usize = 4;
const LINKS: usize = 2;
/// Files in a directory whose hash tree needs two levels with 1 KiB blocks.
const MANY: usize = 1900;

struct Made {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

/// Makes an image of the tree, its directories rebuilt by `e2fsck -D` (with hash trees where
/// the features allow). `None`: this `mke2fs` does not know the options.
fn make(options: &[&str], size: &str, many_files: usize) -> Option<Made> {
    let dir = tempfile::tempdir().unwrap();
    let (tree, path) = (dir.path().join("tree"), dir.path().join("image"));
    make_tree(&tree, many_files);
    let tree = ["-N", "4096", "-d", tree.to_str().unwrap()];
    if !e2fs::mke2fs_if_supported(&path, size, &[&tree, options].concat()) {
        return None;
    }
    let long = "v".repeat(500);
    let commands = format!(
        "ea_set /few/page user.short value\nea_set /few/page user.long {long}\n\
         cd few\nmknod device c 200 40000\n"
    );
    e2fs::debugfs_write(&path, &commands);
    // It exits with 1 if it changed something, as -D does.
    let rebuilt = e2fs::e2fsck(&path, &["-fyD"]);
    assert!(
        (0..2).contains(&rebuilt.code()),
        "{options:?}: {}",
        rebuilt.text()
    );
    Some(Made { _dir: dir, path })
}

/// Makes an image with a directory that needs a hash tree.
fn check(options: &[&str], size: &str) -> Option<(Image, Summary)> {
    check_with(options, size, 200)
}

fn check_with(options: &[&str], size: &str, many_files: usize) -> Option<(Image, Summary)> {
    let made = make(options, size, many_files)?;
    let image = Image::open(&made.path);
    let summary = image.walk();
    assert_eq!(summary.directories, DIRECTORIES, "{options:?}");
    assert_eq!(
        summary.names,
        DIRECTORIES - 1 + FILES + LINKS + 1 + many_files,
        "{options:?}"
    );
    let attributes = if image.superblock.is_rev0() { 0 } else { 2 };
    assert_eq!(summary.attributes, attributes, "{options:?}");
    Some((image, summary))
}

#[test]
fn revisions_0_and_1_of_ext2() {
    if !e2fs::is_there() {
        return;
    }
    check(&["-t", "ext2", "-r", "0", "-b", "1024"], "24M");
    check(&["-t", "ext2", "-b", "1024"], "24M");
    check(
        &["-t", "ext2", "-b", "4096", "-O", "^dir_index,^filetype"],
        "64M",
    );
}

#[test]
fn ext3() {
    if !e2fs::is_there() {
        return;
    }
    let (image, summary) = check_with(&["-t", "ext3", "-b", "1024"], "32M", MANY).unwrap();
    assert!(
        summary.hashed >= 1 && summary.index_nodes >= 2,
        "{summary:?}"
    );
    assert_eq!(image.journal().unwrap().start, None);
    check(&["-t", "ext3", "-b", "2048"], "32M");
    check(&["-t", "ext3", "-b", "4096"], "64M");
}

#[test]
fn ext4_of_all_block_sizes() {
    if !e2fs::is_there() {
        return;
    }
    for (block, size, many) in [
        ("1024", "32M", MANY),
        ("2048", "32M", 200),
        ("4096", "64M", 200),
    ] {
        let (image, summary) = check_with(&["-t", "ext4", "-b", block], size, many).unwrap();
        assert!(image.geometry.has_metadata_csum());
        assert!(
            summary.hashed >= 1 && summary.extent_blocks >= 1,
            "{summary:?}"
        );
        let journal = image.journal().unwrap();
        assert_eq!((journal.first, journal.start), (1, None));
    }
    check(&["-t", "ext4", "-b", "16384"], "256M");
    check(&["-t", "ext4", "-b", "65536"], "512M");
}

/// Set last: each tool that writes such a volume waits for 11 s.
#[test]
fn multiple_mount_protection() {
    if !e2fs::is_there() {
        return;
    }
    let made = make(&["-t", "ext4", "-b", "1024", "-g", "2048"], "48M", 200).unwrap();
    let mut tune = e2fs::tool("tune2fs");
    let tuned = program::run(tune.args(["-O", "mmp"]).arg(&made.path), e2fs::LIMIT);
    assert!(tuned.status.success(), "{}", tuned.text());
    let image = Image::open(&made.path);
    assert!(image.superblock.incompat().contains(Incompat::MMP));
    image.walk();
}

#[test]
fn ext4_features() {
    if !e2fs::is_there() {
        return;
    }
    let all = [
        "^metadata_csum,uninit_bg",
        "^metadata_csum,^uninit_bg,^64bit",
        "^64bit",
        "^flex_bg",
        "meta_bg,^resize_inode",
        "meta_bg,^resize_inode,^64bit,^flex_bg",
        "sparse_super2",
        "inline_data",
        "large_dir",
        "metadata_csum_seed",
        "ea_inode",
        "orphan_file",
        "fast_commit",
        "stable_inodes",
        "project,quota",
        "casefold",
        "encrypt",
        "verity",
        "^extent,^64bit",
        "^has_journal",
        "^dir_index",
        "^sparse_super,^resize_inode",
        "^huge_file,^dir_nlink,^large_file",
    ];
    each_at_once(&all, pick(3, 1, 1), |options| {
        // Small groups: many of them.
        check(
            &["-t", "ext4", "-b", "1024", "-g", "2048", "-O", options],
            "48M",
        );
    });
}

#[test]
fn inode_sizes_and_clusters() {
    if !e2fs::is_there() {
        return;
    }
    for size in ["128", "256", "512", "1024"] {
        check(&["-t", "ext4", "-b", "1024", "-I", size], "32M");
    }
    check(
        &["-t", "ext4", "-O", "bigalloc", "-b", "1024", "-C", "8192"],
        "64M",
    );
    check(
        &["-t", "ext4", "-O", "bigalloc", "-b", "4096", "-C", "65536"],
        "256M",
    );
    check(&["-t", "ext4", "-b", "1024", "-g", "256", "-G", "4"], "16M");
}

#[test]
fn inodes_of_the_tree_are_decoded() {
    if !e2fs::is_there() {
        return;
    }
    let (image, _) = check(&["-t", "ext4", "-b", "1024", "-O", "inline_data"], "32M").unwrap();
    let device = image.lookup("few/device");
    assert_eq!(device.file_type(), Ok(FileType::CharDevice));
    assert_eq!(device.device_number(), (200, 40000));
    assert_eq!(
        image.lookup("short-link").fast_symlink_target(),
        Some(&b"large"[..])
    );
    assert!(!image.lookup("long-link").is_fast_symlink());
    let large = image.lookup("large");
    assert_eq!(large.size_bytes(&image.geometry), Ok(900 * 1024));
    assert!(image.geometry.incompat.contains(Incompat::INLINE_DATA));
    assert!(
        image
            .lookup("few/small")
            .i_block()
            .starts_with(b"in the inode")
    );
}

/// Transactions that `debugfs` wrote, with every kind of checksum it knows.
#[test]
fn journals_of_debugfs() {
    if !e2fs::is_there() {
        return;
    }
    let kinds = [
        ("", "^metadata_csum", JournalCsum::None),
        ("-c", "^metadata_csum", JournalCsum::V1),
        ("-c -v 2", "metadata_csum", JournalCsum::V2),
        ("-c -v 3", "metadata_csum", JournalCsum::V3),
    ];
    for (features, bit64) in [("64bit", true), ("^64bit", false)] {
        for (version, checksums, csum) in kinds {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("image");
            let features = format!("{checksums},{features}");
            let arguments = ["-t", "ext4", "-b", "1024", "-O", &features];
            e2fs::mke2fs(&path, "16M", &arguments);
            let data = dir.path().join("data");
            let mut blocks = vec![5u8; 3 * 1024];
            blocks[1024..1028].copy_from_slice(&JBD2_MAGIC.to_be_bytes());
            std::fs::write(&data, &blocks).unwrap();
            let data = data.to_str().unwrap();
            let commands =
                format!("jo {version}\njw -b 5000,5001,5002 {data}\njw -r 6000,6001 {data}\njc\n");
            e2fs::debugfs_write(&path, &commands);

            let image = Image::open(&path);
            let journal = image.journal().unwrap();
            assert_eq!(
                (journal.format.csum, journal.format.bit64),
                (csum, bit64),
                "{version}"
            );
            check_log(&image, &journal, &blocks);
        }
    }
}

/// Follows the log of [`journals_of_debugfs`] and checks it completely.
fn check_log(image: &Image, journal: &JournalGeometry, written: &[u8]) {
    let format = &journal.format;
    let (mut at, mut sequence) = (journal.start.unwrap(), journal.sequence);
    let (mut homes, mut revoked, mut commits) = (Vec::new(), Vec::new(), 0);
    // Version 1 covers the descriptors and data of a transaction.
    let mut crc32 = !0;
    while let Some((kind, number)) = BlockHeader::read(image.journal_block(at)) {
        if number != sequence {
            break;
        }
        let block = image.journal_block(at);
        match kind {
            BlockType::Descriptor => {
                format.verify_tail(block).unwrap();
                crc32 = checksum::crc32_be(crc32, block);
                for tag in format.tags(block) {
                    at += 1;
                    let mut data = image.journal_block(at).to_vec();
                    assert_eq!(tag.checksum, format.data_checksum(sequence, &data));
                    crc32 = checksum::crc32_be(crc32, &data);
                    if tag.flags.contains(TagFlags::ESCAPE) {
                        jbd2::unescape(&mut data);
                    }
                    assert_eq!(data, written[homes.len() * 1024..][..1024]);
                    homes.push(tag.block.0);
                }
            }
            BlockType::Revoke => {
                format.verify_tail(block).unwrap();
                revoked.extend(format.revokes(block).unwrap().map(|block| block.0));
            }
            BlockType::Commit => {
                let commit = format.read_commit(block).unwrap();
                assert_eq!(commit.crc32.is_some(), format.csum == JournalCsum::V1);
                // debugfs includes revoke blocks in the checksum, which jbd2 does not.
                let same = commit.crc32.is_none_or(|found| found == crc32);
                assert!(same || commits == 1, "crc32 of commit {commits}");
                crc32 = !0;
                commits += 1;
                sequence += 1;
            }
            _ => panic!("{kind:?} in the log"),
        }
        at += 1;
    }
    assert_eq!((homes, revoked), (vec![5000, 5001, 5002], vec![6000, 6001]));
    assert_eq!(commits, 2);
}

/// The names of feature bits are those `dumpe2fs` prints, all 96 of them.
#[test]
fn feature_names() {
    if !e2fs::is_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    for word in 0..3usize {
        e2fs::mke2fs(&path, "1M", &["-t", "ext4"]);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[1024 + 0x5C + word * 4..][..4].fill(0xFF);
        std::fs::write(&path, &bytes).unwrap();
        // It prints the header, then may fail because of the features.
        let mut dump = e2fs::tool("dumpe2fs");
        let output = dump.args(["-h", "-f"]).arg(&path).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text
            .lines()
            .find(|line| line.starts_with("Filesystem features:"))
            .unwrap();
        let (_, printed) = line.split_once(':').unwrap();
        let superblock = Superblock::read(&bytes[1024..]).unwrap();
        let names = [
            superblock.compat().names(),
            superblock.incompat().names(),
            superblock.ro_compat().names(),
        ];
        assert_eq!(
            printed.split_whitespace().collect::<Vec<_>>(),
            names.concat()
        );
    }
}
