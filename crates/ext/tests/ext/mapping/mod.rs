//! Mappings on real images: random changes compared with a model, deep trees, the triple level, full
//! volumes, many threads.

mod faults;
mod hostile;
mod kernel;
mod remembered;
mod support;

use std::io::{IoSlice, IoSliceMut};

use support::{Image, Modelled, Random, create, read_all};
use throughline_ext::{Error, Fallocate, Reason};

/// Name, size, arguments of `mke2fs`, whether files have extents.
const SHAPES: &[(&str, &str, &[&str], bool)] = &[
    ("ext2-1k", "48M", &["-t", "ext2", "-b", "1024"], false),
    (
        "ext2-rev0",
        "48M",
        &["-t", "ext2", "-r", "0", "-b", "1024"],
        false,
    ),
    ("ext3-4k", "64M", &["-t", "ext3", "-b", "4096"], false),
    ("ext4-1k", "48M", &["-t", "ext4", "-b", "1024"], true),
    ("ext4-4k", "64M", &["-t", "ext4", "-b", "4096"], true),
    ("ext4-64k", "128M", &["-t", "ext4", "-b", "65536"], true),
    (
        "ext4-nocsum",
        "48M",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^metadata_csum,^huge_file",
        ],
        true,
    ),
    (
        "ext4-inline",
        "64M",
        &["-t", "ext4", "-b", "4096", "-O", "inline_data"],
        true,
    ),
    (
        "ext2-inline",
        "64M",
        &[
            "-t",
            "ext2",
            "-b",
            "1024",
            "-I",
            "256",
            "-O",
            "inline_data,ext_attr",
        ],
        false,
    ),
    (
        "ext4-small-groups",
        "48M",
        &["-t", "ext4", "-b", "1024", "-g", "1024"],
        true,
    ),
];

#[test]
fn random_changes_agree_with_the_model() {
    for (shape, (name, size, args, extents)) in SHAPES.iter().enumerate() {
        let Some(image) = Image::make(size, args) else {
            continue;
        };
        let free_before = image.free_blocks();
        let seed = 1000 + shape as u64;
        println!("{name}: seed {seed}");
        let mut random = Random::new(seed);
        let block: usize = args
            .windows(2)
            .find(|w| w[0] == "-b")
            .expect("a block size")[1]
            .parse()
            .expect("a number");
        for round in 0..2 {
            let fs = image.open();
            let mut files: Vec<Modelled> = (0..3)
                .map(|n| {
                    let name = format!("file{round}{n}");
                    let inode = create(&fs, &name);
                    // The first stays small: its data may be in its inode.
                    let limit = if n == 0 {
                        3 * block
                    } else {
                        800 * block.min(8192)
                    };
                    Modelled {
                        name,
                        inode,
                        model: Vec::new(),
                        limit,
                        block,
                        extents: *extents,
                    }
                })
                .collect();
            for step in 0..500 {
                let n = random.below(files.len() as u64) as usize;
                files[n].step(&fs, &mut random);
                if step % 50 == 0 {
                    files[n].verify(&fs);
                }
            }
            files.iter().for_each(|f| f.verify(&fs));
            let expected: Vec<_> = files.into_iter().map(|f| (f.name, f.model)).collect();
            fs.close().expect("closing");
            image.check(name);
            for (file, model) in &expected {
                assert!(
                    image.dump(file) == *model,
                    "{name}: debugfs reads {file} differently"
                );
            }
            let fs = image.open();
            let root = fs.root().expect("the root");
            for (file, model) in &expected {
                let inode = fs.lookup(&root, file.as_bytes()).expect("the file");
                assert!(
                    read_all(&fs, &inode, model.len()) == *model,
                    "{name}: {file} differs after a reopen"
                );
                drop(inode);
                fs.unlink(&root, file.as_bytes()).expect("unlink");
            }
            fs.close().expect("closing");
            image.check(name);
            assert_eq!(
                image.free_blocks(),
                free_before,
                "{name}: not all blocks were freed"
            );
        }
    }
}

