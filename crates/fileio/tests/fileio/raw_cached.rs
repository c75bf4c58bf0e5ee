//! `RawFile` with the page cache: plain files of any length, and devices, with mixed buffered and direct
//! access.

use crate::common;

use std::io::{self, IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::Rng;
use throughline_block::Disk;
use throughline_device::{
    BlockDevice, DeviceInfo, DeviceKind, Limits, MemoryDevice, OpenOptions, Queue,
};
use throughline_fileio::{CacheOptions, Error, RawFile, ReadStream, Reason};

fn plain(path: &Path) -> RawFile {
    let device = OpenOptions::new()
        .write(true)
        .create(true)
        .open(path)
        .unwrap();
    RawFile::with_cache(Arc::new(Disk::new(device).unwrap()), small())
}

/// A cache that is too small for the data of the tests.
fn small() -> CacheOptions {
    let mut options = CacheOptions::default();
    options.budget_bytes = Some(1 << 20);
    options
}

fn write(file: &RawFile, offset: u64, data: &[u8]) {
    let (at, written) = file
        .write_buffered(Some(offset), &[IoSlice::new(data)])
        .unwrap();
    assert_eq!((at, written), (offset, data.len()));
}

fn read(file: &RawFile, offset: u64, len: usize) -> Vec<u8> {
    let mut back = vec![0xEE; len];
    let stream = ReadStream::default();
    let read = file
        .read_buffered(offset, &mut [IoSliceMut::new(&mut back)], &stream)
        .unwrap();
    back.truncate(read);
    back
}

#[test]
fn lengths_are_to_the_byte_once_synced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let file = plain(&path);
    write(&file, 0, b"hello");
    assert_eq!((file.len(), read(&file, 1, 100)), (5, b"ello".to_vec()));
    file.sync_all().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"hello");
    // Past the end, over blocks that were never written.
    write(&file, 20_000, b"!");
    assert_eq!(read(&file, 4, 3), b"o\0\0");
    file.sync_data().unwrap();
    let on_disk = std::fs::read(&path).unwrap();
    assert_eq!(
        (on_disk.len(), &on_disk[..5], on_disk[20_000]),
        (20_001, &b"hello"[..], b'!')
    );
    assert!(on_disk[5..20_000].iter().all(|byte| *byte == 0));
    // The end moves while its block is dirty.
    write(&file, 20_001, b"more");
    file.set_len(20_003).unwrap();
    assert_eq!(read(&file, 20_000, 10), b"!mo");
    file.set_len(20_010).unwrap();
    assert_eq!(read(&file, 20_000, 20), b"!mo\0\0\0\0\0\0\0");
    file.close().unwrap();
    let on_disk = std::fs::read(&path).unwrap();
    assert_eq!(on_disk.len(), 20_010);
    assert_eq!(&on_disk[20_000..], b"!mo\0\0\0\0\0\0\0");
}

#[test]
fn dropping_a_file_writes_it_back_and_leaves_nothing_reserved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let data: Vec<u8> = (0..300_001_u32).map(|i| i as u8).collect();
    let file = plain(&path);
    write(&file, 0, &data);
    drop(file);
    assert_eq!(std::fs::read(&path).unwrap(), data);
    let allocated = std::os::unix::fs::MetadataExt::blocks(&path.metadata().unwrap()) * 512;
    assert!(allocated < 400_000, "{allocated} bytes stayed reserved");
}

#[test]
fn buffered_and_direct_see_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let file = plain(&path);
    write(&file, 0, &[1; 10_000]);
    let mut back = [0; 10_001];
    assert_eq!(file.read_at(0, &mut back).unwrap(), 10_000);
    assert!(back[..10_000].iter().all(|byte| *byte == 1));
    // A direct write to part of the cached data, and one past a dirty end.
    assert_eq!(file.write_at(5_000, &[2; 100]).unwrap(), 100);
    assert_eq!(
        read(&file, 4_999, 102),
        [&[1][..], &[2; 100], &[1]].concat()
    );
    write(&file, 10_000, &[3; 50]);
    assert_eq!(file.write_at(10_050, &[4; 50]).unwrap(), 50);
    assert_eq!(
        read(&file, 9_999, 200),
        [&[1][..], &[3; 50], &[4; 50]].concat()
    );
    assert_eq!(file.append(&[IoSlice::new(b"end")]).unwrap(), (10_100, 3));
    let buffered = file.write_buffered(None, &[IoSlice::new(b"END")]);
    assert_eq!(buffered.unwrap(), (10_103, 3));
    assert_eq!(read(&file, 10_100, 10), b"endEND");
}

