//! One suite for every device and engine.
#![cfg(not(miri))]

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use throughline_device::{
    AlignedBuf, BlockDevice, DeviceKind, Done, EngineChoice, LockMode, MemoryDevice, OffsetDevice,
    Op, OpenOptions, Queue, Segment, scope,
};

const LEN: u64 = 4 << 20;

/// A device under test, with what it needs to live.
struct Bench {
    name: String,
    device: Arc<dyn BlockDevice>,
    _folder: Option<tempfile::TempDir>,
}

fn image(engine: EngineChoice, folder: &Path, direct: bool) -> io::Result<Arc<dyn BlockDevice>> {
    let options = OpenOptions::new()
        .engine(engine)
        .write(true)
        .create(true)
        .len_bytes(LEN);
    options
        .direct(direct)
        .lock(LockMode::Exclusive)
        .open(folder.join("image"))
}

fn engines() -> Vec<EngineChoice> {
    let folder = tempfile::tempdir().unwrap();
    match image(EngineChoice::Uring, folder.path(), true) {
        Ok(_) => vec![EngineChoice::Uring, EngineChoice::Threads],
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            eprintln!("skipped for io_uring: {error}");
            vec![EngineChoice::Threads]
        }
    }
}

fn benches() -> Vec<Bench> {
    let mut all = Vec::new();
    let mut add = |name: String, device: Arc<dyn BlockDevice>, folder| {
        all.push(Bench {
            name: format!("{name}, window"),
            device: window(&device),
            _folder: None,
        });
        all.push(Bench {
            name,
            device,
            _folder: folder,
        });
    };
    add("memory".into(), Arc::new(MemoryDevice::new(LEN)), None);
    for engine in engines() {
        for direct in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let device = image(engine, folder.path(), direct).unwrap();
            add(format!("{engine:?}, direct {direct}"), device, Some(folder));
        }
        // A file system without O_DIRECT.
        if let Ok(folder) = tempfile::tempdir_in("/dev/shm") {
            let device = image(engine, folder.path(), true).unwrap();
            assert!(!device.info().direct, "tmpfs is memory");
            add(format!("{engine:?}, tmpfs"), device, Some(folder));
        } else {
            eprintln!("skipped for tmpfs: no /dev/shm");
        }
    }
    all
}

/// The second half of a device.
fn window(of: &Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
    Arc::new(OffsetDevice::new(Arc::clone(of), LEN / 2, None).unwrap())
}

fn block(device: &dyn BlockDevice) -> usize {
    device.info().limits.logical_block_bytes as usize
}

fn buffer(device: &dyn BlockDevice, len: usize) -> AlignedBuf {
    AlignedBuf::zeroed(
        len,
        device.info().limits.memory_align_bytes.max(4096) as usize,
    )
}

fn pattern(seed: u64, at: u64, bytes: &mut [u8]) {
    for (i, byte) in bytes.iter_mut().enumerate() {
        let x = (at + i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ seed.wrapping_mul(0xd6e8_feb8_6659_fd93);
        *byte = (x >> 32) as u8;
    }
}

/// Submits one request and waits for it.
fn one<'env>(
    queue: &mut dyn Queue,
    op: Op,
    at: u64,
    segments: Vec<Segment<'env>>,
    fua: bool,
) -> io::Result<()> {
    let mut done = Vec::new();
    scope(queue, |s| {
        s.submit(7, op, at, segments, fua);
        s.reap(1, &mut done);
        assert_eq!(s.in_flight(), 0);
    });
    only(done)
}

fn range(queue: &mut dyn Queue, op: Op, at: u64, len: u64) -> io::Result<()> {
    let mut done = Vec::new();
    scope(queue, |s| {
        s.submit_range(7, op, at, len);
        s.reap(1, &mut done);
    });
    only(done)
}

fn only(mut done: Vec<Done>) -> io::Result<()> {
    let only = done.pop().expect("one completion");
    assert!(done.is_empty(), "exactly once");
    assert_eq!(only.tag, 7);
    only.result
}

fn read(queue: &mut dyn Queue, at: u64, memory: &mut [u8]) -> io::Result<()> {
    one(queue, Op::Read, at, vec![Segment::Read(memory)], false)
}

