//! Disks over memory, null and failing devices: batches, pipelines, counters, events, fallbacks, errors.

use std::sync::{Arc, Mutex};

use throughline_block::{CallerFault, Disk, Error, Event, Listener, SplitReason};
use throughline_device::{
    AlignedBuf, BlockDevice, DeviceInfo, Limits, MemoryDevice, NullDevice, Op, Queue, Segment,
};
use throughline_testing::{Fault, FaultDevice};

const LEN: u64 = 8 << 20;

fn limits() -> Limits {
    Limits {
        memory_align_bytes: 512,
        queue_depth: 4,
        max_transfer_bytes: 256 << 10,
        ..Limits::default()
    }
}

fn memory() -> Arc<dyn BlockDevice> {
    Arc::new(MemoryDevice::with_limits(LEN, limits()))
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 7) as u8 ^ seed).collect()
}

#[test]
fn any_memory_any_size() {
    let disk = Disk::new(memory()).unwrap();
    for (len, odd) in [
        (512, 0),
        (512, 1),
        (4096, 3),
        (1 << 20, 5),
        ((3 << 20) + 512, 9),
        ((3 << 20) + 512, 0),
    ] {
        let mut memory = AlignedBuf::zeroed(len + 16, 4096);
        memory[odd..odd + len].copy_from_slice(&pattern(len, odd as u8));
        disk.write_at(1024, &memory[odd..odd + len], odd % 2 == 0)
            .unwrap();
        let mut back = AlignedBuf::zeroed(len + 16, 4096);
        disk.read_at(1024, &mut back[odd..odd + len]).unwrap();
        assert!(
            back[odd..odd + len] == pattern(len, odd as u8),
            "{len} bytes at +{odd}"
        );
    }
}

#[test]
fn a_batch_is_sorted_and_merged() {
    let disk = Disk::new(memory()).unwrap();
    disk.set_bio_target_bytes(Some(256 << 10));
    let blocks: Vec<AlignedBuf> = (0..48_u8)
        .map(|i| {
            let mut block = AlignedBuf::zeroed(4096, 4096);
            block.fill(i);
            block
        })
        .collect();
    // 32 adjacent blocks and 16 separate ones, in scattered order.
    let place = |i: u64| {
        if i < 32 {
            65536 + i * 4096
        } else {
            (1 << 20) + i * 8192
        }
    };
    let mut pieces: Vec<(u64, &[u8])> = (0..48)
        .map(|i| (place(i * 11 % 48), &blocks[(i * 11 % 48) as usize][..]))
        .collect();
    let before = disk.counters();
    disk.write_batch(&pieces).unwrap();
    let did = disk.counters().since(&before);
    assert_eq!((did.bios(Op::Write), did.bytes(Op::Write)), (17, 48 * 4096));
    assert_eq!(did.merges(), 31);

    let mut memory = vec![0_u8; 48 * 4096 + 1];
    let mut wanted: Vec<(u64, &mut [u8])> = memory[1..]
        .chunks_exact_mut(4096)
        .enumerate()
        .map(|(i, to)| (place(i as u64), to))
        .collect();
    wanted.reverse();
    disk.read_batch(&mut wanted).unwrap();
    for (i, block) in memory[1..].chunks_exact(4096).enumerate() {
        assert!(
            block.iter().all(|byte| usize::from(*byte) == i),
            "block {i}"
        );
    }

    pieces.push((place(7) + 512, &blocks[0][..512]));
    let refused = disk.write_batch(&pieces).unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Caller {
                reason: CallerFault::Overlap,
                ..
            }
        ),
        "{refused}"
    );
}

#[test]
fn more_odd_memory_than_bounce_memory() {
    let disk = Disk::new(memory()).unwrap();
    let data = pattern((5 << 20) + 4097, 3);
    let pieces: Vec<(u64, &[u8])> = data[1..]
        .chunks(12 << 10)
        .enumerate()
        .filter(|(_, p)| p.len() % 512 == 0)
        .map(|(i, p)| (i as u64 * (12 << 10), p))
        .collect();
    disk.write_batch(&pieces).unwrap();
    let len = pieces.iter().map(|(_, piece)| piece.len()).sum::<usize>();
    let mut back = vec![0; len + 1];
    disk.read_at(0, &mut back[1..]).unwrap();
    assert!(back[1..] == data[1..=len]);
}

