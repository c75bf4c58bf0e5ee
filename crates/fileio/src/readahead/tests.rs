//! Readahead of a file over a device in memory, checked by counting the requests that reach the device.

use std::io::IoSliceMut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use throughline_block::{Counters, Disk};
use throughline_device::{BlockDevice, MemoryDevice, Op};
use throughline_testing::{Fault, FaultDevice};

use super::{Advice, ReadStream, advise};
use crate::buffered;
use crate::cache::{AddressSpace, Backing, CacheOptions, Holes, PageCache};
use crate::error::{Reason, Result};
use crate::mapper::{Map, MappedExtent, Mapper, Target};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;

/// A file that is mapped one-to-one onto the device, except for a hole.
struct Plain {
    space: AddressSpace,
    committed: AtomicU64,
    hole: std::ops::Range<u64>,
}

impl Map for Plain {
    fn block_bytes(&self) -> u32 {
        BLOCK as u32
    }

    fn size_bytes(&self) -> u64 {
        self.committed.load(Ordering::SeqCst)
    }

    fn map(&self, file_offset: u64, len: u64) -> Result<MappedExtent> {
        let in_hole = self.hole.contains(&file_offset);
        let edge = match in_hole {
            true => self.hole.end,
            false if file_offset < self.hole.start => self.hole.start,
            false => u64::MAX,
        };
        Ok(MappedExtent {
            file_offset,
            len: len.min(edge - file_offset),
            target: match in_hole {
                true => Target::Hole,
                false => Target::Data {
                    device_offset: file_offset,
                },
            },
        })
    }
}

impl Backing for Plain {
    fn space(&self) -> &AddressSpace {
        &self.space
    }

    fn reserve(&self, _file_offset: u64, _len: u64) -> Result<Holes> {
        Err(Reason::ReadOnly.into())
    }

    fn unreserve(&self, _units: u64) {}

    fn writer(self: Arc<Self>, _file_offset: u64, _len: u64) -> Result<Box<dyn Mapper>> {
        Err(Reason::ReadOnly.into())
    }
}

/// A file of `size` bytes over a device that may fail, with a cache of `budget` bytes.
struct Rig {
    cache: Arc<PageCache>,
    device: Arc<FaultDevice>,
    plain: Arc<Plain>,
    host: Arc<dyn Backing>,
    stream: ReadStream,
    before: Counters,
}

/// The file's contents at `at`: no two blocks are alike.
fn byte_at(at: u64) -> u8 {
    (at % 251) as u8 ^ (at / BLOCK * 31) as u8
}

impl Rig {
    fn new(size: u64, budget: u64) -> Rig {
        Rig::with_hole(size, budget, 0..0)
    }

    fn with_hole(size: u64, budget: u64, hole: std::ops::Range<u64>) -> Rig {
        let memory = MemoryDevice::new(size.next_multiple_of(512));
        let device = Arc::new(FaultDevice::new(Arc::new(memory), Fault::Never));
        let disk = Arc::new(Disk::new(Arc::clone(&device) as Arc<dyn BlockDevice>).unwrap());
        let bytes: Vec<u8> = (0..size.next_multiple_of(512)).map(byte_at).collect();
        disk.write_at(0, &bytes, false).unwrap();
        let options = CacheOptions {
            budget_bytes: Some(budget),
            ..CacheOptions::default()
        };
        let cache = PageCache::new(Arc::clone(&disk), &options);
        cache.readahead().set_max_bytes(Some(4 * MIB));
        let plain = Arc::new(Plain {
            space: AddressSpace::new(Arc::clone(&cache), size, BLOCK as u32),
            committed: AtomicU64::new(size),
            hole,
        });
        Rig {
            host: Arc::clone(&plain) as Arc<dyn Backing>,
            before: disk.counters(),
            stream: ReadStream::default(),
            cache,
            device,
            plain,
        }
    }

    fn read_on(&self, stream: &ReadStream, offset: u64, len: u64) -> Result<Vec<u8>> {
        let mut buf = vec![0xee; len as usize];
        let got = buffered::read(&self.host, offset, &mut [IoSliceMut::new(&mut buf)], stream)?;
        buf.truncate(got);
        Ok(buf)
    }

    /// Reads and compares with the file's contents.
    fn read(&self, offset: u64, len: u64) {
        let bytes = self.read_on(&self.stream, offset, len).unwrap();
        self.check(offset, len, &bytes);
    }

    fn check(&self, offset: u64, len: u64, bytes: &[u8]) {
        let end = (offset + len).min(self.plain.space.size());
        assert_eq!(bytes.len() as u64, end.saturating_sub(offset));
        let expected = |at: u64| match self.plain.hole.contains(&at) {
            true => 0,
            false => byte_at(at),
        };
        let wrong = (offset..)
            .zip(bytes)
            .find(|(at, byte)| **byte != expected(*at));
        assert_eq!(wrong, None, "read of {len} at {offset}");
    }

    /// Waits until nothing is in flight, by freezing the file for a moment.
    fn drain(&self) {
        drop(self.plain.space.freeze());
    }

