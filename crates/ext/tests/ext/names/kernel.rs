//! The kernel's ext4 on the same image: it finds the names that we made, and we find those that it made.
//!
//! Needs root and a loop device; otherwise the test is skipped with a message.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use throughline_ext::{Last, NewInode, NewKind, RenameMode};
use throughline_testing::Mount;

use crate::names::image::{Image, Random};
use crate::names::{VOLUMES, pool};

const OWNER: NewInode = NewInode {
    permissions: 0o755,
    uid: 12,
    gid: 34,
    umask: 0,
};

fn listed(dir: &Path) -> BTreeSet<String> {
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry
            .expect("sound")
            .file_name()
            .into_string()
            .expect("UTF-8")
    };
    std::fs::read_dir(dir)
        .expect("a directory")
        .map(name)
        .collect()
}

#[test]
fn the_kernel_and_we_find_each_others_names() {
    for (at, (what, args, size, prepare)) in VOLUMES.into_iter().enumerate() {
        let Some(image) = Image::make(args, size) else {
            return;
        };
        if !prepare.is_empty() {
            image.debugfs_write(prepare);
        }
        let seed = 0xCE11 + at as u64;
        eprintln!("{what}, seed {seed:#x}");
        let names = pool(&mut Random(seed), 1200);
        let (ours, theirs) = names.split_at(700);
        make_ours(&image, ours);
        image.check();
        let Some(mount) = Mount::or_skip(&image.path, true) else {
            continue;
        };
        kernel_reads(mount.root(), ours);
        kernel_writes(mount.root(), ours, theirs);
        drop(mount);
        image.check();
        read_theirs(&image, ours, theirs);
        image.check();
    }
}

/// Makes `/d` with all names, every fifth of them a directory, and moves the first of these directories
/// into `/moved`.
fn make_ours(image: &Image, ours: &[String]) {
    let fs = image.open();
    let root = fs.root().expect("a root");
    let dir = fs.create(&root, b"d", NewKind::Dir, OWNER).expect("made");
    let moved = fs
        .create(&root, b"moved", NewKind::Dir, OWNER)
        .expect("made");
    for (number, name) in ours.iter().enumerate() {
        let kind = match number % 5 {
            0 => NewKind::Dir,
            1 => NewKind::Symlink(
                b"a target that is longer than the sixty bytes which an inode holds",
            ),
            _ => NewKind::File,
        };
        fs.create(&dir, name.as_bytes(), kind, OWNER).expect("made");
    }
    fs.rename(
        &dir,
        ours[0].as_bytes(),
        &moved,
        b"here",
        RenameMode::Replace,
    )
    .expect("moved");
    fs.close().expect("closed");
}

fn kernel_reads(at: &Path, ours: &[String]) {
    let dir = at.join("d");
    assert_eq!(listed(&dir), ours[1..].iter().cloned().collect());
    for (number, name) in ours.iter().enumerate().skip(1) {
        let found =
            std::fs::symlink_metadata(dir.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(
            (found.is_dir(), found.is_symlink()),
            (number % 5 == 0, number % 5 == 1),
            "{name}"
        );
        assert_eq!((found.uid(), found.gid()), (12, 34), "{name}");
    }
    let up = std::fs::canonicalize(at.join("moved/here/../..")).expect("..");
    assert_eq!(up, std::fs::canonicalize(at).expect("the mount"));
}

fn kernel_writes(at: &Path, ours: &[String], theirs: &[String]) {
    let dir = at.join("d");
    for name in theirs {
        std::fs::write(dir.join(name), name).expect("written");
    }
    for name in ours.iter().skip(2).step_by(5) {
        std::fs::remove_file(dir.join(name)).expect("removed");
    }
    std::fs::rename(at.join("moved/here"), dir.join("back")).expect("moved");
}

fn read_theirs(image: &Image, ours: &[String], theirs: &[String]) {
    let fs = image.open();
    let dir = fs.resolve(b"/d", Last::Follow).expect("a directory");
    let mut expected: BTreeSet<_> = theirs.iter().chain(&ours[1..]).cloned().collect();
    for name in ours.iter().skip(2).step_by(5) {
        expected.remove(name);
    }
    expected.insert("back".into());
    let name = |entry: throughline_ext::DirEntry| String::from_utf8(entry.name).expect("UTF-8");
    let seen: BTreeSet<_> = fs
        .read_dir(&dir)
        .map(|entry| name(entry.expect("sound")))
        .collect();
    assert_eq!(seen, expected);
    for name in &expected {
        fs.lookup(&dir, name.as_bytes())
            .unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    let back = fs.lookup(&dir, b"back").expect("moved back");
    assert_eq!(fs.parent(&back).expect("..").ino, dir.ino);
    for name in theirs {
        fs.unlink(&dir, name.as_bytes()).expect("removed");
    }
    fs.close().expect("closed");
}
