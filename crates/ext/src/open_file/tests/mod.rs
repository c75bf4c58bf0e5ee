//! Buffered files: data read back, the resulting volume, and that no reservation leaks.

mod clusters;
mod model;

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use throughline_extfmt::FileBlock;
use throughline_fileio::ReadStream;
use throughline_testkit::tier::pick;

use super::OpenFile;
use crate::coherent::ALL;
use crate::map::{self, Kind};
use crate::testing::{Image, Rng};
use crate::{Error, Fallocate, Fs, Inode, NewInode, NewKind, OpenOptions, Reason};

/// Volumes with different mapping and allocation: size, arguments of `mke2fs`.
const SHAPES: &[(&str, &[&str])] = &[
    ("24M", &["-t", "ext4", "-b", "1024"]),
    ("24M", &["-t", "ext4", "-b", "2048"]),
    ("24M", &["-t", "ext4", "-b", "4096"]),
    ("64M", &["-t", "ext4", "-b", "65536"]),
    ("24M", &["-t", "ext2", "-b", "1024"]),
    ("24M", &["-t", "ext3", "-b", "4096"]),
    ("24M", &["-t", "ext4", "-O", "inline_data", "-I", "256"]),
    (
        "24M",
        &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "4096"],
    ),
    (
        "64M",
        &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "65536"],
    ),
];

fn open(image: &Image, budget_bytes: u64) -> Arc<Fs> {
    let mut options = OpenOptions {
        write: true,
        use_reserved: Some(true),
        ..OpenOptions::default()
    };
    options.cache.budget_bytes = Some(budget_bytes);
    Arc::new(image.try_open(&options).expect("the volume opens"))
}

/// Closes the volume; nothing may be reserved or referenced then, and `e2fsck` must find nothing.
fn close(image: &Image, fs: Arc<Fs>, what: &str) {
    let closed = fs.shut_down();
    assert_eq!(
        fs.balloc.blocks_reserved(),
        0,
        "{what}: blocks are still reserved"
    );
    assert_eq!(
        Arc::strong_count(&fs),
        1,
        "{what}: the volume is still referenced"
    );
    closed.unwrap_or_else(|e| panic!("{what}: {e}"));
    fs.check_counts().unwrap_or_else(|e| panic!("{what}: {e}"));
    drop(fs);
    image.check(what);
}

fn create(fs: &Fs, name: &str) -> Arc<Inode> {
    let new = NewInode {
        permissions: 0o600,
        uid: 0,
        gid: 0,
        umask: 0,
    };
    let root = fs.root().expect("the root");
    fs.create(&root, name.as_bytes(), NewKind::File, new)
        .expect("a file")
}

fn lookup(fs: &Fs, name: &str) -> Arc<Inode> {
    let root = fs.root().expect("the root");
    fs.lookup(&root, name.as_bytes())
        .expect("the file is there")
}

fn write(file: &OpenFile, at: u64, bytes: &[u8]) -> crate::Result<usize> {
    let bufs = [IoSlice::new(bytes)];
    file.write(true, Some(at), &bufs).map(|(_, done)| done)
}

fn write_all(file: &OpenFile, mut at: u64, mut bytes: &[u8]) -> crate::Result<()> {
    while !bytes.is_empty() {
        let done = write(file, at, bytes)?;
        (at, bytes) = (at + done as u64, &bytes[done..]);
    }
    Ok(())
}

fn read(file: &OpenFile, buffered: bool, at: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xEE; len];
    let bufs = &mut [IoSliceMut::new(&mut buf)];
    let done = file.read(buffered, at, bufs, &ReadStream::default());
    buf.truncate(done.expect("a read"));
    buf
}

/// Bytes that encode their position.
fn pattern(seed: u64, at: u64, len: usize) -> Vec<u8> {
    (at..at + len as u64)
        .map(|at| (at / 7 + at / 4093 + seed * 31) as u8)
        .collect()
}

