//! Orphans left by a crash: this crate and `e2fsck` must produce the same volume.

mod damaged;

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use throughline_extfmt::InodeNumber;
use throughline_extfmt::checksum::crc32c;
use throughline_extfmt::features::Incompat;
use throughline_testing::Mount;

use super::Place;
use crate::inode::Inode;
use crate::testing::Image;
use crate::{
    Error, Fs, Last, NewInode, NewKind, OpenOptions, RenameMode, XattrMode, truncate, xattr,
};

const OWNER: NewInode = NewInode {
    permissions: 0o755,
    uid: 0,
    gid: 0,
    umask: 0,
};

/// Name, size, arguments of `mke2fs`, number of empty orphans in addition to the others.
const SHAPES: [(&str, &str, &[&str], usize); 8] = [
    ("list", "64M", &["-t", "ext4", "-O", "^orphan_file"], 3),
    ("file", "64M", &["-t", "ext4", "-O", "orphan_file"], 3),
    (
        "full file",
        "64M",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "orphan_file",
            "-E",
            "orphan_file_size=2",
        ],
        600,
    ),
    (
        "values and file",
        "64M",
        &["-t", "ext4", "-b", "1024", "-O", "ea_inode,orphan_file"],
        3,
    ),
    ("indirect", "64M", &["-t", "ext3", "-b", "1024"], 30),
    (
        "clusters",
        "64M",
        &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "16384"],
        30,
    ),
    ("no journal", "32M", &["-t", "ext2", "-b", "1024"], 3),
    (
        "inline",
        "64M",
        &["-t", "ext4", "-b", "1024", "-O", "orphan_file,inline_data"],
        30,
    ),
];

/// The contents of the file with this number.
fn content(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7 + number) as u8).collect()
}

