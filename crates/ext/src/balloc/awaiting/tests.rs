//! Freed blocks: not reused before their transaction is durable, available after it, and a full volume does
//! not commit on every operation.

use std::io::IoSlice;
use std::sync::Arc;

use throughline_extfmt::{FsBlock, GroupNumber};
use throughline_journal::Tid;

use super::Freed;
use crate::balloc::{GROUP_CREDITS, Run};
use crate::testing::Image;
use crate::{Error, Fallocate, Fs, Inode, NewInode, NewKind, OpenOptions, Reason, Result};

const SHAPES: &[(&str, &[&str])] = &[
    ("12M", &["-t", "ext4", "-b", "1024"]),
    ("24M", &["-t", "ext4", "-b", "4096"]),
    ("12M", &["-t", "ext2", "-b", "1024"]),
    ("16M", &["-t", "ext3", "-b", "4096"]),
    (
        "24M",
        &["-t", "ext4", "-b", "4096", "-O", "^has_journal", "-m", "0"],
    ),
    (
        "16M",
        &["-t", "ext4", "-b", "1024", "-O", "inline_data", "-I", "256"],
    ),
];

fn open(image: &Image) -> Arc<Fs> {
    let mut options = OpenOptions {
        write: true,
        use_reserved: Some(true),
        ..OpenOptions::default()
    };
    options.cache.budget_bytes = Some(4 << 20);
    Arc::new(image.try_open(&options).expect("the volume opens"))
}

fn close(image: &Image, fs: Arc<Fs>, what: &str) {
    fs.shut_down().unwrap_or_else(|e| panic!("{what}: {e}"));
    fs.check_counts().unwrap_or_else(|e| panic!("{what}: {e}"));
    drop(fs);
    image.check(what);
}

fn create(fs: &Fs, name: &str, kind: NewKind<'_>) -> Result<Arc<Inode>> {
    let new = NewInode {
        permissions: 0o700,
        uid: 0,
        gid: 0,
        umask: 0,
    };
    fs.create(&fs.root()?, name.as_bytes(), kind, new)
}

fn file(fs: &Fs, name: &str) -> Arc<Inode> {
    create(fs, name, NewKind::File).expect("a file")
}

fn unlink(fs: &Fs, name: &str) {
    let root = fs.root().expect("the root");
    fs.unlink(&root, name.as_bytes()).expect("removed");
}

/// Transactions that became durable since `before`.
fn commits_since(fs: &Fs, before: Tid) -> u32 {
    fs.journal.committed().0.wrapping_sub(before.0)
}

fn is_full<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Caller(Reason::NoSpace)))
}

#[test]
fn neighbours_of_one_transaction_are_one() {
    let run = |tid, group, first, len| Freed {
        tid: Tid(tid),
        group: GroupNumber(group),
        first,
        len,
    };
    let mut freed = run(1, 0, 10, 5);
    assert!(freed.join(&run(1, 0, 15, 3)));
    assert!(freed.join(&run(1, 0, 6, 4)));
    assert_eq!(freed, run(1, 0, 6, 12));
    for other in [run(2, 0, 18, 1), run(1, 1, 18, 1), run(1, 0, 19, 1)] {
        assert!(!freed.join(&other), "{other:?}");
    }
    assert_eq!(freed, run(1, 0, 6, 12));
}

#[test]
fn freed_blocks_are_not_reused_until_the_freeing_is_durable() {
    for (size, args) in SHAPES {
        let Some(image) = Image::make(size, args) else {
            continue;
        };
        let fs = open(&image);
        let change = |run: Run, to_free: bool| {
            let mut h = fs.begin(2 * GROUP_CREDITS).expect("begin");
            let done = if to_free {
                fs.free(&mut h, run.start, run.len.into())
            } else {
                fs.confirm(&mut h, run)
            };
            done.expect("a change");
            h.stop().expect("stop");
        };
        let mut owned = Vec::new();
        while let Ok(run) = fs.claim(FsBlock(0), 1000) {
            change(run, false);
            owned.push(run);
        }
        fs.sync().expect("sync");
        let shown = || fs.statfs().expect("statfs").free_blocks;
        let (full, gone) = (shown(), owned.swap_remove(owned.len() / 2));
        let part = Run { len: 1, ..gone };
        change(part, true);
        let rest = Run {
            start: FsBlock(gone.start.0 + 1),
            len: gone.len - 1,
        };
        if rest.len > 0 {
            change(rest, true);
        }
        assert_eq!(shown(), full + u64::from(gone.len), "{args:?}: df");
        assert!(is_full(&fs.claim(gone.start, 1)), "{args:?}: too early");
        assert!(is_full(&fs.reserve(1, false)), "{args:?}: too early");
        let again = fs.with_room(|| fs.claim(gone.start, gone.len));
        assert_eq!(again.expect("room"), gone, "{args:?}");
        // Allocated and freed in one transaction: the blocks wait as well.
        change(gone, false);
        change(gone, true);
        assert!(is_full(&fs.claim(gone.start, 1)), "{args:?}: too early");
        fs.journal.commit().expect("commit");
        assert_eq!(fs.claim(gone.start, gone.len).expect("room"), gone);
        fs.release(gone);
        owned.into_iter().for_each(|run| change(run, true));
        close(&image, fs, &format!("{args:?}"));
    }
}

