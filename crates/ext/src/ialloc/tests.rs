//! The inode allocator on volumes of every format, checked by `e2fsck`, `dumpe2fs` and `debugfs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use throughline_extfmt::InodeNumber;

use crate::testing::{Image, Rng, SHAPES};
use crate::{Error, Fs, Inode, Reason, Result};

/// Credits: bitmap, descriptor, inode table.
const INODE_CREDITS: u32 = 3;

fn make(fs: &Fs, parent: &Inode, mode: u16) -> Result<Arc<Inode>> {
    let mut h = fs.begin(INODE_CREDITS)?;
    let made = fs.new_inode(&mut h, parent, mode, 1000, 70_000);
    if let Ok(inode) = &made {
        inode.raw.write().set_links_count(1);
        fs.store(&mut h, inode)?;
    }
    h.stop()?;
    made
}

fn free(fs: &Fs, inode: &Inode) {
    let mut h = fs.begin(INODE_CREDITS).expect("begin");
    fs.free_inode(&mut h, inode).expect("free");
    h.stop().expect("stop");
}

#[test]
fn inodes_come_and_go_in_every_shape() {
    for (seed, (name, size, args)) in (1..).zip(SHAPES) {
        let Some(image) = Image::make(size, args) else {
            continue;
        };
        let before = image.free_counts();
        let fs = image.open();
        let root = fs.inode(InodeNumber::ROOT).expect("root");
        let mut rng = Rng::new(seed);
        let mut ours: Vec<Arc<Inode>> = Vec::new();
        for _ in 0..500 {
            let parent = if ours.is_empty() {
                &root
            } else {
                &ours[rng.below(ours.len() as u64) as usize]
            };
            let mode = if rng.below(8) == 0 { 0o40755 } else { 0o100644 };
            match make(&fs, parent, mode) {
                Ok(inode) => {
                    assert!(inode.ino >= fs.geo.first_ino, "{name}, seed {seed}");
                    assert!(
                        ours.iter().all(|other| other.ino != inode.ino),
                        "{name}, seed {seed}: twice"
                    );
                    ours.push(inode);
                }
                Err(error) => assert!(
                    matches!(error, Error::Caller(Reason::NoSpace)),
                    "{name}, seed {seed}: {error}"
                ),
            }
            if rng.below(4) == 0 && !ours.is_empty() {
                let gone = ours.swap_remove(rng.below(ours.len() as u64) as usize);
                free(&fs, &gone);
                assert!(
                    matches!(fs.inode(gone.ino), Err(Error::Caller(Reason::NotFound))),
                    "{name}, seed {seed}"
                );
            }
        }
        fs.check_counts().expect(name);
        fs.close().expect("close");
        let [superblock, groups] = image.free_counts();
        assert_eq!(superblock, groups, "{name}, seed {seed}");
        assert_eq!(
            superblock.1 + ours.len() as u64,
            before[0].1,
            "{name}, seed {seed}"
        );
        if let Some(one) = ours.first() {
            let stat = image.debugfs(&format!("stat <{}>", one.ino));
            assert!(
                stat.contains("Group: 70000") && stat.contains("User:  1000"),
                "{name}: {stat}"
            );
        }
        let fs = image.open();
        for inode in &ours {
            free(&fs, &fs.inode(inode.ino).expect("an inode"));
        }
        fs.close().expect("close");
        image.check(name);
        assert_eq!(image.free_counts(), before, "{name}, seed {seed}");
    }
}

#[test]
fn exactly_all_inodes_can_be_allocated() {
    let Some(image) = Image::make("16M", &["-t", "ext4", "-b", "1024", "-N", "512"]) else {
        return;
    };
    let free_before = image.free_counts()[0].1;
    let fs = image.open();
    let root = fs.inode(InodeNumber::ROOT).expect("root");
    let mut ours = Vec::new();
    let error = loop {
        match make(&fs, &root, 0o100644) {
            Ok(inode) => ours.push(inode),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Caller(Reason::NoSpace)), "{error}");
    assert_eq!(ours.len() as u64, free_before);
    ours.iter().for_each(|inode| free(&fs, inode));
    fs.close().expect("close");
    image.check("all inodes");
}