fn make(fs: &Fs, name: &str, kind: NewKind<'_>) -> Arc<Inode> {
    let root = fs.root().expect("a root");
    fs.create(&root, name.as_bytes(), kind, OWNER)
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn write(fs: &Fs, file: &Inode, at: u64, bytes: &[u8]) {
    let done = fs.write_at(file, at, &[IoSlice::new(bytes)]);
    assert_eq!(done.expect("written"), bytes.len());
}

/// A file with scattered blocks: more runs than one truncation step frees.
fn make_scattered(fs: &Fs, name: &str, runs: u64) -> Arc<Inode> {
    let file = make(fs, name, NewKind::File);
    let step = u64::from(fs.geo.block_bytes);
    for at in 0..runs {
        write(
            fs,
            &file,
            at * 2 * step,
            &content(at as usize, step as usize),
        );
    }
    file
}

/// Orphans of all kinds, each held open.
fn leave_orphans(fs: &Fs, empty: usize) -> Vec<Arc<Inode>> {
    let root = fs.root().expect("a root");
    let mut held = Vec::new();
    let mut hold = |inode: &Arc<Inode>| {
        fs.open_inode(inode).expect("opened");
        held.push(Arc::clone(inode));
    };
    for number in 0..empty {
        let name = format!("empty{number}");
        hold(&make(fs, &name, NewKind::File));
        fs.unlink(&root, name.as_bytes()).expect("unlinked");
    }
    for number in 0..10 {
        let name = format!("file{number}");
        let file = make(fs, &name, NewKind::File);
        write(fs, &file, 0, &content(number, number * 9_000));
        hold(&file);
        fs.unlink(&root, name.as_bytes()).expect("unlinked");
    }
    hold(&make_scattered(fs, "scattered", 300));
    fs.unlink(&root, b"scattered").expect("unlinked");
    // A directory with several blocks, and a symlink with one.
    let dir = make(fs, "dir", NewKind::Dir);
    let names: Vec<_> = (0..100).map(|at| format!("{at:0>200}")).collect();
    for name in &names {
        fs.create(&dir, name.as_bytes(), NewKind::Fifo, OWNER)
            .expect("made");
    }
    for name in &names {
        fs.unlink(&dir, name.as_bytes()).expect("unlinked");
    }
    hold(&dir);
    fs.rmdir(&root, b"dir").expect("removed");
    hold(&make(fs, "link", NewKind::Symlink(&[b'x'; 300])));
    fs.unlink(&root, b"link").expect("unlinked");
    // One whose name is replaced by a rename.
    let (from, onto) = (
        make(fs, "from", NewKind::File),
        make(fs, "onto", NewKind::File),
    );
    write(fs, &from, 0, &content(1, 5_000));
    write(fs, &onto, 0, &content(2, 50_000));
    hold(&onto);
    fs.rename(&root, b"from", &root, b"onto", RenameMode::Replace)
        .expect("renamed");
    if fs.geo.incompat.contains(Incompat::EA_INODE) {
        held.push(xattr::begin_value(fs, &root, &[b'v'; 5_000]).expect("a value"));
    }
    held
}

/// Truncations with only the first transaction done; the file truncated to 0 has as many runs.
fn leave_truncations(fs: &Fs, runs: u64) -> Vec<(&'static str, u64)> {
    let mut cut = Vec::new();
    for (name, size, runs) in [
        ("cut", 5_000, 300),
        ("cut to nothing", 0, runs),
        ("cut a little", 100_001, 300),
    ] {
        let file = make_scattered(fs, name, runs);
        let left = truncate::begin_only(fs, &file, size).expect("begun");
        assert!(left && *file.orphan.lock() != Place::Nowhere, "{name}");
        cut.push((name, size));
    }
    cut
}

/// The state of a volume, for comparison.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    free_blocks: u64,
    free_inodes: u32,
    /// Name, size, checksum of the bytes, sectors.
    files: Vec<(&'static str, u64, u32, u64)>,
}

fn see(fs: &Fs) -> Seen {
    let stat = fs.statfs().expect("numbers");
    let mut files = Vec::new();
    for name in ["cut", "cut to nothing", "cut a little", "onto"] {
        let file = fs
            .resolve(format!("/{name}").as_bytes(), Last::NoFollow)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let size = file.image().size_bytes(&fs.geo).expect("a size");
        let mut bytes = vec![0; size as usize];
        let read = fs.read_at(&file, 0, &mut [IoSliceMut::new(&mut bytes)]);
        assert_eq!(read.expect("read"), bytes.len());
        let blocks = file.image().blocks_512(&fs.geo);
        files.push((name, size, crc32c(0, &bytes), blocks));
    }
    Seen {
        free_blocks: stat.free_blocks,
        free_inodes: stat.free_inodes,
        files,
    }
}

fn open_after_crash(image: &Image) -> crate::Result<Fs> {
    image.try_open(&OpenOptions {
        write: true,
        use_reserved: Some(true),
        allow_unclean: true,
        ..OpenOptions::default()
    })
}

#[test]
fn a_crash_is_ended_by_us_and_by_e2fsck_alike() {
    for (what, size, args, empty) in SHAPES {
        let Some(image) = Image::make(size, args) else {
            return;
        };
        let fs = image.open();
        let held = leave_orphans(&fs, empty);
        // e2fsck (1.47) does not free all of an extent tree with several leaves that is truncated to 0,
        // whatever wrote it; here the tree has one leaf.
        let cut = leave_truncations(&fs, 60);
        let (listed, slots): (Vec<_>, Vec<_>) = held
            .iter()
            .map(|inode| *inode.orphan.lock())
            .partition(|place| *place == Place::List);
        let in_file = args.iter().any(|arg| arg.contains("orphan_file,")) || what.ends_with("file");
        assert_eq!(slots.is_empty(), !in_file, "{what}");
        assert_eq!(listed.is_empty(), in_file && what != "full file", "{what}");
        fs.sync().expect("synced");
        // The crash: only the current disk contents remain.
        let (ours, theirs) = (image.copy(), image.copy());
        for inode in &held {
            fs.close_inode(inode).expect("closed");
        }
        drop((held, fs));

        let fs = open_after_crash(&ours).unwrap_or_else(|error| panic!("{what}: {error}"));
        let seen = see(&fs);
        for ((name, size), (_, found, ..)) in cut.iter().zip(&seen.files) {
            assert_eq!(found, size, "{what}: {name}");
        }
        assert!(
            fs.orphans
                .file
                .get()
                .is_none_or(super::OrphanFile::is_empty)
        );
        assert_eq!(fs.superblock().s_last_orphan.get(), 0, "{what}");
        fs.close().expect("closed");
        assert!(!ours.repair().contains("rphan"), "{what}");
        ours.check(what);
        assert!(
            !ours.debugfs("features").contains("orphan_present"),
            "{what}"
        );

        let output = theirs.repair();
        assert!(output.contains("orphaned inode"), "{what}: {output}");
        theirs.check(what);
        let fs = theirs.open();
        // e2fsck (1.47) does not free clusters past the size: it makes the file longer again.
        if what != "clusters" {
            assert_eq!(seen, see(&fs), "{what}");
        }
    }
}

#[test]
fn the_kernel_ends_a_crash_as_we_do() {
    for (what, size, args, empty) in SHAPES {
        let Some(image) = Image::make(size, args) else {
            return;
        };
        let fs = image.open();
        let held = leave_orphans(&fs, empty);
        leave_truncations(&fs, 300);
        fs.sync().expect("synced");
        let (ours, theirs) = (image.copy(), image.copy());
        drop((held, fs));
        let Some(mount) = Mount::or_skip(theirs.path(), true) else {
            continue;
        };
        drop(mount);
        assert!(!theirs.repair().contains("rphan"), "{what}");
        theirs.check(what);
        let fs = open_after_crash(&ours).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(see(&fs), see(&theirs.open()), "{what}");
        fs.close().expect("closed");
        assert!(!ours.repair().contains("rphan"), "{what}");
        ours.check(what);
    }
}

/// e2fsck (1.47) drops the attribute block of every inode it takes off the list, even of those with names.
#[test]
fn without_a_journal_a_truncation_cut_short_loses_no_attributes() {
    for (block, value) in [(false, &b"short"[..]), (true, &[b'v'; 700])] {
        let Some(image) = Image::make("32M", &["-t", "ext2", "-b", "1024"]) else {
            return;
        };
        let fs = image.open();
        let file = make_scattered(&fs, "cut", 300);
        fs.set_xattr(&file, b"user.a", value, XattrMode::Create)
            .expect("set");
        assert!(truncate::begin_only(&fs, &file, 5_000).expect("begun"));
        assert_eq!(*file.orphan.lock() == Place::Nowhere, block);
        fs.sync().expect("synced");
        let theirs = image.copy();
        fs.truncate(&file, 0).expect("truncated");
        fs.close().expect("closed");
        image.check("ours");
        theirs.repair();
        theirs.check("theirs");
        let fs = theirs.open();
        let file = fs.resolve(b"/cut", Last::NoFollow).expect("there");
        assert_eq!(fs.get_xattr(&file, b"user.a").expect("there"), value);
    }
}

#[test]
fn orphans_leave_in_any_order() {
    for (what, size, args, _) in SHAPES {
        let Some(image) = Image::make(size, args) else {
            return;
        };
        let fs = image.open();
        let root = fs.root().expect("a root");
        let before = fs.statfs().expect("numbers");
        let mut rng = crate::testing::Rng::new(0x0E11);
        let mut held = Vec::new();
        for number in 0..400 {
            if rng.below(3) > 0 || held.is_empty() {
                let name = number.to_string();
                let file = make(&fs, &name, NewKind::File);
                write(&fs, &file, 0, &content(number, 3_000));
                fs.open_inode(&file).expect("opened");
                fs.unlink(&root, name.as_bytes()).expect("unlinked");
                held.push(file);
            } else {
                let file: Arc<Inode> = held.swap_remove(rng.below(held.len() as u64) as usize);
                fs.close_inode(&file).expect("closed");
                assert_eq!(*file.orphan.lock(), Place::Nowhere);
            }
        }
        for file in held {
            fs.close_inode(&file).expect("closed");
        }
        let after = fs.statfs().expect("numbers");
        assert_eq!(
            (before.free_blocks, before.free_inodes),
            (after.free_blocks, after.free_inodes),
            "{what}"
        );
        fs.close().expect("closed");
        image.check(what);
    }
}

#[test]
fn a_clean_close_leaves_no_orphans() {
    for (what, size, args, _) in SHAPES {
        let Some(image) = Image::make(size, args) else {
            return;
        };
        let fs = image.open();
        let before = fs.statfs().expect("numbers");
        let held = leave_orphans(&fs, 2);
        fs.shut_down().expect("closed");
        // Remaining holders get an error and close them.
        for inode in &held {
            assert!(fs.open_inode(inode).is_err(), "{what}");
            fs.close_inode(inode).expect("closed");
        }
        drop((held, fs));
        image.check(what);
        let fs = image.open();
        assert_eq!(fs.superblock().s_last_orphan.get(), 0, "{what}");
        let root = fs.root().expect("a root");
        fs.unlink(&root, b"onto").expect("unlinked");
        let after = fs.statfs().expect("numbers");
        assert_eq!(
            (before.free_blocks, before.free_inodes),
            (after.free_blocks, after.free_inodes),
            "{what}"
        );
    }
}

#[test]
fn a_truncation_and_the_last_unlink_meet() {
    for args in [
        &["-t", "ext3", "-b", "1024"][..],
        &["-t", "ext4", "-O", "orphan_file", "-b", "1024"],
    ] {
        let Some(image) = Image::make("32M", args) else {
            return;
        };
        let fs = image.open();
        let root = fs.root().expect("a root");
        let before = fs.statfs().expect("numbers");
        for round in 0..60 {
            let file = make_scattered(&fs, "f", 40);
            fs.open_inode(&file).expect("opened");
            std::thread::scope(|scope| {
                scope.spawn(|| fs.truncate(&file, 1_000 * (round % 3)).expect("truncated"));
                scope.spawn(|| fs.unlink(&root, b"f").expect("unlinked"));
            });
            assert_ne!(*super::place(&file), Place::Nowhere, "round {round}");
            fs.close_inode(&file).expect("closed");
        }
        let after = fs.statfs().expect("numbers");
        assert_eq!(
            (before.free_blocks, before.free_inodes),
            (after.free_blocks, after.free_inodes)
        );
        fs.close().expect("closed");
        image.check("truncated and unlinked");
    }
}