fn write(queue: &mut dyn Queue, at: u64, memory: &[u8]) -> io::Result<()> {
    one(queue, Op::Write, at, vec![Segment::Write(memory)], false)
}

#[test]
fn what_is_written_is_read_back() {
    for Bench { name, device, .. } in benches() {
        let mut queue = device.open_queue().unwrap();
        let (mut out, mut back) = (buffer(&*device, 1 << 20), buffer(&*device, 1 << 20));
        for (seed, fua) in [(1, false), (2, true)] {
            pattern(seed, 0, &mut out);
            one(
                &mut *queue,
                Op::Write,
                8192,
                vec![Segment::Write(&out)],
                fua,
            )
            .unwrap();
            range(&mut *queue, Op::Flush, 0, 0).unwrap();
            back.fill(0);
            read(&mut *queue, 8192, &mut back).unwrap();
            assert!(out[..] == back[..], "{name}");
        }
    }
}

#[test]
fn many_segments_are_one_range() {
    for Bench { name, device, .. } in benches() {
        let mut queue = device.open_queue().unwrap();
        let unit = block(&*device).max(device.info().limits.memory_align_bytes as usize);
        for pieces in [2, 3, 5, 100] {
            let mut out = buffer(&*device, pieces * unit);
            pattern(pieces as u64, 0, &mut out);
            // Backwards in memory, forwards on the device.
            let segments = out.chunks(unit).rev().map(Segment::Write).collect();
            one(&mut *queue, Op::Write, 0, segments, false).unwrap();
            let mut back = buffer(&*device, pieces * unit);
            let segments = back.chunks_mut(unit).rev().map(Segment::Read).collect();
            one(&mut *queue, Op::Read, 0, segments, false).unwrap();
            assert!(out[..] == back[..], "{name}, {pieces} pieces");
            read(&mut *queue, 0, &mut back).unwrap();
            assert_eq!(&back[..unit], &out[(pieces - 1) * unit..], "{name}");
        }
    }
}

#[test]
fn a_deep_queue_completes_each_once() {
    for Bench { name, device, .. } in benches() {
        let mut queue = device.open_queue().unwrap();
        let unit = 4096;
        let count = 3 * queue.depth().min(150) + 1; // more than fit at once
        let count = count.min(device.len_bytes() as usize / unit);
        let mut out = buffer(&*device, count * unit);
        pattern(3, 0, &mut out);
        for kick in [false, true] {
            let mut done = Vec::new();
            scope(&mut *queue, |s| {
                for (i, piece) in out.chunks(unit).enumerate() {
                    s.submit(
                        i as u64,
                        Op::Write,
                        (i * unit) as u64,
                        [Segment::Write(piece)],
                        false,
                    );
                    if kick {
                        s.kick();
                        s.reap(0, &mut done);
                    }
                }
                while s.in_flight() > 0 {
                    let before = done.len();
                    s.reap(5, &mut done);
                    assert!(done.len() > before);
                }
            });
            let mut tags: Vec<u64> = done.iter().map(|d| d.tag).collect();
            tags.sort_unstable();
            assert_eq!(tags, (0..count as u64).collect::<Vec<_>>(), "{name}");
            assert!(done.iter().all(|d| d.result.is_ok()), "{name}: {done:?}");
            let mut back = buffer(&*device, count * unit);
            for (i, piece) in back.chunks_mut(unit * 64).enumerate() {
                read(&mut *queue, (i * unit * 64) as u64, piece).unwrap();
            }
            assert!(out[..] == back[..], "{name}");
        }
    }
}