#[test]
fn behaves_as_a_vector_both_ways() {
    for seed in 0..6_u64 {
        eprintln!("seed {seed}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut file = plain(&path);
        let rng = &mut Rng(seed);
        let mut model: Vec<u8> = Vec::new();
        for step in 0..120 {
            let offset = rng.below(1_500_000) as usize;
            let longest = [50, 5_000, 400_000][rng.below(3) as usize];
            let len = 1 + rng.below(longest) as usize;
            match rng.below(12) {
                0..=5 => {
                    let data: Vec<u8> = (0..len)
                        .map(|i| (i as u64 * 3 + step * 17 + seed) as u8)
                        .collect();
                    model.resize(model.len().max(offset + len), 0);
                    model[offset..offset + len].copy_from_slice(&data);
                    match rng.below(3) {
                        0 => assert_eq!(file.write_at(offset as u64, &data).unwrap(), len),
                        _ => write(&file, offset as u64, &data),
                    }
                }
                6 => {
                    model.resize(offset, 0);
                    file.set_len(offset as u64).unwrap();
                }
                7 => {
                    let end = (offset + len).min(model.len());
                    model[offset.min(end)..end].fill(0);
                    match rng.below(2) {
                        0 => file.zero_range(offset as u64, len as u64).unwrap(),
                        _ => match file.punch_hole(offset as u64, len as u64) {
                            Ok(()) => {}
                            Err(Error::Unsupported(_)) => {
                                file.zero_range(offset as u64, len as u64).unwrap()
                            }
                            Err(error) => panic!("{error}"),
                        },
                    }
                }
                8 => match rng.below(4) {
                    0 => file.sync_all().unwrap(),
                    1 => file.start_flush(0..u64::MAX),
                    2 => file
                        .flush_range(offset as u64..(offset + len) as u64)
                        .unwrap(),
                    _ => {
                        file.close().unwrap();
                        assert_eq!(
                            std::fs::read(&path).unwrap(),
                            model,
                            "seed {seed} step {step}"
                        );
                        file = plain(&path);
                    }
                },
                _ => {}
            }
            assert_eq!(file.len(), model.len() as u64);
            let from = rng.below(model.len() as u64 + 1) as usize;
            let to = model.len().min(from + len);
            let mut back = vec![0xEE; len];
            let found = match rng.below(3) {
                0 => {
                    let read = file.read_at(from as u64, &mut back).unwrap();
                    back[..read].to_vec()
                }
                _ => read(&file, from as u64, len),
            };
            assert!(
                found == model[from..to],
                "seed {seed} step {step}: {from}..{to}"
            );
        }
        file.sync_all().unwrap();
        assert!(std::fs::read(&path).unwrap() == model, "seed {seed}");
    }
}

#[test]
fn appends_of_many_threads_never_overlap() {
    let folder = tempfile::tempdir().unwrap();
    let file = plain(&folder.path().join("file"));
    let (threads, rounds, piece) = (4_u8, 60, 777);
    std::thread::scope(|scope| {
        for thread in 1..=threads {
            let file = &file;
            scope.spawn(move || {
                for round in 0..rounds {
                    let data = vec![thread; piece];
                    let bufs = [IoSlice::new(&data)];
                    let appended = match round % 5 {
                        0 => file.append(&bufs),
                        _ => file.write_buffered(None, &bufs),
                    };
                    assert_eq!(appended.unwrap().1, piece);
                    if round % 20 == 7 {
                        file.sync_data().unwrap();
                    }
                }
            });
        }
    });
    let all = read(&file, 0, 1 << 20);
    assert_eq!(all.len(), usize::from(threads) * rounds * piece);
    let mut counts = [0; 5];
    for whole in all.chunks(piece) {
        assert!(whole.iter().all(|byte| *byte == whole[0]), "a torn append");
        counts[usize::from(whole[0])] += 1;
    }
    assert_eq!(counts, [0, rounds, rounds, rounds, rounds]);
}

#[test]
fn a_device_of_odd_length_in_small_blocks() {
    // A multiple of 512 bytes but of no larger block.
    let len = (1 << 20) + 512;
    let limits = Limits {
        logical_block_bytes: 512,
        physical_block_bytes: 512,
        memory_align_bytes: 512,
        ..Limits::default()
    };
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::with_limits(len, limits));
    let disk = Arc::new(Disk::new(Arc::clone(&device)).unwrap());
    let file = RawFile::with_cache(disk, small());
    write(&file, len - 700, &[7; 700]);
    let past = file.write_buffered(Some(len - 3), &[IoSlice::new(b"abcdef")]);
    assert_eq!(past.unwrap(), (len - 3, 3), "the part that fits");
    for at in [Some(len), Some(len + 5000), None] {
        assert!(matches!(
            file.write_buffered(at, &[IoSlice::new(b"x")]),
            Err(Error::Caller(Reason::NoSpace))
        ));
    }
    file.close().unwrap();
    let file = RawFile::new(Arc::new(Disk::new(device).unwrap()));
    let mut back = [0; 701];
    assert_eq!(file.read_at(len - 701, &mut back).unwrap(), 701);
    assert_eq!(
        (back[0], &back[1..698], &back[698..]),
        (0, &[7; 697][..], &b"abc"[..])
    );
}

