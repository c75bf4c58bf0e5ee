//! A sparse device in memory that enforces its limits, for tests and measurements.
//!
//! The store is a table of chunks with one lock each, so that threads contend only within a chunk. A chunk
//! that was never written, or was wholly discarded, takes no memory. As on a disk, a request that spans
//! chunks is not atomic with respect to overlapping ones.

use std::io;
use std::sync::{Arc, OnceLock};

use throughline_locks::RwLock;

use crate::{BlockDevice, Completion, DeviceInfo, DeviceKind, Limits, Op, Queue, Request};

const CHUNK_BYTES: u64 = 256 << 10;
const CHUNKS_PER_PAGE: u64 = 512;
const PAGE_BYTES: u64 = CHUNK_BYTES * CHUNKS_PER_PAGE;

/// The bytes of one chunk; `None` if all are zero.
type Chunk = RwLock<Option<Box<[u8]>>>;

/// A device in memory.
pub struct MemoryDevice {
    info: DeviceInfo,
    store: Arc<Store>,
}

impl MemoryDevice {
    /// A device of `len_bytes` zeros, with [`Limits::default`].
    pub fn new(len_bytes: u64) -> MemoryDevice {
        MemoryDevice::with_limits(len_bytes, Limits::default())
    }

    /// A device of `len_bytes` zeros that enforces `limits` on every request.
    pub fn with_limits(len_bytes: u64, limits: Limits) -> MemoryDevice {
        let info = DeviceInfo {
            name: "memory".into(),
            kind: DeviceKind::Memory,
            engine: "memory",
            direct: true,
            read_only: false,
            limits,
        };
        MemoryDevice {
            info,
            store: Arc::new(Store::new(len_bytes)),
        }
    }
}

impl BlockDevice for MemoryDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn len_bytes(&self) -> u64 {
        self.store.len_bytes
    }

    fn open_queue(&self) -> io::Result<Box<dyn Queue>> {
        let store = Arc::clone(&self.store);
        Ok(Box::new(MemoryQueue {
            limits: self.info.limits,
            store,
            ready: Vec::new(),
        }))
    }
}

/// Executes requests at submission.
#[repr(align(128))] // written with each request, so on its own cache lines
struct MemoryQueue {
    limits: Limits,
    store: Arc<Store>,
    ready: Vec<Completion>,
}

impl MemoryQueue {
    fn execute(&self, request: &mut Request) -> io::Result<()> {
        self.limits.admit_strictly(request, self.store.len_bytes)?;
        match request.op() {
            Op::Read => self.store.read(request),
            Op::Write => self.store.write(request),
            Op::Flush => {}
            Op::Discard if self.limits.discard => self.store.zero(request),
            Op::WriteZeroes if self.limits.write_zeroes => self.store.zero(request),
            Op::Discard | Op::WriteZeroes => return Err(io::ErrorKind::Unsupported.into()),
        }
        Ok(())
    }
}

impl Queue for MemoryQueue {
    fn submit(&mut self, mut request: Request) {
        let result = self.execute(&mut request);
        self.ready.push(Completion { request, result });
    }

    fn kick(&mut self) {}

    fn reap(&mut self, _wait_for: usize, done: &mut Vec<Completion>) {
        done.append(&mut self.ready);
    }

    fn in_flight(&self) -> usize {
        self.ready.len()
    }

    fn depth(&self) -> usize {
        self.limits.queue_depth.max(1) as usize
    }
}

struct Store {
    len_bytes: u64,
    pages: Box<[OnceLock<Box<[Chunk]>>]>,
}

impl Store {
    fn new(len_bytes: u64) -> Store {
        let pages = (0..len_bytes.div_ceil(PAGE_BYTES))
            .map(|_| OnceLock::new())
            .collect();
        Store { len_bytes, pages }
    }

    /// The chunk at `offset`, which must be in range. `None` if no chunk of its page was ever written.
    fn chunk(&self, offset: u64) -> Option<&Chunk> {
        let page = self.pages[(offset / PAGE_BYTES) as usize].get()?;
        Some(&page[(offset % PAGE_BYTES / CHUNK_BYTES) as usize])
    }

    fn chunk_or_new(&self, offset: u64) -> &Chunk {
        let page = self.pages[(offset / PAGE_BYTES) as usize]
            .get_or_init(|| (0..CHUNKS_PER_PAGE).map(|_| RwLock::new(None)).collect());
        &page[(offset % PAGE_BYTES / CHUNK_BYTES) as usize]
    }

    fn read(&self, request: &mut Request) {
        let mut at = request.offset_bytes();
        for mut memory in request.slices_mut() {
            while !memory.is_empty() {
                let (inside, n) = within_chunk(at, memory.len() as u64);
                let (now, rest) = memory.split_at_mut(n);
                match self.chunk(at).map(|c| c.read()).as_deref() {
                    Some(Some(bytes)) => now.copy_from_slice(&bytes[inside..inside + n]),
                    _ => now.fill(0),
                }
                memory = rest;
                at += n as u64;
            }
        }
    }

    fn write(&self, request: &Request) {
        let mut at = request.offset_bytes();
        for mut memory in request.slices() {
            while !memory.is_empty() {
                let (inside, n) = within_chunk(at, memory.len() as u64);
                let (now, rest) = memory.split_at(n);
                let mut chunk = self.chunk_or_new(at).write();
                let bytes = chunk.get_or_insert_with(|| vec![0; CHUNK_BYTES as usize].into());
                bytes[inside..inside + n].copy_from_slice(now);
                memory = rest;
                at += n as u64;
            }
        }
    }

    fn zero(&self, request: &Request) {
        let mut at = request.offset_bytes();
        let end = at + request.len_bytes();
        while at < end {
            let (inside, n) = within_chunk(at, end - at);
            if let Some(chunk) = self.chunk(at) {
                let mut chunk = chunk.write();
                if n as u64 == CHUNK_BYTES {
                    *chunk = None;
                } else if let Some(bytes) = chunk.as_deref_mut() {
                    bytes[inside..inside + n].fill(0);
                }
            }
            at += n as u64;
        }
    }
}

/// The offset of `at` in its chunk, and how many of `len` bytes lie in that chunk.
fn within_chunk(at: u64, len: u64) -> (usize, usize) {
    let inside = at % CHUNK_BYTES;
    (inside as usize, len.min(CHUNK_BYTES - inside) as usize)
}
