//! What is discarded is free and stays discarded. Blocks in use, or that a crash may bring back, are
//! untouched.

use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use throughline_device::Op;
use throughline_testing::{Image as Medium, PowerDevice};

use crate::testing::{Image, Rng, power_on};
use crate::{Error, Fs, Last, NewInode, NewKind, Reason};

const OWNER: NewInode = NewInode {
    permissions: 0o644,
    uid: 0,
    gid: 0,
    umask: 0,
};

/// The whole volume.
const ALL: std::ops::Range<u64> = 0..u64::MAX;

/// Generous, for slow machines.
const LONG: Duration = Duration::from_secs(90);

fn make(fs: &Fs, name: &str, len: usize, byte: u8) {
    let root = fs.root().expect("the root");
    let file = fs.create(&root, name.as_bytes(), NewKind::File, OWNER);
    let done = fs.write_at(&file.expect("made"), 0, &[IoSlice::new(&vec![byte; len])]);
    assert_eq!(done.expect("written"), len);
}

fn remove(fs: &Fs, name: &str) {
    let root = fs.root().expect("the root");
    fs.unlink(&root, name.as_bytes()).expect("unlinked");
}

/// The file's bytes; `None` if the file does not exist.
fn read(fs: &Fs, name: &str) -> Option<Vec<u8>> {
    let file = match fs.resolve(format!("/{name}").as_bytes(), Last::Follow) {
        Err(Error::Caller(Reason::NotFound)) => return None,
        file => file.expect("the file"),
    };
    let mut bytes = vec![0; fs.metadata(&file).expect("attributes").size_bytes as usize];
    let done = fs.read_at(&file, 0, &mut [IoSliceMut::new(&mut bytes)]);
    assert_eq!(done.expect("read"), bytes.len());
    Some(bytes)
}

fn on_host(image: &Image) -> u64 {
    std::fs::metadata(image.path()).expect("the image").blocks() * 512
}

#[test]
fn free_space_of_an_image_becomes_holes() {
    const LEN: usize = 8 << 20;
    for args in [
        &["-t", "ext4", "-b", "1024"][..],
        &["-t", "ext4", "-b", "4096", "-O", "^has_journal"],
        &["-t", "ext2", "-b", "1024"],
    ] {
        let Some(image) = Image::make("48M", args) else {
            return;
        };
        let fs = image.open();
        for small in ["s1", "s2", "s3"] {
            make(&fs, small, 64 << 10, 3);
        }
        make(&fs, "kept", LEN, 1);
        make(&fs, "gone", LEN, 2);
        fs.sync().expect("synced");
        // A short free run between files in use.
        remove(&fs, "s2");
        fs.sync().expect("synced");
        remove(&fs, "gone");
        let before = on_host(&image);
        let committed = fs.journal.committed();
        let trimmed = match fs.trim(ALL, 0) {
            Err(Error::Unsupported(why)) => {
                throughline_testkit::left_out!("{why}");
                return;
            }
            trimmed => trimmed.expect("trimmed"),
        };
        let free = || fs.statfs().expect("numbers").free_blocks * u64::from(fs.geo.block_bytes);
        if fs.journal.committed() == committed {
            let awaiting = fs.balloc.blocks_awaiting() * u64::from(fs.geo.block_bytes);
            assert!(awaiting >= LEN as u64, "{args:?}: {awaiting}");
            assert_eq!(
                trimmed,
                free() - awaiting,
                "{args:?}: a crash may restore it"
            );
        }
        fs.sync().expect("synced");
        assert_eq!(fs.trim(ALL, 0).expect("trimmed"), free(), "{args:?}");
        assert!(
            on_host(&image) + LEN as u64 <= before + (1 << 20),
            "{args:?}"
        );
        // Trims each half, then only the long runs.
        let half = fs.geo.blocks * u64::from(fs.geo.block_bytes) / 2;
        let parts = [0..half, half..u64::MAX].map(|part| fs.trim(part, 0).expect("trimmed"));
        assert_eq!(parts.iter().sum::<u64>(), free(), "{args:?}");
        let long = fs.trim(ALL, 128 << 10).expect("trimmed");
        assert!(long < free() && long > LEN as u64, "{args:?}: {long}");
        for none in [u64::MAX - 1..u64::MAX, 0..100] {
            let refused = fs.trim(none, 0);
            assert!(matches!(refused, Err(Error::Caller(Reason::Invalid(_)))));
        }
        assert!(fs.trim(ALL, 1 << 40).is_err());
        assert_eq!(read(&fs, "kept"), Some(vec![1; LEN]), "{args:?}");
        fs.check_counts().expect("the counts agree");
        fs.close().expect("closed");
        image.check("trimmed");
    }
}