#[test]
fn deep_extent_trees() {
    let Some(image) = Image::make("96M", &["-t", "ext4", "-b", "1024", "-O", "^has_journal"])
    else {
        return;
    };
    let free_before = image.free_blocks();
    let fs = image.open();
    let inode = create(&fs, "deep");
    let count = 30_000u64;
    let block = |i: u64| [(i % 251) as u8 + 1; 1024];
    fs.truncate(&inode, count * 2048).expect("a size");
    // Written from both ends, so that leaves are also split in the middle.
    for i in 0..count {
        let at = if i % 3 == 0 {
            count - 1 - i / 3
        } else {
            i - i / 3 - 1
        };
        let done = fs
            .write_at(&inode, at * 2048, &[IoSlice::new(&block(at))])
            .expect("a write");
        assert_eq!(done, 1024);
    }
    fs.sync().expect("sync");
    let text = image.debugfs("extents deep");
    assert!(text.contains(" 0/ 3 "), "the tree is not three levels deep");
    image.check("a deep tree");
    let all = read_all(&fs, &inode, (count * 2048) as usize);
    for i in 0..count {
        let at = (i * 2048) as usize;
        assert!(all[at..at + 1024] == block(i), "block {i}");
        assert!(
            all[at + 1024..at + 2048].iter().all(|b| *b == 0),
            "hole {i}"
        );
    }
    // Remove every third block, then the middle, then most of the rest.
    for i in (0..count).step_by(3) {
        fs.fallocate(&inode, Fallocate::PunchHole, i * 2048, 1024)
            .expect("a hole");
    }
    fs.fallocate(
        &inode,
        Fallocate::PunchHole,
        count / 3 * 2048,
        count / 3 * 2048,
    )
    .expect("a hole");
    fs.fallocate(&inode, Fallocate::Collapse, 2048 * 100, 2048 * 1000)
        .expect("collapse");
    fs.fallocate(&inode, Fallocate::Insert, 2048 * 50, 2048 * 500)
        .expect("insert");
    fs.sync().expect("sync");
    image.check("a deep tree with holes");
    fs.truncate(&inode, 2048 * 20).expect("a truncation");
    fs.sync().expect("sync");
    image.check("a tree cut down");
    assert!(
        image.debugfs("extents deep").contains(" 0/ 1 "),
        "the tree did not shrink with the file"
    );
    let root = fs.root().expect("the root");
    drop(inode);
    fs.unlink(&root, b"deep").expect("unlink");
    fs.close().expect("closing");
    image.check("no tree");
    assert_eq!(image.free_blocks(), free_before);
}

#[test]
fn indirect_maps_to_the_triple_level() {
    let Some(image) = Image::make("32M", &["-t", "ext2", "-b", "1024"]) else {
        return;
    };
    let free_before = image.free_blocks();
    let fs = image.open();
    let inode = create(&fs, "sparse");
    let per = 256u64;
    let (single, double, triple) = (12u64, 12 + per, 12 + per + per * per);
    let last = fs.max_file_size(&inode) / 1024 - 1;
    assert_eq!(last + 1, 12 + per + per * per + per * per * per);
    let places = [
        0,
        11,
        single,
        double - 1,
        double,
        triple - 1,
        triple,
        triple + per,
        triple + per * per - 1,
        last,
    ];
    for at in places {
        // Crosses the border between levels, if there is one.
        let start = (at * 1024).saturating_sub(700);
        let bytes: Vec<u8> = (0..1724)
            .map(|i| (at as u8).wrapping_add(i as u8) | 1)
            .collect();
        let len = bytes.len().min((fs.max_file_size(&inode) - start) as usize);
        assert_eq!(
            fs.write_at(&inode, start, &[IoSlice::new(&bytes[..len])])
                .expect("a write"),
            len
        );
    }
    let behind = fs.write_at(&inode, fs.max_file_size(&inode), &[IoSlice::new(&[1])]);
    assert!(
        matches!(behind, Err(Error::Caller(Reason::TooLarge))),
        "{behind:?}"
    );
    assert_eq!(
        fs.write_at(
            &inode,
            fs.max_file_size(&inode) - 1,
            &[IoSlice::new(&[7; 9])]
        )
        .expect("a short write"),
        1
    );
    fs.sync().expect("sync");
    image.check("a sparse file");
    let mut data = Vec::new();
    let mut at = 0;
    while let Some(start) = fs.seek_data(&inode, at).expect("a seek") {
        at = fs
            .seek_hole(&inode, start)
            .expect("a seek")
            .expect("a hole");
        data.push(start / 1024..at / 1024);
    }
    for place in places {
        assert!(
            data.iter().any(|r| r.contains(&place)),
            "block {place} in {data:?}"
        );
    }
    let mut two = [0; 2];
    fs.read_at(&inode, triple * 1024 - 1, &mut [IoSliceMut::new(&mut two)])
        .expect("a read");
    assert!(two.iter().all(|b| *b != 0), "both sides of the border");
    fs.fallocate(&inode, Fallocate::PunchHole, 1024, (last - 2) * 1024)
        .expect("a hole");
    fs.sync().expect("sync");
    image.check("a hole over all levels");
    fs.truncate(&inode, 0).expect("truncation");
    fs.close().expect("closing");
    image.check("an empty file");
    assert_eq!(image.free_blocks(), free_before);
}