/// Appends pieces until there is no space. Returns the number of bytes that fitted.
fn fill(fs: &Arc<Fs>, inode: &Arc<Inode>, buffered: bool, what: &str) -> u64 {
    let piece = vec![0x5A; 40 << 10];
    let bufs = [IoSlice::new(&piece)];
    let opened = fs.open_file(inode).expect("open");
    let mut at = 0;
    loop {
        match opened.write(buffered, Some(at), &bufs) {
            Ok((_, done)) => at += done as u64,
            Err(Error::Caller(Reason::NoSpace)) => return at,
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

#[test]
fn a_full_volume_is_emptied_and_filled_again() {
    for (size, args) in SHAPES {
        for buffered in [false, true] {
            let what = format!("{args:?}, buffered {buffered}");
            let Some(image) = Image::make(size, args) else {
                continue;
            };
            let fs = open(&image);
            let least = fill(&fs, &file(&fs, "0"), buffered, &what);
            for round in 0..5 {
                unlink(&fs, &round.to_string());
                let before = fs.journal.committed();
                let next = file(&fs, &(round + 1).to_string());
                let filled = fill(&fs, &next, buffered, &what);
                // The files may be fragmented more than before.
                assert!(
                    filled + (128 << 10) >= least,
                    "{what}: {filled} of {least} bytes in round {round}"
                );
                // One commit releases the space of the removed file; near the end, the last blocks may need
                // more.
                let commits = commits_since(&fs, before);
                assert!(commits <= 8, "{what}: {commits} commits for {filled} bytes");
            }
            close(&image, fs, &what);
        }
    }
}

#[test]
fn small_files_that_come_and_go_share_their_commits() {
    for (size, args) in SHAPES {
        let what = format!("{args:?}");
        let Some(image) = Image::make(size, args) else {
            continue;
        };
        let fs = open(&image);
        let filler = file(&fs, "filler");
        let size = fill(&fs, &filler, false, &what);
        let room = 64 * u64::from(fs.geo.block_bytes);
        fs.truncate(&filler, size - room).expect("truncate");
        fs.sync().expect("sync");
        let before = fs.journal.committed();
        let bytes = vec![7; fs.geo.block_bytes as usize];
        for turn in 0..600 {
            let inode = file(&fs, "small");
            fs.write_at(&inode, 0, &[IoSlice::new(&bytes)])
                .unwrap_or_else(|e| panic!("{what}, turn {turn}: {e}"));
            drop(inode);
            unlink(&fs, "small");
        }
        // 64 blocks are reused in turn.
        let commits = commits_since(&fs, before);
        assert!(commits <= 600 / 40, "{what}: {commits} commits");
        close(&image, fs, &what);
    }
}

#[test]
fn names_and_holes_get_what_was_freed() {
    for (size, args) in SHAPES {
        let what = format!("{args:?}");
        let Some(image) = Image::make(size, args) else {
            continue;
        };
        let fs = open(&image);
        let filler = file(&fs, "filler");
        let size = fill(&fs, &filler, false, &what);
        let block = u64::from(fs.geo.block_bytes);
        // Leave room for the mapping of the pieces: holes, and what is allocated in their place.
        let size = size - 40 * block;
        fs.truncate(&filler, size).expect("truncate");
        let extents = args.contains(&"ext4");
        for turn in 0..20 {
            let at = turn * (64 << 10);
            let len = 48 << 10;
            fs.fallocate(&filler, Fallocate::PunchHole, at, len)
                .unwrap_or_else(|e| panic!("{what}, turn {turn}: {e}"));
            let written = if extents && turn % 2 == 0 {
                fs.fallocate(&filler, Fallocate::Allocate, at, len)
                    .map(|()| len as usize)
            } else {
                fs.write_at(&filler, at, &[IoSlice::new(&vec![3; len as usize])])
            };
            let written = written.unwrap_or_else(|e| panic!("{what}, turn {turn}: {e}"));
            assert_eq!(written as u64, len, "{what}, turn {turn}");
        }
        // Directories may use the last blocks, including those kept for mappings.
        let mut made = 0;
        let dir = |number: u64| create(&fs, &format!("dir{number}"), NewKind::Dir);
        while dir(made).is_ok() {
            made += 1;
        }
        // Inline directories run out of inodes before they run out of blocks.
        if fs.statfs().expect("statfs").free_inodes > 20 {
            for turn in 0..20 {
                fs.truncate(&filler, size - (turn + 1) * 2 * block)
                    .expect("truncate");
                dir(made + turn).unwrap_or_else(|e| panic!("{what}, turn {turn}: {e}"));
            }
        }
        drop(filler);
        close(&image, fs, &what);
    }
}

/// Writes a file of `share` bytes and removes it.
fn create_and_remove(fs: &Arc<Fs>, number: u8, share: u64) -> Result<()> {
    let name = number.to_string();
    let inode = create(fs, &name, NewKind::File)?;
    let opened = fs.open_file(&inode)?;
    let piece = vec![number; 50_000];
    let mut at = 0;
    while at + 50_000 < share {
        let bufs = [IoSlice::new(&piece)];
        at += opened.write(number.is_multiple_of(2), Some(at), &bufs)?.1 as u64;
    }
    drop((opened, inode));
    fs.unlink(&fs.root()?, name.as_bytes())
}

/// The four files together never need more than two thirds of the volume, so no write may fail with no space.
#[test]
fn threads_that_stay_within_their_share_always_find_room() {
    for (size, args) in SHAPES {
        let what = format!("{args:?}");
        let Some(image) = Image::make(size, args) else {
            continue;
        };
        let fs = open(&image);
        let statfs = fs.statfs().expect("statfs");
        let share = statfs.available_blocks / 6 * u64::from(statfs.block_bytes);
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (fs, what) = (&fs, &what);
                scope.spawn(move || {
                    for round in 0..25 {
                        create_and_remove(fs, number, share)
                            .unwrap_or_else(|e| panic!("{what}, {number}, round {round}: {e}"));
                    }
                });
            }
        });
        close(&image, fs, &what);
    }
}