#[test]
fn written_data_is_read_back_on_every_shape() {
    for (size, args) in SHAPES {
        let what = format!("{args:?}");
        let Some(image) = Image::make(size, args) else {
            continue;
        };
        let fs = open(&image, 4 << 20);
        let inode = create(&fs, "a");
        let file = fs.open_file(&inode).expect("open");
        let whole = pattern(1, 0, 3_000_017);
        for (at, piece) in (0u64..).step_by(10_007).zip(whole.chunks(10_007)) {
            write_all(&file, at, piece).unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        assert_eq!(file.size(), whole.len() as u64, "{what}");
        assert!(read(&file, true, 0, 4 << 20) == whole, "{what}: buffered");
        assert!(read(&file, false, 0, 4 << 20) == whole, "{what}: direct");
        let seen = fs.metadata(&inode).expect("metadata");
        assert_eq!(seen.size_bytes, whole.len() as u64, "{what}");
        file.sync(false).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(fs.balloc.blocks_reserved(), 0, "{what}: after a sync");
        drop((file, inode));
        close(&image, fs, &what);

        let fs = open(&image, 4 << 20);
        let inode = lookup(&fs, "a");
        let file = fs.open_file(&inode).expect("open");
        assert!(read(&file, true, 0, 4 << 20) == whole, "{what}: reopened");
        drop((file, inode));
        close(&image, fs, &what);
    }
}

/// Writes until the volume is full; returns the bytes accepted.
fn fill(file: &OpenFile, offsets: impl Iterator<Item = u64>, piece: usize) -> Vec<(u64, usize)> {
    let mut taken = Vec::new();
    for at in offsets {
        match write(file, at, &pattern(3, at, piece)) {
            Ok(done) => taken.push((at, done)),
            Err(Error::Caller(Reason::NoSpace)) => return taken,
            Err(error) => panic!("at {at}: {error}"),
        }
    }
    panic!("a full volume took everything");
}

#[test]
fn data_accepted_by_a_full_volume_is_kept() {
    type Offsets = fn(u64) -> Box<dyn Iterator<Item = u64>>;
    let patterns: [(&str, Offsets); 4] = [
        ("stream", |_| Box::new((0..).map(|i| i * 9_001))),
        ("every other block", |b| {
            Box::new((0..).map(move |i| 2 * i * b))
        }),
        ("scattered", |b| {
            Box::new((0..).map(move |i| i * 7919 % 50_021 * b))
        }),
        ("from the end", |b| {
            Box::new((0..60_000).rev().map(move |i| 2 * i * b))
        }),
    ];
    let volumes = [
        ("8M", &["-t", "ext4", "-b", "1024"][..]),
        ("16M", &["-t", "ext4", "-b", "4096"]),
        ("8M", &["-t", "ext2", "-b", "1024"]),
        ("16M", &["-t", "ext2", "-b", "4096"]),
    ];
    for (number, (size, args)) in volumes.into_iter().enumerate() {
        // In the quick tier, two patterns on each volume, and each on two.
        let of_tier = pick(2, 1, 1);
        for (name, offsets) in patterns.iter().skip(number % of_tier).step_by(of_tier) {
            let what = format!("{name} on {args:?}");
            let Some(image) = Image::make(size, args) else {
                continue;
            };
            let fs = open(&image, 64 << 20);
            let inode = create(&fs, "a");
            let file = fs.open_file(&inode).expect("open");
            let block = u64::from(fs.geo.block_bytes);
            let piece = if *name == "stream" {
                9_001
            } else {
                block as usize
            };
            let taken = fill(&file, offsets(block), piece);
            let bytes: usize = taken.iter().map(|(_, len)| len).sum();
            assert!(bytes > 2 << 20, "{what}: only {bytes} were taken");
            file.sync(false).unwrap_or_else(|e| panic!("{what}: {e}"));
            // Less is left than one more write might have needed.
            let left = fs.balloc.blocks_left();
            assert!(left < 24, "{what}: full with {left} blocks left");
            drop((file, inode));
            close(&image, fs, &what);

            let fs = open(&image, 8 << 20);
            let inode = lookup(&fs, "a");
            let file = fs.open_file(&inode).expect("open");
            for (at, len) in taken {
                assert!(
                    read(&file, true, at, len) == pattern(3, at, len),
                    "{what}: lost at {at}"
                );
            }
            drop((file, inode));
            close(&image, fs, &what);
        }
    }
}

/// A write longer than the free space is shortened to it.
#[test]
fn long_writes_fill_a_volume_to_the_end() {
    for (size, args) in SHAPES {
        let what = format!("{args:?}");
        let Some(image) = Image::make(size, args) else {
            continue;
        };
        let fs = open(&image, 64 << 20);
        let inode = create(&fs, "a");
        let file = fs.open_file(&inode).expect("open");
        let piece = pattern(5, 0, 3_000_001);
        let mut end = 0;
        let refused = loop {
            match write(&file, end, &piece) {
                Ok(done) => end += done as u64,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, Error::Caller(Reason::NoSpace)), "{what}");
        file.sync(false).unwrap_or_else(|e| panic!("{what}: {e}"));
        let left = fs.balloc.blocks_left();
        assert!(left < 24, "{what}: full with {left} blocks left");
        drop((file, inode));
        close(&image, fs, &what);
    }
}

#[test]
fn dirty_data_of_an_unlinked_file_is_not_written() {
    let Some(image) = Image::make("24M", &["-t", "ext4"]) else {
        return;
    };
    let fs = open(&image, 16 << 20);
    let inode = create(&fs, "a");
    fs.open_inode(&inode).expect("open");
    let file = fs.open_file(&inode).expect("open");
    write_all(&file, 0, &[7; 1 << 20]).expect("a write");
    assert_ne!(fs.balloc.blocks_reserved(), 0);
    let root = fs.root().expect("the root");
    fs.unlink(&root, b"a").expect("unlink");
    assert!(read(&file, true, 0, 1 << 20) == [7; 1 << 20]);
    drop(file);
    fs.close_inode(&inode).expect("close");
    assert_eq!(fs.balloc.blocks_reserved(), 0);
    assert_eq!(fs.cache.throttle().dirty_bytes(), 0);
    drop(inode);
    close(&image, fs, "unlinked");
}

#[test]
fn preallocated_room_is_written_on_a_full_volume() {
    let Some(image) = Image::make("16M", &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let fs = open(&image, 32 << 20);
    let (kept, other) = (create(&fs, "kept"), create(&fs, "other"));
    fs.fallocate(&kept, Fallocate::Allocate, 0, 4 << 20)
        .expect("room");
    let filler = fs.open_file(&other).expect("open");
    fill(&filler, (0..).map(|i| i * 65_536), 65_536);
    let file = fs.open_file(&kept).expect("open");
    for at in (0..4 << 20).step_by(2048) {
        write_all(&file, at, &pattern(5, at, 1024)).expect("preallocated");
    }
    file.sync(false).expect("sync");
    drop((filler, other, file, kept));
    close(&image, fs, "preallocated");
    let fs = open(&image, 4 << 20);
    let kept = lookup(&fs, "kept");
    let file = fs.open_file(&kept).expect("open");
    for at in (0..4 << 20).step_by(2048) {
        assert!(read(&file, true, at, 1024) == pattern(5, at, 1024), "{at}");
        assert!(read(&file, true, at + 1024, 1024) == [0; 1024], "{at}");
    }
    drop((file, kept));
    close(&image, fs, "reopened");
}

#[test]
fn times_are_those_of_the_writes() {
    let Some(image) = Image::make("24M", &["-t", "ext4"]) else {
        return;
    };
    let fs = open(&image, 8 << 20);
    let inode = create(&fs, "a");
    let file = fs.open_file(&inode).expect("open");
    write_all(&file, 0, &[1; 100_000]).expect("a write");
    let long_ago = crate::Timestamp {
        seconds: 1_000_000_000,
        nanoseconds: 0,
    };
    let set = crate::Attributes {
        modified: Some(long_ago.into()),
        ..Default::default()
    };
    fs.set_attributes(&inode, &set).expect("utimes");
    file.sync(false).expect("sync");
    assert_eq!(fs.metadata(&inode).expect("metadata").modified, long_ago);
    write_all(&file, 0, &[2; 10]).expect("a write");
    assert_ne!(fs.metadata(&inode).expect("metadata").modified, long_ago);
    drop((file, inode));
    close(&image, fs, "times");
}

#[test]
fn writers_of_all_kinds_at_once() {
    let Some(image) = Image::make("64M", &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let fs = open(&image, 2 << 20);
    let inode = create(&fs, "a");
    let file = fs.open_file(&inode).expect("open");
    let lane = 1 << 20;
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (fs, inode, file) = (&fs, &inode, &file);
            scope.spawn(move || {
                let mut rng = Rng::new(thread + 5);
                for round in 0..200u64 {
                    let at = thread * lane + rng.below(lane - 5000);
                    let bytes = pattern(round, at, 1 + rng.below(5000) as usize);
                    let buffered = rng.below(3) > 0;
                    let bufs = [IoSlice::new(&bytes)];
                    let done = file.write(buffered, Some(at), &bufs);
                    assert_eq!(done.expect("a write"), (at, bytes.len()));
                    let other = rng.below(2) == 0;
                    assert!(
                        read(file, other, at, bytes.len()) == bytes,
                        "{buffered} {other}"
                    );
                    if rng.below(8) == 0 {
                        fs.fallocate(inode, Fallocate::PunchHole, at, 1 << 11)
                            .expect("a hole");
                    }
                    if rng.below(8) == 0 {
                        file.flush_range(ALL).expect("a flush");
                    }
                }
            });
        }
    });
    drop((file, inode));
    close(&image, fs, "writers at once");
}

