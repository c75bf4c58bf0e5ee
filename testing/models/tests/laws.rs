//! The law of every model, with a simulated clock: independent of this machine's timers.

use std::sync::Arc;

use throughline_block::{Disk, SplitReason};
use throughline_device::{
    AlignedBuf, BlockDevice, Done, Limits, MemoryDevice, Op, Queue, Segment, scope,
};
use throughline_models::{Clock, Host, Law, MODELS, Model, ModelDevice, Timetable, Work, find};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn model(name: &str) -> &'static Model {
    find(name).unwrap_or_else(|| panic!("no model {name}"))
}

/// The device with its own simulated clock, at 0.
fn simulated(model: &Model) -> (ModelDevice, Clock) {
    let clock = Clock::simulated();
    (ModelDevice::new(model, None, clock.clone()), clock)
}

/// Reads `count` times `len` bytes, `step` apart, through one queue that is kept full.
fn read(queue: &mut dyn Queue, count: usize, len: usize, step: u64) -> Vec<Done> {
    let mut memory = AlignedBuf::zeroed(len * count, 4096);
    let mut done = Vec::new();
    scope(queue, |scope| {
        for (number, piece) in memory.chunks_mut(len).enumerate() {
            let offset = number as u64 * step;
            scope.submit(
                number as u64,
                Op::Read,
                offset,
                [Segment::Read(piece)],
                false,
            );
        }
        scope.reap(count, &mut done);
    });
    assert!(done.iter().all(|one| one.result.is_ok()), "{done:?}");
    done
}

#[test]
fn a_stream_has_the_models_speed() {
    for model in MODELS {
        let (device, clock) = simulated(model);
        let mut queue = device.open_queue().unwrap();
        let len = model.limits.max_transfer_bytes as usize;
        let count = 64 * MIB / len;
        read(&mut *queue, count, len, len as u64);
        let bytes_per_s = (count * len) as f64 * 1e9 / clock.now_ns() as f64;
        let share = bytes_per_s / model.law.bytes_per_s as f64;
        assert!((0.99..=1.0).contains(&share), "{}: {share}", model.name);
    }
}

#[test]
fn one_small_read_takes_every_stage_in_turn() {
    for model in MODELS {
        let (device, clock) = simulated(model);
        let mut queue = device.open_queue().unwrap();
        read(&mut *queue, 1, 4096, 0);
        let (law, host) = (model.law, model.host);
        let of_host = host.request_ns + host.page_in_ns + host.page_out_ns;
        let of_device = law.command_ns + law.latency_ns + 4096 * 1_000_000_000 / law.bytes_per_s;
        assert_eq!(clock.now_ns(), of_host + of_device, "{}", model.name);
    }
}

/// A model with round numbers.
const ROUND: Model = Model {
    name: "round",
    limits: Limits {
        logical_block_bytes: 512,
        physical_block_bytes: 512,
        memory_align_bytes: 1,
        max_transfer_bytes: 4096,
        max_segments: 16,
        io_min_bytes: 0,
        io_opt_bytes: 0,
        chunk_bytes: 0,
        virt_boundary_mask: 0,
        queue_depth: 2,
        discard: true,
        write_zeroes: true,
        fua: false,
        volatile_cache: true,
        rotational: false,
    },
    law: Law {
        // 1 ns per byte.
        bytes_per_s: 1_000_000_000,
        command_ns: 10,
        latency_ns: 100_000,
        seek_ns: 0,
        flush_ns: 7,
    },
    host: Host {
        request_ns: 0,
        page_in_ns: 0,
        page_out_ns: 0,
        page_fill_ns: 0,
    },
    len_bytes: 1 << 20,
};

fn transfer(offset_bytes: u64, len_bytes: u64) -> Work {
    Work {
        op: Op::Write,
        offset_bytes,
        len_bytes,
    }
}

#[test]
fn no_more_requests_are_on_the_device_than_it_has_slots() {
    let mut table = Timetable::new(&ROUND);
    let ends: Vec<u64> = (0..5)
        .map(|number| table.admit(0, transfer(number * 512, 512)))
        .collect();
    // Two at once; the third gets a slot when the first completes.
    assert_eq!(ends[0], 10 + 100_000 + 512);
    assert_eq!(ends[1], ends[0] + 512);
    assert_eq!(ends[2], ends[0] + 10 + 100_000 + 512);
    assert_eq!(ends[3], ends[2] + 512);
    assert_eq!(ends[4], ends[2] + 10 + 100_000 + 512);
}

