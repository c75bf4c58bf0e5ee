//! Data reaches the device; flushes end; files and threads are released.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use throughline_block::Disk;
use throughline_fileio::{Map, buffered};

use crate::writeback::backing::{FakeFile, Flat};
use crate::writeback::common::Rng;
use crate::writeback::fake_mapper::{BLOCK, FakeMapper, STALE};
use crate::writeback::hold::HoldDevice;
use crate::writeback::{AtEnd, MIB, cache, memory, on_device, pattern, read, until, write};

#[test]
fn written_data_reaches_the_device() {
    for seed in 0..8 {
        let mut rng = Rng(seed);
        let blocks = 1024;
        let device = memory(blocks * BLOCK);
        let disk = Disk::new(Arc::clone(&device)).unwrap();
        disk.write_at(0, &vec![STALE; (blocks * BLOCK) as usize], false)
            .unwrap();
        let cache = cache(device, 4 * MIB, None, None);
        let mapper = FakeMapper::new(blocks, 40, seed);
        mapper.preallocate(100, 50);
        let file = FakeFile::new(&cache, mapper, 0, blocks);
        let host = file.host();
        let mut model = Vec::new();
        for _ in 0..200 {
            let at = rng.below(blocks * BLOCK / 2);
            let len = rng.below(100_000) as usize;
            let data = pattern(rng.next(), at, len);
            write(&host, at, &data).unwrap();
            let end = at as usize + len;
            if len > 0 {
                model.resize(model.len().max(end), 0);
                model[at as usize..end].copy_from_slice(&data);
            }
            match rng.below(12) {
                0 => buffered::flush(&host, 0..u64::MAX).unwrap(),
                1 => buffered::start_flush(&host, at..at + 1),
                2 => buffered::flush(&host, at..at + 70_000).unwrap(),
                _ => {}
            }
        }
        assert_eq!(file.space_size(), model.len() as u64);
        buffered::flush(&host, 0..u64::MAX).unwrap();
        assert!(!file.is_dirty());
        assert_eq!(cache.throttle().dirty_bytes(), 0);
        file.assert_no_open_claims();
        assert!(on_device(&disk, &*host) == model, "seed {seed}");
        assert!(read(&host, 0, model.len()) == model, "seed {seed}");
    }
}

#[test]
fn all_files_are_flushed_and_released() {
    let cache = cache(memory(64 * MIB), 64 * MIB, None, None);
    let files: Vec<_> = (0..20)
        .map(|i| FakeFile::new(&cache, Flat::new(), i * MIB, 256))
        .collect();
    for (i, file) in files.iter().enumerate() {
        write(&file.host(), 0, &pattern(i as u64, 0, 10_000)).unwrap();
    }
    cache.flush_all().unwrap();
    for file in &files {
        assert_eq!(file.size_bytes(), 10_000);
    }
    // The flusher keeps no clean file.
    for file in files {
        until(|| Arc::strong_count(&file) == 1);
    }
}

#[test]
fn a_few_blocks_are_flushed_by_the_waiting_thread() {
    let cache = cache(memory(64 * MIB), 64 * MIB, None, None);
    let file = FakeFile::new(&cache, Flat::new(), 0, 1024);
    let host = file.host();
    for at in 0..10 {
        write(&host, at * 5000, &pattern(1, at * 5000, 5000)).unwrap();
        buffered::flush(&host, 0..u64::MAX).unwrap();
        assert!(!file.is_dirty());
        assert_eq!(file.size_bytes(), (at + 1) * 5000);
    }
    let counts = cache.writeback().counts();
    assert_eq!((counts.own_flushes, counts.flushes), (10, 0), "{counts:?}");
    // A larger flush goes to the flusher.
    write(&host, MIB, &pattern(1, MIB, 1 << 20)).unwrap();
    buffered::flush(&host, 0..u64::MAX).unwrap();
    let counts = cache.writeback().counts();
    assert_eq!((counts.own_flushes, counts.flushes), (10, 1), "{counts:?}");
    // The flusher releases files that other threads have flushed.
    drop(host);
    cache.writeback().set_age(Duration::from_millis(4));
    until(|| Arc::strong_count(&file) == 1);
    file.assert_no_open_claims();
}