#[test]
fn a_full_volume_reports_no_space_and_recovers() {
    for args in [&["-t", "ext4", "-b", "1024"], &["-t", "ext2", "-b", "1024"]] {
        let Some(image) = Image::make("8M", args) else {
            continue;
        };
        let free_before = image.free_blocks();
        let fs = image.open();
        let inode = create(&fs, "full");
        let chunk = vec![0x5A; 100 * 1024];
        let mut size = 0;
        let error = loop {
            match fs.write_at(&inode, size, &[IoSlice::new(&chunk)]) {
                Ok(done) => size += done as u64,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Caller(Reason::NoSpace)), "{error}");
        assert!(size > 4 << 20, "{size} bytes fitted");
        // Single blocks with holes between them, until there is no space, for tables either.
        let sparse = create(&fs, "sparse");
        fs.truncate(&inode, size - 300 * 1024)
            .expect("a truncation");
        let mut holes = 0u64;
        while fs
            .write_at(&sparse, holes * 300 * 1024, &[IoSlice::new(&chunk[..1024])])
            .is_ok()
        {
            holes += 1;
        }
        assert!(holes > 10, "{holes}");
        let left = size - 300 * 1024;
        let all = read_all(&fs, &inode, left as usize);
        assert!(all.len() as u64 == left && all.iter().all(|b| *b == 0x5A));
        fs.sync().expect("sync");
        image.check("a full volume");
        fs.truncate(&inode, 0).expect("a truncation");
        fs.truncate(&sparse, 0).expect("a truncation");
        fs.close().expect("closing");
        image.check("an empty one");
        assert_eq!(image.free_blocks(), free_before);
    }
}

#[test]
fn threads_fill_one_file() {
    for args in [&["-t", "ext4", "-b", "1024"], &["-t", "ext3", "-b", "1024"]] {
        let Some(image) = Image::make("64M", args) else {
            continue;
        };
        let fs = image.open();
        let inode = create(&fs, "shared");
        let size = 4096 * 1024u64;
        fs.truncate(&inode, size).expect("a size");
        // Each thread writes its own number into its blocks. All of them write block 0 of every sixteen
        // blocks, and unaligned bytes in block 1 of every sixteen.
        let own = |thread: u8, at: u64| at / 1024 % 16 >= 2 && at / 1024 % 4 == u64::from(thread);
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let (fs, inode) = (&fs, &inode);
                scope.spawn(move || {
                    let mut random = Random::new(u64::from(thread) + 7);
                    let start = random.below(size / 1024);
                    for i in 0..size / 1024 {
                        let at = (start + i) % (size / 1024) * 1024;
                        let (at, len) = match at / 1024 % 16 {
                            0 => (at, 1024),
                            1 => (at + u64::from(thread) * 256, 256),
                            _ if own(thread, at) => (at, 1024),
                            _ => continue,
                        };
                        let bytes = vec![thread + 1; len];
                        assert_eq!(
                            fs.write_at(inode, at, &[IoSlice::new(&bytes)])
                                .expect("a write"),
                            len
                        );
                    }
                });
            }
        });
        let all = read_all(&fs, &inode, size as usize);
        for (block, bytes) in all.chunks(1024).enumerate() {
            match block % 16 {
                0 => assert!(
                    (1..=4).contains(&bytes[0]) && bytes.iter().all(|b| *b == bytes[0]),
                    "block {block}"
                ),
                1 => (0..4).for_each(|t| {
                    assert!(bytes[t * 256..][..256].iter().all(|b| *b == t as u8 + 1))
                }),
                _ => assert!(
                    bytes.iter().all(|b| u64::from(*b) == block as u64 % 4 + 1),
                    "block {block}"
                ),
            }
        }
        fs.close().expect("closing");
        image.check("a shared file");
        assert!(image.dump("shared") == all);
    }
}

