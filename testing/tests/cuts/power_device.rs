//! What a device may contain after a power loss, and what it must contain.

use std::collections::BTreeSet;

use throughline_device::{BlockDevice, Op, Queue, Segment, scope};
use throughline_testing::{Cut, Image, Keep, PowerDevice, Record};

const SECTOR: usize = 512;

fn device() -> PowerDevice {
    PowerDevice::new(Image::zeros(1 << 20), 1)
}

/// Writes whole sectors of one byte, and waits.
fn write(queue: &mut dyn Queue, at: u64, byte: u8, sectors: usize, fua: bool) {
    let bytes = vec![byte; sectors * SECTOR];
    let mut done = Vec::new();
    scope(queue, |s| {
        s.submit(0, Op::Write, at, [Segment::Write(&bytes)], fua);
        s.reap(1, &mut done);
    });
    assert!(done.pop().unwrap().result.is_ok());
}

fn range(queue: &mut dyn Queue, op: Op, at: u64, len: u64) {
    let mut done = Vec::new();
    scope(queue, |s| {
        s.submit_range(0, op, at, len);
        s.reap(1, &mut done);
    });
    assert!(done.pop().unwrap().result.is_ok());
}

fn flush(queue: &mut dyn Queue) {
    range(queue, Op::Flush, 0, 0);
}

fn first_bytes(image: &Image, sectors: usize) -> Vec<u8> {
    let mut bytes = vec![0; sectors * SECTOR];
    image.read(0, &mut bytes);
    assert!(bytes.chunks(SECTOR).all(|s| s.iter().all(|b| *b == s[0])));
    bytes.iter().step_by(SECTOR).copied().collect()
}

/// The possible contents of the first sectors if power fails at `at`.
fn possible(record: &Record, at: usize, sectors: usize) -> BTreeSet<Vec<u8>> {
    let mut states = record.states();
    let keeps = (0..300).map(Keep::Some);
    let keeps = keeps.chain([Keep::Nothing, Keep::Everything]);
    keeps
        .map(|keep| first_bytes(&states.state(Cut { at, keep }), sectors))
        .collect()
}

fn set<const N: usize>(states: [&[u8]; N]) -> BTreeSet<Vec<u8>> {
    states.into_iter().map(<[u8]>::to_vec).collect()
}

#[test]
fn a_write_is_kept_lost_or_torn_until_a_flush() {
    let device = device();
    let mut queue = device.open_queue().unwrap();
    write(&mut *queue, 0, 1, 2, false);
    let written = device.position();
    flush(&mut *queue);
    let record = device.record();
    assert_eq!(possible(&record, 0, 2), set([&[0, 0]]));
    let all = set([&[0, 0], &[0, 1], &[1, 0], &[1, 1]]);
    assert_eq!(possible(&record, written, 2), all);
    assert_eq!(possible(&record, written + 1, 2), all, "flush in flight");
    assert_eq!(possible(&record, record.end(), 2), set([&[1, 1]]));
    let whole = record.clone().with_whole(0..1024);
    assert_eq!(possible(&whole, written, 2), set([&[0, 0], &[1, 1]]));
    assert_eq!(record.barriers(), [record.end()]);
    assert_eq!(first_bytes(&device.contents(), 2), [1, 1]);
}

#[test]
fn fua_is_for_its_own_write() {
    let device = device();
    let mut queue = device.open_queue().unwrap();
    write(&mut *queue, 0, 1, 1, false);
    write(&mut *queue, 512, 2, 1, true);
    let record = device.record();
    assert_eq!(possible(&record, record.end(), 2), set([&[0, 2], &[1, 2]]));
    assert_eq!(record.barriers().len(), 1);
}

#[test]
fn a_flush_is_for_what_had_completed_before_it() {
    let device = device();
    let mut queue = device.open_queue().unwrap();
    let mut other = device.open_queue().unwrap();
    let bytes = [1; SECTOR];
    let mut done = Vec::new();
    scope(&mut *queue, |s| {
        s.submit(0, Op::Write, 0, [Segment::Write(&bytes)], false);
        flush(&mut *other);
        s.reap(1, &mut done);
    });
    let record = device.record();
    assert_eq!(possible(&record, record.end(), 1), set([&[0], &[1]]));
}

