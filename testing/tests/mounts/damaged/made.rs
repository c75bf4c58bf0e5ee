//! Our own images, damaged at one place each.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::io::Errno;
use throughline::{Attributes, NewNode};
use throughline_testing::{DiskImage, Mounted, program};
use throughline_testkit::e2fs;

use crate::damaged::judge::judge;
use crate::damaged::seen::Seen;

const BLOCK: u64 = 1024;
/// Files in `/dir`: enough for a tree of several leaves, or for as many blocks.
const FILES: usize = 300;
/// Offsets of the hash version in the root of a tree, and of the second entry's hash.
const HASH_VERSION: u64 = 28;
const SECOND_HASH: u64 = 40;

fn name(number: usize) -> String {
    format!("some-longer-name-{number}")
}

/// An image with `/dir`, a file of several blocks in it, and `/few`, a directory of one block.
fn populated(recipe: &str) -> Option<DiskImage> {
    if !Mounted::possible() || !program::has(&["debugfs", "losetup"]) {
        return None;
    }
    let image = DiskImage::make(&format!("-b {BLOCK} {recipe}"), "32m")?;
    let volume = throughline::OpenOptions::new()
        .write(true)
        .open(image.path());
    let volume = volume.expect("the volume opens");
    for (dir, files) in [("/dir", FILES), ("/few", 5)] {
        let dir = volume.root().and_then(|root| root.create_dir(dir));
        let dir = dir.expect("a directory");
        for number in 0..files {
            let file = dir.make_node(name(number), NewNode::File, &Attributes::new().mode(0o644));
            let file = file.and_then(|node| node.open_file());
            let bytes = vec![number as u8; number * 16];
            file.and_then(|file| file.write_all_at(&bytes, 0))
                .expect("a file");
        }
    }
    volume.close().expect("closed");
    Some(image)
}

/// Direct access to the bytes of an image.
struct Raw<'a>(&'a DiskImage);

impl Raw<'_> {
    fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let image = OpenOptions::new().read(true).open(self.0.path());
        image
            .and_then(|image| image.read_exact_at(&mut bytes, at))
            .expect("the image");
        bytes
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let image = OpenOptions::new().write(true).open(self.0.path());
        image
            .and_then(|image| image.write_all_at(bytes, at))
            .expect("damage");
    }

    /// Inverts all bits of a byte.
    fn flip(&self, at: u64) {
        self.write(at, &[!self.read(at, 1)[0]]);
    }

    /// The byte offset of a block of a file.
    fn block(&self, path: &str, number: u64) -> u64 {
        let output = self.0.debugfs(&format!("bmap {path} {number}"));
        let block = output
            .lines()
            .last()
            .and_then(|line| line.trim().parse::<u64>().ok());
        block.unwrap_or_else(|| panic!("bmap {path} {number}: {output}")) * BLOCK
    }

    /// The byte offset of an inode.
    fn inode(&self, path: &str) -> u64 {
        let output = self.0.debugfs(&format!("imap {path}"));
        let behind = |word: &str| {
            let rest = output.rsplit_once(word).map_or("", |(_, rest)| rest).trim();
            let end = rest.find([',', '\n']).unwrap_or(rest.len());
            rest[..end].to_owned()
        };
        let block: u64 = behind("located at block").parse().expect("a block");
        let offset = behind("offset 0x");
        block * BLOCK + u64::from_str_radix(&offset, 16).expect("an offset")
    }

    /// The byte offset of the `n`th record of a block.
    fn record(&self, block: u64, n: usize) -> u64 {
        (0..n).fold(block, |at, _| {
            let length = self.read(at + 4, 2);
            at + u64::from(u16::from_le_bytes([length[0], length[1]]))
        })
    }

    /// Runs a modifying request of `debugfs`.
    fn debugfs(&self, request: &str) {
        e2fs::debugfs_write(self.0.path(), request);
    }
}

/// The images that have the structure to damage.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    All,
    /// With hash trees.
    Trees,
    /// With checksums.
    Checksums,
}

/// A damage: its name, the images it applies to, the function that does it, and the minimum number of names
/// left in `/dir`.
type Damage = (&'static str, On, fn(&Raw<'_>), usize);

/// At least this many names are left after the loss of one leaf, which holds fewer than 40.
const BUT_A_LEAF: usize = FILES - 40;