#[test]
fn bytes_past_the_end_are_never_visible() {
    let Some(image) = Image::make("16M", &["-t", "ext4", "-b", "4096"]) else {
        return;
    };
    let fs = image.open();
    let inode = create(&fs, "tail");
    let secret = [0xAA; 4096];
    fs.write_at(&inode, 0, &[IoSlice::new(&secret)])
        .expect("a write");
    fs.truncate(&inode, 100).expect("a truncation");
    fs.truncate(&inode, 3000).expect("growing");
    let all = read_all(&fs, &inode, 3000);
    assert!(all[..100].iter().all(|b| *b == 0xAA) && all[100..].iter().all(|b| *b == 0));
    // As if a writer had not zeroed the rest of the last block: put bytes there directly.
    fs.truncate(&inode, 100).expect("a truncation");
    fs.close().expect("closing");
    let block: u64 = image.debugfs("bmap tail 0").trim().parse().unwrap_or(0);
    assert!(block > 0);
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(image.path())
        .expect("the image");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xBB; 3996], block * 4096 + 100)
        .expect("written");
    for grow in 0..3 {
        let fs = image.open();
        let root = fs.root().expect("the root");
        let inode = fs.lookup(&root, b"tail").expect("the file");
        match grow {
            0 => fs.truncate(&inode, 900).expect("growing"),
            1 => drop(
                fs.write_at(&inode, 2000, &[IoSlice::new(b"x")])
                    .expect("a write"),
            ),
            _ => fs
                .fallocate(&inode, Fallocate::Allocate, 9000, 10)
                .expect("allocating"),
        }
        let all = read_all(&fs, &inode, 10_000);
        assert!(all[..100].iter().all(|b| *b == 0xAA));
        assert!(
            all[100..].iter().all(|b| *b == 0 || *b == b'x'),
            "grown by way {grow}: {:?}",
            all[100]
        );
        fs.truncate(&inode, 100).expect("a truncation");
        fs.close().expect("closing");
        image.check("tail");
        std::os::unix::fs::FileExt::write_all_at(&file, &[0xBB; 3996], block * 4096 + 100)
            .expect("written");
    }
}

#[test]
fn the_first_large_file_is_noted() {
    for args in [
        &[
            "-t",
            "ext2",
            "-b",
            "4096",
            "-O",
            "^large_file,^resize_inode",
        ],
        &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-O",
            "^large_file,^resize_inode",
        ],
    ] {
        let Some(image) = Image::make("16M", args) else {
            continue;
        };
        let fs = image.open();
        let inode = create(&fs, "large");
        assert!(!image.debugfs("features").contains("large_file"));
        let at = (3 << 30) + 17;
        assert_eq!(
            fs.write_at(&inode, at, &[IoSlice::new(b"far")])
                .expect("a write"),
            3
        );
        fs.close().expect("closing");
        assert!(image.debugfs("features").contains("large_file"));
        image.check("a large file");
        let fs = image.open();
        let inode = fs
            .lookup(&fs.root().expect("the root"), b"large")
            .expect("the file");
        let mut out = [0; 5];
        assert_eq!(
            fs.read_at(&inode, at - 1, &mut [IoSliceMut::new(&mut out)])
                .expect("a read"),
            4
        );
        assert_eq!(&out[..4], b"\0far");
    }
}

#[test]
fn threads_append_whole_records() {
    let Some(image) = Image::make("32M", &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let fs = image.open();
    let inode = create(&fs, "log");
    let record = |thread: u8, number: u16| {
        let mut out = vec![thread; 100 + usize::from(number % 50)];
        out[0] = b'[';
        out.push(b']');
        out
    };
    std::thread::scope(|scope| {
        for thread in 1..=4u8 {
            let (fs, inode) = (&fs, &inode);
            scope.spawn(move || {
                for number in 0..200 {
                    let bytes = record(thread, number);
                    let (_, done) = fs
                        .append(inode, &[IoSlice::new(&bytes)])
                        .expect("an append");
                    assert_eq!(done, bytes.len());
                }
            });
        }
    });
    let len: usize = 4 * (0..200).map(|n| record(1, n).len()).sum::<usize>();
    let all = read_all(&fs, &inode, len);
    assert_eq!(all.len(), len);
    let mut next = [0u16; 5];
    let mut at = 0;
    while at < len {
        let thread = all[at + 1];
        let expected = record(thread, next[usize::from(thread)]);
        assert!(
            all[at..at + expected.len()] == expected,
            "a torn record at {at}"
        );
        next[usize::from(thread)] += 1;
        at += expected.len();
    }
    fs.close().expect("closing");
    image.check("a log");
}
