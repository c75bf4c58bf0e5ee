//! Listings continued while names are added and removed, and damaged directories.

use std::collections::BTreeSet;

use throughline_ext::{DirEntry, Error, Fs, Inode, Last, NewInode, NewKind};

use crate::names::image::{Image, Random};

const OWNER: NewInode = NewInode {
    permissions: 0o644,
    uid: 0,
    gid: 0,
    umask: 0,
};

/// Lists from position 0 on, a few names at a time, and calls `between` after each.
fn list_with(fs: &Fs, dir: &Inode, mut between: impl FnMut(usize)) -> Vec<DirEntry> {
    let mut all = Vec::new();
    let mut position = 0;
    for step in 0.. {
        let batch = fs.list_dir(dir, position).expect("a sound directory");
        if batch.is_empty() {
            break;
        }
        // As a reader with a small buffer does.
        let taken: Vec<_> = batch.into_iter().take(3).collect();
        assert!(
            taken.iter().all(|entry| entry.next > position),
            "positions ascend"
        );
        position = taken.last().expect("some").next;
        all.extend(taken);
        between(step);
    }
    all
}

#[test]
fn a_listing_misses_nothing_and_repeats_nothing() {
    for (args, prepare) in [
        (&["-t", "ext4", "-b", "1024", "-O", "metadata_csum"][..], ""),
        (
            &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "inline_data"],
            "",
        ),
        (
            &[
                "-t",
                "ext4",
                "-b",
                "1024",
                "-I",
                "256",
                "-O",
                "inline_data,^dir_index",
            ],
            "",
        ),
        (&["-t", "ext3", "-b", "1024"], "ssv def_hash_version legacy"),
        (&["-t", "ext2", "-b", "1024", "-O", "^dir_index"], ""),
    ] {
        for start in [2usize, 6, 20, 300] {
            let Some(image) = Image::make(args, "32M") else {
                return;
            };
            if !prepare.is_empty() {
                image.debugfs_write(prepare);
            }
            let fs = image.open();
            let root = fs.root().expect("a root");
            let dir = fs
                .create(
                    &root,
                    b"d",
                    NewKind::Dir,
                    NewInode {
                        permissions: 0o755,
                        ..OWNER
                    },
                )
                .expect("made");
            let stays = |number: usize| format!("stays-{number}");
            let goes = |number: usize| format!("goes-{number}");
            for number in 0..start {
                for name in [stays(number), goes(number)] {
                    fs.create(&dir, name.as_bytes(), NewKind::File, OWNER)
                        .expect("made");
                }
            }
            let mut gone = 0;
            let all = list_with(&fs, &dir, |step| {
                // If new names are added at the end, the listing would never end otherwise.
                for more in 0..if step < 100 { 8 } else { 0 } {
                    let name = format!("new-{step}-{more}");
                    fs.create(&dir, name.as_bytes(), NewKind::File, OWNER)
                        .expect("made");
                }
                if step < start {
                    fs.unlink(&dir, goes(step).as_bytes()).expect("there");
                    gone += 1;
                }
            });
            let names: Vec<_> = all
                .iter()
                .map(|entry| String::from_utf8(entry.name.clone()).expect("ASCII"))
                .collect();
            let different: BTreeSet<_> = names.iter().collect();
            assert_eq!(
                different.len(),
                names.len(),
                "{args:?} {start}: a name was listed twice"
            );
            for must in (0..start).map(stays).chain([".".into(), "..".into()]) {
                assert!(
                    different.contains(&must),
                    "{args:?} {start}: {must} is missing"
                );
            }
            assert!(gone > 0);
            fs.close().expect("closed");
            image.check();
        }
    }
}

#[test]
fn damaged_directories_give_errors() {
    // Blocks without checksums, so that damage reaches the parsers.
    let args = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "^metadata_csum,^has_journal",
    ];
    let Some(image) = Image::make(&args, "16M") else {
        return;
    };
    let fs = image.open();
    let root = fs.root().expect("a root");
    let dir = fs
        .create(
            &root,
            b"d",
            NewKind::Dir,
            NewInode {
                permissions: 0o755,
                ..OWNER
            },
        )
        .expect("made");
    for number in 0..600 {
        fs.create(
            &dir,
            format!("{number}-{}", "x".repeat(number % 100)).as_bytes(),
            NewKind::File,
            OWNER,
        )
        .expect("made");
    }
    fs.close().expect("closed");
    let blocks: Vec<u64> = image
        .debugfs("blocks /d")
        .split_whitespace()
        .map(|number| number.parse().expect("a number"))
        .collect();
    assert!(blocks.len() > 20);
    let sound = std::fs::read(&image.path).expect("the image");
    let mut corrupt = 0;
    for seed in 0..300u64 {
        let mut random = Random(seed);
        let mut bytes = sound.clone();
        for _ in 0..=random.below(4) {
            // The root half of the time.
            let block = if random.below(2) == 0 {
                blocks[0]
            } else {
                blocks[random.below(blocks.len())]
            };
            let part = if random.below(2) == 0 { 64 } else { 1024 };
            let at = block as usize * 1024 + random.below(part);
            bytes[at] = match random.below(3) {
                0 => 0,
                1 => 0xFF,
                _ => random.next() as u8,
            };
        }
        std::fs::write(&image.path, &bytes).expect("written");
        corrupt += usize::from(use_it(&image, seed));
    }
    assert!(corrupt > 50, "damage was seen {corrupt} times");
}

/// Runs all operations on the directory; returns whether damage was found. The test is that every call
/// returns.
fn use_it(image: &Image, seed: u64) -> bool {
    let fs = image.open();
    let Ok(dir) = fs.resolve(b"/d", Last::Follow) else {
        return true;
    };
    let mut found = false;
    let mut see = |done: Result<(), Error>| match done {
        Ok(()) | Err(Error::Caller(_)) => {}
        Err(Error::Corrupt(_) | Error::Unsupported(_)) => found = true,
        Err(error) => assert!(error.to_string().contains("half"), "seed {seed}: {error}"),
    };
    see(fs.read_dir(&dir).try_for_each(|entry| entry.map(drop)));
    see(list_all(&fs, &dir));
    for number in (0..600).step_by(13) {
        see(fs
            .lookup(
                &dir,
                format!("{number}-{}", "x".repeat(number % 100)).as_bytes(),
            )
            .map(drop));
        see(fs
            .create(
                &dir,
                format!("new-{number}").as_bytes(),
                NewKind::File,
                OWNER,
            )
            .map(drop));
        see(fs.unlink(
            &dir,
            format!("{}-{}", number + 1, "x".repeat((number + 1) % 100)).as_bytes(),
        ));
    }
    see(fs.rmdir(&fs.root().expect("a root"), b"d"));
    found
}

fn list_all(fs: &Fs, dir: &Inode) -> Result<(), Error> {
    let mut position = 0;
    let mut steps = 0;
    loop {
        let batch = fs.list_dir(dir, position)?;
        let Some(last) = batch.last() else {
            return Ok(());
        };
        assert!(last.next > position, "a listing advances");
        position = last.next;
        steps += 1;
        assert!(steps < 10_000, "a listing ends");
    }
}
