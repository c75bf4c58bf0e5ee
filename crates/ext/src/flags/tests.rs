//! What flags allow and forbid, on volumes checked by `e2fsck`.

use std::io::{IoSlice, IoSliceMut};

use crate::testing::Image;
use crate::{
    Error, Fallocate, FileType, Fs, InodeFlags, NewInode, NewKind, OpenFor, Reason, RenameMode,
};

const OWNER: NewInode = NewInode {
    permissions: 0o755,
    uid: 0,
    gid: 0,
    umask: 0,
};

fn refused<T>(done: crate::Result<T>) -> bool {
    matches!(done, Err(Error::Caller(Reason::Permission)))
}

fn unsupported<T>(done: crate::Result<T>) -> bool {
    matches!(done, Err(Error::Unsupported(_)))
}

fn set(fs: &Fs, inode: &crate::Inode, flag: InodeFlags, on: bool) {
    let mut flags = fs.flags(inode);
    flags.set(flag, on);
    fs.set_flags(inode, flags).expect("set");
    assert_eq!(fs.flags(inode).contains(flag), on);
}

#[test]
fn inherited_flags_depend_on_the_file_type() {
    let all = InodeFlags::all();
    let dir = super::seen::inherited(all, FileType::Directory);
    assert!(dir.contains(InodeFlags::DIRSYNC | InodeFlags::PROJINHERIT | InodeFlags::NOATIME));
    assert!(!dir.intersects(InodeFlags::TOPDIR | InodeFlags::IMMUTABLE | InodeFlags::INDEX));
    let file = super::seen::inherited(all, FileType::Regular);
    assert!(file.contains(InodeFlags::SYNC | InodeFlags::JOURNAL_DATA));
    assert!(!file.intersects(InodeFlags::DIRSYNC | InodeFlags::PROJINHERIT | InodeFlags::APPEND));
    assert_eq!(
        super::seen::inherited(all, FileType::Fifo),
        InodeFlags::NODUMP | InodeFlags::NOATIME
    );
}

#[test]
fn immutable_and_append_only_hold_everywhere() {
    let Some(image) = Image::make("16M", &["-t", "ext4"]) else {
        return;
    };
    let fs = image.open();
    let root = fs.root().expect("a root");
    let new = |name: &[u8], kind| fs.create(&root, name, kind, OWNER).expect("made");
    let (file, dir) = (new(b"file", NewKind::File), new(b"dir", NewKind::Dir));
    let inside = fs.create(&dir, b"in", NewKind::File, OWNER).expect("made");
    let bytes = [IoSlice::new(b"bytes")];
    fs.write_at(&file, 0, &bytes).expect("written");

    set(&fs, &file, InodeFlags::IMMUTABLE, true);
    let more = fs.flags(&file) | InodeFlags::NODUMP;
    assert!(refused(fs.set_flags(&file, more)));
    assert!(refused(fs.write_at(&file, 0, &bytes)));
    assert!(refused(fs.append(&file, &bytes)));
    assert!(refused(fs.truncate(&file, 1)));
    assert!(refused(fs.fallocate(&file, Fallocate::KeepSize, 0, 1)));
    assert!(refused(fs.unlink(&root, b"file")));
    assert!(refused(fs.link(&file, &root, b"more")));
    let rename = |from: &[u8], to: &[u8]| fs.rename(&root, from, &root, to, RenameMode::Replace);
    assert!(refused(rename(b"file", b"other")));
    assert!(refused(fs.set_attributes(&file, &Default::default())));
    let write = OpenFor {
        write: true,
        ..OpenFor::default()
    };
    assert!(refused(fs.check_open(&file, write)));
    assert!(fs.check_open(&file, OpenFor::default()).is_ok());
    set(&fs, &file, InodeFlags::IMMUTABLE, false);

    set(&fs, &file, InodeFlags::APPEND, true);
    let append = OpenFor {
        append: true,
        ..write
    };
    let truncate = OpenFor {
        truncate: true,
        ..append
    };
    assert!(fs.check_open(&file, append).is_ok());
    assert!(refused(fs.check_open(&file, write)));
    assert!(refused(fs.check_open(&file, truncate)));
    assert!(refused(fs.truncate(&file, 1)));
    assert!(refused(fs.fallocate(&file, Fallocate::PunchHole, 0, 1)));
    fs.fallocate(&file, Fallocate::KeepSize, 0, 9000)
        .expect("preallocation removes nothing");
    fs.append(&file, &bytes).expect("appended");
    assert!(refused(fs.unlink(&root, b"file")));
    set(&fs, &file, InodeFlags::APPEND, false);
    fs.write_at(&file, 0, &bytes).expect("written");

    set(&fs, &dir, InodeFlags::APPEND, true);
    fs.create(&dir, b"more", NewKind::File, OWNER)
        .expect("names may be added");
    assert!(refused(fs.unlink(&dir, b"in")));
    set(&fs, &dir, InodeFlags::APPEND, false);
    set(&fs, &dir, InodeFlags::IMMUTABLE, true);
    assert!(refused(fs.create(&dir, b"new", NewKind::File, OWNER)));
    assert!(refused(fs.link(&file, &dir, b"new")));
    assert!(refused(fs.unlink(&dir, b"in")));
    fs.write_at(&inside, 0, &bytes)
        .expect("what is inside is not immutable");
    set(&fs, &dir, InodeFlags::IMMUTABLE, false);
    fs.close().expect("closed");
    image.check("after all of it");
}

