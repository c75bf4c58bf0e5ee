//! What is durable when a call returns, according to the journal's committed transaction.

use std::io::IoSlice;

use crate::testing::Image;
use crate::{Attributes, Fs, InodeFlags, NewInode, NewKind, OpenOptions, RenameMode, SetTime};

const OWNER: NewInode = NewInode {
    permissions: 0o755,
    uid: 0,
    gid: 0,
    umask: 0,
};

/// Whether an operation was committed when it returned.
fn commits<T>(fs: &Fs, change: impl FnOnce() -> crate::Result<T>) -> bool {
    let before = fs.journal.committed();
    change().expect("done");
    fs.journal.committed().is_after(before)
}

fn open(image: &Image, synchronous: bool, synchronous_names: bool) -> Fs {
    let options = OpenOptions {
        write: true,
        synchronous,
        synchronous_names,
        // Nothing is committed by age.
        commit_interval: std::time::Duration::from_secs(3600),
        ..OpenOptions::default()
    };
    image.try_open(&options).expect("it opens")
}

#[test]
fn mount_options() {
    let Some(image) = Image::make("16M", &["-t", "ext4"]) else {
        return;
    };
    for (all, names) in [(false, false), (false, true), (true, false)] {
        let fs = open(&image, all, names);
        let root = fs.root().expect("a root");
        let create = || fs.create(&root, b"file", NewKind::File, OWNER);
        assert_eq!(commits(&fs, create), all || names);
        let file = fs.lookup(&root, b"file").expect("found");
        let write = || fs.write_at(&file, 0, &[IoSlice::new(b"bytes")]);
        assert_eq!(commits(&fs, write), all);
        assert_eq!(commits(&fs, || fs.truncate(&file, 1)), all);
        let mode = Attributes {
            permissions: Some(0o600),
            ..Attributes::default()
        };
        assert_eq!(commits(&fs, || fs.set_attributes(&file, &mode)), all);
        let touch = Attributes {
            modified: Some(SetTime::Now),
            ..Attributes::default()
        };
        // Times may follow later.
        assert!(!commits(&fs, || fs.set_attributes(&file, &touch)));
        let link = || fs.link(&file, &root, b"more");
        assert_eq!(commits(&fs, link), all || names);
        let rename = || fs.rename(&root, b"more", &root, b"less", RenameMode::Replace);
        assert_eq!(commits(&fs, rename), all || names);
        assert_eq!(commits(&fs, || fs.unlink(&root, b"less")), all || names);
        fs.unlink(&root, b"file").expect("gone");
        fs.close().expect("closed");
    }
    image.check("after it");
}

#[test]
fn flags_of_inodes() {
    let Some(image) = Image::make("16M", &["-t", "ext4"]) else {
        return;
    };
    let fs = open(&image, false, false);
    let root = fs.root().expect("a root");
    let dir = fs.create(&root, b"dir", NewKind::Dir, OWNER).expect("made");
    let file = fs
        .create(&root, b"file", NewKind::File, OWNER)
        .expect("made");
    let write = || fs.append(&file, &[IoSlice::new(b"bytes")]);
    assert!(!commits(&fs, write));
    fs.set_flags(&file, fs.flags(&file) | InodeFlags::SYNC)
        .expect("set");
    assert!(commits(&fs, write));
    let create = |name: &'static [u8]| fs.create(&dir, name, NewKind::File, OWNER);
    assert!(!commits(&fs, || create(b"one")));
    fs.set_flags(&dir, fs.flags(&dir) | InodeFlags::DIRSYNC)
        .expect("set");
    assert!(commits(&fs, || create(b"two")));
    assert!(commits(&fs, || fs.unlink(&dir, b"two")));
    assert!(!commits(&fs, || fs.unlink(&root, b"file")));
    fs.close().expect("closed");
    image.check("after it");
}