    /// Number and bytes of read bios so far, after everything queued has completed.
    fn counted(&self) -> (u64, u64) {
        self.drain();
        let now = self.cache.disk().counters().since(&self.before);
        (now.bios(Op::Read), now.bytes(Op::Read))
    }
}

#[test]
fn small_sequential_reads_become_few_long_bios() {
    let rig = Rig::new(16 * MIB, 64 * MIB);
    for at in (0..16 * MIB).step_by(4096) {
        rig.read(at, 4096);
    }
    let (bios, bytes) = rig.counted();
    assert_eq!(bytes, 16 * MIB, "each byte once");
    // Bios aim at 256 KiB here. The first windows are smaller, and each job begins a new bio.
    assert!(bios <= 16 * 4 + 30, "{bios} bios");
}

#[test]
fn reads_of_any_size_see_the_file() {
    for (len, size) in [
        (1000, 3 * MIB + 17),
        (70_001, 9 * MIB),
        (MIB, 20 * MIB + 1),
        (8 * MIB, 40 * MIB),
    ] {
        let rig = Rig::with_hole(size, 64 * MIB, 512 * KIB..600 * KIB);
        let mut at = 0;
        while at < size {
            rig.read(at, len);
            at += len;
        }
        rig.read(size, len);
        let (_, bytes) = rig.counted();
        assert_eq!(
            bytes,
            size.next_multiple_of(512) - 88 * KIB,
            "reads of {len}: each byte once, none past the end"
        );
    }
}

#[test]
fn interleaved_streams_are_distinguished() {
    for count in [2, 5, 8] {
        let rig = Rig::new(32 * MIB, 256 * MIB);
        let each = 32 * MIB / count / BLOCK * BLOCK;
        for step in 0..(each / BLOCK).min(512) {
            for stream in 0..count {
                rig.read(stream * each + step * BLOCK, BLOCK);
            }
        }
        let (bios, _) = rig.counted();
        assert!(bios <= count * 40, "{count} streams: {bios} bios");
    }
}

#[test]
fn backwards_and_random_reads_take_what_they_ask_for() {
    let rig = Rig::new(32 * MIB, 64 * MIB);
    for block in (1024..2048).rev() {
        rig.read(block * BLOCK, BLOCK);
    }
    assert_eq!(rig.counted(), (1024, 1024 * BLOCK));
    let rig = Rig::new(32 * MIB, 64 * MIB);
    let mut pair = 1;
    for _ in 0..2000 {
        // A full-period generator: no block twice. Only the second block of each pair: none follows another.
        pair = (pair * 1365 + 2731) % 4096;
        rig.read((pair * 2 + 1) * BLOCK + 100, 1000);
    }
    assert_eq!(rig.counted(), (2000, 2000 * BLOCK));
}

#[test]
fn advice_decides() {
    let rig = Rig::new(16 * MIB, 64 * MIB);
    advise(&rig.host, &rig.stream, Advice::Random, 0..0);
    for at in (0..4 * MIB).step_by(8192) {
        rig.read(at, 8192);
    }
    assert_eq!(rig.counted(), (512, 4 * MIB), "exactly the requested bytes");
    advise(&rig.host, &rig.stream, Advice::WillNeed, 4 * MIB..8 * MIB);
    // The read waits for what is in flight, or finds it cached.
    advise(&rig.host, &rig.stream, Advice::Normal, 0..0);
    for at in (4 * MIB..8 * MIB).step_by(8192) {
        rig.read(at, 8192);
    }
    let cached = rig.plain.space.cached_bytes();
    assert!(cached >= 8 * MIB);
    rig.drain();
    advise(&rig.host, &rig.stream, Advice::DontNeed, 0..16 * MIB);
    assert_eq!(rig.plain.space.cached_bytes(), 0);
}

#[test]
fn will_need_brings_the_range_in_and_no_more() {
    let rig = Rig::new(32 * MIB, 64 * MIB);
    advise(
        &rig.host,
        &rig.stream,
        Advice::WillNeed,
        3 * MIB..9 * MIB + 5,
    );
    while rig.plain.space.cached_bytes() < 6 * MIB + BLOCK {
        thread::yield_now();
    }
    let (_, bytes) = rig.counted();
    assert_eq!(bytes, 6 * MIB + BLOCK);
    rig.read(3 * MIB, 6 * MIB);
    assert_eq!(rig.counted().1, bytes, "all hits");
    advise(&rig.host, &rig.stream, Advice::WillNeed, 40 * MIB..u64::MAX);
    advise(&rig.host, &rig.stream, Advice::WillNeed, 9..9);
}

#[test]
fn a_sequential_handle_reads_twice_as_far() {
    let far = |advice| {
        let rig = Rig::new(32 * MIB, 256 * MIB);
        rig.cache.readahead().set_max_bytes(Some(256 * KIB));
        advise(&rig.host, &rig.stream, advice, 0..0);
        for at in (0..8 * MIB).step_by(4096) {
            rig.read(at, 4096);
        }
        rig.counted().1 - 8 * MIB
    };
    assert_eq!(
        (far(Advice::Normal), far(Advice::Sequential)),
        (256 * KIB, 512 * KIB)
    );
}