#[test]
fn bad_requests_are_refused_and_change_nothing() {
    for Bench { name, device, .. } in benches() {
        let mut queue = device.open_queue().unwrap();
        let unit = block(&*device);
        let end = device.len_bytes();
        let memory = buffer(&*device, 2 * unit);
        let refused = |result: io::Result<()>| {
            assert_eq!(
                result.unwrap_err().kind(),
                ErrorKind::InvalidInput,
                "{name}"
            );
        };
        refused(write(&mut *queue, 1, &memory));
        refused(write(&mut *queue, 0, &memory[..unit - 1]));
        refused(write(&mut *queue, end, &memory));
        refused(write(&mut *queue, end - unit as u64, &memory));
        refused(write(&mut *queue, u64::MAX - unit as u64 + 1, &memory));
        refused(range(
            &mut *queue,
            Op::Discard,
            end - unit as u64,
            2 * unit as u64,
        ));
        refused(range(
            &mut *queue,
            Op::WriteZeroes,
            0,
            u64::MAX / unit as u64 * unit as u64,
        ));
        assert_eq!(device.len_bytes(), end);
        if device.info().limits.memory_align_bytes > 1 {
            let mut odd = buffer(&*device, 2 * unit);
            refused(write(&mut *queue, 0, &odd[1..unit + 1]));
            refused(read(&mut *queue, 0, &mut odd[1..unit + 1]));
        }
        // The queue is as good as before.
        write(&mut *queue, end - 2 * unit as u64, &memory).unwrap();
    }
}

#[test]
fn nothing_to_do_is_done() {
    for Bench { device, .. } in benches() {
        let mut queue = device.open_queue().unwrap();
        one(&mut *queue, Op::Write, 0, vec![Segment::Write(&[])], false).unwrap();
        one(&mut *queue, Op::Read, 0, vec![], false).unwrap();
        let mut done = Vec::new();
        scope(&mut *queue, |s| s.reap(9, &mut done)); // nothing in flight: returns
        assert!(done.is_empty());
        range(&mut *queue, Op::Flush, u64::MAX, u64::MAX).unwrap(); // a flush has no range
    }
}

#[test]
fn cleared_ranges_read_as_zeros() {
    for Bench { name, device, .. } in benches() {
        let mut queue = device.open_queue().unwrap();
        let mut out = buffer(&*device, 1 << 20);
        pattern(4, 0, &mut out);
        for op in [Op::WriteZeroes, Op::Discard] {
            write(&mut *queue, 0, &out).unwrap();
            match range(&mut *queue, op, 65536, 300 * 1024) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
                    eprintln!("skipped for {name}: {error}");
                    continue;
                }
                Ok(()) => {
                    let mut back = buffer(&*device, 1 << 20);
                    read(&mut *queue, 0, &mut back).unwrap();
                    let mut expected = out.to_vec();
                    // All of these devices give zeros for a discarded range, though they need not.
                    expected[65536..65536 + 300 * 1024].fill(0);
                    assert!(expected == back[..], "{name}, {op:?}");
                }
            }
        }
    }
}

