//! Handles of all kinds on one file: in a volume, and on the host with no volume in sight.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Deref;
use std::path::{Path, PathBuf};

use throughline::{
    Advice, Cursor, DirtyLimits, Error, File, FileOptions, Handle, Memory, OpenOptions, RawFile,
    Reason, Result, SyncRange,
};
use throughline_testkit::e2fs::{assert_clean, mke2fs};

/// Another handle on the file of a test, by the options given.
type Reopen<'a> = &'a dyn Fn(&FileOptions) -> Result<Either>;

/// A handle of either kind of file.
enum Either {
    File(File),
    Raw(RawFile),
}

impl Deref for Either {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        match self {
            Either::File(file) => file,
            Either::Raw(file) => file,
        }
    }
}

/// An image of 32 MiB; `None` where nobody can make one.
fn image(folder: &Path) -> Option<PathBuf> {
    let path = folder.join("image");
    mke2fs(&path, "32M", &["-t", "ext4"]).then_some(path)
}

/// Runs a test on a file of the host and on one of a volume.
fn for_each_kind(test: impl Fn(Reopen<'_>)) {
    let folder = tempfile::tempdir().unwrap();
    let raw = OpenOptions::new()
        .write(true)
        .create(true)
        .cache_bytes(Some(1 << 20))
        .open_raw(folder.path().join("raw"))
        .unwrap();
    test(&|options| Ok(Either::Raw(raw.reopen(options)?)));
    raw.close().unwrap();
    let Some(path) = image(folder.path()) else {
        return;
    };
    let volume = OpenOptions::new()
        .write(true)
        .cache_bytes(Some(1 << 20))
        .open(&path)
        .unwrap();
    {
        let file = FileOptions::new()
            .create_new(true)
            .open(&volume, "/file")
            .unwrap();
        test(&|options| Ok(Either::File(file.reopen(options)?)));
    }
    volume.close().unwrap();
    assert_clean(&path);
}

#[test]
fn buffered_and_direct_handles_see_the_same() {
    for_each_kind(|open| {
        let buffered = open(&FileOptions::new()).unwrap();
        let direct = open(FileOptions::new().direct(true)).unwrap();
        assert!(direct.is_direct() && !buffered.is_direct() && direct.is_same_file(&buffered));
        buffered.write_all_at(b"through the cache", 100).unwrap();
        let mut back = [0; 17];
        direct.read_exact_at(&mut back, 100).unwrap();
        assert_eq!(&back, b"through the cache");
        direct.write_all_at(b"past it", 108).unwrap();
        buffered.read_exact_at(&mut back, 100).unwrap();
        assert_eq!(&back, b"through past ithe");
        assert_eq!(
            (buffered.size().unwrap(), direct.size().unwrap()),
            (117, 117)
        );
        direct.set_len(110).unwrap();
        assert_eq!(buffered.read_at(&mut back, 100).unwrap(), 10);
        assert!(matches!(
            buffered.read_exact_at(&mut back, 100),
            Err(Error::Caller(Reason::PastEnd))
        ));
    });
}

#[test]
fn cursors_speak_std_io() {
    for_each_kind(|open| {
        let file = open(&FileOptions::new()).unwrap();
        let mut cursor = file.cursor();
        write!(cursor, "one two three").unwrap();
        assert_eq!(cursor.position(), 13);
        cursor.seek(SeekFrom::End(-5)).unwrap();
        let mut text = String::new();
        cursor.read_to_string(&mut text).unwrap();
        assert_eq!(text, "three");
        cursor.seek(SeekFrom::Start(4)).unwrap();
        cursor.seek_relative(-4).unwrap();
        let before = cursor.seek(SeekFrom::Current(-1)).unwrap_err();
        assert_eq!(before.kind(), io::ErrorKind::InvalidInput);
        let mut appending = Cursor::new(open(FileOptions::new().append(true)).unwrap());
        appending.write_all(b"!").unwrap();
        assert_eq!((appending.position(), file.size().unwrap()), (14, 14));
    });
}

#[test]
fn two_handles_append_and_lose_nothing() {
    for_each_kind(|open| {
        let one = open(FileOptions::new().append(true)).unwrap();
        let other = open(FileOptions::new().append(true).direct(true)).unwrap();
        for _ in 0..20 {
            one.write_all_at(b"aaa", 0).unwrap();
            other.write_all_at(b"bb", 5).unwrap();
        }
        let mut all = vec![0; 200];
        assert_eq!(one.read_at(&mut all, 0).unwrap(), 100);
        assert_eq!(&all[..100], "aaabb".repeat(20).as_bytes());
        assert_eq!(one.append(b"c").unwrap(), (100, 1));
    });
}

/// The last block is partly used when the file is opened: the threads that extend it first prepare the rest
/// of that block.
#[test]
fn threads_that_extend_a_file_that_was_just_opened_keep_what_they_sync() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 60;
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = image(folder.path()) else {
        return;
    };
    let options = OpenOptions::new().write(true).clone();
    let mut expected = 52;
    let volume = options.open(&path).unwrap();
    volume.write("/log", vec![b'x'; expected]).unwrap();
    volume.close().unwrap();
    for round in 0..ROUNDS {
        let volume = options.open(&path).unwrap();
        let log = volume.open_file("/log").unwrap();
        let barrier = std::sync::Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (log, barrier) = (&log, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for _ in 0..2 {
                        log.append_all(&vec![b'x'; 30 + thread]).unwrap();
                        log.sync_data().unwrap();
                    }
                });
            }
        });
        expected += (0..THREADS).map(|thread| 2 * (30 + thread)).sum::<usize>();
        drop(log);
        volume.close().unwrap();
        let volume = OpenOptions::new().open(&path).unwrap();
        let log = volume.read("/log").unwrap();
        assert_eq!(log.len(), expected, "round {round}");
        let lost = log.iter().position(|byte| *byte != b'x');
        assert_eq!(lost, None, "round {round}: the first byte that was lost");
        volume.close().unwrap();
    }
}