#[test]
fn overlapping_writes_land_in_any_order_only_if_they_were_on_their_way_together() {
    let device = device();
    let mut queue = device.open_queue().unwrap();
    write(&mut *queue, 0, 1, 1, false);
    write(&mut *queue, 0, 2, 1, false);
    flush(&mut *queue);
    let one_by_one = device.record();
    let end = one_by_one.end();
    assert_eq!(possible(&one_by_one, end - 1, 1), set([&[0], &[1], &[2]]));
    assert_eq!(possible(&one_by_one, end, 1), set([&[2]]));

    let (three, four) = ([3; SECTOR], [4; SECTOR]);
    let mut done = Vec::new();
    scope(&mut *queue, |s| {
        s.submit(0, Op::Write, 0, [Segment::Write(&three)], false);
        s.submit(1, Op::Write, 0, [Segment::Write(&four)], true);
        s.reap(2, &mut done);
    });
    let together = device.record();
    assert_eq!(possible(&together, together.end(), 1), set([&[3], &[4]]));
}

#[test]
fn zeroes_are_writes_and_discards_promise_nothing() {
    let device = device();
    let mut queue = device.open_queue().unwrap();
    write(&mut *queue, 0, 1, 2, true);
    range(&mut *queue, Op::WriteZeroes, 0, 512);
    range(&mut *queue, Op::Discard, 512, 512);
    let record = device.record();
    let all = set([&[0, 0], &[0, 1], &[1, 0], &[1, 1]]);
    assert_eq!(possible(&record, record.end(), 2), all);
    flush(&mut *queue);
    let record = device.record();
    assert_eq!(possible(&record, record.end(), 2), set([&[0, 0], &[0, 1]]));
}

#[test]
fn a_state_depends_on_its_cut_alone() {
    let device = device();
    let mut queue = device.open_queue().unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..60 {
        let at = random.u64(..40) * 512;
        write(
            &mut *queue,
            at,
            random.u8(1..),
            random.usize(1..9),
            random.u8(..4) == 0,
        );
        if random.u8(..5) == 0 {
            flush(&mut *queue);
        }
    }
    let record = device.record();
    let mut ascending = record.states();
    for at in 0..=record.end() {
        let keep = Keep::Some(at as u64);
        let state = ascending.state(Cut { at, keep });
        assert!(state == record.states().state(Cut { at, keep }), "at {at}");
        if at > 20 {
            let mut other = record.states();
            other.state(Cut { at: at - 20, keep });
            other.state(Cut {
                at,
                keep: Keep::Nothing,
            });
            other.state(Cut { at: at - 1, keep });
            let again = other.state(Cut { at, keep });
            assert!(
                again == state
                    && again.fingerprint(record.base()) == state.fingerprint(record.base())
            );
        }
    }
}

#[test]
fn an_image_passes_through_a_file() {
    let mut image = Image::zeros(64 << 10);
    image.write(5000, &[7; 9000]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let file = std::fs::File::create(&path).unwrap();
    image.write_file(&file, None).unwrap();
    assert!(Image::read_file(&path).unwrap() == image);
    let mut other = image.clone();
    other.write(0, &[1; 512]);
    other.write_file(&file, Some(&image)).unwrap();
    let back = Image::read_file_like(&path, &image).unwrap();
    assert!(back == other && back != image);
    assert_eq!(back.fingerprint(&image), other.fingerprint(&image));
    assert_ne!(back.fingerprint(&image), image.fingerprint(&image));
}

#[test]
fn a_flush_of_a_part_is_for_that_part() {
    let device = device();
    let [first, second] = [device.part(0..4096), device.part(4096..8192)];
    let mut queues = [first.open_queue().unwrap(), second.open_queue().unwrap()];
    write(&mut *queues[0], 512, 1, 1, false);
    write(&mut *queues[1], 0, 2, 1, false);
    flush(&mut *queues[1]);
    let record = device.record();
    let sectors = |at| {
        let found = possible(&record, at, 9);
        found
            .into_iter()
            .map(|bytes| (bytes[1], bytes[8]))
            .collect()
    };
    let one_is_lost: BTreeSet<_> = sectors(record.end());
    assert_eq!(one_is_lost, [(0, 2), (1, 2)].into());
    flush(&mut *queues[0]);
    let record = device.record();
    assert_eq!(possible(&record, record.end(), 9).len(), 1);
    assert_eq!(first.len_bytes(), 4096);
    assert!(range_fails(&mut *queues[0], 4096));
}

/// Whether a write of a sector there is refused.
fn range_fails(queue: &mut dyn Queue, at: u64) -> bool {
    let mut done = Vec::new();
    scope(queue, |s| {
        s.submit(0, Op::Write, at, [Segment::Write(&[0; SECTOR])], false);
        s.reap(1, &mut done);
    });
    done.pop().unwrap().result.is_err()
}