#[test]
fn truncations_meet_running_write_back() {
    let Some(image) = Image::make("64M", &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let fs = open(&image, 2 << 20);
    let inode = create(&fs, "a");
    let file = fs.open_file(&inode).expect("open");
    let size = 1 << 20;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut rng = Rng::new(11);
            for _ in 0..1500 {
                let at = rng.below(size);
                write_all(&file, at, &pattern(1, at, 1 + rng.below(20_000) as usize))
                    .expect("a write");
            }
        });
        let mut rng = Rng::new(12);
        while !writer.is_finished() {
            let at = rng.below(size);
            match rng.below(5) {
                0 => fs.truncate(&inode, at).expect("truncate"),
                1 => {
                    let hole = fs.fallocate(&inode, Fallocate::PunchHole, at, 50_000);
                    hole.expect("a hole");
                }
                2 => fs.sync().expect("sync"),
                3 => file.start_flush(ALL),
                _ => {
                    // Bytes of the pattern, or zero.
                    let seen = read(&file, rng.below(2) == 0, at, 3000);
                    let right = pattern(1, at, seen.len());
                    let wrong = seen.iter().zip(&right).position(|(a, b)| a != b && *a != 0);
                    assert_eq!(wrong, None, "at {at}");
                }
            }
        }
    });
    drop((file, inode));
    close(&image, fs, "truncations");
}