const DAMAGES: &[Damage] = &[
    (
        "no hash is known",
        On::Trees,
        |raw| raw.write(raw.block("/dir", 0) + HASH_VERSION, &[0x77]),
        FILES,
    ),
    (
        "hashes that do not ascend",
        On::Trees,
        |raw| raw.write(raw.block("/dir", 0) + SECOND_HASH, &[0xFF; 4]),
        FILES,
    ),
    (
        "an index entry that leads out of the directory",
        On::Trees,
        |raw| raw.write(raw.block("/dir", 0) + SECOND_HASH + 4, &[0xFF; 4]),
        FILES,
    ),
    (
        "two index entries for one leaf",
        On::Trees,
        |raw| {
            let first = raw.read(raw.block("/dir", 0) + SECOND_HASH - 4, 4);
            raw.write(raw.block("/dir", 0) + SECOND_HASH + 4, &first);
        },
        FILES,
    ),
    (
        "noise for the first block",
        On::Trees,
        |raw| raw.write(raw.block("/dir", 0), &[0xA5; 64]),
        FILES,
    ),
    (
        "a hole",
        On::All,
        |raw| raw.debugfs("punch /dir 3 3"),
        BUT_A_LEAF,
    ),
    (
        "a record that is too long",
        On::All,
        |raw| raw.write(raw.record(raw.block("/dir", 3), 4) + 4, &[0xFF, 0x7F]),
        BUT_A_LEAF + 4,
    ),
    (
        "a record that is too short",
        On::All,
        |raw| raw.write(raw.record(raw.block("/dir", 3), 4) + 4, &[4, 0]),
        BUT_A_LEAF + 4,
    ),
    (
        "an empty name",
        On::All,
        |raw| raw.write(raw.record(raw.block("/dir", 3), 4) + 6, &[0]),
        FILES - 1,
    ),
    (
        "an inode that does not exist",
        On::All,
        |raw| raw.write(raw.record(raw.block("/dir", 3), 4), &[0xFF; 4]),
        FILES,
    ),
    (
        "no `.`",
        On::All,
        |raw| raw.write(raw.block("/dir", 0) + 8, b"x"),
        FILES,
    ),
    (
        "no `..`",
        On::All,
        |raw| raw.write(raw.block("/dir", 0) + 20, b"xy"),
        FILES,
    ),
    (
        "a wrong checksum of a leaf",
        On::Checksums,
        |raw| raw.flip(raw.block("/dir", 3) + BLOCK - 1),
        FILES,
    ),
    (
        "a wrong checksum of the root",
        On::Checksums,
        |raw| raw.flip(raw.block("/dir", 0) + BLOCK - 1),
        FILES,
    ),
    (
        "a wrong checksum of a file's inode",
        On::Checksums,
        |raw| raw.flip(raw.inode("/dir/some-longer-name-7") + 0x7C),
        FILES,
    ),
    (
        "a file without a type",
        On::All,
        |raw| raw.write(raw.inode("/dir/some-longer-name-7"), &[0, 0]),
        FILES,
    ),
    (
        "a size in part of a block",
        On::All,
        |raw| raw.debugfs("set_inode_field /dir size 8000"),
        100,
    ),
    (
        "a size that is too small",
        On::All,
        |raw| raw.debugfs("set_inode_field /dir size 2048"),
        FILES,
    ),
    (
        "no links",
        On::All,
        |raw| raw.debugfs("set_inode_field /dir links_count 0"),
        0,
    ),
    (
        "a wrong checksum of a group",
        On::Checksums,
        |raw| raw.flip(2 * BLOCK + 0x1E),
        FILES,
    ),
    (
        "too many free blocks",
        On::All,
        |raw| raw.debugfs("set_bg 0 free_blocks_count 60000"),
        FILES,
    ),
    (
        "too many free inodes",
        On::All,
        |raw| raw.debugfs("set_bg 0 free_inodes_count 60000"),
        FILES,
    ),
    (
        "a block bitmap out of the volume",
        On::All,
        |raw| raw.debugfs("set_bg 0 block_bitmap 99999999"),
        FILES,
    ),
    (
        "an inode bitmap out of the volume",
        On::All,
        |raw| raw.debugfs("set_bg 0 inode_bitmap 99999999"),
        FILES,
    ),
];

/// The names in `/dir`, recognised by their number.
fn names_of_dir(seen: &Seen) -> usize {
    let mut counts = std::collections::HashMap::new();
    for (dir, name) in &seen.names {
        if name.starts_with(b"some-longer") {
            *counts.entry(dir).or_insert(0) += 1;
        }
    }
    counts.values().copied().max().unwrap_or(0)
}

