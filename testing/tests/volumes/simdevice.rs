//! The fault device fails exactly the requests that it is told to fail.

use std::io;
use std::sync::Arc;

use throughline_device::{BlockDevice, MemoryDevice, Op, Queue, Segment, scope};
use throughline_testing::{Fault, FaultDevice, Logged};

const EIO: Option<i32> = Some(5);

fn memory() -> Arc<dyn BlockDevice> {
    Arc::new(MemoryDevice::new(1 << 20))
}

fn write(queue: &mut dyn Queue, at: u64, bytes: &[u8]) -> io::Result<()> {
    let mut done = Vec::new();
    scope(queue, |s| {
        s.submit(0, Op::Write, at, [Segment::Write(bytes)], false);
        s.reap(1, &mut done);
    });
    done.pop().unwrap().result
}

fn read(queue: &mut dyn Queue, at: u64, bytes: &mut [u8]) -> io::Result<()> {
    let mut done = Vec::new();
    scope(queue, |s| {
        s.submit(0, Op::Read, at, [Segment::Read(bytes)], false);
        s.reap(1, &mut done);
    });
    done.pop().unwrap().result
}

/// Writes six blocks. Returns the result of each write, the device's contents, and the device.
fn six_writes(fault: Fault) -> ([bool; 6], [u8; 6], FaultDevice) {
    let below = memory();
    let device = FaultDevice::new(Arc::clone(&below), fault);
    let mut queue = device.open_queue().unwrap();
    let worked = std::array::from_fn(|i| {
        let result = write(&mut *queue, i as u64 * 512, &[1; 512]);
        assert!(
            result
                .as_ref()
                .err()
                .is_none_or(|e| e.raw_os_error() == EIO)
        );
        result.is_ok()
    });
    let mut content = [0; 6 * 512];
    read(&mut *below.open_queue().unwrap(), 0, &mut content).unwrap();
    (worked, std::array::from_fn(|i| content[i * 512]), device)
}

#[test]
fn the_nth_fails() {
    const T: bool = true;
    const F: bool = false;
    let (worked, left, device) = six_writes(Fault::Never);
    assert_eq!(
        (worked, left, device.requests(), device.failed()),
        ([T; 6], [1; 6], 6, 0)
    );
    let (worked, left, device) = six_writes(Fault::Once(2));
    assert_eq!(
        (worked, left, device.failed()),
        ([T, T, F, T, T, T], [1, 1, 0, 1, 1, 1], 1)
    );
    let (worked, left, device) = six_writes(Fault::From(4));
    assert_eq!(
        (worked, left, device.failed()),
        ([T, T, T, T, F, F], [1, 1, 1, 1, 0, 0], 2)
    );
    let (worked, left, device) = six_writes(Fault::AfterDone(0));
    assert_eq!(
        (worked, left, device.failed()),
        ([F, T, T, T, T, T], [1; 6], 1)
    );
}

#[test]
fn a_torn_write_is_a_mixture_and_the_same_for_a_seed() {
    let torn = |seed| {
        let below = memory();
        let device = FaultDevice::new(Arc::clone(&below), Fault::Torn(0)).seeded(seed);
        let mut queue = device.open_queue().unwrap();
        assert_eq!(
            write(&mut *queue, 4096, &[1; 65536])
                .unwrap_err()
                .raw_os_error(),
            EIO
        );
        let mut content = vec![0; 65536];
        read(&mut *queue, 4096, &mut content).unwrap();
        content
    };
    let content = torn(1);
    assert!(
        content
            .chunks(512)
            .all(|block| block.iter().all(|&b| b == block[0])),
        "a block is torn"
    );
    let written = content.chunks(512).filter(|block| block[0] == 1).count();
    assert!((32..96).contains(&written), "{written} of 128");
    assert!(content == torn(1) && content != torn(2));
}

#[test]
fn lost_writes_are_reported_as_done() {
    let (worked, left, device) = six_writes(Fault::Some(1000));
    assert_eq!((worked, left, device.failed()), ([false; 6], [0; 6], 6));
    let (worked, left, device) = six_writes(Fault::Lost);
    assert_eq!((worked, left, device.failed()), ([true; 6], [0; 6], 0));
    assert_eq!(six_writes(Fault::Some(0)).2.failed(), 0);
}

#[test]
fn only_requests_matching_the_filter_count() {
    let device = FaultDevice::new(memory(), Fault::From(0))
        .only_where(|request| request.slices().next().is_some_and(|bytes| bytes[0] == 7));
    let mut queue = device.open_queue().unwrap();
    assert!(write(&mut *queue, 0, &[1; 512]).is_ok());
    assert!(write(&mut *queue, 0, &[7; 512]).is_err());
    assert_eq!(device.requests(), 1);
}

#[test]
fn a_torn_read_leaves_junk() {
    let device = FaultDevice::new(memory(), Fault::Torn(0));
    let mut content = [0; 4096];
    assert!(read(&mut *device.open_queue().unwrap(), 0, &mut content).is_err());
    assert!(content.iter().any(|&b| b != 0));
}

#[test]
fn only_what_was_chosen_counts_and_all_is_logged() {
    let device = FaultDevice::new(memory(), Fault::Once(1))
        .only(&[Op::Flush])
        .logged();
    let mut queue = device.open_queue().unwrap();
    let mut done = Vec::new();
    let bytes = [1; 512];
    scope(&mut *queue, |s| {
        for i in 0..3 {
            s.submit(i, Op::Write, 512 * i, [Segment::Write(&bytes)], true);
            s.submit_range(10 + i, Op::Flush, 0, 0);
        }
        assert_eq!(s.in_flight(), 6);
        s.reap(6, &mut done);
    });
    let failed: Vec<u64> = done
        .iter()
        .filter(|d| d.result.is_err())
        .map(|d| d.tag)
        .collect();
    assert_eq!(
        (failed, done.len(), device.requests(), device.failed()),
        (vec![11], 6, 3, 1)
    );
    let log = device.take_log();
    let expected = Logged {
        op: Op::Write,
        offset_bytes: 512,
        len_bytes: 512,
        fua: true,
        failed: false,
    };
    assert_eq!(
        (log.len(), log[2], log[3].op, log[3].failed),
        (6, expected, Op::Flush, true)
    );
    device.set_fault(Fault::From(0));
    assert!(write(&mut *queue, 0, &bytes).is_ok());
    scope(&mut *queue, |s| {
        s.submit_range(0, Op::Flush, 0, 0);
        s.reap(1, &mut done);
    });
    assert!(done.last().unwrap().result.is_err());
    assert_eq!(device.take_log().len(), 2);
}