#[test]
fn blocks_in_use_are_not_discarded_while_files_are_created_and_removed() {
    let Some(image) = Image::make("32M", &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let fs = Arc::new(image.open());
    fs.discard_freed();
    let is_over = AtomicBool::new(false);
    let work = |thread: u8| {
        let mut random = Rng::new(thread.into());
        for round in 0..60 {
            let name = format!("{thread}-{}", round % 4);
            let byte = thread * 60 + round;
            if round >= 4 {
                remove(&fs, &name);
            }
            let len = 1 + random.below(700_000) as usize;
            make(&fs, &name, len, byte);
            if round % 8 == 0 {
                fs.sync().expect("synced");
            }
            assert_eq!(read(&fs, &name), Some(vec![byte; len]), "{name}");
        }
    };
    std::thread::scope(|scope| {
        let trimmer = scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                fs.trim(ALL, 0).expect("trimmed");
            }
        });
        let workers: Vec<_> = (0..3).map(|n| scope.spawn(move || work(n))).collect();
        let done: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        is_over.store(true, Ordering::Release);
        assert!(done.iter().all(Result::is_ok));
        trimmer.join().expect("it trims");
    });
    for thread in 0..3 {
        for last in 56..60 {
            let bytes = read(&fs, &format!("{thread}-{}", last % 4)).expect("it is there");
            assert!(bytes.iter().all(|byte| *byte == thread * 60 + last));
        }
    }
    fs.shut_down().expect("closed");
    fs.check_counts().expect("the counts agree");
    drop(fs);
    image.check("trimmed under load");
}

#[test]
fn freed_blocks_are_discarded_after_the_commit_and_reused() {
    let Some(image) = Image::make("16M", &["-t", "ext4", "-b", "1024", "-J", "size=1"]) else {
        return;
    };
    let fs = Arc::new(image.open());
    fs.discard_freed();
    let left = fs.statfs().expect("numbers").free_blocks;
    // Uses most of the space repeatedly: a write that finds no room must wait for the discard.
    let len = (left * 3 / 4) as usize * 1024;
    for round in 0..6 {
        make(&fs, "large", len, round);
        remove(&fs, "large");
    }
    fs.sync().expect("synced");
    let began = Instant::now();
    while fs.balloc.blocks_awaiting() > 0 {
        assert!(began.elapsed() < LONG, "it still waits");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(fs.statfs().expect("numbers").free_blocks, left);
    if fs.balloc.discards() {
        let discarded = fs.disk.counters().bytes(Op::Discard);
        assert!(discarded >= 6 * len as u64, "{discarded}");
    }
    fs.shut_down().expect("closed");
    drop(fs);
    image.check("discarded");
}

#[test]
fn after_a_cut_no_file_has_lost_what_it_had() {
    let soak = throughline_testkit::tier::soak();
    for (at, args) in [
        &["-t", "ext4", "-b", "1024", "-J", "size=1"][..],
        &["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
    ]
    .into_iter()
    .enumerate()
    {
        let Some(image) = Image::make("8M", args) else {
            return;
        };
        let medium = Medium::read_file(image.path()).expect("the image");
        let (device, fs): (Arc<PowerDevice>, _) = power_on(&medium);
        let fs = Arc::new(fs.expect("it opens"));
        fs.discard_freed();
        for round in 0..12u8 {
            make(&fs, &format!("f{}", round % 5), 60_000, round + 1);
            fs.sync().expect("synced");
            remove(&fs, &format!("f{}", round % 5));
            if round % 3 == 0 {
                fs.trim(ALL, 0).expect("trimmed");
            }
            if round % 2 == 0 {
                fs.sync().expect("synced");
            }
        }
        fs.shut_down().expect("closed");
        drop(fs);
        let record = device.record();
        let barriers = record.barriers();
        let mut states = record.states();
        let mut random = Rng::new(0x7121 + at as u64);
        let cuts = if soak { 2000 } else { 60 };
        for _ in 0..cuts {
            let barrier = barriers[random.below(barriers.len() as u64) as usize];
            let cut = throughline_testing::Cut {
                at: barrier,
                keep: throughline_testing::Keep::Some(random.below(u64::MAX)),
            };
            let crashed = states.state(cut);
            image.hold(&crashed);
            if args.contains(&"^has_journal") {
                image.repair();
            }
            let fs = image.open();
            for name in ["f0", "f1", "f2", "f3", "f4"] {
                // A file that was created and not synced may be shorter, but must have only its own data.
                let bytes = read(&fs, name).unwrap_or_default();
                let own = bytes.first().copied().unwrap_or(1);
                assert!(own != 0, "{args:?}, {cut:?}: {name} lost its bytes");
                assert!(
                    bytes.iter().all(|byte| *byte == own),
                    "{args:?}, {cut:?}: {name} is in pieces"
                );
            }
            fs.close().expect("closed");
            image.check(&format!("{args:?}, {cut:?}"));
        }
    }
}
