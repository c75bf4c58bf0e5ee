//! `RawFile` over plain files with both engines, and over devices of fixed length.

use crate::common;

use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Arc;

use common::Rng;
use throughline_block::Disk;
use throughline_device::{BlockDevice, EngineChoice, Limits, MemoryDevice, OpenOptions};
use throughline_fileio::{Error, RawFile, Reason};

/// Opens `path` with each engine that this machine supports.
fn engines(path: &Path) -> Vec<RawFile> {
    let mut files = Vec::new();
    for engine in [EngineChoice::Uring, EngineChoice::Threads] {
        match OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .engine(engine)
            .open(path)
        {
            Ok(device) => files.push(RawFile::new(Arc::new(Disk::new(device).unwrap()))),
            Err(error) if engine == EngineChoice::Uring => {
                throughline_testkit::left_out!("io_uring cannot be had here: {error}");
            }
            Err(error) => panic!("{error}"),
        }
    }
    files
}

fn for_each_engine(test: impl Fn(&RawFile, &Path)) {
    let folder = tempfile::tempdir().unwrap();
    let count = engines(&folder.path().join("count")).len();
    for i in 0..count {
        let path = folder.path().join(format!("file-{i}"));
        let file = engines(&path).swap_remove(i);
        eprintln!("engine {}", file.disk().info().engine);
        test(&file, &path);
    }
}

#[test]
fn grows_to_the_byte() {
    for_each_engine(|file, path| {
        let on_disk = || std::fs::read(path).unwrap();
        assert!(file.is_empty());
        assert_eq!(file.write_at(0, b"hello").unwrap(), 5);
        assert_eq!(on_disk(), b"hello");
        assert_eq!(file.write_at(5, b" world").unwrap(), 6);
        assert_eq!((on_disk(), file.len()), (b"hello world".to_vec(), 11));
        // Inside the incomplete last block: the length must not change.
        assert_eq!(file.write_at(0, b"J").unwrap(), 1);
        assert_eq!(on_disk(), b"Jello world");
        // Past the end: zeros between.
        assert_eq!(file.write_at(5000, b"!").unwrap(), 1);
        assert_eq!(file.len(), 5001);
        assert!(on_disk()[11..5000].iter().all(|byte| *byte == 0));
        file.set_len(3).unwrap();
        assert_eq!(on_disk(), b"Jel");
        file.set_len(4096).unwrap();
        let mut all = [1; 5000];
        assert_eq!(file.read_at(0, &mut all).unwrap(), 4096);
        assert_eq!(&all[..5], b"Jel\0\0");
        assert_eq!(file.read_at(4096, &mut all).unwrap(), 0);
        file.sync_all().unwrap();
        file.sync_data().unwrap();
    });
}

#[test]
fn behaves_as_a_vector() {
    for_each_engine(|file, path| {
        for seed in 0..4_u64 {
            eprintln!("seed {seed}");
            let rng = &mut Rng(seed);
            file.set_len(0).unwrap();
            let mut model: Vec<u8> = Vec::new();
            for step in 0..40 {
                let align = [1, 512, 4096][rng.below(3) as usize];
                let offset = (rng.below(700_000) / align * align) as usize;
                let longest = [50, 5000, 400_000][rng.below(3) as usize];
                let len = (1 + rng.below(longest)).next_multiple_of(align) as usize;
                let data: Vec<u8> = (0..len)
                    .map(|i| (i as u64 * 3 + step * 17 + seed) as u8)
                    .collect();
                let (a, b) = data.split_at(rng.below(len as u64) as usize);
                let wrote =
                    file.write_vectored_at(offset as u64, &[IoSlice::new(a), IoSlice::new(b)]);
                assert_eq!(wrote.unwrap(), len);
                model.resize(model.len().max(offset + len), 0);
                model[offset..offset + len].copy_from_slice(&data);
                assert_eq!(file.len(), model.len() as u64);

                let from = rng.below(model.len() as u64) as usize;
                let mut back = vec![0; 1 + rng.below(100_000) as usize];
                let cut = rng.below(back.len() as u64) as usize;
                let (c, d) = back.split_at_mut(cut);
                let got = file
                    .read_vectored_at(from as u64, &mut [IoSliceMut::new(c), IoSliceMut::new(d)])
                    .unwrap();
                assert_eq!(got, back.len().min(model.len() - from));
                assert!(back[..got] == model[from..from + got]);
            }
            assert!(
                std::fs::read(path).unwrap() == model,
                "the file differs from what was written"
            );
        }
    });
}

