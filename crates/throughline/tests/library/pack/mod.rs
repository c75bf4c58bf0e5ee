//! Trees packed into volumes of many kinds: `e2fsck` finds nothing, our reader and the kernel show the tree,
//! the bytes are the same every time, and what fails leaves nothing.
#![forbid(unsafe_code)]

mod edges;
mod trees;

use throughline::archive::Meta;
use throughline::pack::{PackOptions, PackSize};
use throughline::{OpenOptions, Volume};
use throughline_testkit::tier::{each_at_once, pick};
use throughline_testkit::{e2fs, kernel};

use trees::{Maker, bytes, compare, meta, options, tree};

/// Types, features, block sizes and the like.
const KINDS: &[&[&str]] = &[
    &["-t", "ext4"],
    &["-t", "ext3"],
    &["-t", "ext2"],
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "2048", "-O", "inline_data"],
    &["-t", "ext2", "-b", "1024"],
    &["-t", "ext3", "-b", "1024", "-O", "^dir_index"],
    &["-t", "ext4", "-O", "^extent,^64bit"],
    &["-t", "ext4", "-O", "^metadata_csum"],
    &["-t", "ext4", "-O", "^metadata_csum,uninit_bg"],
    &["-t", "ext4", "-O", "^flex_bg"],
    &["-t", "ext4", "-O", "inline_data,^has_journal", "-I", "512"],
    &["-t", "ext4", "-O", "metadata_csum_seed,orphan_file"],
    &["-t", "ext4", "-O", "^resize_inode,meta_bg,^flex_bg"],
    &["-t", "ext4", "-O", "sparse_super2"],
    &["-t", "ext4", "-I", "128"],
    &["-t", "ext4", "-O", "^filetype,^dir_nlink,^huge_file"],
    &["-t", "ext4", "-O", "quota"],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "quota,project,orphan_file,inline_data",
    ],
    &["-t", "ext3", "-b", "1024", "-O", "quota,^dir_index"],
];

#[test]
fn every_kind_of_volume_holds_the_tree() {
    if !e2fs::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (tree, sources) = tree(700, true);
    let sizes = [
        PackSize::Min,
        PackSize::Exact(200 << 20),
        PackSize::Free(9 << 20),
    ];
    each_at_once(KINDS, 1, |words| {
        let image = folder.path().join(words.join(" "));
        for size in sizes.into_iter().take(pick(1, 3, 3)) {
            let context = format!("{words:?} {size:?}");
            let mut pack = PackOptions::new();
            pack.mkfs(options(words)).size(size).overwrite(true);
            let packed = pack
                .pack(&tree, &sources, &image)
                .unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(image.metadata().unwrap().len(), packed.bytes, "{context}");
            e2fs::assert_clean_after(&image, &context);
            if let PackSize::Free(bytes) = size {
                let free = packed.made.free_blocks * u64::from(packed.made.block_bytes);
                assert!(
                    (bytes..bytes + (2 << 20)).contains(&free),
                    "{context}: {free}"
                );
            }
            let volume = Volume::open(&image).unwrap();
            compare(&volume, (&tree, &sources), &context);
        }
        std::fs::remove_file(image).unwrap();
    });
}

/// A volume that was packed is one that can be written.
/// Their entries fill several blocks of the quota files, whose size is known before the usage is.
#[test]
fn usage_of_many_owners_is_counted() {
    if !e2fs::is_there() {
        return;
    }
    let mut maker = Maker::new();
    for number in 0..300_u32 {
        let owner = Meta {
            uid: number % 97 * 1000,
            gid: number % 41,
            ..meta(0o644)
        };
        let size = number as usize * 311 % 9000;
        maker.file(&format!("f{number}"), &owner, &bytes(size, number as u8));
    }
    let (tree, sources) = maker.finish();
    let folder = tempfile::tempdir().unwrap();
    for features in ["quota", "quota,project,^extent,^64bit"] {
        let image = folder.path().join(features);
        let mut pack = PackOptions::new();
        pack.mkfs(options(&["-t", "ext4", "-b", "1024", "-O", features]));
        pack.pack(&tree, &sources, &image).unwrap();
        e2fs::assert_clean(&image);
        let listed = e2fs::debugfs(&image, "list_quota user");
        assert_eq!(listed.lines().count(), 1 + 97, "{listed}");
    }
}

