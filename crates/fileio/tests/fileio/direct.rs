//! Direct I/O compared with a model: a byte vector.

use crate::common;
use crate::fake_mapper;

use std::io::{IoSlice, IoSliceMut};
use std::sync::{Arc, RwLock};

use common::Rng;
use fake_mapper::{BLOCK, FakeMapper, STALE};
use throughline_block::Disk;
use throughline_device::{BlockDevice, Limits, MemoryDevice};
use throughline_fileio::{Error, Map, Mapper, Reason, direct};
use throughline_testing::{Fault, FaultDevice};

/// Small limits, so that small requests reach all of them; memory must be aligned, as for a disk.
fn limits() -> Limits {
    Limits {
        logical_block_bytes: 512,
        physical_block_bytes: 4096,
        memory_align_bytes: 512,
        max_transfer_bytes: 64 << 10,
        max_segments: 3,
        chunk_bytes: 48 << 10,
        queue_depth: 4,
        ..Limits::default()
    }
}

fn stale_memory(blocks: u64) -> Arc<dyn BlockDevice> {
    let device: Arc<dyn BlockDevice> =
        Arc::new(MemoryDevice::with_limits(blocks * BLOCK, limits()));
    let disk = Disk::new(Arc::clone(&device)).unwrap();
    disk.write_at(0, &vec![STALE; (blocks * BLOCK) as usize], false)
        .unwrap();
    device
}

/// `len` bytes of caller memory, at an odd or an aligned address.
struct Memory {
    all: Vec<u8>,
    from: usize,
    len: usize,
}

