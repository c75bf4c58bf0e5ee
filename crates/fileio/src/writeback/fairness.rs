//! Several streams share the device by turns, whatever the scheduler does: by counting bytes, on a device
//! that is as slow as the test wants, with writers that run when the test lets them.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use throughline_device::{BlockDevice, Completion, DeviceInfo, MemoryDevice, Op, Queue, Request};
use throughline_locks::{Condvar, Mutex};

use crate::cache;
use crate::cache::testing::{FakeFile, Volume};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 64 << 10;
const WRITERS: u64 = 8;
const EACH_BYTES: u64 = 64 * MIB;
const BANDWIDTH: u64 = 2 << 30;

/// How many writes the device may take; `None`: all.
#[derive(Default)]
struct Grants {
    left: Mutex<Option<usize>>,
    changed: Condvar,
}

impl Grants {
    fn set(&self, writes: Option<usize>) {
        *self.left.lock() = writes;
        self.changed.notify_all();
    }

    /// Lets the device take one write. Returns when it has, or a little later if there was none.
    fn one(&self) {
        let mut left = self.left.lock();
        *left = Some(1);
        self.changed.notify_all();
        let is_left = |left: &mut Option<usize>| *left == Some(1);
        let little = Duration::from_millis(50);
        self.changed.wait_while_for(&mut left, is_left, little);
    }
}

/// A device in memory that takes writes when it is granted some.
struct Slow {
    inner: MemoryDevice,
    grants: Arc<Grants>,
}

impl BlockDevice for Slow {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn open_queue(&self) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(SlowQueue {
            inner: self.inner.open_queue()?,
            grants: Arc::clone(&self.grants),
            held: Vec::new(),
        }))
    }
}

struct SlowQueue {
    inner: Box<dyn Queue>,
    grants: Arc<Grants>,
    /// In the order of submission.
    held: Vec<Request>,
}

impl Queue for SlowQueue {
    fn submit(&mut self, request: Request) {
        match request.op() {
            Op::Write => self.held.push(request),
            _ => self.inner.submit(request),
        }
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn reap(&mut self, wait_for: usize, done: &mut Vec<Completion>) {
        let mut left = self.grants.left.lock();
        while *left == Some(0) && wait_for > self.inner.in_flight() && !self.held.is_empty() {
            self.grants.changed.wait(&mut left);
        }
        let now = left.unwrap_or(usize::MAX).min(self.held.len());
        *left = left.map(|left| left - now);
        self.grants.changed.notify_all();
        drop(left);
        for request in self.held.drain(..now) {
            self.inner.submit(request);
        }
        self.inner.reap(wait_for.min(self.inner.in_flight()), done);
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.held.len()
    }

    fn depth(&self) -> usize {
        self.inner.depth()
    }
}

/// A writer of a stream, in a file from an offset on.
struct Writer {
    file: Arc<FakeFile>,
    base: u64,
    written: u64,
    due: Option<Range<u64>>,
}

impl Writer {
    /// One call.
    fn write(&mut self, data: &[u8], bandwidth: u64) {
        let host = self.file.host();
        let bufs = [IoSlice::new(data)];
        let accepted = cache::write(&host, self.base + self.written, &bufs).unwrap();
        self.written += accepted.bytes as u64;
        let writeback = &host.space().cache().writeback;
        self.due = None;
        if super::backlog::is_looked_at(&accepted) {
            self.due = writeback.due(&host, &accepted, bandwidth);
        }
    }

    fn is_held(&self) -> bool {
        let is_dirty = |due: &Range<u64>| self.file.host().space().is_dirty(due.clone());
        self.due.as_ref().is_some_and(is_dirty)
    }
}

/// The smallest and the largest share when the first writer is done. The first of those that are not held
/// runs: the least fair of all schedules. The device takes a write when all are held.
fn shares(files: u64, bandwidth: u64) -> (f64, f64) {
    let grants = Arc::new(Grants::default());
    let device = Slow {
        inner: MemoryDevice::new(WRITERS * EACH_BYTES * 5 / 4),
        grants: Arc::clone(&grants),
    };
    let volume = Volume::over(Arc::new(device), BLOCK, 1280 * MIB);
    let files: Vec<_> = (0..files).map(|_| volume.file()).collect();
    let mut writers: Vec<_> = (0..WRITERS)
        .map(|number| Writer {
            file: Arc::clone(&files[number as usize % files.len()]),
            base: number / files.len() as u64 * EACH_BYTES,
            written: 0,
            due: None,
        })
        .collect();
    let writeback = &volume.cache.writeback;
    // Threads that compete for a CPU are in a call most of the time.
    let in_calls: Vec<_> = writers.iter().map(|_| writeback.enter_long()).collect();
    grants.set(Some(0));
    let data = vec![7; MIB as usize];
    while writers.iter().all(|writer| writer.written < EACH_BYTES) {
        match writers.iter_mut().find(|writer| !writer.is_held()) {
            Some(writer) => writer.write(&data, bandwidth),
            None => grants.one(),
        }
    }
    grants.set(None);
    drop(in_calls);
    volume.cache.flush_all().unwrap();
    let written = writers.iter().map(|writer| writer.written as f64);
    let mean = written.clone().sum::<f64>() / WRITERS as f64;
    let smallest = written.clone().fold(f64::INFINITY, f64::min);
    (smallest / mean, written.fold(0.0, f64::max) / mean)
}

#[test]
fn shares_of_eight_streams_are_within_a_fifth() {
    for files in [8, 1] {
        let (smallest, largest) = shares(files, BANDWIDTH);
        assert!(
            smallest >= 0.8 && largest <= 1.2,
            "{files} files: {smallest} to {largest}"
        );
    }
}

#[test]
fn memory_absorbs_a_burst_for_a_slow_device() {
    assert_eq!(shares(8, 10_000_000), (0.0, 8.0), "no writer is held");
}
