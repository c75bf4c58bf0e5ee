//! The order of writes to the device.

use std::sync::Arc;

use throughline_device::Op;
use throughline_fileio::{Map, Target, buffered};
use throughline_testing::{FaultDevice, Logged};

use crate::writeback::backing::{FakeFile, Flat};
use crate::writeback::fake_mapper::FakeMapper;
use crate::writeback::hold::HoldDevice;
use crate::writeback::{MIB, cache, memory, pattern, until, write};

/// The fraction of writes to device bytes `from..to` that begin at or after the end of the previous one.
fn ascending_share(log: &[Logged], from: u64, to: u64) -> f64 {
    let inside = |one: &&Logged| one.op == Op::Write && (from..to).contains(&one.offset_bytes);
    let writes: Vec<&Logged> = log.iter().filter(inside).collect();
    assert!(writes.len() > 20, "{} writes", writes.len());
    let ascends =
        |pair: &&[&Logged]| pair[0].offset_bytes + pair[0].len_bytes <= pair[1].offset_bytes;
    let ascending = writes.windows(2).filter(ascends).count();
    ascending as f64 / (writes.len() - 1) as f64
}

#[test]
fn writes_of_streams_ascend() {
    let device = Arc::new(FaultDevice::counting(memory(256 * MIB)).logged());
    let cache = cache(Arc::clone(&device) as _, 32 * MIB, None, None);
    let files: Vec<_> = (0..2)
        .map(|i| FakeFile::new(&cache, Flat::new(), i * 128 * MIB, 32 << 10))
        .collect();
    for i in 0..128 {
        for file in &files {
            write(&file.host(), i * MIB, &pattern(0, i * MIB, MIB as usize)).unwrap();
        }
    }
    cache.flush_all().unwrap();
    let log = device.take_log();
    for i in 0..2 {
        let share = ascending_share(&log, i * 128 * MIB, (i + 1) * 128 * MIB);
        assert!(share >= 0.99, "file {i}: {share}");
    }
    let counts = cache.writeback().counts();
    assert!(counts.descents * 100 <= counts.runs, "{counts:?}");
}

#[test]
fn files_have_their_turns() {
    let device = Arc::new(FaultDevice::counting(memory(128 * MIB)).logged());
    let (held, gate) = HoldDevice::new(Arc::clone(&device) as _);
    let cache = cache(Arc::new(held), 256 * MIB, Some(128 * MIB), Some(100 * MIB));
    let files: Vec<_> = (0..3)
        .map(|i| FakeFile::new(&cache, Flat::new(), i * 40 * MIB, 10 << 10))
        .collect();
    gate.hold();
    for file in &files {
        // Backwards, so that it is no stream.
        for i in (0..30).rev() {
            write(&file.host(), i * MIB, &pattern(0, i * MIB, MIB as usize)).unwrap();
        }
    }
    // Less than the background threshold is dirty and nothing is written yet: all three are queued when
    // writing begins.
    let mut limits = throughline_fileio::DirtyLimits::default();
    limits.limit_bytes = Some(128 * MIB);
    limits.background_bytes = Some(MIB);
    cache.throttle().set_limits(limits);
    gate.release();
    until(|| cache.throttle().dirty_bytes() <= 2 * MIB);
    cache.flush_all().unwrap();
    let log = device.take_log();
    let of = |i: u64| {
        let range = i * 40 * MIB..(i + 1) * 40 * MIB;
        let places = log.iter().enumerate();
        let places = places.filter(move |(_, one)| range.contains(&one.offset_bytes));
        places.map(|(place, _)| place).collect::<Vec<_>>()
    };
    let last_of_the_first = *of(0).last().unwrap();
    for i in 1..3 {
        assert!(
            of(i)[0] < last_of_the_first,
            "file {i} had to wait for all of the first"
        );
    }
}

#[test]
fn the_size_and_the_blocks_follow_the_data() {
    let (device, gate) = HoldDevice::new(memory(8 * MIB));
    let cache = cache(Arc::new(device), 64 * MIB, None, None);
    let file = FakeFile::new(&cache, FakeMapper::new(2048, 64, 5), 0, 2048);
    let host = file.host();
    gate.hold();
    write(&host, 0, &pattern(0, 0, 300_000)).unwrap();
    buffered::start_flush(&host, 0..u64::MAX);
    gate.wait_held(1);
    assert_eq!(
        file.size_bytes(),
        0,
        "the size was committed before the data"
    );
    assert_eq!(file.map(0, 1).unwrap().target, Target::Hole);
    assert!(file.promised() < 74, "blocks are claimed");
    // Writes made meanwhile extend the file, but the size of the first run does not wait for them.
    write(&host, 290_000, &pattern(1, 290_000, 100_000)).unwrap();
    gate.release();
    buffered::flush(&host, 0..u64::MAX).unwrap();
    assert_eq!(file.size_bytes(), 390_000);
    file.assert_no_open_claims();
}

#[test]
fn a_flush_takes_what_became_dirty_while_an_older_version_was_in_flight() {
    let device = memory(MIB);
    let disk = throughline_block::Disk::new(Arc::clone(&device)).unwrap();
    let (device, gate) = HoldDevice::new(device);
    let cache = cache(Arc::new(device), 64 * MIB, None, None);
    let file = FakeFile::new(&cache, Flat::new(), 0, 256);
    let host = file.host();
    for round in 0..10 {
        gate.hold();
        write(&host, 0, &[round; 9000]).unwrap();
        buffered::start_flush(&host, 0..u64::MAX);
        gate.wait_held(1);
        write(&host, 10, &[100 + round; 5000]).unwrap();
        std::thread::scope(|scope| {
            let flush = scope.spawn(|| buffered::flush(&host, 0..u64::MAX));
            gate.release();
            flush.join().unwrap().unwrap();
        });
        let mut model = vec![round; 9000];
        model[10..5010].fill(100 + round);
        assert!(
            crate::writeback::on_device(&disk, &*host) == model,
            "round {round}"
        );
    }
}