#[test]
fn concurrent_flushes_leave_every_file_intact() {
    const BLOCKS: u64 = 64;
    let cache = cache(memory(64 * MIB), 64 * MIB, None, None);
    let files: Vec<_> = (0..3)
        .map(|i| {
            FakeFile::new(
                &cache,
                FakeMapper::new(BLOCKS * 4, 40, i),
                i * 8 * MIB,
                BLOCKS * 4,
            )
        })
        .collect();
    std::thread::scope(|scope| {
        for thread in 0..6_u64 {
            let file = &files[thread as usize % files.len()];
            scope.spawn(move || {
                let (host, mut rng) = (file.host(), Rng(thread));
                for _ in 0..60 {
                    // In each file, one thread writes the even blocks and another the odd ones.
                    let at = (rng.below(BLOCKS / 2) * 2 + thread / 3) * BLOCK;
                    write(&host, at, &pattern(thread / 3, at, BLOCK as usize)).unwrap();
                    buffered::flush(&host, at..at + BLOCK).unwrap();
                    assert!(host.size_bytes() >= at + BLOCK);
                }
            });
        }
    });
    let counts = cache.writeback().counts();
    assert!(counts.own_flushes > 0, "{counts:?}");
    for file in &files {
        buffered::flush(&file.host(), 0..u64::MAX).unwrap();
        file.assert_no_open_claims();
        let content = on_device(cache.disk(), &*file.host());
        for (at, block) in (0..)
            .step_by(BLOCK as usize)
            .zip(content.chunks(BLOCK as usize))
        {
            let whole = pattern(at / BLOCK % 2, at, block.len());
            assert!(
                block == whole || block.iter().all(|byte| *byte == 0),
                "byte {at}"
            );
        }
    }
}

#[test]
fn a_flush_ends_while_the_file_is_being_written() {
    let cache = cache(memory(64 * MIB), 64 * MIB, None, None);
    let file = FakeFile::new(&cache, Flat::new(), 0, 16 << 10);
    let host = file.host();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = Rng(7);
            while !stop.load(Ordering::Relaxed) {
                let at = rng.below(32 * MIB);
                write(&host, at, &pattern(0, at, 20_000)).unwrap();
            }
        });
        let _at_end = AtEnd(&stop);
        for _ in 0..20 {
            write(&host, 40 * MIB, b"this must be there").unwrap();
            buffered::flush(&host, 0..u64::MAX).unwrap();
            assert!(file.size_bytes() >= 40 * MIB + 18);
        }
    });
}

#[test]
fn many_threads_flush_many_files() {
    let cache = cache(memory(64 * MIB), 16 * MIB, None, None);
    let files: Vec<_> = (0..4)
        .map(|i| FakeFile::new(&cache, Flat::new(), i * 16 * MIB, 4096))
        .collect();
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let file = &files[thread as usize % 4];
            scope.spawn(move || {
                let host = file.host();
                for round in 0..40 {
                    let at = MIB * thread + 10_000 * round;
                    write(&host, at, &pattern(0, at, 10_000)).unwrap();
                    buffered::flush(&host, at..at + 10_000).unwrap();
                    assert!(file.size_bytes() >= at + 10_000);
                }
            });
        }
    });
    cache.flush_all().unwrap();
    assert_eq!(cache.throttle().dirty_bytes(), 0);
}

#[test]
fn old_data_is_written_without_a_request() {
    let cache = cache(memory(MIB), 64 * MIB, None, None);
    cache.writeback().set_age(Duration::from_millis(20));
    let file = FakeFile::new(&cache, Flat::new(), 0, 256);
    write(&file.host(), 0, b"a few bytes").unwrap();
    until(|| file.size_bytes() == 11);
    assert!(cache.writeback().counts().aged >= 1);
}

#[test]
fn a_stream_is_written_behind_its_writer() {
    let cache = cache(memory(64 * MIB), 256 * MIB, None, None);
    let file = FakeFile::new(&cache, Flat::new(), 0, 16 << 10);
    let host = file.host();
    for i in 0..64 {
        write(&host, i * MIB, &pattern(0, i * MIB, MIB as usize)).unwrap();
    }
    until(|| file.size_bytes() >= 32 * MIB);
    let counts = cache.writeback().counts();
    assert!(counts.stream_passes > 0 && counts.aged == 0, "{counts:?}");
}

#[test]
fn dirty_memory_stays_within_a_tiny_limit() {
    let cache = cache(memory(64 * MIB), MIB, Some(256 << 10), None);
    let file = FakeFile::new(&cache, Flat::new(), 0, 16 << 10);
    let host = file.host();
    let mut rng = Rng(3);
    let mut at = 0;
    while at < 16 * MIB {
        let len = 1 + rng.below(300_000);
        write(&host, at, &pattern(1, at, len as usize)).unwrap();
        assert!(cache.throttle().dirty_bytes() <= 256 << 10);
        at += len;
    }
    buffered::flush(&host, 0..u64::MAX).unwrap();
    assert_eq!(file.size_bytes(), at);
}