/// A crash may leave bytes past the end, from a write whose size was not committed.
#[test]
fn bytes_past_the_end_are_never_visible() {
    for (shape, args) in SHAPES {
        let Some(image) = Image::make(shape, args) else {
            return;
        };
        let what = format!("{args:?}");
        let fs = open(&image, 4 << 20);
        let block_bytes = u64::from(fs.geo.block_bytes);
        let (size, block) = (block_bytes + 700, FileBlock(1));
        let file = fs.open_file(&create(&fs, "file")).expect("opened");
        write_all(&file, 0, &pattern(1, 0, size as usize)).expect("written");
        file.sync(false).expect("synced");
        let found = map::lookup(&fs, file.inode(), block, 1).expect("mapped");
        let Kind::Data(at) = found.kind else {
            panic!("{what}: {:?}", found.kind);
        };
        drop(file);
        close(&image, fs, &what);
        let behind = at.0 * block_bytes + 700;
        let disk = image.disk(true);
        let len = (block_bytes - 700) as usize;
        let (rest, unit) = (len % 512, behind - behind % 512);
        let mut sectors = vec![0; len - rest + 512];
        disk.read_at(unit, &mut sectors).expect("read");
        sectors[(behind - unit) as usize..].fill(0xEE);
        disk.write_at(unit, &sectors, false).expect("written");
        drop(disk);

        let fs = open(&image, 4 << 20);
        let file = fs.open_file(&lookup(&fs, "file")).expect("opened");
        let long = pattern(2, size, 5 * block_bytes as usize);
        write_all(&file, size, &long).expect("written");
        // What is past the block is written first, and its commit sets the size.
        file.flush_range(2 * block_bytes..u64::MAX)
            .expect("flushed");
        let mut tail = vec![0; sectors.len()];
        image.disk(false).read_at(unit, &mut tail).expect("read");
        let tail = &tail[(behind - unit) as usize..];
        let new = &long[..tail.len()];
        assert!(
            tail.iter().all(|byte| *byte == 0) || tail == new,
            "{what}: {:x?}",
            &tail[..16]
        );
        assert_eq!(read(&file, true, size, long.len()), long, "{what}");
        drop(file);
        close(&image, fs, &what);
    }
}

#[test]
fn a_crash_leaves_what_was_synced() {
    for args in [&["-t", "ext4", "-b", "1024"], &["-t", "ext2", "-b", "4096"]] {
        let Some(image) = Image::make("24M", args) else {
            continue;
        };
        let fs = open(&image, 2 << 20);
        let inode = create(&fs, "a");
        let file = fs.open_file(&inode).expect("open");
        let kept = pattern(1, 0, 1_000_000);
        write_all(&file, 0, &kept).expect("a write");
        file.sync(false).expect("sync");
        write_all(&file, 500_000, &pattern(2, 500_000, 4_000_000)).expect("a write");
        // The device's contents with write-back in progress.
        let crashed = image.copy();
        drop((file, inode));
        close(&image, fs, "the volume itself");

        crashed.check(&format!("{args:?}"));
        let fs = Arc::new(
            crashed
                .try_open(&OpenOptions::default())
                .expect("it opens for reading"),
        );
        let inode = lookup(&fs, "a");
        let file = fs.open_file(&inode).expect("open");
        assert!(file.size() >= 1_000_000, "{args:?}: {}", file.size());
        assert!(read(&file, true, 0, 500_000) == kept[..500_000], "{args:?}");
        // Overwritten, unsynced data is old or new, byte for byte, and never another file's.
        let len = file.size() as usize - 500_000;
        let mut old = kept[500_000..].to_vec();
        old.resize(len, 0);
        let new = pattern(2, 500_000, len);
        let seen = read(&file, false, 500_000, len);
        let wrong = (0..len).find(|at| seen[*at] != old[*at] && seen[*at] != new[*at]);
        assert_eq!(wrong, None, "{args:?}");
        fs.shut_down().expect("closing what was only read");
    }
}