#[test]
fn a_packed_volume_can_be_written() {
    if !e2fs::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let (tree, sources) = tree(3000, true);
    PackOptions::new()
        .size(PackSize::Free(20 << 20))
        .pack(&tree, &sources, &image)
        .unwrap();
    let volume = OpenOptions::new().write(true).open(&image).unwrap();
    for at in 0..500 {
        volume
            .write(format!("/many/new {at}"), bytes(at * 10, 1))
            .unwrap();
    }
    volume
        .remove_file("/many/a file with the number 77")
        .unwrap();
    volume.remove_dir_all("/deep").unwrap();
    volume.remove_file("/sparse").unwrap();
    volume.close().unwrap();
    e2fs::assert_clean(&image);
}

#[test]
fn the_kernel_mounts_it() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let (tree, sources) = tree(5000, true);
    PackOptions::new().pack(&tree, &sources, &image).unwrap();
    let point = folder.path().join("point");
    std::fs::create_dir(&point).unwrap();
    let Some(mount) = kernel::Mount::or_skip(&image, &point, &["-o", "loop,ro"]) else {
        return;
    };
    assert_eq!(std::fs::read_dir(point.join("many")).unwrap().count(), 5001);
    assert_eq!(
        std::fs::read(point.join("sizes/of 9000000")).unwrap(),
        bytes(9_000_000, 9_000_000u32 as u8)
    );
    for at in (0..5000).step_by(97) {
        assert!(
            point
                .join(format!("many/a file with the number {at}"))
                .exists()
        );
    }
    mount.unmount();
}

#[test]
fn many_names_are_hashed() {
    if !e2fs::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (words, names) in [(&["-b", "1024"][..], 30_000), (&["-b", "4096"], 120_000)] {
        let image = folder.path().join("image");
        let mut maker = Maker::new();
        for at in 0..names {
            let name = format!("{at:06} and a longer name");
            maker.file(&name, &meta(0o644), b"");
        }
        let (tree, sources) = maker.finish();
        let mut pack = PackOptions::new();
        pack.mkfs(options(words))
            .overwrite(true)
            .pack(&tree, &sources, &image)
            .unwrap();
        e2fs::assert_clean(&image);
        let volume = Volume::open(&image).unwrap();
        for at in (0..names).step_by(997) {
            let path = format!("/{at:06} and a longer name");
            assert!(volume.symlink_metadata(&path).unwrap().is_file(), "{path}");
        }
    }
}

#[test]
fn the_same_bytes_every_time() {
    let folder = tempfile::tempdir().unwrap();
    let (tree, sources) = tree(1000, true);
    let mut images = Vec::new();
    for threads in [1, 2, 8] {
        let image = folder.path().join(threads.to_string());
        PackOptions::new()
            .threads(threads)
            .pack(&tree, &sources, &image)
            .unwrap();
        images.push(std::fs::read(image).unwrap());
    }
    assert!(images.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn a_check_names_what_differs() {
    use std::os::unix::fs::FileExt;

    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let (tree, sources) = tree(100, true);
    let pack = PackOptions::new();
    pack.pack(&tree, &sources, &image).unwrap();
    assert_eq!(pack.check(&tree, &sources, &image).unwrap(), []);
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0xff], 1024 + 0x30).unwrap();
    let found = pack.check(&tree, &sources, &image).unwrap();
    let what: Vec<_> = found
        .iter()
        .map(|difference| difference.what.as_str())
        .collect();
    assert_eq!(what, ["superblock of group 0"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
