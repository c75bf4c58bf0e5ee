//! Limits on a mount, for users and for root; and usage as `debugfs` lists it. The feature itself is in the
//! tests of all features: `matrix`, `random_ops`, `power_cuts`, `hostile`, `kernel_crashes`.

use std::fs::{self, OpenOptions};
use std::io::IoSliceMut;
use std::os::unix::fs::{FileExt, MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use throughline_block::Disk;
use throughline_ext::{Fs, InodeNumber};
use throughline_extfmt::quota::{self as format, QUOTA_BLOCK_BYTES};
use throughline_testing::{DiskImage, Mounted};
use throughline_testkit::e2fs;

const USER: u32 = 1000;
const EDQUOT: &str = "uota exceeded";

/// Sets a user's hard limit of space, in KiB, in the quota file: no tool does that without the kernel.
fn set_limit(image: &Path, kib: u64) {
    let device = throughline_device::OpenOptions::new()
        .direct(false)
        .open(image)
        .expect("the image opens");
    let disk = Disk::new(device).expect("a disk");
    let fs = Fs::open(Arc::new(disk), &throughline_ext::OpenOptions::default()).expect("opens");
    let file = fs.inode(InodeNumber::USER_QUOTA).expect("the quota file");
    let mut content = vec![0; 64 << 10];
    let len = fs
        .read_at(&file, 0, &mut [IoSliceMut::new(&mut content)])
        .expect("read");
    let (number, at, mut entry) = content[..len]
        .chunks(QUOTA_BLOCK_BYTES)
        .enumerate()
        .skip(2)
        .find_map(|(number, block)| {
            let (at, entry) = format::find(block, USER)?;
            Some((number, at, entry))
        })
        .expect("the user's entry");
    entry.dqb_bhardlimit.set(kib);
    let request = format!("bmap <3> {number}");
    let block: u64 = e2fs::debugfs(image, &request)
        .trim()
        .parse()
        .expect("a block");
    let mut bytes = content[number * QUOTA_BLOCK_BYTES..][..QUOTA_BLOCK_BYTES].to_vec();
    format::set_entry(&mut bytes, at, Some(entry));
    let image = OpenOptions::new().write(true).open(image).expect("opens");
    image
        .write_all_at(&bytes, block * QUOTA_BLOCK_BYTES as u64)
        .expect("written");
}

/// Writes `kib` KiB with dd(1) as the user. Returns its messages.
fn write_as_user(path: &Path, kib: u64) -> String {
    let ran = Command::new("dd")
        .args(["if=/dev/zero", "bs=1k", &format!("count={kib}")])
        .arg(format!("of={}", path.display()))
        .uid(USER)
        .gid(USER)
        .output()
        .expect("dd runs");
    String::from_utf8_lossy(&ran.stderr).into_owned()
}

/// Space and inodes of an owner, from `debugfs`.
fn listed(image: &Path, kind: &str, id: u32) -> Option<(u64, u64)> {
    let text = e2fs::debugfs(image, &format!("list_quota {kind}"));
    text.lines().find_map(|line| {
        let words: Vec<u64> = line
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        match words[..] {
            [found, space, _, _, inodes, ..] if found == u64::from(id) => Some((space, inodes)),
            _ => None,
        }
    })
}

fn volume() -> Option<DiskImage> {
    if !Mounted::possible() || !throughline_testkit::tier::as_root() {
        throughline_testkit::missing!("a mount by root");
        return None;
    }
    let image = DiskImage::make("-t ext4 -b 1024 -O quota,project", "32m")?;
    e2fs::debugfs_write(image.path(), "sif / mode 040777");
    Some(image)
}

#[test]
fn a_user_is_limited_and_root_is_not() {
    let Some(image) = volume() else {
        return;
    };
    let path = image.path();
    let mounted = Mounted::new(path, "allow_other");
    fs::write(mounted.path("first"), [1; 3000]).expect("written");
    chown(mounted.path("first"), Some(USER), Some(7)).expect("given away");
    mounted.unmount();
    e2fs::assert_clean(path);
    assert_eq!(listed(path, "user", USER), Some((3072, 1)));
    assert_eq!(listed(path, "group", 7), Some((3072, 1)));
    assert_eq!(listed(path, "project", USER), None);
    set_limit(path, 100);

    // Without the option, usage is kept and nothing is limited.
    let mounted = Mounted::new(path, "allow_other");
    let said = write_as_user(&mounted.path("unlimited"), 150);
    assert!(!said.contains(EDQUOT), "{said}");
    fs::remove_file(mounted.path("unlimited")).expect("removed");
    mounted.unmount();
    e2fs::assert_clean(path);

    let mounted = Mounted::new(path, "allow_other,usrquota");
    let said = write_as_user(&mounted.path("limited"), 200);
    assert!(said.contains(EDQUOT), "{said}");
    let len = fs::metadata(mounted.path("limited")).expect("there").len();
    assert_eq!(len, 97 << 10, "{said}");
    let said = write_as_user(&mounted.path("limited"), 97);
    assert!(!said.contains(EDQUOT), "rewritten: {said}");
    let denied = write_as_user(&mounted.path("other"), 1);
    assert!(denied.contains(EDQUOT), "{denied}");
    fs::write(mounted.path("of root"), vec![1; 300 << 10]).expect("root's own");
    let file = OpenOptions::new().append(true).open(mounted.path("first"));
    let mut file = file.expect("opens");
    std::io::Write::write_all(&mut file, &[2; 20_000]).expect("root passes the limit");
    file.sync_all().expect("synced");
    drop(file);
    let blocks: u64 = ["first", "limited", "other"]
        .map(|name| fs::metadata(mounted.path(name)).map_or(0, |meta| meta.blocks()))
        .iter()
        .sum();
    mounted.unmount();
    e2fs::assert_clean(path);
    assert_eq!(
        listed(path, "user", USER).map(|it| it.0),
        Some(blocks * 512)
    );
}

#[test]
fn limits_are_refused_where_nothing_is_counted() {
    if !Mounted::possible() {
        return;
    }
    let Some(image) = DiskImage::make("-t ext4 -O ^quota", "24m") else {
        return;
    };
    let refused = Mounted::start(image.path(), "grpquota").map(drop);
    let why = refused.expect_err("there are no quota files");
    assert!(why.contains("tune2fs -O quota"), "{why}");
    Mounted::new(image.path(), "noquota").unmount();
}