fn damages_on(recipe: &str, kinds: &[On]) {
    let Some(whole) = populated(recipe) else {
        return;
    };
    let mut wrong = Vec::new();
    for &(what, on, damage, least) in DAMAGES {
        if !kinds.contains(&on) {
            continue;
        }
        let image = whole.copy();
        damage(&Raw(&image));
        let scratch = tempfile::tempdir().expect("a place for temporary files");
        let verdict = judge(image.path(), scratch.path());
        let lacking = verdict.lacking.iter().take(6);
        wrong.extend(lacking.map(|line| format!("{what}: {line}")));
        for (reader, seen) in [("library", &verdict.unrecovered), ("mount", &verdict.mount)] {
            let names = names_of_dir(seen);
            if names < least {
                wrong.push(format!("{what}: the {reader} lists {names} of {least}"));
            }
        }
        wrong.extend(unreported_damage(image.path()).map(|line| format!("{what}: {line}")));
    }
    assert!(wrong.is_empty(), "{recipe}:\n{}", wrong.join("\n"));
}

/// Whether reading everything puts each damaged place into the log and the status of a mount exactly once;
/// returns what is wrong.
fn unreported_damage(image: &Path) -> Option<String> {
    let mounted = match Mounted::start(image, "ro") {
        Ok(mounted) => mounted,
        Err(why) => return Some(why),
    };
    let look = || {
        for dir in ["", "/dir", "/few"] {
            let Ok(entries) = std::fs::read_dir(mounted.path(dir)) else {
                continue;
            };
            for entry in entries.flatten() {
                let _ = std::fs::symlink_metadata(entry.path());
            }
        }
    };
    let count = || {
        let status: serde_json::Value = serde_json::from_str(&mounted.status()).expect("JSON");
        status["damaged_places"].as_u64().expect("a count")
    };
    look();
    let once = count();
    look();
    let (twice, log) = (count(), mounted.log());
    let lines = log
        .lines()
        .filter(|line| line.contains("the volume is damaged"));
    let reported = lines.count() as u64;
    mounted.unmount();
    (once == 0 || once != twice || reported != once)
        .then(|| format!("{once} damaged places, then {twice}; {reported} in the log: {log}"))
}

#[test]
fn trees_with_checksums() {
    let kinds = [On::All, On::Trees, On::Checksums];
    let kinds = throughline_testkit::tier::pick(&kinds[1..2], &kinds, &kinds);
    damages_on("-t ext4", kinds);
}

#[test]
fn trees_without_checksums() {
    if !throughline_testkit::tier::is_too_long("more kinds of volumes") {
        damages_on("-t ext3", &[On::All, On::Trees]);
    }
}

#[test]
fn blocks_in_a_row() {
    if !throughline_testkit::tier::is_too_long("more kinds of volumes") {
        damages_on("-t ext2 -O ^dir_index", &[On::All]);
    }
}

/// Checks that it is the error for damage.
#[track_caller]
fn assert_damaged<T>(result: io::Result<T>, what: &str) {
    let errno = result.err().and_then(|e| e.raw_os_error());
    assert_eq!(errno, Some(Errno::UCLEAN.raw_os_error()), "{what}");
}

/// Damaged structures are not modified.
#[test]
fn a_damaged_directory_takes_no_changes() {
    let Some(whole) = populated("-t ext4") else {
        return;
    };
    let image = whole.copy();
    Raw(&image).write(Raw(&image).block("/dir", 0) + HASH_VERSION, &[0x77]);
    let mounted = Mounted::new(image.path(), "errors=continue");
    let dir = mounted.path("dir");
    assert_eq!(
        std::fs::read_dir(&dir)
            .expect("the directory")
            .flatten()
            .count(),
        FILES
    );
    std::fs::metadata(dir.join(name(7))).expect("a file of it");
    assert_damaged(std::fs::write(dir.join("new"), b""), "a new name");
    assert_damaged(std::fs::remove_file(dir.join(name(7))), "a removed name");
    assert_damaged(
        std::fs::rename(dir.join(name(7)), mounted.path("away")),
        "a name that leaves",
    );
    std::fs::write(mounted.path("few/new"), b"new").expect("a sound directory");
    mounted.unmount();
}
