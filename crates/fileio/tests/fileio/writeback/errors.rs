//! Errors of the device and the mapper: kept, reported, retried.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use throughline_block::Disk;
use throughline_device::{BlockDevice, Op, Request};
use throughline_fileio::{Error, Map, buffered};
use throughline_testing::{Fault, FaultDevice};

use crate::writeback::backing::{FakeFile, Flat};
use crate::writeback::common::Rng;
use crate::writeback::fake_mapper::{BLOCK, FakeMapper};
use crate::writeback::{MIB, cache, memory, on_device, pattern, read, until, write};

#[test]
fn an_error_is_returned_by_every_flush_until_one_succeeds() {
    let inner = memory(8 * MIB);
    let device = Arc::new(FaultDevice::new(Arc::clone(&inner), Fault::From(0)).only(&[Op::Write]));
    let cache = cache(Arc::clone(&device) as _, 64 * MIB, None, None);
    let file = FakeFile::new(&cache, FakeMapper::new(2048, 30, 2), 0, 2048);
    let host = file.host();
    let data = pattern(0, 0, 1_000_000);
    write(&host, 0, &data).unwrap();
    for _ in 0..3 {
        let error = buffered::flush(&host, 0..u64::MAX).unwrap_err();
        assert!(matches!(error, Error::Device(_)), "{error}");
        assert_eq!(file.size_bytes(), 0);
        assert!(read(&host, 0, data.len()) == data);
    }
    assert!(cache.flush_all().is_err());
    let requests = device.requests();
    device.set_fault(Fault::Never);
    buffered::flush(&host, 0..u64::MAX).unwrap();
    assert!(device.requests() > requests);
    let disk = Disk::new(inner).unwrap();
    assert!(on_device(&disk, &*host) == data);
    file.assert_no_open_claims();
    cache.flush_all().unwrap();
}

#[test]
fn a_failed_write_is_retried_by_the_timer() {
    let device = Arc::new(FaultDevice::new(memory(8 * MIB), Fault::Once(0)).only(&[Op::Write]));
    let cache = cache(Arc::clone(&device) as _, 64 * MIB, None, None);
    let file = FakeFile::new(&cache, Flat::new(), 0, 2048);
    write(&file.host(), 0, &pattern(0, 0, 50_000)).unwrap();
    buffered::start_flush(&file.host(), 0..u64::MAX);
    until(|| file.size_bytes() == 50_000);
    let counts = cache.writeback().counts();
    assert!(counts.errors == 1 && counts.retries == 1, "{counts:?}");
}

#[test]
fn a_commit_that_fails_leaves_the_blocks_dirty() {
    let cache = cache(memory(8 * MIB), 64 * MIB, None, None);
    let file = FakeFile::new(&cache, FakeMapper::new(2048, 30, 2), 0, 2048);
    let host = file.host();
    write(&host, 0, &pattern(0, 0, 50_000)).unwrap();
    let promised = file.promised();
    assert_eq!(promised, 13);
    file.failing_commits.store(2, Ordering::Release);
    for _ in 0..2 {
        buffered::flush(&host, 0..u64::MAX).unwrap_err();
        assert_eq!(file.promised(), promised, "the reservation is kept");
    }
    buffered::flush(&host, 0..u64::MAX).unwrap();
    assert_eq!(file.size_bytes(), 50_000);
    file.assert_no_open_claims();
}

#[test]
fn waiters_for_room_get_the_error_of_a_dead_device() {
    let device = Arc::new(FaultDevice::new(memory(64 * MIB), Fault::From(0)).only(&[Op::Write]));
    let cache = cache(Arc::clone(&device) as _, 4 * MIB, Some(MIB), None);
    let file = FakeFile::new(&cache, Flat::new(), 0, 16 << 10);
    let host = file.host();
    let data = pattern(0, 0, 100_000);
    let mut at = 0;
    let error = loop {
        match write(&host, at, &data) {
            Ok(()) => at += data.len() as u64,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Device(_)), "{error}");
    assert!(at <= MIB);
    assert!(cache.throttle().dirty_bytes() <= MIB);
    // Another file on the same device gets no room either, and gets the error at once.
    let other = FakeFile::new(&cache, Flat::new(), 32 * MIB, 4096);
    until(|| write(&other.host(), 0, &data).is_err());
    device.set_fault(Fault::Never);
    buffered::flush(&host, 0..u64::MAX).unwrap();
    write(&host, at, &data).unwrap();
    cache.flush_all().unwrap();
    assert_eq!(cache.throttle().dirty_bytes(), 0);
}