impl Memory {
    fn new(len: usize, rng: &mut Rng) -> Self {
        let all = vec![0x55; len + 1024];
        let aligned = all.as_ptr().addr().next_multiple_of(512) - all.as_ptr().addr();
        let odd = if rng.below(2) == 0 {
            0
        } else {
            rng.below(512) as usize
        };
        Self {
            from: aligned + odd,
            all,
            len,
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.all[self.from..self.from + self.len]
    }
}

/// Splits `len` bytes into pieces, some of them empty, odd, or whole blocks.
fn cuts(len: usize, rng: &mut Rng) -> Vec<usize> {
    let mut pieces = Vec::new();
    let mut left = len;
    while left > 0 && pieces.len() < 8 {
        let piece = match rng.below(4) {
            0 => rng.below(700) as usize,
            1 => 512 * rng.below(20) as usize,
            2 => left,
            _ => rng.below(left as u64 + 1) as usize,
        };
        pieces.push(piece.min(left));
        left -= piece.min(left);
    }
    pieces.push(left);
    pieces
}

fn write(
    disk: &Disk,
    mapper: &dyn Mapper,
    offset: u64,
    data: &[u8],
    rng: &mut Rng,
) -> Result<usize, Error> {
    let mut memory = Memory::new(data.len(), rng);
    memory.bytes().copy_from_slice(data);
    let mut rest: &[u8] = memory.bytes();
    let mut slices = Vec::new();
    for cut in cuts(data.len(), rng) {
        let (piece, after) = rest.split_at(cut);
        slices.push(IoSlice::new(piece));
        rest = after;
    }
    direct::write(disk, mapper, offset, &slices)
}

fn read(
    disk: &Disk,
    mapper: &dyn Mapper,
    offset: u64,
    len: usize,
    rng: &mut Rng,
) -> Result<Vec<u8>, Error> {
    let mut memory = Memory::new(len, rng);
    let mut rest: &mut [u8] = memory.bytes();
    let mut slices = Vec::new();
    for cut in cuts(len, rng) {
        let (piece, after) = rest.split_at_mut(cut);
        slices.push(IoSliceMut::new(piece));
        rest = after;
    }
    let got = direct::read(disk, mapper, offset, &mut slices)?;
    let bytes = memory.bytes();
    assert!(
        bytes[got..].iter().all(|byte| *byte == 0x55),
        "memory past the end of the file was touched"
    );
    Ok(bytes[..got].to_vec())
}

fn range(rng: &mut Rng, file_bytes: u64) -> (u64, usize) {
    let align = [1, 1, 512, BLOCK][rng.below(4) as usize];
    let offset = rng.below(file_bytes) / align * align;
    let longest = [600, 10_000, 300_000][rng.below(3) as usize];
    (
        offset,
        ((1 + rng.below(longest)).next_multiple_of(align)) as usize,
    )
}

fn check_read(disk: &Disk, mapper: &FakeMapper, model: &[u8], rng: &mut Rng) {
    let (offset, len) = range(rng, model.len() as u64 + 1000);
    let got = read(disk, mapper, offset, len, rng).unwrap();
    let end = (offset as usize + len).min(model.len());
    let expected = model.get(offset as usize..end).unwrap_or(&[]);
    assert!(got == expected, "read {len} at {offset} differs");
}

fn model_run(seed: u64, blocks: u64, longest_run: u64) {
    let rng = &mut Rng(seed);
    let device = stale_memory(blocks);
    let disk = Disk::new(device).unwrap();
    if rng.below(2) == 0 {
        disk.set_bio_target_bytes(Some(1 + rng.below(100_000) as u32));
    }
    let mapper = FakeMapper::new(blocks, longest_run, seed);
    mapper.preallocate(3, 10);
    mapper.preallocate(40, 5);
    let mut model = Vec::new();
    for step in 0..60 {
        let (offset, len) = range(rng, 1_000_000);
        let data: Vec<u8> = (0..len)
            .map(|i| (i as u64 * 7 + step * 31 + seed) as u8 | 1)
            .collect();
        let before = model.clone();
        let done = match write(&disk, &mapper, offset, &data, rng) {
            Ok(done) => done,
            Err(Error::Caller(Reason::NoSpace)) => 0,
            Err(other) => panic!("{other}"),
        };
        let end = offset as usize + done;
        if done > 0 {
            model.resize(model.len().max(end), 0);
            model[offset as usize..end].copy_from_slice(&data[..done]);
        }
        assert_eq!(
            mapper.size_bytes(),
            model.len() as u64,
            "before: {}",
            before.len()
        );
        mapper.assert_no_open_claims();
        check_read(&disk, &mapper, &model, rng);
    }
    let all = read(&disk, &mapper, 0, model.len() + 10, rng).unwrap();
    assert!(all == model, "the whole file differs");
}

#[test]
fn reads_and_writes_as_a_vector_does() {
    for seed in 0..throughline_testkit::tier::pick(15, 60, 60) {
        eprintln!("seed {seed}");
        model_run(seed, 512, 1 + seed % 40);
    }
}

#[test]
fn a_full_device_gives_an_exact_short_count() {
    for seed in 1000..1040 {
        eprintln!("seed {seed}");
        model_run(seed, 64, 8);
    }
}

/// Every n-th request fails once: no call falsely succeeds, no other byte changes, no stale byte becomes
/// visible.
#[test]
fn a_failed_request_is_never_a_success() {
    let mut failures = 0;
    for seed in 0..40_u64 {
        for fault in [Fault::Once(3 + seed * 7), Fault::AfterDone(3 + seed * 7)] {
            eprintln!("seed {seed} {fault:?}");
            failures += fault_run(seed, fault);
        }
    }
    assert!(failures > 20, "number of injected faults: {failures}");
}

fn fault_run(seed: u64, fault: Fault) -> u64 {
    let rng = &mut Rng(seed);
    let blocks = 512;
    let faulty = Arc::new(FaultDevice::new(stale_memory(blocks), fault));
    let disk = Disk::new(Arc::clone(&faulty) as Arc<dyn BlockDevice>).unwrap();
    let mapper = FakeMapper::new(blocks, 9, seed);
    mapper.preallocate(3, 10);
    let mut model: Vec<u8> = Vec::new();
    for step in 0..12 {
        let (offset, len) = range(rng, 500_000);
        let data: Vec<u8> = (0..len)
            .map(|i| (i as u64 * 7 + step * 31 + seed) as u8 | 1)
            .collect();
        let (from, failed_before) = (offset as usize, faulty.failed());
        let result = write(&disk, &mapper, offset, &data, rng);
        mapper.assert_no_open_claims();
        let done = result.as_ref().map_or(0, |done| *done);
        let size = mapper.size_bytes() as usize;
        assert!(size >= from + done || done == 0);
        let was = model.clone();
        model.resize(model.len().max(size), 0);
        if faulty.failed() == failed_before {
            assert_eq!(done, len);
            model[from..from + len].copy_from_slice(&data);
        } else {
            assert!(
                result.is_err() || done < len,
                "a request failed, but the call succeeded"
            );
            let Ok(now) = read(&disk, &mapper, 0, size, rng) else {
                panic!("only one request fails")
            };
            for (at, byte) in now.iter().enumerate() {
                let old = was.get(at).copied().unwrap_or(0);
                let new = at.checked_sub(from).and_then(|i| data.get(i)).copied();
                let committed = at >= from && at < from + done;
                let fine = if committed {
                    Some(*byte) == new
                } else {
                    *byte == old || Some(*byte) == new
                };
                assert!(
                    fine,
                    "byte {at} is {byte:#x}, was {old:#x}, write of {len} at {from} did {done}"
                );
            }
            model = now;
        }
        let failed_before = faulty.failed();
        let found = read(&disk, &mapper, 0, size, rng);
        assert_eq!(
            found.is_err(),
            faulty.failed() > failed_before,
            "a read must fail if and only if a request does"
        );
        let found = found
            .or_else(|_| read(&disk, &mapper, 0, size, rng))
            .unwrap();
        assert!(found == model);
    }
    faulty.failed()
}

/// Threads write every n-th piece of one file, some pieces smaller than a block, each under the lock that
/// `needs_exclusive` requires: no write may be lost.
#[test]
fn concurrent_neighbours_keep_their_bytes() {
    const THREADS: u64 = 4;
    for (seed, piece) in [
        (1, 100_u64),
        (2, 512),
        (3, BLOCK),
        (4, 3 * 512),
        (5, 70_000),
    ] {
        eprintln!("seed {seed} piece {piece}");
        let blocks = 2048;
        let disk = Disk::new(stale_memory(blocks)).unwrap();
        let mapper = FakeMapper::new(blocks, 16, seed);
        mapper.preallocate(2, 20);
        let lock = RwLock::new(());
        let pieces = (400_000 / piece).min(400);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (disk, mapper, lock) = (&disk, &mapper, &lock);
                scope.spawn(move || {
                    let rng = &mut Rng(seed * 100 + thread);
                    for at in (thread..pieces).step_by(THREADS as usize) {
                        let data = vec![at as u8 | 1; piece as usize];
                        let exclusive = direct::needs_exclusive(mapper, at * piece, piece);
                        let (_exclusive, _shared) = match exclusive {
                            true => (Some(lock.write().unwrap()), None),
                            false => (None, Some(lock.read().unwrap())),
                        };
                        assert_eq!(
                            write(disk, mapper, at * piece, &data, rng).unwrap(),
                            data.len()
                        );
                    }
                });
            }
        });
        mapper.assert_no_open_claims();
        let all = read(&disk, &mapper, 0, (pieces * piece) as usize, &mut Rng(0)).unwrap();
        for (at, found) in all.chunks(piece as usize).enumerate() {
            assert!(found.iter().all(|byte| *byte == at as u8 | 1), "piece {at}");
        }
        assert_eq!(all.len() as u64, pieces * piece);
    }
}

#[test]
fn the_edges_of_the_number_range() {
    let disk = Disk::new(stale_memory(16)).unwrap();
    let mapper = FakeMapper::new(16, 4, 1);
    let result = direct::write(&disk, &mapper, u64::MAX - 3, &[IoSlice::new(b"hello")]);
    assert!(
        matches!(result, Err(Error::Caller(Reason::TooLarge))),
        "{result:?}"
    );
    assert_eq!(direct::write(&disk, &mapper, u64::MAX, &[]).unwrap(), 0);
    let mut byte = [0];
    assert_eq!(
        direct::read(&disk, &mapper, u64::MAX, &mut [IoSliceMut::new(&mut byte)]).unwrap(),
        0
    );
}