#[test]
fn a_full_queue_waits_for_one_of_its_own() {
    let (device, clock) = simulated(&ROUND);
    let mut queue = device.open_queue().unwrap();
    let (mut memory, mut done) = ([0; 1536], Vec::new());
    scope(&mut *queue, |scope| {
        for (number, piece) in memory.chunks_mut(512).enumerate() {
            let before_ns = clock.now_ns();
            let at = number as u64 * 512;
            scope.submit(number as u64, Op::Read, at, [Segment::Read(piece)], false);
            let waited_ns = clock.now_ns() - before_ns;
            assert_eq!(waited_ns > 0, number == 2, "request {number}: {waited_ns}");
        }
        assert_eq!(
            scope.in_flight(),
            3,
            "completed requests count until they are reaped"
        );
        scope.reap(0, &mut done);
        assert_eq!(done.len(), 1, "only due completions arrive without waiting");
        scope.reap(2, &mut done);
    });
    let tags: Vec<u64> = done.iter().map(|one| one.tag).collect();
    assert_eq!(tags, [0, 1, 2]);
}

#[test]
fn a_request_longer_than_a_transfer_costs_as_its_pieces() {
    let whole = Timetable::new(&ROUND).admit(0, transfer(0, 10_240));
    let mut table = Timetable::new(&ROUND);
    let pieces = [(0, 4096), (4096, 4096), (8192, 2048)];
    let ends = pieces.map(|(at, len)| table.admit(0, transfer(at, len)));
    assert_eq!(whole, ends[2]);
}

#[test]
fn the_block_layer_splits_at_the_models_longest_transfer() {
    for model in MODELS {
        let (device, clock) = simulated(model);
        let disk = Disk::new(Arc::new(device)).unwrap();
        disk.set_bio_target_bytes(Some(u32::MAX));
        let before = disk.counters();
        let memory = AlignedBuf::zeroed(4 * MIB, 4096);
        disk.write_at(0, &memory, false).unwrap();
        let counted = disk.counters().since(&before);
        let expected = 4 * MIB as u64 / u64::from(model.limits.max_transfer_bytes);
        assert_eq!(counted.bios(Op::Write), expected, "{}", model.name);
        assert_eq!(
            counted.splits(SplitReason::MaxTransfer),
            expected - 1,
            "{}",
            model.name
        );
        let least_ns = 4 * MIB as u64 * 1_000_000_000 / model.law.bytes_per_s;
        assert!(clock.now_ns() >= least_ns);
    }
}

#[test]
fn a_disk_seeks_when_a_transfer_begins_elsewhere() {
    let disk = model("sata-disk");
    let (device, clock) = simulated(disk);
    let mut queue = device.open_queue().unwrap();
    read(&mut *queue, 100, 4096, 4096);
    let in_order_ns = clock.now_ns();
    read(&mut *queue, 100, 4096, 1 << 20);
    let random_ns = clock.now_ns() - in_order_ns;
    let sought = (random_ns - random_ns % disk.law.seek_ns) / disk.law.seek_ns;
    assert_eq!(sought, 100, "{random_ns} ns");
    assert!(in_order_ns < disk.law.seek_ns);
}

#[test]
fn a_flush_is_behind_what_was_there_and_discards_move_nothing() {
    let mut deep = ROUND;
    deep.limits.queue_depth = 8;
    let mut table = Timetable::new(&deep);
    let written = table.admit(0, transfer(0, 512));
    let mut of = |op| {
        let work = Work {
            op,
            offset_bytes: 0,
            len_bytes: 4096,
        };
        table.admit(0, work)
    };
    let flushed = of(Op::Flush);
    assert_eq!(flushed, written + 7);
    assert_eq!(of(Op::Discard), flushed);
}

#[test]
fn a_disk_of_another_day_has_another_speed() {
    let (device, clock) = simulated(&ROUND);
    let mut queue = device.open_queue().unwrap();
    let mut takes = |factor| {
        device.set_speed(factor);
        let before_ns = clock.now_ns();
        read(&mut *queue, 1, 4096, 0);
        clock.now_ns() - before_ns
    };
    assert_eq!(takes(1.0), 100_010 + 4096);
    assert_eq!(takes(0.5), 100_010 + 8192);
    assert_eq!(
        takes(f64::NAN),
        100_010 + 4096,
        "an invalid factor means the model's speed"
    );
}