#[test]
fn no_byte_is_lost_whichever_write_fails() {
    for n in 0..30 {
        for fault in [Fault::Once(n), Fault::AfterDone(n), Fault::Torn(n)] {
            let inner: Arc<dyn BlockDevice> = memory(4 * MIB);
            let device = FaultDevice::new(Arc::clone(&inner), fault).only(&[Op::Write]);
            let cache = cache(Arc::new(device.seeded(n)), 2 * MIB, None, None);
            let file = FakeFile::new(&cache, FakeMapper::new(1024, 8, n), 0, 1024);
            let host = file.host();
            let mut rng = Rng(n);
            let mut model = vec![0; 512 * BLOCK as usize];
            for _ in 0..40 {
                let at = rng.below(500 * BLOCK) as usize;
                let data = pattern(rng.next(), 0, 1 + rng.below(40_000) as usize);
                let len = data.len().min(model.len() - at);
                write(&host, at as u64, &data[..len]).unwrap();
                model[at..at + len].copy_from_slice(&data[..len]);
                if rng.below(8) == 0 {
                    // Whether or not this call reports the error, the next one does.
                    let _ = buffered::flush(&host, 0..u64::MAX);
                }
            }
            if buffered::flush(&host, 0..u64::MAX).is_err() {
                buffered::flush(&host, 0..u64::MAX).unwrap();
            }
            model.truncate(file.size_bytes() as usize);
            let disk = Disk::new(inner).unwrap();
            assert!(on_device(&disk, &*host) == model, "{fault:?}");
            file.assert_no_open_claims();
        }
    }
}

#[test]
fn a_file_that_fails_fails_no_neighbour() {
    const FILE_BYTES: u64 = 2 * BLOCK;
    let hits = |request: &Request| request.op() == Op::Write && request.offset_bytes() < FILE_BYTES;
    let device = FaultDevice::new(memory(MIB), Fault::From(0)).only_where(hits);
    let device = Arc::new(device);
    let cache = cache(Arc::clone(&device) as _, 64 * MIB, None, None);
    let new_file = |place: u64| {
        let file = FakeFile::new(&cache, Flat::new(), place * FILE_BYTES, 2);
        write(&file.host(), 0, &pattern(place, 0, FILE_BYTES as usize)).unwrap();
        file
    };
    // At first together with the one that fails, then one by one while that is tried again.
    let mut files: Vec<_> = (0..20).map(new_file).collect();
    for place in 20..40 {
        assert!(cache.flush_all().is_err());
        for (good, at) in files.iter().zip(0..).skip(1) {
            assert_eq!(good.size_bytes(), FILE_BYTES, "file {at}");
            assert!(!good.is_dirty(), "file {at}");
        }
        files.push(new_file(place));
    }
    let bad = &files[0];
    assert_eq!(bad.size_bytes(), 0);
    device.set_fault(Fault::Never);
    cache.flush_all().unwrap();
    assert_eq!(bad.size_bytes(), FILE_BYTES);
}

#[test]
fn a_bad_block_delays_little_else() {
    let bad = 3 * MIB..3 * MIB + BLOCK;
    let hits = move |request: &Request| {
        let start = request.offset_bytes();
        request.op() == Op::Write && start < bad.end && bad.start < start + request.len_bytes()
    };
    let device = FaultDevice::new(memory(16 * MIB), Fault::From(0)).only_where(hits);
    let device = Arc::new(device);
    let cache = cache(Arc::clone(&device) as _, 64 * MIB, None, None);
    let file = FakeFile::new(&cache, Flat::new(), 0, 4096);
    let host = file.host();
    write(&host, 0, &pattern(0, 0, 10 << 20)).unwrap();
    for _ in 0..2 {
        buffered::flush(&host, 0..u64::MAX).unwrap_err();
    }
    assert!((BLOCK..=256 << 10).contains(&file.space_ref().dirty_bytes()));
    // A range without the failed blocks can be flushed.
    buffered::flush(&host, 5 * MIB..6 * MIB).unwrap();
    buffered::flush(&host, 3 * MIB..4 * MIB).unwrap_err();
    device.set_fault(Fault::Never);
    buffered::flush(&host, 0..u64::MAX).unwrap();
    assert_eq!(file.space_ref().dirty_bytes(), 0);
}