/// Writes much more than the budget at memory speed: the limits hold all the time.
#[test]
fn a_long_stream_stays_within_a_small_budget() {
    let (total, budget) = (1024 * MIB, 64 * MIB);
    let device = Arc::new(throughline_device::NullDevice::new(total));
    let cache = cache(device, budget, None, None);
    let file = FakeFile::new(&cache, Flat::new(), 0, total / BLOCK);
    let host = file.host();
    let limit = cache.throttle().state().limit_bytes;
    assert!(limit <= budget / 5);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                assert!(cache.throttle().dirty_bytes() <= limit);
                assert!(file.space_ref().cached_bytes() <= budget);
            }
        });
        let _at_end = AtEnd(&is_done);
        let data = pattern(0, 0, MIB as usize);
        for i in 0..total / MIB {
            write(&host, i * MIB, &data).unwrap();
        }
        buffered::flush(&host, 0..u64::MAX).unwrap();
    });
    assert_eq!(file.size_bytes(), total);
    let counts = cache.writeback().counts();
    assert_eq!(counts.bytes, total, "each byte was written once");
    assert!(counts.descents * 100 <= counts.runs, "{counts:?}");
}

#[test]
fn closing_ends_the_thread_and_dropping_does() {
    let cache_one = cache(memory(64 * MIB), 64 * MIB, None, None);
    let file = FakeFile::new(&cache_one, Flat::new(), 0, 256);
    write(&file.host(), 0, b"lost").unwrap();
    cache_one.close();
    cache_one.close();
    assert_eq!(Arc::strong_count(&file), 1, "the flusher has let it go");
    assert_eq!(file.size_bytes(), 0);
    // The next write starts it again.
    write(&file.host(), 100, b"not lost").unwrap();
    buffered::flush(&file.host(), 0..u64::MAX).unwrap();
    assert_eq!(file.size_bytes(), 108);
    // A dirty file is written before the last reference to the cache is dropped.
    cache_one.writeback().set_age(Duration::from_millis(10));
    write(&file.host(), 200, b"nobody holds it").unwrap();
    let (weak_file, weak_cache) = (Arc::downgrade(&file), Arc::downgrade(&cache_one));
    drop((file, cache_one));
    until(|| weak_file.strong_count() == 0 && weak_cache.strong_count() == 0);
}

#[test]
fn a_flush_waits_for_a_file_to_thaw() {
    let cache = cache(memory(MIB), 64 * MIB, None, None);
    let file = FakeFile::new(&cache, Flat::new(), 0, 256);
    let host = file.host();
    write(&host, 0, &pattern(0, 0, 50_000)).unwrap();
    let is_thawed = AtomicBool::new(false);
    let frozen = file.space_ref().freeze();
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| {
            buffered::flush(&host, 0..u64::MAX).unwrap();
            assert!(is_thawed.load(Ordering::SeqCst));
        });
        // Another file is written meanwhile.
        let other = FakeFile::new(&cache, Flat::new(), 512 << 10, 64);
        write(&other.host(), 0, b"not frozen").unwrap();
        buffered::flush(&other.host(), 0..u64::MAX).unwrap();
        is_thawed.store(true, Ordering::SeqCst);
        drop(frozen);
        flush.join().unwrap();
    });
    assert_eq!(file.size_bytes(), 50_000);
}

#[test]
fn a_truncation_waits_for_runs_in_flight() {
    let (device, gate) = HoldDevice::new(memory(MIB));
    let cache = cache(Arc::new(device), 64 * MIB, None, None);
    let file = FakeFile::new(&cache, FakeMapper::new(256, 10, 1), 0, 256);
    let host = file.host();
    write(&host, 0, &pattern(0, 0, 100_000)).unwrap();
    gate.hold();
    buffered::start_flush(&host, 0..50_000);
    gate.wait_held(1);
    let release = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let truncation = scope.spawn(|| {
            let _frozen = file.space_ref().freeze();
            assert!(release.load(Ordering::SeqCst));
            file.space_ref().discard(&*host, 0..u64::MAX);
            file.space_ref().set_size(0);
        });
        release.store(true, Ordering::SeqCst);
        gate.release();
        truncation.join().unwrap();
    });
    assert!(!file.is_dirty());
    assert_eq!(cache.throttle().dirty_bytes(), 0);
    file.assert_no_open_claims();
    buffered::flush(&host, 0..u64::MAX).unwrap();
}