#[test]
fn every_kind_of_sync_and_advice() {
    for_each_kind(|open| {
        let data = vec![7; 300_000];
        for options in [
            FileOptions::new().sync(true),
            FileOptions::new().data_sync(true),
        ] {
            let file = open(options).unwrap();
            file.write_all_at(&data, 1).unwrap();
        }
        let file = open(&FileOptions::new()).unwrap();
        file.write_all_at(&data, 0).unwrap();
        file.sync_range(0, 0, SyncRange::Start).unwrap();
        file.sync_range(1000, 5000, SyncRange::Wait).unwrap();
        file.sync_data().unwrap();
        file.sync_all().unwrap();
        for advice in [
            Advice::Sequential,
            Advice::DontNeed,
            Advice::WillNeed,
            Advice::Random,
            Advice::NoReuse,
            Advice::Normal,
        ] {
            file.advise(advice, 0, 0).unwrap();
            let mut back = vec![0; 300_000];
            file.read_exact_at(&mut back, 1).unwrap();
            assert!(back == data, "{advice:?}");
        }
    });
}

#[test]
fn copies_within_and_between() {
    let folder = tempfile::tempdir().unwrap();
    let other = OpenOptions::new()
        .write(true)
        .create(true)
        .open_raw(folder.path().join("other"))
        .unwrap();
    let data: Vec<u8> = (0..5_000_001_u32).map(|i| (i % 251) as u8).collect();
    other.write_all_at(&data, 0).unwrap();
    for_each_kind(|open| {
        for options in [FileOptions::new().direct(true), &mut FileOptions::new()] {
            let file = open(options).unwrap();
            assert_eq!(
                other.copy_range(1, &file, 10, u64::MAX - 20).unwrap(),
                5_000_000
            );
            let mut back = vec![0; 5_000_000];
            file.read_exact_at(&mut back, 10).unwrap();
            assert!(back == data[1..]);
            assert_eq!(file.copy_range(10, &file, 6_000_000, 100).unwrap(), 100);
            file.read_exact_at(&mut back[..100], 6_000_000).unwrap();
            assert_eq!(back[..100], data[1..101]);
            assert!(matches!(
                file.copy_range(0, &file, 99, 100),
                Err(Error::Caller(Reason::Invalid(_)))
            ));
            file.set_len(0).unwrap();
        }
    });
}

#[test]
fn the_cache_can_be_set_and_seen() {
    let file = OpenOptions::new()
        .write(true)
        .cache_bytes(Some(4 << 20))
        .dirty_limits(DirtyLimits::new(Some(1 << 20), Some(512 << 10)))
        .readahead_max(Some(256 << 10))
        .open_raw_device(Memory::zeroed(8 << 20))
        .unwrap();
    assert!(
        file.cache_state().is_none(),
        "none before the first buffered access"
    );
    file.write_all_at(&vec![1; 3 << 20], 0).unwrap();
    let state = file.cache_state().unwrap();
    assert_eq!(
        (
            state.budget_bytes,
            state.throttle.limit_bytes,
            state.throttle.background_bytes
        ),
        (4 << 20, 1 << 20, 512 << 10)
    );
    assert_eq!(state.readahead_max_bytes, 256 << 10);
    assert!(state.throttle.dirty_bytes <= 1 << 20);
    file.sync_all().unwrap();
    let state = file.cache_state().unwrap();
    assert_eq!(
        (state.throttle.dirty_bytes, state.writeback.bytes),
        (0, 3 << 20)
    );
}
