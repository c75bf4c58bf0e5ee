//! The kernel mounts what we make, and writes it.

use std::fs;

use throughline_testkit::kernel::{Loop, Mount};
use throughline_testkit::{e2fs, missing, program};

use super::{Names, Set};
use crate::common::{fails, noise, ok};

/// As the list of option sets.
const SETS: [&str; 12] = [
    "8M -t ext2",
    "64M -t ext3",
    "64M -t ext4",
    "600M -t ext4",
    "64M -t ext4 -O ^64bit,^metadata_csum,uninit_bg",
    "64M -t ext4 -O orphan_file,metadata_csum_seed",
    "64M -t ext4 -O inline_data,large_dir,ea_inode",
    "64M -t ext4 -O meta_bg,^resize_inode",
    "64M -t ext4 -O sparse_super2,fast_commit",
    "64M -t ext4 -O project -I 512 -G 4 -J size=8",
    "64M -t ext2 -E stride=16,stripe_width=64",
    "600M -t ext4 -E packed_meta_blocks=1,lazy_itable_init=0",
];

#[test]
fn the_kernel_mounts_and_writes_what_is_made() {
    if !throughline_testkit::tier::as_root() {
        missing!("only root mounts with the kernel");
        return;
    }
    if crate::common::tools_are_missing() {
        return;
    }
    let names = Names::new();
    let dir = tempfile::tempdir().unwrap();
    let (image, point) = (dir.path().join("image"), dir.path().join("mnt"));
    fs::create_dir(&point).unwrap();
    let bytes = noise(300_000, 5);
    for line in SETS {
        Set::new(line).run(names.command("mke2fs"), &image);
        let Some(mount) = Mount::or_skip(&image, &point, &["-o", "loop"]) else {
            fs::remove_file(&image).unwrap();
            continue;
        };
        for number in 0..200 {
            let sub = point.join(format!("d{}", number % 7));
            fs::create_dir_all(&sub).unwrap();
            fs::write(sub.join(format!("f{number}")), &bytes[..number * 40]).unwrap();
        }
        fs::write(point.join("large"), &bytes).unwrap();
        mount.unmount();
        e2fs::assert_clean_after(&image, line);
        let Some(mount) = Mount::or_skip(&image, &point, &["-o", "loop,ro"]) else {
            panic!("{line} does not mount again");
        };
        assert!(fs::read(point.join("large")).unwrap() == bytes, "{line}");
        mount.unmount();
        fs::remove_file(&image).unwrap();
    }
}

/// A block smaller than a sector cannot be read or written there.
#[test]
fn no_block_is_smaller_than_a_sector() {
    let dir = tempfile::tempdir().unwrap();
    let (image, point) = (dir.path().join("image"), dir.path().join("mnt"));
    fs::create_dir(&point).unwrap();
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let Some(device) = Loop::new(&image, &["--sector-size", "4096"]) else {
        return;
    };
    let node = device.node();
    fails(
        ["mkfs", node, "-b", "1024"],
        2,
        "the sectors of a device: -b 4096",
    );
    let mke2fs = program::run(
        e2fs::tool("mke2fs").args(["-qF", "-b", "1024", node]),
        e2fs::LIMIT,
    );
    assert_eq!(mke2fs.status.code(), Some(1));
    let planned = ok(["mkfs", "-n", node]);
    assert!(planned.contains("16384 4k blocks"), "{planned}");
    for words in [&["mkfs", "-F"][..], &["mkfs", "-F", "-d", "tests/cli"]] {
        ok([&["-q"], words, &[node]].concat());
        e2fs::assert_clean_after(&image, &format!("{words:?}"));
        if let Some(mount) = Mount::or_skip(node.as_ref(), &point, &[]) {
            mount.unmount();
        }
        ok(["ls", &format!("{node}:/")]);
    }
}
