//! Streams over memory, failing, shallow and real devices: order, split pieces, errors, and what waits. Tests
//! over memory are small enough for Miri.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use throughline_block::{CallerFault, Disk, Error, Event, Listener, SplitReason, Stream, Written};
use throughline_device::{
    BlockDevice, Completion, DeviceInfo, Limits, MemoryDevice, Op, PagePool, Pages, Queue, Request,
};
use throughline_testing::{Fault, FaultDevice};

const LEN: u64 = 4 << 20;
const KIB: usize = 1 << 10;

fn limits() -> Limits {
    Limits {
        memory_align_bytes: 512,
        queue_depth: 8,
        ..Limits::default()
    }
}

fn memory() -> Arc<dyn BlockDevice> {
    Arc::new(MemoryDevice::with_limits(LEN, limits()))
}

fn disk_of(device: Arc<dyn BlockDevice>) -> Arc<Disk> {
    let disk = Disk::new(device).unwrap();
    disk.set_bio_target_bytes(Some(128 << 10));
    Arc::new(disk)
}

fn filled(pool: &PagePool, bytes: usize, seed: u8) -> Arc<Pages> {
    let mut pages = pool.take(bytes).unwrap();
    for (i, chunk) in pages.chunks_mut(512).enumerate() {
        chunk.fill(seed ^ i as u8);
    }
    Arc::new(pages)
}

fn pool() -> PagePool {
    PagePool::new(64 << 20)
}

/// Waits for all pieces of the stream. Returns their results by cookie.
fn finish(stream: &mut Stream) -> BTreeMap<u64, Result<(), Error>> {
    let mut all = BTreeMap::new();
    let mut done = Vec::new();
    while stream.in_flight() > 0 {
        stream.reap(true, &mut done);
        assert!(!done.is_empty(), "a reap that waits returns a piece");
        for Written { cookie, result } in done.drain(..) {
            assert!(
                all.insert(cookie, result).is_none(),
                "{cookie} was returned twice"
            );
        }
    }
    stream.reap(true, &mut done); // nothing to wait for
    assert!(done.is_empty());
    all
}

fn is_on(disk: &Disk, at: u64, memory: &[u8]) -> bool {
    let mut back = vec![0; memory.len()];
    disk.read_at(at, &mut back).unwrap();
    back == memory
}

#[test]
fn pieces_are_written_where_they_belong() {
    let disk = disk_of(memory());
    let mut stream = Stream::new(Arc::clone(&disk)).unwrap();
    let pool = pool();
    // Long, short, adjacent, apart, backwards, part of their memory, and overlapping.
    let places: [(u64, usize, usize); 7] = [
        (0, 0, 256 * KIB),
        (256 << 10, 0, 4 * KIB),
        (260 << 10, 512, 3 * KIB),
        (1 << 20, 0, 512 * KIB),
        (600 << 10, 0, 8 * KIB),
        (512 << 10, 4 * KIB, 60 * KIB),
        (64 << 10, 0, 128 * KIB),
    ];
    let mut expected = vec![0; LEN as usize];
    for (cookie, (at, from, len)) in places.into_iter().enumerate() {
        let pages = filled(
            &pool,
            (from + len).next_power_of_two().max(4 * KIB),
            cookie as u8,
        );
        expected[at as usize..][..len].copy_from_slice(&pages[from..from + len]);
        stream.add(at, &pages, from..from + len, cookie as u64);
    }
    let done = finish(&mut stream);
    assert_eq!(
        done.keys().copied().collect::<Vec<u64>>(),
        (0..7).collect::<Vec<u64>>()
    );
    assert!(done.values().all(Result::is_ok), "{done:?}");
    assert!(is_on(&disk, 0, &expected));
    assert_eq!(pool.used_bytes(), 0, "the memory is released");
    let bytes: u64 = places.iter().map(|place| place.2 as u64).sum();
    assert_eq!(disk.counters().bytes(Op::Write), bytes);
}