/// The report's 19 ms, 17 ms, 2 ms and 100 us, from the model derived from them: as one bio, and in bios of 1
/// MiB.
#[test]
fn the_phone_takes_what_report_4_says() {
    let phone = model("ufs-phone");
    let read_32_mib = |len: usize| {
        let (device, clock) = simulated(phone);
        let mut queue = device.open_queue().unwrap();
        let mut memory = AlignedBuf::zeroed(32 * MIB, 4096);
        let (mut first_ns, mut done) = (None, Vec::new());
        scope(&mut *queue, |scope| {
            for (number, piece) in memory.chunks_mut(len).enumerate() {
                let at = (number * len) as u64;
                scope.submit(0, Op::Read, at, [Segment::Read(piece)], false);
                first_ns.get_or_insert_with(|| clock.now_ns());
            }
            scope.reap(usize::MAX, &mut done);
        });
        (first_ns.unwrap() as f64 / 1e6, clock.now_ns() as f64 / 1e6)
    };
    let (whole_first_ms, whole_ms) = read_32_mib(32 * MIB);
    let (bios_first_ms, bios_ms) = read_32_mib(MIB);
    assert!((whole_first_ms - 2.0).abs() < 0.05, "{whole_first_ms}");
    assert!((bios_first_ms - 0.1).abs() < 0.001, "{bios_first_ms}");
    assert!((whole_ms - 19.0).abs() < 0.5, "{whole_ms}");
    assert!((bios_ms - 17.0).abs() < 0.5, "{bios_ms}");
    assert!(bios_ms / whole_ms <= 17.0 / 19.0);
}

#[test]
fn the_arrays_host_makes_the_old_way_what_report_3_says() {
    let array = model("disk-array");
    let chunk_ns = 4.0 * MIB as f64 * 1e9 / array.law.bytes_per_s as f64;
    let fill_ns = 1024.0 * array.host.page_fill_ns as f64;
    let old_way = 4.0 * MIB as f64 * 1e3 / (chunk_ns + fill_ns);
    assert!((old_way - 205.0).abs() < 0.1, "{old_way} MB/s");
}

#[test]
fn written_data_is_read_back() {
    for model in MODELS {
        let content = Arc::new(MemoryDevice::new(16 << 20));
        let device = ModelDevice::new(model, Some(content), Clock::simulated());
        assert_eq!(device.len_bytes(), 16 << 20);
        let disk = Disk::new(Arc::new(device)).unwrap();
        let pattern: Vec<u8> = (0..3 * MIB).map(|i| (i * 7 % 251) as u8).collect();
        disk.write_at(4096, &pattern, false).unwrap();
        disk.flush().unwrap();
        let mut back = vec![9; 4 * MIB];
        disk.read_at(0, &mut back).unwrap();
        assert!(back[..4096].iter().all(|b| *b == 0), "{}", model.name);
        assert!(back[4096..][..pattern.len()] == pattern, "{}", model.name);
        assert!(back[4096 + pattern.len()..].iter().all(|b| *b == 0));
    }
}

#[test]
fn a_request_longer_than_a_transfer_keeps_its_content() {
    let content = Arc::new(MemoryDevice::new(ROUND.len_bytes));
    let device = ModelDevice::new(&ROUND, Some(content), Clock::simulated());
    let (pattern, mut back) = ([5; 64 * KIB], [0; 64 * KIB]);
    let mut done = Vec::new();
    let mut queue = device.open_queue().unwrap();
    scope(&mut *queue, |scope| {
        scope.submit(0, Op::Write, 0, [Segment::Write(&pattern)], false);
        scope.submit(1, Op::Read, 0, [Segment::Read(&mut back)], false);
        scope.reap(2, &mut done);
    });
    assert_eq!(back, pattern, "in the order of submission");
}

#[test]
fn without_content_reads_leave_the_memory_as_it_is() {
    let (device, _) = simulated(&ROUND);
    let mut queue = device.open_queue().unwrap();
    let mut memory = [7; 512];
    let mut done = Vec::new();
    scope(&mut *queue, |scope| {
        scope.submit(0, Op::Write, 0, [Segment::Write(&[1; 512])], false);
        scope.submit(1, Op::Read, 0, [Segment::Read(&mut memory)], false);
        scope.reap(2, &mut done);
    });
    assert_eq!(memory, [7; 512]);
}

#[test]
fn impossible_requests_are_refused() {
    let (device, clock) = simulated(&ROUND);
    let mut queue = device.open_queue().unwrap();
    let mut done = Vec::new();
    let bytes = [0; 512];
    scope(&mut *queue, |scope| {
        scope.submit(0, Op::Write, 100, [Segment::Write(&bytes)], false);
        scope.submit(1, Op::Write, 1 << 20, [Segment::Write(&bytes)], false);
        scope.submit(2, Op::Write, 0, [Segment::Write(&bytes)], true);
        scope.reap(3, &mut done);
    });
    assert!(done.iter().all(|one| one.result.is_err()), "{done:?}");
    assert_eq!(clock.now_ns(), 0, "a refused request takes no time");
}

#[test]
fn a_model_is_found_by_its_name() {
    for model in MODELS {
        assert_eq!(find(model.name).map(|found| found.law), Some(model.law));
    }
    assert!(find("floppy").is_none());
}
