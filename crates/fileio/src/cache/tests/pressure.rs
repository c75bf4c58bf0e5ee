//! Tests with little memory.

use crate::cache::Backing;
use crate::cache::testing::Volume;
use crate::cache::tests::{finish, pattern};

const MIB: u64 = 1 << 20;

#[test]
fn a_stream_larger_than_the_budget_goes_through_it() {
    for budget in [MIB, 3 * MIB, 20 * MIB] {
        let volume = Volume::new(4096, 16 * 256, budget);
        let file = volume.file();
        let data = pattern(5, 0, 15 * MIB as usize);
        for (index, piece) in data.chunks(100_000).enumerate() {
            assert_eq!(
                file.write(index as u64 * 100_000, piece).unwrap(),
                piece.len()
            );
            assert!(volume.cache.pool.used_bytes() <= budget);
        }
        for (index, piece) in data.chunks(70_001).enumerate() {
            assert!(file.read(index as u64 * 70_001, piece.len()).unwrap() == piece);
            assert!(volume.cache.pool.used_bytes() <= budget);
        }
        finish(&volume, vec![file]);
    }
}

/// Reads hot 4 KiB blocks interleaved with a file much larger than the budget. Returns the hits among the hot
/// reads.
#[test]
fn a_scan_does_not_evict_hot_folios() {
    let budget = 8 * MIB;
    let volume = Volume::new(4096, 40 * 256, budget);
    let (hot, cold) = (volume.file(), volume.file());
    hot.write(0, &pattern(1, 0, 2 * MIB as usize)).unwrap();
    cold.write(0, &pattern(2, 0, 32 * MIB as usize)).unwrap();
    volume.cache.flush_all().unwrap();
    hot.space().drop_clean(0..u64::MAX);
    let mut buf = [0; 4096];
    for at in (0..2).flat_map(|_| 0..512_u64) {
        hot.read(at * 4096, 4096).unwrap();
    }
    let (mut asked, mut hits) = (0, 0);
    for round in 0..4 {
        for scanned in 0..512_u64 {
            let at = scanned * 65536;
            cold.read(at, 65536).unwrap();
            let block = (scanned * 37 + round) % 512 * 4096;
            let hit = hot.space().read_cached(block, &mut buf).is_some();
            if !hit {
                hot.read(block, 4096).unwrap();
            }
            asked += 1;
            hits += u32::from(hit);
        }
    }
    assert!(hits * 100 >= asked * 95, "{hits} hits of {asked}");
    finish(&volume, vec![hot, cold]);
}

#[test]
fn a_smaller_budget_gives_memory_back() {
    let volume = Volume::new(4096, 4000, 12 * MIB);
    let file = volume.file();
    file.write(0, &pattern(1, 0, 10 * MIB as usize)).unwrap();
    file.flush().unwrap();
    volume.cache.set_budget_bytes(2 * MIB);
    assert!(volume.cache.pool.used_bytes() <= 2 * MIB);
    assert_eq!(volume.cache.budget_bytes(), 2 * MIB);
    assert!(file.read(0, 10 * MIB as usize).unwrap() == pattern(1, 0, 10 * MIB as usize));
    finish(&volume, vec![file]);
}

#[test]
fn without_memory_a_read_goes_past_the_cache() {
    let volume = Volume::new(4096, 2000, MIB);
    let file = volume.file();
    let data = pattern(3, 0, MIB as usize);
    file.write(0, &data).unwrap();
    file.flush().unwrap();
    file.space().drop_clean(0..u64::MAX);
    // Take all memory out of the pool.
    let held: Vec<_> = std::iter::from_fn(|| volume.cache.pool.take(4096)).collect();
    assert!(!held.is_empty());
    assert!(file.read(1234, 500_000).unwrap() == data[1234..501_234]);
    assert!(file.space().is_empty());
    drop(held);
    assert!(file.read(0, MIB as usize).unwrap() == data);
    assert!(!file.space().is_empty());
    finish(&volume, vec![file]);
}

#[test]
fn entries_of_dropped_folios_are_sifted_out() {
    let volume = Volume::new(4096, 2000, 4 * MIB);
    let file = volume.file();
    file.write(0, &pattern(3, 0, MIB as usize)).unwrap();
    file.flush().unwrap();
    for _ in 0..200 {
        for at in 0..64 {
            file.read(at * 8192, 4096).unwrap();
        }
        file.space().drop_clean(0..u64::MAX);
    }
    assert!(
        volume.cache.policy.len() < 4000,
        "{}",
        volume.cache.policy.len()
    );
    finish(&volume, vec![file]);
}

#[test]
fn a_long_stream_recycles_what_it_left() {
    let volume = Volume::new(4096, 48 << 10, 160 * MIB);
    let (file, other) = (volume.file(), volume.file());
    other.write(0, &pattern(1, 0, MIB as usize)).unwrap();
    let piece = pattern(2, 0, MIB as usize);
    for at in 0..180 {
        file.write(at * MIB, &piece).unwrap();
    }
    file.flush().unwrap();
    // It reused its own folios long before the budget was used up.
    let held = volume.cache.pool.held_bytes();
    assert!(held < 140 * MIB, "{} MiB", held / MIB);
    assert!(other.space().read_cached(0, &mut [0; 4096]).is_some());
    for at in 0..180 {
        assert!(file.read(at * MIB, MIB as usize).unwrap() == piece);
    }
    finish(&volume, vec![file, other]);
}

/// Hot blocks spread over all memory, each in its own folio: a stream finds few large pieces and takes
/// smaller ones.
#[test]
fn a_stream_does_not_evict_small_hot_folios() {
    let (budget, hot_bytes) = (16 * MIB, 4 * MIB);
    let volume = Volume::new(4096, 110 * 256, budget);
    let (hot, stream) = (volume.file(), volume.file());
    hot.write(0, &pattern(1, 0, hot_bytes as usize)).unwrap();
    let piece = pattern(2, 0, MIB as usize);
    for at in 0..96 {
        stream.write(at * MIB, &piece).unwrap();
    }
    volume.cache.flush_all().unwrap();
    hot.space().drop_clean(0..u64::MAX);
    let random_stream = crate::ReadStream::default();
    crate::readahead::advise(&hot.host(), &random_stream, crate::Advice::Random, 0..0);
    let mut buf = [0; 4096];
    let blocks = hot_bytes / 4096;
    for block in (0..3).flat_map(|_| 0..blocks) {
        let at = block * 389 % blocks * 4096;
        if hot.space().read_cached(at, &mut buf).is_none() {
            hot.read_into(at, &mut buf, &random_stream).unwrap();
        }
    }
    // While the stream, read and then written, exceeds the budget several times, the hot blocks are not
    // accessed.
    let reader = crate::ReadStream::default();
    let mut into = vec![0; MIB as usize];
    for at in 0..96 {
        stream.read_into(at * MIB, &mut into, &reader).unwrap();
        assert!(into == piece);
    }
    let cached = |at: u64| hot.space().read_cached(at * 4096, &mut [0; 4096]).is_some();
    let hits = (0..blocks).filter(|at| cached(*at)).count() as u64;
    assert!(hits * 100 >= blocks * 95, "read: {hits} hits of {blocks}");
    for at in 0..96 {
        stream.write(at * MIB, &piece).unwrap();
    }
    let cached = |at: u64| hot.space().read_cached(at * 4096, &mut [0; 4096]).is_some();
    let hits = (0..blocks).filter(|at| cached(*at)).count() as u64;
    assert!(
        hits * 100 >= blocks * 95,
        "written: {hits} hits of {blocks}"
    );
    finish(&volume, vec![hot, stream]);
}