#[test]
fn reserves_space() {
    for_each_engine(|file, path| {
        file.write_at(0, b"abc").unwrap();
        match file.allocate(2, 100_000, false) {
            Ok(()) => {}
            Err(error) => {
                throughline_testkit::left_out!("the file system cannot reserve space: {error}");
                return;
            }
        }
        assert_eq!(
            (file.len(), std::fs::metadata(path).unwrap().len()),
            (100_002, 100_002)
        );
        let mut all = vec![1; 100_002];
        assert_eq!(file.read_at(0, &mut all).unwrap(), all.len());
        assert!(all.starts_with(b"abc") && all[3..].iter().all(|byte| *byte == 0));
        file.allocate(0, 10, false).unwrap();
        assert_eq!(file.len(), 100_002);
    });
}

/// Threads own every n-th piece of 100 bytes, so they share blocks, and the file grows meanwhile.
#[test]
fn threads_keep_each_others_bytes() {
    const THREADS: u64 = 4;
    for_each_engine(|file, path| {
        for piece in [100_u64, 512, 1536] {
            file.set_len(0).unwrap();
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    scope.spawn(move || {
                        for at in (thread..80).step_by(THREADS as usize) {
                            let data = vec![at as u8 + 1; piece as usize];
                            assert_eq!(file.write_at(at * piece, &data).unwrap(), data.len());
                        }
                    });
                }
            });
            let all = std::fs::read(path).unwrap();
            assert_eq!(all.len() as u64, 80 * piece);
            for (at, found) in all.chunks(piece as usize).enumerate() {
                assert!(
                    found.iter().all(|byte| usize::from(*byte) == at + 1),
                    "piece {at} of {piece}"
                );
            }
        }
    });
}

#[test]
fn a_device_does_not_grow() {
    let limits = Limits {
        memory_align_bytes: 512,
        ..Limits::default()
    };
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::with_limits(1 << 20, limits));
    let file = RawFile::new(Arc::new(Disk::new(device).unwrap()));
    let data = vec![7; 3000];
    assert_eq!(
        file.write_at((1 << 20) - 1000, &data).unwrap(),
        1000,
        "the part that fits"
    );
    for at in [1 << 20, 5 << 20] {
        assert!(matches!(
            file.write_at(at, &data),
            Err(Error::Caller(Reason::NoSpace))
        ));
    }
    assert!(matches!(
        file.write_at(u64::MAX - 5, &data),
        Err(Error::Caller(Reason::TooLarge))
    ));
    let mut back = vec![0; 3000];
    assert_eq!(file.read_at((1 << 20) - 1000, &mut back).unwrap(), 1000);
    assert!(back[..1000].iter().all(|byte| *byte == 7));
    assert!(matches!(file.set_len(5), Err(Error::Unsupported(_))));
    file.set_len(1 << 20).unwrap();
    file.allocate(5, 100, false).unwrap();
    assert!(matches!(
        file.allocate(1 << 20, 1, false),
        Err(Error::Caller(Reason::NoSpace))
    ));
}

#[test]
fn a_file_opened_for_reading_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, b"as it was").unwrap();
    let file = RawFile::new(Arc::new(
        Disk::new(OpenOptions::new().open(&path).unwrap()).unwrap(),
    ));
    assert!(matches!(
        file.write_at(0, b"x"),
        Err(Error::Caller(Reason::ReadOnly))
    ));
    assert!(matches!(
        file.set_len(0),
        Err(Error::Caller(Reason::ReadOnly))
    ));
    let mut back = [0; 20];
    assert_eq!(file.read_at(3, &mut back).unwrap(), 6);
    assert_eq!(&back[..6], b"it was");
}
