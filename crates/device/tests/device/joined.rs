//! Two devices as one.

use crate::common;

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{buffer, pattern, range, read};
use throughline_device::{
    BlockDevice, Completion, DeviceInfo, JoinedDevice, MemoryDevice, Op, Queue, Request, Segment,
    scope,
};

/// A device in memory that counts flushes, and fails them on demand.
struct Flushed {
    inner: MemoryDevice,
    flushes: Arc<AtomicUsize>,
    fails: bool,
}

struct FlushedQueue {
    inner: Box<dyn Queue>,
    flushes: Arc<AtomicUsize>,
    fails: bool,
}

impl BlockDevice for Flushed {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn open_queue(&self) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(FlushedQueue {
            inner: self.inner.open_queue()?,
            flushes: Arc::clone(&self.flushes),
            fails: self.fails,
        }))
    }
}

impl Queue for FlushedQueue {
    fn submit(&mut self, request: Request) {
        self.inner.submit(request);
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn reap(&mut self, wait_for: usize, done: &mut Vec<Completion>) {
        let before = done.len();
        self.inner.reap(wait_for, done);
        for completion in &mut done[before..] {
            if completion.request.op() == Op::Flush {
                self.flushes.fetch_add(1, Ordering::Relaxed);
                if self.fails {
                    completion.result = Err(io::Error::other("no flush"));
                }
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn depth(&self) -> usize {
        self.inner.depth()
    }
}

fn flushed(len: u64, fails: bool) -> (Arc<dyn BlockDevice>, Arc<AtomicUsize>) {
    let flushes = Arc::new(AtomicUsize::new(0));
    let device = Flushed {
        inner: MemoryDevice::new(len),
        flushes: Arc::clone(&flushes),
        fails,
    };
    (Arc::new(device), flushes)
}

#[test]
fn joined_devices_are_flushed_together_and_written_apart() {
    const BEGIN: u64 = 2 << 20;
    let (first, first_flushes) = flushed(1 << 20, false);
    let (second, second_flushes) = flushed(512 << 10, false);
    let joined = JoinedDevice::new(Arc::clone(&first), Arc::clone(&second), BEGIN).unwrap();
    assert_eq!(joined.len_bytes(), BEGIN + (512 << 10));
    let mut queue = joined.open_queue().unwrap();
    let mut out = buffer(&joined, 64 << 10);
    // Many requests to both, in flight at once.
    let mut done = Vec::new();
    pattern(1, 0, &mut out);
    scope(&mut *queue, |scope| {
        for (tag, piece) in (0..).zip(out.chunks(4096)) {
            let base = if tag % 2 == 0 { 8192 } else { BEGIN + 4096 };
            let segments = [Segment::Write(piece)];
            scope.submit(tag, Op::Write, base + tag * 4096, segments, tag == 3);
        }
        scope.submit_range(100, Op::Flush, 0, 0);
        scope.reap(17, &mut done);
    });
    assert_eq!(done.len(), 17);
    assert!(done.iter().all(|one| one.result.is_ok()));
    assert_eq!(first_flushes.load(Ordering::Relaxed), 1);
    assert_eq!(second_flushes.load(Ordering::Relaxed), 1);
    for (device, base, from) in [(&first, 8192, 0), (&second, 4096, 1)] {
        let mut queue = device.open_queue().unwrap();
        for at in (from..16).step_by(2) {
            let mut back = buffer(&**device, 4096);
            read(&mut *queue, base + at * 4096, &mut back).unwrap();
            assert_eq!(back[..], out[at as usize * 4096..][..4096], "{at}");
        }
    }
    // Neither between them, nor past an end.
    for offset in [1 << 20, BEGIN - 4096, BEGIN + (512 << 10)] {
        let mut back = buffer(&joined, 4096);
        let refused = read(&mut *queue, offset, &mut back).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{offset}");
    }
    for begin in [1 << 19, (2 << 20) + 1, !4095] {
        assert!(JoinedDevice::new(Arc::clone(&first), Arc::clone(&second), begin).is_err());
    }
}

#[test]
fn a_flush_of_joined_devices_fails_with_either() {
    for failing in [0, 1] {
        let [(first, _), (second, second_flushes)] =
            [0, 1].map(|at| flushed(1 << 20, at == failing));
        let joined = JoinedDevice::new(first, second, 1 << 20).unwrap();
        let mut queue = joined.open_queue().unwrap();
        assert!(range(&mut *queue, Op::Flush, 0, 0).is_err());
        assert_eq!(second_flushes.load(Ordering::Relaxed), failing);
        assert_eq!(queue.in_flight(), 0);
    }
}