#[test]
fn a_scope_that_panics_gets_its_memory_back() {
    for Bench { name, device, .. } in benches() {
        let mut queue = device.open_queue().unwrap();
        let mut out = buffer(&*device, 1 << 20);
        pattern(5, 0, &mut out);
        write(&mut *queue, 0, &out).unwrap();
        let mut back = buffer(&*device, 1 << 20);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            scope(&mut *queue, |s| {
                for (i, piece) in back.chunks_mut(65536).enumerate() {
                    s.submit(
                        i as u64,
                        Op::Read,
                        i as u64 * 65536,
                        [Segment::Read(piece)],
                        false,
                    );
                }
                s.kick();
                panic!("in the middle");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(queue.in_flight(), 0, "{name}");
        assert!(
            out[..] == back[..],
            "{name}: every read was completed first"
        );
    }
}

#[test]
fn threads_with_queues_of_their_own() {
    for Bench { name, device, .. } in benches() {
        let share = device.len_bytes() / 4;
        std::thread::scope(|threads| {
            for t in 0..4_u64 {
                let device = &device;
                threads.spawn(move || {
                    let mut queue = device.open_queue().unwrap();
                    let (mut out, mut back) = (buffer(&**device, 16384), buffer(&**device, 16384));
                    for round in 0..30 {
                        let at = t * share + round * 16384 % share;
                        pattern(t * 100 + round, at, &mut out);
                        write(&mut *queue, at, &out).unwrap();
                        read(&mut *queue, at, &mut back).unwrap();
                        assert!(out[..] == back[..]);
                    }
                });
            }
        });
        drop(name);
    }
}

/// A queue may be used by one thread, then by another.
#[test]
fn a_queue_can_be_handed_on() {
    for Bench { device, .. } in benches() {
        let mut queue = device.open_queue().unwrap();
        let out = buffer(&*device, 16384);
        write(&mut *queue, 0, &out).unwrap();
        let mut queue = std::thread::scope(|threads| {
            let (device, out) = (&device, &out);
            let work = move || {
                let mut back = buffer(&**device, 16384);
                read(&mut *queue, 0, &mut back).unwrap();
                assert!(out[..] == back[..]);
                queue
            };
            threads.spawn(work).join().unwrap()
        });
        write(&mut *queue, 0, &out).unwrap();
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write {
        at: u64,
        blocks: u64,
        pieces: usize,
        fua: bool,
        seed: u64,
    },
    Read {
        at: u64,
        blocks: u64,
        pieces: usize,
    },
    Zero {
        at: u64,
        blocks: u64,
    },
    Flush,
}

fn steps(blocks: u64) -> impl Strategy<Value = Vec<Step>> {
    let place = move || (0..blocks, 1..64_u64).prop_map(move |(at, n)| (at, n.min(blocks - at)));
    let step = prop_oneof![
        4 => (place(), 1..6_usize, any::<bool>(), any::<u64>())
            .prop_map(|((at, blocks), pieces, fua, seed)| Step::Write { at, blocks, pieces, fua, seed }),
        4 => (place(), 1..6_usize).prop_map(|((at, blocks), pieces)| Step::Read { at, blocks, pieces }),
        1 => place().prop_map(|(at, blocks)| Step::Zero { at, blocks }),
        1 => Just(Step::Flush),
    ];
    prop::collection::vec(step, 1..60)
}

/// Random operations, one after the other, against a vector; the offsets in units of 4096 bytes.
fn against_a_vector(device: &dyn BlockDevice, steps: &[Step]) {
    const UNIT: u64 = 4096;
    let mut queue = device.open_queue().unwrap();
    let mut model = vec![0_u8; device.len_bytes() as usize];
    let zeros = buffer(device, model.len().min(1 << 20));
    for at in (0..model.len()).step_by(zeros.len()) {
        write(
            &mut *queue,
            at as u64,
            &zeros[..zeros.len().min(model.len() - at)],
        )
        .unwrap();
    }
    let bytes = |at: u64, blocks: u64| (at * UNIT) as usize..((at + blocks) * UNIT) as usize;
    for step in steps {
        match *step {
            Step::Write {
                at,
                blocks,
                pieces,
                fua,
                seed,
            } => {
                let mut out = buffer(device, (blocks * UNIT) as usize);
                pattern(seed, at, &mut out);
                let piece = blocks.div_ceil(pieces as u64) * UNIT;
                let segments = out.chunks(piece as usize).map(Segment::Write).collect();
                one(&mut *queue, Op::Write, at * UNIT, segments, fua).unwrap();
                model[bytes(at, blocks)].copy_from_slice(&out);
            }
            Step::Read { at, blocks, pieces } => {
                let mut back = buffer(device, (blocks * UNIT) as usize);
                let piece = blocks.div_ceil(pieces as u64) * UNIT;
                let segments = back.chunks_mut(piece as usize).map(Segment::Read).collect();
                one(&mut *queue, Op::Read, at * UNIT, segments, false).unwrap();
                assert!(model[bytes(at, blocks)] == back[..], "{step:?}");
            }
            Step::Zero { at, blocks } => {
                match range(&mut *queue, Op::WriteZeroes, at * UNIT, blocks * UNIT) {
                    Ok(()) => model[bytes(at, blocks)].fill(0),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported),
                }
            }
            Step::Flush => range(&mut *queue, Op::Flush, 0, 0).unwrap(),
        }
    }
}

#[test]
fn random_operations_do_as_a_vector_does() {
    for Bench { name, device, .. } in benches() {
        let config = ProptestConfig {
            cases: 12,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        let mut runner = proptest::test_runner::TestRunner::new(config);
        let outcome = runner.run(&steps(device.len_bytes() / 4096), |steps| {
            against_a_vector(&*device, &steps);
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

// What only files have.

fn file_of(folder: &tempfile::TempDir, len: u64) -> PathBuf {
    let path = folder.path().join("file");
    fs::write(&path, vec![0xaa_u8; len as usize]).unwrap();
    path
}

#[test]
fn the_tail_of_a_file_reads_as_zeros_and_is_cut_to_the_byte() {
    for engine in engines() {
        for direct in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let path = file_of(&folder, 5000);
            let device = OpenOptions::new()
                .engine(engine)
                .write(true)
                .direct(direct)
                .open(&path)
                .unwrap();
            let unit = block(&*device) as u64;
            assert_eq!(
                (device.len_bytes(), device.info().kind),
                (5000, DeviceKind::RegularFile)
            );
            let end = 5000_u64.next_multiple_of(unit);
            let mut queue = device.open_queue().unwrap();
            let mut back = buffer(&*device, end as usize);
            back.fill(1);
            read(&mut *queue, 0, &mut back).unwrap();
            assert!(
                back[..5000].iter().all(|&b| b == 0xaa) && back[5000..].iter().all(|&b| b == 0)
            );
            // Only the last block, which the file holds a part of.
            back.fill(1);
            let (tail, in_file) = (unit as usize, (5000 - (end - unit)) as usize);
            read(&mut *queue, end - unit, &mut back[..tail]).unwrap();
            assert!(
                back[..in_file].iter().all(|&b| b == 0xaa)
                    && back[in_file..tail].iter().all(|&b| b == 0)
            );
            assert_eq!(device.len_bytes(), 5000, "reading lengthens nothing");

            back[..tail].fill(0xbb);
            write(&mut *queue, end - unit, &back[..tail]).unwrap();
            assert_eq!(
                (device.len_bytes(), fs::metadata(&path).unwrap().len()),
                (end, end)
            );
            device.set_len(4999).unwrap();
            let content = fs::read(&path).unwrap();
            assert_eq!((content.len(), content[4998]), (4999, 0xbb));
            device.set_len(1 << 20).unwrap();
            assert_eq!(
                (device.len_bytes(), fs::metadata(&path).unwrap().len()),
                (1 << 20, 1 << 20)
            );
            write(&mut *queue, (1 << 20) - unit, &back[..tail]).unwrap();
        }
    }
}

#[test]
fn a_file_cut_behind_our_back_is_an_error() {
    for engine in engines() {
        for direct in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let path = file_of(&folder, 1 << 20);
            let device = OpenOptions::new()
                .engine(engine)
                .direct(direct)
                .open(&path)
                .unwrap();
            let mut queue = device.open_queue().unwrap();
            fs::File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_len(100_000)
                .unwrap();
            let mut back = buffer(&*device, 65536);
            for at in [65536, 131_072] {
                let error = read(&mut *queue, at, &mut back).unwrap_err();
                assert_eq!(
                    error.kind(),
                    ErrorKind::UnexpectedEof,
                    "{engine:?} {direct}: {error}"
                );
            }
            read(&mut *queue, 0, &mut back).unwrap();
        }
    }
}

#[test]
fn read_only_means_it() {
    for engine in engines() {
        let folder = tempfile::tempdir().unwrap();
        let path = file_of(&folder, 65536);
        let device = OpenOptions::new().engine(engine).open(&path).unwrap();
        assert!(device.info().read_only);
        let mut queue = device.open_queue().unwrap();
        let memory = buffer(&*device, 4096);
        for result in [
            write(&mut *queue, 0, &memory),
            range(&mut *queue, Op::Discard, 0, 4096),
            range(&mut *queue, Op::WriteZeroes, 0, 4096),
        ] {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
        }
        range(&mut *queue, Op::Flush, 0, 0).unwrap();
        assert!(device.set_len(0).is_err());
        assert!(fs::read(&path).unwrap().iter().all(|&b| b == 0xaa));
    }
}

#[test]
fn the_second_to_lock_is_told_by_whom() {
    let folder = tempfile::tempdir().unwrap();
    let path = file_of(&folder, 65536);
    let open = |write, lock| OpenOptions::new().write(write).lock(lock).open(&path);
    let first = open(true, LockMode::Exclusive).unwrap();
    for lock in [LockMode::Exclusive, LockMode::Shared] {
        let error = open(true, lock).err().expect("locked");
        assert_eq!(error.kind(), ErrorKind::ResourceBusy);
        let text = error.to_string();
        assert!(
            text.contains("in use by") && text.contains(&std::process::id().to_string()),
            "{text}"
        );
    }
    open(true, LockMode::None).unwrap();
    // It is held by the queues too: they can still write.
    let queue = first.open_queue().unwrap();
    drop(first);
    open(true, LockMode::Exclusive).err().expect("still locked");
    drop(queue);
    let readers = [
        open(false, LockMode::Shared).unwrap(),
        open(false, LockMode::Shared).unwrap(),
    ];
    open(true, LockMode::Exclusive)
        .err()
        .expect("locked by readers");
    drop(readers);
    open(true, LockMode::Exclusive).unwrap();
}

#[test]
fn a_locked_file_is_not_truncated() {
    let folder = tempfile::tempdir().unwrap();
    let path = file_of(&folder, 65536);
    let _first = OpenOptions::new()
        .write(true)
        .lock(LockMode::Exclusive)
        .open(&path)
        .unwrap();
    let second = OpenOptions::new()
        .write(true)
        .truncate(true)
        .lock(LockMode::Exclusive)
        .open(&path);
    assert_eq!(second.err().unwrap().kind(), ErrorKind::ResourceBusy);
    assert_eq!(fs::metadata(&path).unwrap().len(), 65536);
}

#[test]
fn what_cannot_be_a_device_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let kind = |path: &Path, write| {
        OpenOptions::new()
            .write(write)
            .open(path)
            .err()
            .unwrap()
            .kind()
    };
    assert_eq!(kind(folder.path(), false), ErrorKind::InvalidInput);
    assert_eq!(kind(Path::new("/dev/null"), true), ErrorKind::InvalidInput);
    assert_eq!(
        kind(&folder.path().join("absent"), true),
        ErrorKind::NotFound
    );
    let fifo = folder.path().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    assert_eq!(
        kind(&fifo, false),
        ErrorKind::InvalidInput,
        "and does not hang"
    );
    let path = file_of(&folder, 100);
    let readable = OpenOptions::new().truncate(true).open(&path);
    assert_eq!(readable.err().unwrap().kind(), ErrorKind::InvalidInput);
    assert_eq!(fs::metadata(&path).unwrap().len(), 100);
    let again = OpenOptions::new().write(true).create_new(true).open(&path);
    assert_eq!(again.err().unwrap().kind(), ErrorKind::AlreadyExists);
}

#[test]
fn windows_stay_inside() {
    let inner: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(LEN));
    let new = |at, len| OffsetDevice::new(Arc::clone(&inner), at, len);
    for (at, len) in [
        (1, None),
        (LEN + 512, None),
        (512, Some(LEN)),
        (0, Some(1000)),
        (512, Some(u64::MAX)),
    ] {
        assert_eq!(
            new(at, len).err().unwrap().kind(),
            ErrorKind::InvalidInput,
            "{at} {len:?}"
        );
    }
    let window = new(4096, Some(8192)).unwrap();
    let mut queue = window.open_queue().unwrap();
    assert!(write(&mut *queue, 8192, &[1; 512]).is_err());
    write(&mut *queue, 7680, &[1; 512]).unwrap();
    let mut whole = inner.open_queue().unwrap();
    let mut back = [0; 1024];
    read(&mut *whole, 4096 + 7680, &mut back).unwrap();
    assert_eq!((back[511], back[512]), (1, 0));
}

#[test]
fn limits_come_from_the_system() {
    let folder = tempfile::tempdir().unwrap();
    let device = image(EngineChoice::Auto, folder.path(), true).unwrap();
    let limits = device.info().limits;
    assert!(limits.logical_block_bytes.is_power_of_two() && limits.logical_block_bytes >= 512);
    assert!(limits.memory_align_bytes.is_power_of_two());
    assert!(limits.physical_block_bytes >= limits.logical_block_bytes);
    assert!(
        limits.max_transfer_bytes >= 4096 && limits.queue_depth >= 1 && limits.max_segments >= 1
    );
    assert!(limits.volatile_cache, "a file has metadata to flush");
    eprintln!("{:#?}", device.info());
}
