//! Devices under test, and helpers for single requests.
#![allow(dead_code, unreachable_pub)] // each test file uses what it needs

pub mod loops;

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use throughline_device::{
    AlignedBuf, BlockDevice, Done, EngineChoice, LockMode, MemoryDevice, OffsetDevice, Op,
    OpenOptions, Queue, Segment, scope,
};

pub const LEN: u64 = 4 << 20;

/// A device under test, with the resources that it depends on.
pub struct Bench {
    pub name: String,
    pub device: Arc<dyn BlockDevice>,
    _folder: Option<tempfile::TempDir>,
}

pub fn image(
    engine: EngineChoice,
    folder: &Path,
    direct: bool,
) -> io::Result<Arc<dyn BlockDevice>> {
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

pub fn engines() -> Vec<EngineChoice> {
    let folder = tempfile::tempdir().unwrap();
    match image(EngineChoice::Uring, folder.path(), true) {
        Ok(_) => vec![EngineChoice::Uring, EngineChoice::Threads],
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            throughline_testkit::left_out!("for io_uring: {error}");
            vec![EngineChoice::Threads]
        }
    }
}

pub fn benches() -> Vec<Bench> {
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
        // On a file system without O_DIRECT.
        if let Ok(folder) = tempfile::tempdir_in("/dev/shm") {
            let device = image(engine, folder.path(), true).unwrap();
            assert!(!device.info().direct, "tmpfs is memory");
            add(format!("{engine:?}, tmpfs"), device, Some(folder));
        } else {
            throughline_testkit::missing!("for tmpfs: no /dev/shm");
        }
    }
    all
}

/// The second half of a device.
pub fn window(of: &Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
    Arc::new(OffsetDevice::new(Arc::clone(of), LEN / 2, None).unwrap())
}

pub fn block(device: &dyn BlockDevice) -> usize {
    device.info().limits.logical_block_bytes as usize
}

pub fn buffer(device: &dyn BlockDevice, len: usize) -> AlignedBuf {
    AlignedBuf::zeroed(
        len,
        device.info().limits.memory_align_bytes.max(4096) as usize,
    )
}

pub fn pattern(seed: u64, at: u64, bytes: &mut [u8]) {
    for (i, byte) in bytes.iter_mut().enumerate() {
        let x = (at + i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ seed.wrapping_mul(0xd6e8_feb8_6659_fd93);
        *byte = (x >> 32) as u8;
    }
}

/// Submits one request and waits for it.
pub fn one<'env>(
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

pub fn range(queue: &mut dyn Queue, op: Op, at: u64, len: u64) -> io::Result<()> {
    let mut done = Vec::new();
    scope(queue, |s| {
        s.submit_range(7, op, at, len);
        s.reap(1, &mut done);
    });
    only(done)
}

pub fn only(mut done: Vec<Done>) -> io::Result<()> {
    let only = done.pop().expect("one completion");
    assert!(done.is_empty(), "exactly once");
    assert_eq!(only.tag, 7);
    only.result
}

pub fn read(queue: &mut dyn Queue, at: u64, memory: &mut [u8]) -> io::Result<()> {
    one(queue, Op::Read, at, vec![Segment::Read(memory)], false)
}

pub fn write(queue: &mut dyn Queue, at: u64, memory: &[u8]) -> io::Result<()> {
    one(queue, Op::Write, at, vec![Segment::Write(memory)], false)
}
