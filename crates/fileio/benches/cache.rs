//! Cost of the page cache: CPU nanoseconds per random 4 KiB read of cached data, by number of threads and by
//! size of the data, and per write to dirty data. `cargo bench -p throughline-fileio --bench cache`.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};
use throughline_block::Disk;
use throughline_device::MemoryDevice;
use throughline_fileio::{
    AddressSpace, Backing, CacheOptions, Claim, ClaimKind, Holes, Map, MappedExtent, Mapper,
    PageCache, ReadStream, Result, Target, buffered,
};

const LEN: u64 = 1 << 30;
const BLOCK: u64 = 4096;
const READS: u64 = 2_000_000;

/// A file mapped one-to-one onto a device.
struct Whole {
    space: AddressSpace,
}

impl Map for Whole {
    fn block_bytes(&self) -> u32 {
        BLOCK as u32
    }

    fn size_bytes(&self) -> u64 {
        LEN
    }

    fn map(&self, file_offset: u64, len: u64) -> Result<MappedExtent> {
        let target = Target::Data {
            device_offset: file_offset,
        };
        Ok(MappedExtent {
            file_offset,
            len,
            target,
        })
    }
}

impl Backing for Whole {
    fn space(&self) -> &AddressSpace {
        &self.space
    }

    fn reserve(&self, _file_offset: u64, _len: u64) -> Result<Holes> {
        Ok(Holes::default())
    }

    fn unreserve(&self, _units: u64) {}

    fn writer(self: Arc<Self>, _file_offset: u64, _len: u64) -> Result<Box<dyn Mapper>> {
        Ok(Box::new(Writer(self)))
    }
}

struct Writer(Arc<Whole>);

impl Map for Writer {
    fn block_bytes(&self) -> u32 {
        self.0.block_bytes()
    }

    fn size_bytes(&self) -> u64 {
        LEN
    }

    fn map(&self, file_offset: u64, len: u64) -> Result<MappedExtent> {
        self.0.map(file_offset, len)
    }
}

impl Mapper for Writer {
    fn claim(&self, file_offset: u64, len: u64) -> Result<Claim> {
        Ok(Claim {
            file_offset,
            len,
            device_offset: file_offset,
            kind: ClaimKind::Overwrite,
            id: 0,
        })
    }

    fn commit(&self, _claims: &[Claim], _new_size: Option<u64>) -> Result<()> {
        Ok(())
    }

    fn abandon(&self, _claims: &[Claim]) {}
}

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        return; // `cargo test` only checks that it builds
    }
    let disk = Disk::new(Arc::new(MemoryDevice::new(LEN))).expect("a disk");
    let mut options = CacheOptions::default();
    options.budget_bytes = Some(2 * LEN);
    let cache = PageCache::new(Arc::new(disk), &options);
    let whole = Arc::new(Whole {
        space: AddressSpace::new(Arc::clone(&cache), LEN, BLOCK as u32),
    });
    let host: Arc<dyn Backing> = whole.clone();
    for (name, piece) in [("large folios", 1 << 20), ("4 KiB folios", 4096)] {
        whole.space.drop_clean(0..u64::MAX);
        for span in [16 << 20, LEN] {
            fill(&host, span, piece);
            for threads in [1, 2] {
                let ns = reads(&whole, span, threads);
                println!(
                    "{name}, {} MiB, {threads} threads: {ns:.0} ns a read",
                    span >> 20
                );
            }
        }
    }
    println!(
        "4 KiB overwritten in cache: {:.0} ns",
        writes(&host, 16 << 20)
    );
}

/// Reads everything up to `span` once, backwards if pieces are small, so that each becomes a folio.
fn fill(host: &Arc<dyn Backing>, span: u64, piece: u64) {
    let mut buf = vec![0; piece as usize];
    for at in (0..span / piece).rev() {
        let stream = ReadStream::default();
        let bufs = &mut [IoSliceMut::new(&mut buf)];
        buffered::read(host, at * piece, bufs, &stream).expect("a read");
    }
}

/// CPU nanoseconds per read.
fn reads(whole: &Whole, span: u64, threads: u64) -> f64 {
    let (missed, spent_ns) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (missed, spent_ns) = (&missed, &spent_ns);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                let mut buf = [0; BLOCK as usize];
                let start = thread_ns();
                for _ in 0..READS {
                    let at = random.u64(..span / BLOCK) * BLOCK;
                    if whole.space.read_cached(at, &mut buf).is_none() {
                        missed.fetch_add(1, Ordering::Relaxed);
                    }
                }
                spent_ns.fetch_add(thread_ns() - start, Ordering::Relaxed);
            });
        }
    });
    match missed.into_inner() {
        0 => {}
        missed => println!("{missed} reads missed"),
    }
    spent_ns.into_inner() as f64 / (READS * threads) as f64
}

/// CPU time of this thread in nanoseconds: excludes other work on the machine.
fn thread_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn writes(host: &Arc<dyn Backing>, span: u64) -> f64 {
    let mut random = fastrand::Rng::with_seed(1);
    let buf = [7; BLOCK as usize];
    let mut write = || {
        let at = random.u64(..span / BLOCK) * BLOCK;
        buffered::write(host, at, &[IoSlice::new(&buf)]).expect("a write");
    };
    let count = READS / 4;
    (0..count / 10).for_each(|_| write());
    let start = thread_ns();
    (0..count).for_each(|_| write());
    (thread_ns() - start) as f64 / count as f64
}