/// A plain file on a disk with limited space.
struct Host {
    memory: MemoryDevice,
    info: DeviceInfo,
    len: AtomicU64,
    room: AtomicU64,
}

impl Host {
    fn with_room(bytes: u64) -> Arc<Host> {
        let memory = MemoryDevice::new(64 << 20);
        let info = DeviceInfo {
            kind: DeviceKind::RegularFile,
            ..memory.info().clone()
        };
        Arc::new(Host {
            memory,
            info,
            len: AtomicU64::new(0),
            room: AtomicU64::new(bytes),
        })
    }
}

impl BlockDevice for Host {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn len_bytes(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    fn open_queue(&self) -> io::Result<Box<dyn Queue>> {
        self.memory.open_queue()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.len.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        match offset + len <= self.room.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(io::ErrorKind::StorageFull.into()),
        }
    }

    fn is_resizable(&self) -> bool {
        true
    }
}

#[test]
fn a_full_disk_fails_the_write_and_not_the_sync() {
    let host = Host::with_room(1_000_000);
    let disk = Arc::new(Disk::new(Arc::clone(&host) as _).unwrap());
    let file = RawFile::with_cache(disk, small());
    let data = [5; 10_000];
    let mut accepted = 0;
    let error = loop {
        match file.write_buffered(None, &[IoSlice::new(&data)]) {
            Ok((at, written)) => {
                assert_eq!(at, accepted);
                accepted += written as u64;
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Caller(Reason::NoSpace)), "{error}");
    assert!((990_000..1_000_000).contains(&accepted), "{accepted}");
    file.sync_all().unwrap();
    assert_eq!((file.len(), host.len_bytes()), (accepted, accepted));
    // Space is freed.
    host.room.store(2_000_000, Ordering::Relaxed);
    write(&file, accepted, &data);
    file.close().unwrap();
    assert_eq!(host.len_bytes(), accepted + 10_000);
}

/// Under a limit on processes, no thread can be started that writes back.
#[test]
fn what_no_thread_can_write_back_is_not_said_to_be_written() {
    const FILE: &str = "THROUGHLINE_TEST_FILE";
    let Some(path) = std::env::var_os(FILE).map(PathBuf::from) else {
        return throughline_testkit::limited::run_again(
            "raw_cached::what_no_thread_can_write_back_is_not_said_to_be_written",
            FILE,
        );
    };
    let file = plain(&path);
    write(&file, 0, b"hello");
    let is_written = || std::fs::read(&path).unwrap() == b"hello";
    let flushed = file.cache().unwrap().flush_all();
    assert!(flushed.is_err() || is_written(), "{flushed:?}");
    write(&file, 0, b"hallo");
    write(&file, 0, b"hello");
    let synced = file.sync_all();
    assert!(synced.is_err() || is_written(), "{synced:?}");
    write(&file, 5, b"!");
    let closed = file.close();
    assert!(
        closed.is_err() || std::fs::read(&path).unwrap() == b"hello!",
        "{closed:?}"
    );
}