#[test]
fn flags_that_cannot_be_set_and_projects() {
    let Some(image) = Image::make("16M", &["-t", "ext4", "-I", "256", "-O", "project"]) else {
        return;
    };
    let fs = image.open();
    let root = fs.root().expect("a root");
    let make = |name: &[u8], kind| fs.create(&root, name, kind, OWNER).expect("made");
    let (file, dir) = (make(b"file", NewKind::File), make(b"dir", NewKind::Dir));
    let flags = fs.flags(&file);
    assert!(flags.contains(InodeFlags::EXTENTS));
    for bad in [
        flags | InodeFlags::JOURNAL_DATA,
        flags | InodeFlags::DIRSYNC,
        flags | InodeFlags::HUGE_FILE,
    ] {
        assert!(unsupported(fs.set_flags(&file, bad)), "{bad:?}");
    }
    assert!(unsupported(
        fs.set_flags(&dir, fs.flags(&dir) | InodeFlags::CASEFOLD)
    ));
    fs.set_flags(&file, flags | InodeFlags::ENCRYPT)
        .expect("what is only shown is passed over");
    assert_eq!(fs.flags(&file), flags);
    assert!(unsupported(fs.set_generation(&file, 5)));

    fs.set_project(&dir, 7).expect("set");
    set(&fs, &dir, InodeFlags::PROJINHERIT, true);
    let inside = fs.create(&dir, b"in", NewKind::File, OWNER).expect("made");
    assert_eq!(fs.project(&inside), 7);
    let cross = |done| matches!(done, Err(Error::Caller(Reason::CrossDevice)));
    let rename = || fs.rename(&root, b"file", &dir, b"file", RenameMode::Replace);
    assert!(cross(fs.link(&file, &dir, b"file")) && cross(rename()));
    fs.set_project(&file, 7).expect("set");
    rename().expect("they belong together now");
    fs.close().expect("closed");
    image.check("after all of it");
}

/// As the kernel's `chattr -e` and `chattr +e`: converts files with one written extent within the first
/// twelve blocks, or none.
#[test]
fn small_files_are_mapped_another_way() {
    let Some(image) = Image::make("16M", &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let fs = image.open();
    let root = fs.root().expect("a root");
    let make = |name: &[u8], kind| fs.create(&root, name, kind, OWNER).expect("made");
    let bytes: Vec<u8> = (0..40_000_u32).map(|at| (at * 7 / 3) as u8).collect();
    let write = |file: &crate::Inode, at: u64, len: usize| {
        fs.write_at(file, at, &[IoSlice::new(&bytes[..len])])
            .expect("written");
    };
    let (small, large) = (make(b"small", NewKind::File), make(b"large", NewKind::File));
    let (holes, ahead) = (make(b"holes", NewKind::File), make(b"ahead", NewKind::File));
    let (empty, dir) = (make(b"empty", NewKind::File), make(b"dir", NewKind::Dir));
    // Exactly twelve blocks, one byte more, and a file with a hole.
    write(&small, 0, 12 << 10);
    write(&large, 0, (12 << 10) + 1);
    write(&holes, 0, 1);
    write(&holes, 5 << 10, 1);
    fs.fallocate(&ahead, Fallocate::Allocate, 0, 2 << 10)
        .expect("allocated");
    fs.create(&dir, b"in", NewKind::File, OWNER).expect("made");
    for converted in [&small, &empty, &dir] {
        set(&fs, converted, InodeFlags::EXTENTS, false);
        set(&fs, converted, InodeFlags::EXTENTS, true);
        set(&fs, converted, InodeFlags::EXTENTS, false);
    }
    for too_large in [&large, &holes, &ahead] {
        let flags = fs.flags(too_large);
        let wanted = (flags - InodeFlags::EXTENTS) | InodeFlags::NODUMP;
        assert!(unsupported(fs.set_flags(too_large, wanted)));
        // The same result as in the kernel.
        assert_eq!(fs.flags(too_large), flags | InodeFlags::NODUMP);
    }
    let mut read = vec![0; 12 << 10];
    fs.read_at(&small, 0, &mut [IoSliceMut::new(&mut read)])
        .expect("read");
    assert_eq!(read, bytes[..12 << 10]);
    // Converted files grow and shrink normally.
    write(&small, 11 << 10, 20_000);
    write(&empty, 100 << 10, 3000);
    for at in 0..40 {
        let name = format!("{at}-{}", "x".repeat(200));
        fs.create(&dir, name.as_bytes(), NewKind::File, OWNER)
            .expect("made");
    }
    fs.truncate(&small, 5).expect("cut");
    assert!(unsupported(
        fs.set_flags(&empty, fs.flags(&empty) | InodeFlags::EXTENTS)
    ));
    set(&fs, &small, InodeFlags::EXTENTS, true);
    fs.close().expect("closed");
    image.check("converted");
}

#[test]
fn generations_without_checksums() {
    let Some(image) = Image::make("8M", &["-t", "ext3"]) else {
        return;
    };
    let fs = image.open();
    let root = fs.root().expect("a root");
    let file = fs
        .create(&root, b"file", NewKind::File, OWNER)
        .expect("made");
    fs.set_generation(&file, 0xfeed).expect("set");
    assert_eq!(fs.generation(&file), 0xfeed);
    assert!(unsupported(fs.set_project(&file, 1)));
    assert!(!fs.flags(&file).contains(InodeFlags::EXTENTS));
    assert!(unsupported(
        fs.set_flags(&file, fs.flags(&file) | InodeFlags::EXTENTS)
    ));
    fs.close().expect("closed");
    image.check("after it");
}