/// Without a journal, a name still on disk must not lead to another file's data.
#[test]
fn without_a_journal_a_freed_inode_waits_until_that_is_durable() {
    for (kind, waits) in [("ext2", true), ("ext4", false)] {
        let Some(image) = Image::make("16M", &["-t", kind, "-b", "1024", "-N", "64"]) else {
            return;
        };
        let fs = image.open();
        let root = fs.inode(InodeNumber::ROOT).expect("root");
        let first = make(&fs, &root, 0o100644).expect("an inode").ino;
        free(&fs, &fs.inode(first).expect("the inode"));
        let second = make(&fs, &root, 0o100644).expect("an inode").ino;
        assert_eq!(second != first, waits, "{kind}: {first}, then {second}");
        let mut ours = Vec::new();
        while let Ok(inode) = make(&fs, &root, 0o100644) {
            ours.push(inode);
        }
        let result = fs.with_room(|| make(&fs, &root, 0o100644));
        assert_eq!(
            result.is_ok(),
            waits,
            "{kind}: only the waiting inode is left"
        );
        let one = ours.pop().expect("some were made");
        free(&fs, &one);
        let again = fs.with_room(|| make(&fs, &root, 0o100644)).expect("room");
        assert_eq!(again.ino, one.ino, "{kind}");
        for inode in ours.iter().chain([&again]) {
            free(&fs, inode);
        }
        free(&fs, &fs.inode(second).expect("the inode"));
        if let Ok(inode) = result {
            free(&fs, &inode);
        }
        fs.close().expect("close");
        image.check(kind);
    }
}

#[test]
fn directories_spread_and_files_stay() {
    let Some(image) = Image::make("1G", &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let fs = image.open();
    let root = fs.inode(InodeNumber::ROOT).expect("root");
    let dirs: Vec<_> = (0..16)
        .map(|_| make(&fs, &root, 0o40755).expect("a directory"))
        .collect();
    let flexes: BTreeSet<u32> = dirs
        .iter()
        .map(|dir| fs.group_of_inode(dir.ino).0 >> 4)
        .collect();
    assert!(
        flexes.len() >= 4,
        "16 directories in flex groups {flexes:?}"
    );
    for dir in &dirs {
        let file = make(&fs, dir, 0o100644).expect("a file");
        assert_eq!(fs.group_of_inode(file.ino), fs.group_of_inode(dir.ino));
    }
}

#[test]
fn an_inode_is_what_was_stored_after_it_left_memory() {
    let Some(image) = Image::make("64M", &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let fs = image.open();
    let root = fs.inode(InodeNumber::ROOT).expect("root");
    // More inodes than the table keeps, none held: every object is evicted at some time.
    let inos: Vec<InodeNumber> = (0..12_000u32)
        .map(|n| {
            let inode = make(&fs, &root, 0o100644).expect("a file");
            inode.raw.write().set_size_bytes(n.into());
            let mut h = fs.begin(1).expect("begin");
            fs.store(&mut h, &inode).expect("store");
            h.stop().expect("stop");
            inode.ino
        })
        .collect();
    for (n, ino) in (0..).zip(&inos) {
        let inode = fs.inode(*ino).expect("the inode");
        assert_eq!(inode.image().size_bytes(&fs.geo), Ok(n));
    }
    assert!(
        fs.inodes.len() < 12_000,
        "{} objects in memory",
        fs.inodes.len()
    );
}

#[test]
fn an_inode_is_freed_once() {
    let Some(image) = Image::make("16M", &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let fs = image.open();
    let root = fs.inode(InodeNumber::ROOT).expect("root");
    let inode = make(&fs, &root, 0o100644).expect("a file");
    free(&fs, &inode);
    let mut h = fs.begin(INODE_CREDITS).expect("begin");
    assert!(matches!(
        fs.free_inode(&mut h, &inode),
        Err(Error::Corrupt(_))
    ));
    assert!(
        matches!(fs.free_inode(&mut h, &root), Err(Error::Corrupt(_))),
        "the root must not be freed"
    );
    h.stop().expect("nothing was changed");
}

#[test]
fn threads_never_get_one_inode_twice() {
    let Some(image) = Image::make("32M", &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let before = image.free_counts();
    let fs = image.open();
    let root = fs.inode(InodeNumber::ROOT).expect("root");
    let all = throughline_locks::Mutex::new(BTreeSet::new());
    std::thread::scope(|scope| {
        for seed in 1..=4 {
            let (fs, root, all) = (&fs, &root, &all);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for _ in 0..200 {
                    let inode = make(fs, root, 0o100644).expect("a file");
                    assert!(
                        all.lock().insert(inode.ino.0),
                        "{} was given out twice",
                        inode.ino
                    );
                    if rng.below(2) == 0 {
                        // Removed from the set before it is freed: another thread may get the number at once.
                        all.lock().remove(&inode.ino.0);
                        free(fs, &inode);
                    }
                }
            });
        }
    });
    fs.check_counts().expect("counts");
    for ino in all.into_inner() {
        free(&fs, &fs.inode(InodeNumber(ino)).expect("the inode"));
    }
    fs.close().expect("close");
    image.check("threads");
    assert_eq!(image.free_counts(), before);
}