#[test]
fn neighbours_share_bios_and_a_long_piece_has_several() {
    let disk = disk_of(memory());
    let mut stream = Stream::new(Arc::clone(&disk)).unwrap();
    let pool = pool();
    for i in 0..16 {
        stream.add(i * 4096, &filled(&pool, 4 * KIB, i as u8), 0..4 * KIB, i);
    }
    assert_eq!(
        disk.counters().bios(Op::Write),
        0,
        "small bios are held back for more"
    );
    stream.submit_open();
    assert_eq!(disk.counters().bios(Op::Write), 1);
    assert_eq!(finish(&mut stream).len(), 16);
    stream.add(1 << 20, &filled(&pool, 512 * KIB, 1), 0..512 * KIB, 0);
    assert_eq!(finish(&mut stream).len(), 1);
    let counters = disk.counters();
    assert_eq!(
        (
            counters.bios(Op::Write),
            counters.splits(SplitReason::Target)
        ),
        (5, 3)
    );
}

#[test]
fn a_failed_bio_fails_its_pieces_and_no_others() {
    let pool = pool();
    for fault in [Fault::Once(2), Fault::AfterDone(2), Fault::Torn(2)] {
        let disk = disk_of(Arc::new(FaultDevice::new(memory(), fault)));
        let mut stream = Stream::new(Arc::clone(&disk)).unwrap();
        // Bios of 128 KiB, pieces of 192 KiB: the third bio is the end of the second piece.
        let pieces: Vec<Arc<Pages>> = (0..8).map(|i| filled(&pool, 256 * KIB, i)).collect();
        for (i, pages) in pieces.iter().enumerate() {
            stream.add(i as u64 * (192 << 10), pages, 0..192 * KIB, i as u64);
        }
        let done = finish(&mut stream);
        let failed: Vec<u64> = done
            .iter()
            .filter(|one| one.1.is_err())
            .map(|one| *one.0)
            .collect();
        assert_eq!((done.len(), failed), (8, vec![1]), "{fault:?}");
        match &done[&1] {
            Err(Error::Device {
                op: Op::Write,
                offset_bytes,
                len_bytes,
                ..
            }) => {
                assert_eq!((*offset_bytes, *len_bytes), (2 * (128 << 10), 128 << 10));
            }
            other => panic!("{other:?}"),
        }
        // The stream can still be used.
        stream.add(192 << 10, &pieces[1], 0..192 * KIB, 17);
        assert!(finish(&mut stream)[&17].is_ok());
        for (i, pages) in pieces.iter().enumerate() {
            assert!(is_on(&disk, i as u64 * (192 << 10), &pages[..192 * KIB]));
        }
    }
}

#[test]
fn a_device_that_is_gone_fails_all_that_comes() {
    let disk = disk_of(Arc::new(FaultDevice::new(memory(), Fault::From(1))));
    let mut stream = Stream::new(disk).unwrap();
    let pages = filled(&pool(), 128 * KIB, 0);
    for i in 0..30 {
        stream.add(i * (128 << 10), &pages, 0..128 * KIB, i);
    }
    let done = finish(&mut stream);
    assert!(
        done.iter()
            .all(|(cookie, result)| result.is_ok() == (*cookie == 0))
    );
    assert_eq!(done.len(), 30);
}

#[test]
fn invalid_pieces_are_returned_with_errors() {
    let disk = disk_of(memory());
    let mut stream = Stream::new(Arc::clone(&disk)).unwrap();
    let pages = filled(&pool(), 8 * KIB, 0);
    stream.add(1, &pages, 0..512, 0);
    stream.add(0, &pages, 0..100, 1);
    stream.add(LEN - 512, &pages, 0..1024, 2);
    stream.add(u64::MAX - 511, &pages, 0..1024, 3);
    stream.add(0, &pages, 8..520, 4);
    stream.add(0, &pages, 7..7, 5);
    stream.add(512, &pages, 0..1024, 6);
    assert_eq!(stream.in_flight(), 7);
    let done = finish(&mut stream);
    let fault = |cookie| match &done[&cookie] {
        Err(Error::Caller { reason, .. }) => Some(*reason),
        _ => None,
    };
    let expected = [
        Some(CallerFault::Misaligned),
        Some(CallerFault::Misaligned),
        Some(CallerFault::OutOfRange),
        Some(CallerFault::OutOfRange),
        Some(CallerFault::MemoryMisaligned),
        None,
        None,
    ];
    assert_eq!(std::array::from_fn(|i| fault(i as u64)), expected);
    assert!(done[&6].is_ok() && is_on(&disk, 512, &pages[..1024]));
}

#[test]
#[should_panic(expected = "range")]
fn a_range_outside_the_memory_panics() {
    let mut stream = Stream::new(disk_of(memory())).unwrap();
    stream.add(0, &filled(&pool(), 4 * KIB, 0), 0..8 * KIB, 0);
}