#[test]
fn folios_read_once_are_dropped() {
    let rig = Rig::new(64 * MIB, 256 * MIB);
    advise(&rig.host, &rig.stream, Advice::NoReuse, 0..0);
    for at in (0..64 * MIB).step_by(65536) {
        rig.read(at, 65536);
    }
    rig.drain();
    let cached = rig.plain.space.cached_bytes();
    assert!(cached <= 16 * MIB, "{cached} bytes");
}

#[test]
fn tiny_budgets_read_right() {
    for budget in [16 * KIB, 64 * KIB, 256 * KIB, MIB] {
        let rig = Rig::new(4 * MIB + 100, budget);
        for len in [777, 4096, 100_000] {
            let mut at = 0;
            while at < 4 * MIB + 100 {
                rig.read(at, len);
                at += len;
            }
        }
    }
}

#[test]
fn a_hot_set_stays_under_a_stream() {
    const BUDGET: u64 = 16 * MIB;
    let rig = Rig::new(BUDGET * 4, BUDGET);
    let hot = ReadStream::default();
    advise(&rig.host, &hot, Advice::Random, 0..0);
    let blocks = BUDGET / 4 / BLOCK;
    // A different order in each round, every block once.
    let block = |turn: u64, index: u64| (index * 1365 + turn * 77) % blocks * BLOCK;
    for turn in 0..3 {
        for index in 0..blocks {
            rig.read_on(&hot, block(turn, index), BLOCK).unwrap();
        }
    }
    let mut missed = 0;
    let (mut turn, mut index) = (3, 0);
    for at in (BUDGET / 4..BUDGET * 4)
        .step_by(MIB as usize)
        .cycle()
        .take(128)
    {
        rig.read_on(&rig.stream, at, MIB).unwrap();
        for _ in 0..32 {
            missed += u64::from(
                rig.plain
                    .space
                    .read_cached(block(turn, index), &mut [0; BLOCK as usize])
                    .is_none(),
            );
            rig.read_on(&hot, block(turn, index), BLOCK).unwrap();
            (turn, index) = (turn + (index + 1) / blocks, (index + 1) % blocks);
        }
    }
    assert!(missed * 20 <= 128 * 32, "{missed} misses of {}", 128 * 32);
}

#[test]
fn many_threads_on_one_handle() {
    let rig = Rig::new(32 * MIB, 256 * MIB);
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(20_000, Ordering::Relaxed);
                    if at >= 32 * MIB {
                        return;
                    }
                    rig.read(at, 20_000);
                }
            });
        }
    });
    let (bios, bytes) = rig.counted();
    assert_eq!(bytes, 32 * MIB, "each byte once");
    assert!(bios < 32 * MIB / 20_000 / 2, "{bios} bios");
}

#[test]
fn an_error_reaches_only_the_reader_that_needs_the_bytes() {
    let rig = Rig::new(16 * MIB, 64 * MIB);
    rig.read(0, MIB);
    rig.device.set_fault(Fault::From(rig.device.requests()));
    let mut failed = 0;
    for at in (MIB..16 * MIB).step_by(65536) {
        failed += u64::from(rig.read_on(&rig.stream, at, 65536).is_err());
    }
    assert!(
        failed > 100,
        "only what was read before is cached: {failed}"
    );
    rig.drain();
    rig.device.set_fault(Fault::Never);
    for at in (0..16 * MIB).step_by(65536) {
        rig.read(at, 65536);
    }
}

#[test]
fn truncation_while_windows_are_in_flight() {
    let rig = Rig::new(16 * MIB, 64 * MIB);
    for round in 0..50 {
        let stream = ReadStream::default();
        let size = 16 * MIB - round * 300_000;
        for at in (0..MIB).step_by(16384) {
            rig.check(at, 16384, &rig.read_on(&stream, at, 16384).unwrap());
        }
        // As a file system does: exclusively, with background work excluded.
        let frozen = rig.plain.space.freeze();
        rig.plain.space.discard(&*rig.host, 0..u64::MAX);
        rig.plain.committed.store(size, Ordering::SeqCst);
        rig.plain.space.set_size(size);
        drop(frozen);
        rig.check(
            size - 10_000,
            20_000,
            &rig.read_on(&stream, size - 10_000, 20_000).unwrap(),
        );
    }
}

#[test]
fn threads_hold_no_cache_and_end_with_it() {
    let rig = Rig::new(8 * MIB, 64 * MIB);
    for at in (0..2 * MIB).step_by(4096) {
        rig.read(at, 4096);
    }
    let (cache, plain): (Weak<PageCache>, Weak<Plain>) =
        (Arc::downgrade(&rig.cache), Arc::downgrade(&rig.plain));
    rig.cache.close();
    let refused = rig.cache.readahead().counts().refused;
    for at in (2 * MIB..8 * MIB).step_by(4096) {
        rig.read(at, 4096);
    }
    assert!(rig.cache.readahead().counts().refused > refused);
    drop(rig);
    assert!(cache.upgrade().is_none() && plain.upgrade().is_none());
}