#[test]
fn invalid_requests_are_refused() {
    let disk = Disk::new(memory()).unwrap();
    let mut buf = vec![0; 1024];
    let reason = |result: Result<(), Error>| match result {
        Err(Error::Caller { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(disk.read_at(1, &mut buf)), CallerFault::Misaligned);
    assert_eq!(
        reason(disk.read_at(0, &mut buf[..100])),
        CallerFault::Misaligned
    );
    assert_eq!(
        reason(disk.read_at(LEN - 512, &mut buf)),
        CallerFault::OutOfRange
    );
    assert_eq!(
        reason(disk.write_at(u64::MAX - 511, &buf, false)),
        CallerFault::OutOfRange
    );
    assert_eq!(
        reason(disk.discard(LEN, 512).map(drop)),
        CallerFault::OutOfRange
    );
    let aligned = AlignedBuf::zeroed(1024, 512);
    let odd = disk.pipeline(Op::Write, |p| p.add(0, Segment::Write(&aligned[1..513])));
    assert_eq!(reason(odd), CallerFault::MemoryMisaligned);
    assert_eq!(
        disk.counters().bios(Op::Write) + disk.counters().bios(Op::Read),
        0
    );
}

#[test]
fn pipelines_nest_on_one_thread() {
    let disk = Disk::new(memory()).unwrap();
    let data = AlignedBuf::zeroed(1 << 20, 4096);
    disk.pipeline(Op::Write, |outer| {
        outer.add(0, Segment::Write(&data[..4096]))?;
        outer.submit_open();
        let mut meta = vec![9; 512];
        disk.read_at(2 << 20, &mut meta)?;
        assert!(meta.iter().all(|byte| *byte == 0));
        outer.add(4096, Segment::Write(&data[4096..]))
    })
    .unwrap();
    assert_eq!(disk.counters().bytes(Op::Write), 1 << 20);
}

/// Collects the events reported to it.
#[derive(Default)]
struct Log(Mutex<Vec<Event>>);

impl Listener for Log {
    fn event(&self, event: &Event) {
        self.0.lock().unwrap().push(*event);
    }
}

#[test]
fn each_bio_is_reported_once() {
    let disk = Disk::new(memory()).unwrap();
    disk.set_bio_target_bytes(Some(64 << 10));
    let data = AlignedBuf::zeroed(256 << 10, 4096);
    let log = Arc::new(Log::default());
    let subscription = disk.subscribe(Arc::clone(&log) as Arc<dyn Listener>);
    disk.write_at(0, &data, false).unwrap();
    disk.flush().unwrap();
    drop(subscription);
    disk.write_at(0, &data, false).unwrap();

    let events = log.0.lock().unwrap();
    let (mut on_device, mut completed, mut splits) = (Vec::new(), 0, 0);
    for event in events.iter() {
        match event {
            Event::Submit {
                bio,
                opened_at,
                submitted_at,
            } => {
                assert!(opened_at <= submitted_at);
                on_device.push(*bio);
            }
            Event::Complete {
                bio,
                service_time,
                ok,
                ..
            } => {
                let at = on_device
                    .iter()
                    .position(|one| one == bio)
                    .expect("completions follow submissions");
                on_device.swap_remove(at);
                assert!(*ok && !service_time.is_zero());
                completed += 1;
            }
            Event::Split { reason, .. } => {
                assert_eq!(*reason, SplitReason::Target);
                splits += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        (on_device.len(), completed, splits),
        (0, 5, 3),
        "four writes and a flush"
    );
    assert_eq!(disk.counters().splits(SplitReason::Target), 6);
}

/// A device that cannot discard or zero, although its limits say that it may be tried.
struct Plain(Arc<dyn BlockDevice>);

struct PlainQueue(Box<dyn Queue>, Vec<throughline_device::Completion>);

impl BlockDevice for Plain {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }
    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }
    fn open_queue(&self) -> std::io::Result<Box<dyn Queue>> {
        Ok(Box::new(PlainQueue(self.0.open_queue()?, Vec::new())))
    }
}

impl Queue for PlainQueue {
    fn submit(&mut self, request: throughline_device::Request) {
        if matches!(request.op(), Op::Discard | Op::WriteZeroes) {
            let result = Err(std::io::ErrorKind::Unsupported.into());
            return self
                .1
                .push(throughline_device::Completion { request, result });
        }
        self.0.submit(request);
    }
    fn kick(&mut self) {
        self.0.kick();
    }
    fn reap(&mut self, wait_for: usize, done: &mut Vec<throughline_device::Completion>) {
        done.append(&mut self.1);
        self.0.reap(wait_for.saturating_sub(done.len()), done);
    }
    fn in_flight(&self) -> usize {
        self.0.in_flight() + self.1.len()
    }
    fn depth(&self) -> usize {
        self.0.depth()
    }
}

#[test]
fn zeros_are_written_if_the_device_cannot_zero() {
    for device in [memory(), Arc::new(Plain(memory())) as Arc<dyn BlockDevice>] {
        let disk = Disk::new(device).unwrap();
        let len = (2 << 20) + 4096;
        let data = vec![7; len + 1024];
        disk.write_at(0, &data, false).unwrap();
        disk.write_zeroes(512, len as u64).unwrap();
        disk.discard(4096, 4096).unwrap();
        let mut back = vec![1; len + 1024];
        disk.read_at(0, &mut back).unwrap();
        assert!(
            back[..512]
                .iter()
                .chain(&back[512 + len..])
                .all(|byte| *byte == 7)
        );
        assert!(
            back[512..4096]
                .iter()
                .chain(&back[8192..512 + len])
                .all(|byte| *byte == 0)
        );
    }
}

#[test]
fn an_error_names_its_bio_and_ends_the_pipeline() {
    for fault in [Fault::Once(2), Fault::AfterDone(2), Fault::From(2)] {
        let faulty = Arc::new(FaultDevice::new(memory(), fault));
        let disk = Disk::new(Arc::clone(&faulty) as Arc<dyn BlockDevice>).unwrap();
        disk.set_bio_target_bytes(Some(64 << 10));
        let data = AlignedBuf::zeroed(4 << 20, 4096);
        match disk.write_at(0, &data, false).unwrap_err() {
            Error::Device {
                op: Op::Write,
                offset_bytes,
                len_bytes,
                ..
            } => {
                assert_eq!((offset_bytes, len_bytes), (2 * (64 << 10), 64 << 10));
            }
            other => panic!("{other}"),
        }
        assert!(
            disk.counters().bios(Op::Write) < 64,
            "it continued after the error"
        );
    }
}

#[test]
fn an_error_of_the_closure_is_returned_and_open_bios_are_discarded() {
    let disk = Disk::new(Arc::new(NullDevice::new(LEN))).unwrap();
    let data = AlignedBuf::zeroed(4096, 4096);
    let refused = CallerFault::Overlap;
    let result: Result<(), Error> = disk.pipeline(Op::Write, |pipeline| {
        pipeline.add(0, Segment::Write(&data))?;
        Err(Error::Caller {
            op: Op::Write,
            offset_bytes: 1,
            len_bytes: 2,
            reason: refused,
        })
    });
    assert!(matches!(
        result,
        Err(Error::Caller {
            offset_bytes: 1,
            ..
        })
    ));
    assert_eq!(
        disk.counters().bios(Op::Write),
        0,
        "the open bio was discarded"
    );
}

#[test]
fn threads_count_apart_and_sum_up() {
    let disk = Disk::new(Arc::new(NullDevice::new(LEN))).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut block = AlignedBuf::zeroed(4096, 4096);
                for i in 0..500 {
                    disk.read_at(i * 4096, &mut block).unwrap();
                }
            });
        }
    });
    assert_eq!(
        (
            disk.counters().bios(Op::Read),
            disk.counters().bytes(Op::Read)
        ),
        (2000, 2000 * 4096)
    );
}