#[test]
fn dropping_it_writes_what_was_added() {
    let disk = disk_of(memory());
    let mut stream = Stream::new(Arc::clone(&disk)).unwrap();
    let pages = filled(&pool(), 4 * KIB, 5);
    stream.add(4096, &pages, 0..4 * KIB, 0);
    drop(stream);
    assert!(is_on(&disk, 4096, &pages));
    assert_eq!(Arc::strong_count(&pages), 1);
}

/// Completes requests only when a caller waits, and records how many it waits for.
struct Lazy {
    depth: usize,
    waits: Arc<Mutex<Vec<usize>>>,
    submitted: Arc<AtomicUsize>,
    kicked: Arc<AtomicUsize>,
    info: DeviceInfo,
}

struct LazyQueue {
    depth: usize,
    waits: Arc<Mutex<Vec<usize>>>,
    submitted: Arc<AtomicUsize>,
    kicked: Arc<AtomicUsize>,
    held: Vec<Request>,
}

impl Lazy {
    fn new(depth: usize) -> Lazy {
        let info = memory().info().clone();
        let (waits, submitted, kicked) = Default::default();
        Lazy {
            depth,
            waits,
            submitted,
            kicked,
            info,
        }
    }
}

impl BlockDevice for Lazy {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn len_bytes(&self) -> u64 {
        LEN
    }

    fn open_queue(&self) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(LazyQueue {
            depth: self.depth,
            waits: Arc::clone(&self.waits),
            submitted: Arc::clone(&self.submitted),
            kicked: Arc::clone(&self.kicked),
            held: Vec::new(),
        }))
    }
}

impl Queue for LazyQueue {
    fn submit(&mut self, request: Request) {
        assert!(
            self.held.len() < self.depth,
            "submitted beyond the depth without a reap"
        );
        self.submitted.fetch_add(1, Ordering::Relaxed);
        self.held.push(request);
    }

