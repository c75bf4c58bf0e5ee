//! Calls as futures, of files of both kinds.

use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use throughline::{
    AsyncFile, Device, Error, FileOptions, Memory, OpenOptions, Pending, RawFile, Reason,
};
use throughline_testkit::e2fs::mke2fs;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest runtime: whoever is not woken sleeps for ever.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Memory whose flushes, and reads past the first half, wait for a gate. Flushes are counted.
#[derive(Clone)]
struct Gated {
    memory: Memory,
    open: Arc<(Mutex<bool>, Condvar)>,
    flushes: Arc<AtomicUsize>,
}

impl Gated {
    fn new() -> Gated {
        Gated {
            memory: Memory::zeroed(8 << 20),
            open: Arc::new((Mutex::new(true), Condvar::new())),
            flushes: Arc::default(),
        }
    }

    fn wait(&self) {
        let open = self.open.0.lock().unwrap();
        drop(self.open.1.wait_while(open, |open| !*open).unwrap());
    }

    fn set(&self, open: bool) {
        *self.open.0.lock().unwrap() = open;
        self.open.1.notify_all();
    }
}

impl Device for Gated {
    fn len_bytes(&self) -> u64 {
        self.memory.len_bytes()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if offset >= self.len_bytes() / 2 {
            self.wait();
        }
        self.memory.read_exact_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.memory.write_all_at(buf, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.wait();
        Ok(())
    }
}

fn open(device: &Gated) -> (RawFile, AsyncFile) {
    let mut options = OpenOptions::new();
    let raw = options.write(true).open_raw_device(device.clone()).unwrap();
    let file = raw.to_async();
    (raw, file)
}

/// Whether it is done, without waiting.
fn is_done<T>(pending: &mut Pending<T>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    Pin::new(pending).poll(&mut context).is_ready()
}

#[test]
fn many_calls_at_once_are_all_answered() {
    let (raw, file) = open(&Gated::new());
    let writes: Vec<_> = (0..500_u64)
        .map(|n| file.write_at(vec![(n as u8).wrapping_add(1); 4000], n * 4000))
        .collect();
    for write in writes {
        let (written, buf) = block_on(write);
        assert_eq!((written.unwrap(), buf.len()), (4000, 4000));
    }
    let reads: Vec<_> = (0..500_u64)
        .map(|n| file.read_at(vec![0; 4000], n * 4000))
        .collect();
    for (n, read) in reads.into_iter().enumerate() {
        let (read, buf) = block_on(read);
        assert_eq!(read.unwrap(), 4000);
        assert!(buf.iter().all(|byte| *byte == (n as u8).wrapping_add(1)));
    }
    // What nobody awaits is done all the same.
    drop(file.write_at(b"dropped".to_vec(), 7_000_000));
    let mut back = [0; 7];
    while &back != b"dropped" {
        raw.read_exact_at(&mut back, 7_000_000).unwrap();
    }
    let (past, _) = block_on(file.write_at(vec![1; 10], u64::MAX - 2));
    past.unwrap_err();
    assert!(format!("{file:?}").contains("AsyncFile"));
}

#[test]
fn syncs_that_wait_together_are_one() {
    let device = Gated::new();
    let (_raw, file) = open(&device);
    block_on(file.write_at(vec![1; 4096], 0)).0.unwrap();
    device.set(false);
    let first = file.sync_all();
    while device.flushes.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    // It has begun, so that these need another: one for all of them.
    block_on(file.write_at(vec![2; 4096], 4096)).0.unwrap();
    let mut others: Vec<_> = (0..50).map(|_| file.sync_all()).collect();
    assert!(!others.iter_mut().any(is_done));
    let (read, _) = block_on(file.read_at(vec![0; 10], 0)); // no read waits for a sync
    read.unwrap();
    device.set(true);
    block_on(first).unwrap();
    others.into_iter().for_each(|sync| block_on(sync).unwrap());
    assert_eq!(device.flushes.load(Ordering::Relaxed), 2);
    block_on(file.sync_data()).unwrap();
    assert_eq!(device.memory.to_vec()[4096], 2);
}

#[test]
fn nothing_is_held_of_a_volume_when_the_answer_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    if !mke2fs(&path, "8M", &["-t", "ext4"]) {
        return;
    }
    let image = std::fs::read(&path).unwrap();
    for _ in 0..100 {
        let volume = throughline::Volume::in_memory(image.clone()).unwrap();
        let file = volume.create_new("/file").unwrap().to_async();
        let (begin, buf) = block_on(file.append(b"text".to_vec()));
        assert_eq!(begin.unwrap(), 0);
        block_on(file.sync_all()).unwrap();
        let (read, _) = block_on(file.read_at(buf, 0));
        assert_eq!(read.unwrap(), 4);
        drop(file);
        volume.close().unwrap(); // would be busy
    }
}

/// All threads for reads wait for the device, and so do the direct reads behind them.
#[test]
fn cached_reads_wait_for_no_thread() {
    let device = Gated::new();
    let (raw, file) = open(&device);
    raw.write_all_at(b"cached", 100).unwrap();
    device.set(false);
    let mut options = FileOptions::new();
    let direct = raw.reopen(options.direct(true)).unwrap().to_async();
    let half = device.len_bytes() / 2;
    let mut slow: Vec<_> = (0..64)
        .map(|n| direct.read_at(vec![1; 4096], half + n * 4096))
        .collect();
    let mut read = file.read_at(vec![0; 6], 100);
    let mut context = Context::from_waker(Waker::noop());
    let polled = Pin::new(&mut read).poll(&mut context);
    let waiting = slow.iter_mut().map(is_done).filter(|done| !done).count();
    device.set(true);
    assert_eq!(waiting, 64);
    let Poll::Ready((done, buf)) = polled else {
        panic!("a cached read waits");
    };
    assert_eq!((done.unwrap(), buf), (6, b"cached".to_vec()));
    for read in slow {
        assert_eq!(block_on(read).0.unwrap(), 4096);
    }
    // What is not cached, and a handle that may not read, are answered by the threads.
    assert_eq!(block_on(file.read_at(vec![1; 8], half)).1, [0; 8]);
    let written = raw.reopen(FileOptions::new().write(true)).unwrap();
    let refused = block_on(written.to_async().read_at(vec![0; 6], 100)).0;
    assert!(matches!(
        refused,
        Err(Error::Caller(Reason::NotOpenedFor(_)))
    ));
}