/// A device that records each request with the value of [`Disk::lengthy`] at that time.
struct Noting(Arc<dyn BlockDevice>, Arc<Notes>);

#[derive(Default)]
struct Notes {
    disk: std::sync::OnceLock<std::sync::Weak<Disk>>,
    seen: std::sync::Mutex<Vec<(Op, u64)>>,
}

struct NotingQueue(Box<dyn Queue>, Arc<Notes>);

impl BlockDevice for Noting {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }
    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }
    fn open_queue(&self) -> std::io::Result<Box<dyn Queue>> {
        let queue = self.0.open_queue()?;
        Ok(Box::new(NotingQueue(queue, Arc::clone(&self.1))))
    }
}

impl Queue for NotingQueue {
    fn submit(&mut self, request: throughline_device::Request) {
        let disk = self.1.disk.get().and_then(std::sync::Weak::upgrade);
        let lengthy = disk.expect("the disk is open").lengthy();
        self.1.seen.lock().unwrap().push((request.op(), lengthy));
        self.0.submit(request);
    }
    fn kick(&mut self) {
        self.0.kick();
    }
    fn reap(&mut self, wait_for: usize, done: &mut Vec<throughline_device::Completion>) {
        self.0.reap(wait_for, done);
    }
    fn in_flight(&self) -> usize {
        self.0.in_flight()
    }
    fn depth(&self) -> usize {
        self.0.depth()
    }
}

#[test]
fn lengthy_calls_are_counted_while_they_run() {
    let notes = Arc::new(Notes::default());
    let disk = Arc::new(Disk::new(Arc::new(Noting(memory(), Arc::clone(&notes)))).unwrap());
    notes.disk.set(Arc::downgrade(&disk)).unwrap();
    disk.write_at(0, &[1; 4096], false).unwrap();
    disk.flush().unwrap();
    disk.write_at(0, &[2; 4096], true).unwrap();
    disk.read_at(0, &mut [0; 4096]).unwrap();
    disk.discard(0, 4096).unwrap();
    assert_eq!(disk.lengthy(), 0);
    let seen = notes.seen.lock().unwrap().clone();
    let (plain, long): (Vec<_>, Vec<_>) = seen.iter().partition(|(_, lengthy)| *lengthy == 0);
    assert!(
        plain
            .iter()
            .all(|(op, _)| matches!(op, Op::Read | Op::Write))
    );
    assert!(long.iter().all(|(_, lengthy)| *lengthy == 1), "{seen:?}");
    let ops: Vec<Op> = long.iter().map(|(op, _)| *op).collect();
    // A durable write is one request if the device has FUA, else a plain write and a flush.
    assert!(
        matches!(ops[..], [Op::Flush, Op::Write | Op::Flush, Op::Discard]),
        "{ops:?}"
    );
}