    fn kick(&mut self) {
        self.kicked
            .store(self.submitted.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn reap(&mut self, wait_for: usize, done: &mut Vec<Completion>) {
        if wait_for > 0 {
            self.waits.lock().unwrap().push(wait_for);
        }
        let these = self.held.drain(..wait_for.min(self.held.len()));
        done.extend(these.map(|request| Completion {
            request,
            result: Ok(()),
        }));
    }

    fn in_flight(&self) -> usize {
        self.held.len()
    }

    fn depth(&self) -> usize {
        self.depth
    }
}

#[test]
fn adding_waits_only_for_a_full_queue_and_then_for_a_quarter() {
    let device = Arc::new(Lazy::new(8));
    let mut stream = Stream::new(disk_of(Arc::clone(&device) as Arc<dyn BlockDevice>)).unwrap();
    let long = filled(&pool(), 512 * KIB, 0);
    let now = || {
        (
            device.kicked.load(Ordering::Relaxed),
            device.waits.lock().unwrap().clone(),
        )
    };
    for i in 0..2 {
        stream.add(i * (512 << 10), &long, 0..512 * KIB, i);
        assert_eq!(stream.is_full(), i == 1);
    }
    stream.submit_open();
    assert_eq!(now(), (8, vec![]), "submitted without waiting");
    let mut done = Vec::new();
    stream.reap(false, &mut done);
    assert!(done.is_empty() && device.waits.lock().unwrap().is_empty());
    stream.add(1 << 20, &long, 0..128 * KIB, 2);
    assert_eq!(
        now(),
        (9, vec![2]),
        "the ninth waits for a quarter of the depth"
    );
    assert_eq!(stream.in_flight(), 3);
    assert_eq!(finish(&mut stream).len(), 3);
}

#[test]
fn one_at_a_time_is_enough() {
    let device = Arc::new(Lazy::new(1));
    let mut stream = Stream::new(disk_of(Arc::clone(&device) as Arc<dyn BlockDevice>)).unwrap();
    let pages = filled(&pool(), 512 * KIB, 0);
    for i in 0..4 {
        stream.add(i * (512 << 10), &pages, 0..512 * KIB, i);
        stream.add((3 << 20) + i * 8192, &pages, 0..4 * KIB, 10 + i);
    }
    assert!(stream.is_full());
    assert_eq!(finish(&mut stream).len(), 8);
    assert!(device.waits.lock().unwrap().iter().all(|wait| *wait == 1));
}

/// Counts the submissions and completions reported to it.
#[derive(Default)]
struct Recorder(Mutex<(usize, usize)>);

impl Listener for Recorder {
    fn event(&self, event: &Event) {
        let mut recorded = self.0.lock().unwrap();
        match event {
            Event::Submit { .. } => recorded.0 += 1,
            Event::Complete { .. } => recorded.1 += 1,
            _ => {}
        }
    }
}

#[test]
fn listeners_come_and_go_while_it_runs() {
    let disk = disk_of(Arc::new(Lazy::new(8)));
    let mut stream = Stream::new(Arc::clone(&disk)).unwrap();
    let pages = filled(&pool(), 128 * KIB, 0);
    let listeners: [Arc<Recorder>; 2] = Default::default();
    let recorded = || {
        listeners
            .each_ref()
            .map(|listener| *listener.0.lock().unwrap())
    };
    let add = |stream: &mut Stream, i| {
        stream.add(i * (128 << 10), &pages, 0..128 * KIB, i);
        stream.submit_open();
    };
    add(&mut stream, 0);
    let first = disk.subscribe(Arc::clone(&listeners[0]) as Arc<dyn Listener>);
    add(&mut stream, 1);
    drop(first);
    let second = disk.subscribe(Arc::clone(&listeners[1]) as Arc<dyn Listener>);
    add(&mut stream, 2);
    drop(second);
    assert_eq!(recorded(), [(1, 0), (1, 0)]);
    assert_eq!(finish(&mut stream).len(), 3);
    assert_eq!(
        recorded(),
        [(1, 1), (1, 1)],
        "a listener that got the submission gets the completion"
    );
    add(&mut stream, 4);
    assert_eq!(
        (finish(&mut stream).len(), recorded()),
        (1, [(1, 1), (1, 1)])
    );
}

#[cfg(not(miri))]
mod on_a_file {
    use throughline_device::{EngineChoice, OpenOptions};

    use super::*;

    fn image(engine: EngineChoice, folder: &std::path::Path, write: bool) -> Option<Arc<Disk>> {
        let mut options = OpenOptions::new().engine(engine).write(write);
        if write {
            options = options.create(true).len_bytes(LEN);
        }
        match options.open(folder.join("image")) {
            Ok(device) => Some(disk_of(device)),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                throughline_testkit::left_out!("for {engine}: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn every_engine_carries_a_stream() {
        for engine in [EngineChoice::Uring, EngineChoice::Threads] {
            let folder = tempfile::tempdir().unwrap();
            let Some(disk) = image(engine, folder.path(), true) else {
                continue;
            };
            let pool = PagePool::new(1 << 20);
            let mut stream = Stream::new(Arc::clone(&disk)).unwrap();
            let (mut expected, mut done) = (Vec::new(), Vec::new());
            for i in 0..(LEN / (128 << 10)) {
                // The pool holds eight pieces: the others wait for completions.
                let mut pages = loop {
                    match pool.take(128 * KIB) {
                        Some(pages) => break pages,
                        None => stream.reap(true, &mut done),
                    }
                };
                pages.fill(i as u8 + 1);
                expected.extend_from_slice(&pages);
                stream.add(i * (128 << 10), &Arc::new(pages), 0..128 * KIB, i);
            }
            while stream.in_flight() > 0 {
                stream.reap(true, &mut done);
            }
            done.sort_by_key(|written| written.cookie);
            assert!(
                done.iter()
                    .enumerate()
                    .all(|(i, one)| one.cookie == i as u64 && one.result.is_ok())
            );
            assert!(done.len() == 32 && is_on(&disk, 0, &expected), "{engine}");
        }
    }

    #[test]
    fn a_read_only_device_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        drop(image(EngineChoice::Threads, folder.path(), true));
        let disk = image(EngineChoice::Threads, folder.path(), false).unwrap();
        let mut stream = Stream::new(disk).unwrap();
        stream.add(0, &filled(&pool(), 4 * KIB, 0), 0..4 * KIB, 3);
        let refused = finish(&mut stream).remove(&3).unwrap();
        let reason = CallerFault::ReadOnly;
        assert!(matches!(refused, Err(Error::Caller { reason: found, .. }) if found == reason));
    }
}
