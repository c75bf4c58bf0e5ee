//! Trees to copy, created from a seed, with everything that a copy must preserve.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use throughline_testing::program;

use crate::mount_programs::stage::call;

/// `count` files in a few directories below `root`, of 0 to 40 KB, partly compressible.
pub(crate) fn files(root: &Path, seed: u64, count: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    for number in 0..count {
        let dir = root.join(format!("dir{}/sub{}", number % 7, number % 3));
        fs::create_dir_all(&dir).expect("mkdir -p");
        let mut bytes = vec![0; random.usize(..40_000)];
        if number % 2 == 0 {
            random.fill(&mut bytes);
        } else {
            let line = format!("line of {number} in {seed}\n");
            bytes
                .iter_mut()
                .zip(line.bytes().cycle())
                .for_each(|(to, from)| *to = from);
        }
        fs::write(dir.join(format!("file{number}")), bytes).expect("a file");
    }
}

/// A tree with every type of file, owners, modes, times, links, holes, attributes and ACLs. Root only.
pub(crate) fn all_kinds(root: &Path, count: u64) {
    fs::create_dir(root).expect("mkdir");
    files(&root.join("files"), 1, count);
    names(root);
    nodes(root);
    owners(root);
    attributes(root);
    times(root, 0);
}

/// Hard and symbolic links, long and odd names, a file with holes, an empty file.
fn names(root: &Path) {
    let dir = root.join("names");
    fs::create_dir(&dir).expect("mkdir");
    for name in [
        "a b",
        "ümläut",
        "new\nline",
        "-dash",
        "'quote\"",
        &"n".repeat(255),
    ] {
        fs::write(dir.join(name), name).expect("a file");
    }
    fs::write(dir.join("empty"), "").expect("a file");
    for number in 0..20 {
        fs::hard_link(dir.join("a b"), dir.join(format!("link{number}"))).expect("link");
    }
    symlink("a b", dir.join("short")).expect("symlink");
    symlink("x/".repeat(400), dir.join("long")).expect("symlink");
    let holes = File::create(dir.join("holes")).expect("a file");
    for at in [0, 1 << 20, 10 << 20] {
        holes.write_all_at(&[5; 9000], at).expect("a write");
    }
    holes.set_len(20 << 20).expect("a larger size");
}

fn nodes(root: &Path) {
    let nodes = [
        ("fifo", FileType::Fifo, (0, 0)),
        ("socket", FileType::Socket, (0, 0)),
        ("char", FileType::CharacterDevice, (1, 3)),
        ("block", FileType::BlockDevice, (259, 70_000)),
    ];
    for (name, kind, (major, minor)) in nodes {
        let device = rustix::fs::makedev(major, minor);
        let mode = Mode::from_raw_mode(0o640);
        rustix::fs::mknodat(CWD, root.join(name), kind, mode, device).expect("mknod");
    }
}

fn owners(root: &Path) {
    let dir = root.join("owners");
    fs::create_dir(&dir).expect("mkdir");
    for (index, mode) in [0o600, 0o4755, 0o2755, 0o1777, 0o000]
        .into_iter()
        .enumerate()
    {
        let path = dir.join(format!("{mode:o}"));
        fs::write(&path, format!("{mode:o}")).expect("a file");
        let number = 1000 + 100_000 * index as u32;
        lchown(&path, Some(number), Some(number + 1)).expect("chown");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("chmod");
    }
    symlink("nowhere", dir.join("link")).expect("symlink");
    lchown(dir.join("link"), Some(77), Some(78)).expect("lchown");
}

/// Extended attributes and ACLs, set by the tools.
fn attributes(root: &Path) {
    let dir = root.join("attributes");
    fs::create_dir(&dir).expect("mkdir");
    let dir_name = dir.to_str().expect("UTF-8");
    for (number, len) in [0, 1, 100, 300].into_iter().enumerate() {
        let file = dir.join(format!("file{number}"));
        fs::write(&file, "attributes").expect("a file");
        for space in ["user", "trusted"] {
            let name = format!("{space}.of.{len}");
            rustix::fs::setxattr(&file, name, &vec![b'v'; len], XattrFlags::empty())
                .expect("setxattr");
        }
    }
    if program::has(&["setfacl"]) {
        let file = format!("{dir_name}/file1");
        call("setfacl", &["-m", "u:1234:rw,g:99:r,m::rwx", &file]);
        call(
            "setfacl",
            &["-m", "u:7:rwx", "-m", "d:u:7:rx,d:g:8:w", dir_name],
        );
        fs::write(dir.join("heir"), "of the default list").expect("a file");
        fs::create_dir(dir.join("heirs")).expect("mkdir");
    }
}

/// Times with nanoseconds, before 1970 and after 2038, set bottom-up: none that a copy would get by chance.
pub(crate) fn times(dir: &Path, depth: i64) {
    let mut number = depth;
    for entry in fs::read_dir(dir).expect("readdir") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.is_symlink() {
            times(&path, depth + 1);
        }
        number += 1;
        let time = Timespec {
            tv_sec: [-1_000_000_000, 1, 1_700_000_000, 5_000_000_000][number as usize % 4] + number,
            tv_nsec: 123_456_789,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::utimensat(CWD, &path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
            .expect("utimensat");
    }
}
