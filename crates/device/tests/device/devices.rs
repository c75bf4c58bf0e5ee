//! Tests that run on every device and engine.

use crate::common;

use std::io::{self, ErrorKind};
use std::sync::Arc;

use common::{Bench, LEN, benches, block, buffer, one, pattern, range, read, write};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use throughline_device::{BlockDevice, MemoryDevice, OffsetDevice, Op, Segment, scope};
use throughline_testkit::cases::config;

#[test]
fn written_data_is_read_back() {
    for Bench { name, device, .. } in benches() {
        let mut queue = device.open_queue().unwrap();
        let (mut out, mut back) = (buffer(&*device, 1 << 20), buffer(&*device, 1 << 20));
        for (seed, fua) in [(1, false), (2, true)] {
            pattern(seed, 0, &mut out);
            one(
                &mut *queue,
                Op::Write,
                8192,
                vec![Segment::Write(&out)],
                fua,
            )
            .unwrap();
            range(&mut *queue, Op::Flush, 0, 0).unwrap();
            back.fill(0);
            read(&mut *queue, 8192, &mut back).unwrap();
            assert!(out[..] == back[..], "{name}");
        }
    }
}

#[test]
fn many_segments_are_one_range() {
    for Bench { name, device, .. } in benches() {
        let mut queue = device.open_queue().unwrap();
        let unit = block(&*device).max(device.info().limits.memory_align_bytes as usize);
        for pieces in [2, 3, 5, 100] {
            let mut out = buffer(&*device, pieces * unit);
            pattern(pieces as u64, 0, &mut out);
            // Descending in memory, ascending on the device.
            let segments = out.chunks(unit).rev().map(Segment::Write).collect();
            one(&mut *queue, Op::Write, 0, segments, false).unwrap();
            let mut back = buffer(&*device, pieces * unit);
            let segments = back.chunks_mut(unit).rev().map(Segment::Read).collect();
            one(&mut *queue, Op::Read, 0, segments, false).unwrap();
            assert!(out[..] == back[..], "{name}, {pieces} pieces");
            read(&mut *queue, 0, &mut back).unwrap();
            assert_eq!(&back[..unit], &out[(pieces - 1) * unit..], "{name}");
        }
    }
}

#[test]
fn a_deep_queue_completes_each_once() {
    for Bench { name, device, .. } in benches() {
        let mut queue = device.open_queue().unwrap();
        let unit = 4096;
        let count = 3 * queue.depth().min(150) + 1; // more than the depth
        let count = count.min(device.len_bytes() as usize / unit);
        let mut out = buffer(&*device, count * unit);
        pattern(3, 0, &mut out);
        for kick in [false, true] {
            let mut done = Vec::new();
            scope(&mut *queue, |s| {
                for (i, piece) in out.chunks(unit).enumerate() {
                    s.submit(
                        i as u64,
                        Op::Write,
                        (i * unit) as u64,
                        [Segment::Write(piece)],
                        false,
                    );
                    if kick {
                        s.kick();
                        s.reap(0, &mut done);
                    }
                }
                while s.in_flight() > 0 {
                    let before = done.len();
                    s.reap(5, &mut done);
                    assert!(done.len() > before);
                }
            });
            let mut tags: Vec<u64> = done.iter().map(|d| d.tag).collect();
            tags.sort_unstable();
            assert_eq!(tags, (0..count as u64).collect::<Vec<_>>(), "{name}");
            assert!(done.iter().all(|d| d.result.is_ok()), "{name}: {done:?}");
            let mut back = buffer(&*device, count * unit);
            for (i, piece) in back.chunks_mut(unit * 64).enumerate() {
                read(&mut *queue, (i * unit * 64) as u64, piece).unwrap();
            }
            assert!(out[..] == back[..], "{name}");
        }
    }
}

#[test]
fn bad_requests_are_refused_and_change_nothing() {
    for Bench { name, device, .. } in benches() {
        let mut queue = device.open_queue().unwrap();
        let unit = block(&*device);
        let end = device.len_bytes();
        let memory = buffer(&*device, 2 * unit);
        let refused = |result: io::Result<()>| {
            assert_eq!(
                result.unwrap_err().kind(),
                ErrorKind::InvalidInput,
                "{name}"
            );
        };
        refused(write(&mut *queue, 1, &memory));
        refused(write(&mut *queue, 0, &memory[..unit - 1]));
        refused(write(&mut *queue, end, &memory));
        refused(write(&mut *queue, end - unit as u64, &memory));
        refused(write(&mut *queue, u64::MAX - unit as u64 + 1, &memory));
        refused(range(
            &mut *queue,
            Op::Discard,
            end - unit as u64,
            2 * unit as u64,
        ));
        refused(range(
            &mut *queue,
            Op::WriteZeroes,
            0,
            u64::MAX / unit as u64 * unit as u64,
        ));
        assert_eq!(device.len_bytes(), end);
        if device.info().limits.memory_align_bytes > 1 {
            let mut odd = buffer(&*device, 2 * unit);
            refused(write(&mut *queue, 0, &odd[1..unit + 1]));
            refused(read(&mut *queue, 0, &mut odd[1..unit + 1]));
        }
        // The queue can still be used.
        write(&mut *queue, end - 2 * unit as u64, &memory).unwrap();
    }
}

#[test]
fn empty_requests_succeed() {
    for Bench { device, .. } in benches() {
        let mut queue = device.open_queue().unwrap();
        one(&mut *queue, Op::Write, 0, vec![Segment::Write(&[])], false).unwrap();
        one(&mut *queue, Op::Read, 0, vec![], false).unwrap();
        let mut done = Vec::new();
        scope(&mut *queue, |s| s.reap(9, &mut done)); // nothing in flight: returns
        assert!(done.is_empty());
        range(&mut *queue, Op::Flush, u64::MAX, u64::MAX).unwrap(); // a flush has no range
    }
}

#[test]
fn cleared_ranges_read_as_zeros() {
    for Bench { name, device, .. } in benches() {
        let mut queue = device.open_queue().unwrap();
        let mut out = buffer(&*device, 1 << 20);
        pattern(4, 0, &mut out);
        for op in [Op::WriteZeroes, Op::Discard] {
            write(&mut *queue, 0, &out).unwrap();
            match range(&mut *queue, op, 65536, 300 * 1024) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
                    throughline_testkit::left_out!("for {name}: {error}");
                    continue;
                }
                Ok(()) => {
                    let mut back = buffer(&*device, 1 << 20);
                    read(&mut *queue, 0, &mut back).unwrap();
                    let mut expected = out.to_vec();
                    // All of these devices return zeros for a discarded range, although they need not.
                    expected[65536..65536 + 300 * 1024].fill(0);
                    assert!(expected == back[..], "{name}, {op:?}");
                }
            }
        }
    }
}

#[test]
fn a_scope_that_panics_gets_its_memory_back() {
    for Bench { name, device, .. } in benches() {
        let mut queue = device.open_queue().unwrap();
        let mut out = buffer(&*device, 1 << 20);
        pattern(5, 0, &mut out);
        write(&mut *queue, 0, &out).unwrap();
        let mut back = buffer(&*device, 1 << 20);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            scope(&mut *queue, |s| {
                for (i, piece) in back.chunks_mut(65536).enumerate() {
                    s.submit(
                        i as u64,
                        Op::Read,
                        i as u64 * 65536,
                        [Segment::Read(piece)],
                        false,
                    );
                }
                s.kick();
                panic!("in the middle");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(queue.in_flight(), 0, "{name}");
        assert!(
            out[..] == back[..],
            "{name}: every read was completed first"
        );
    }
}

#[test]
fn threads_with_queues_of_their_own() {
    for Bench { name, device, .. } in benches() {
        let share = device.len_bytes() / 4;
        std::thread::scope(|threads| {
            for t in 0..4_u64 {
                let device = &device;
                threads.spawn(move || {
                    let mut queue = device.open_queue().unwrap();
                    let (mut out, mut back) = (buffer(&**device, 16384), buffer(&**device, 16384));
                    for round in 0..30 {
                        let at = t * share + round * 16384 % share;
                        pattern(t * 100 + round, at, &mut out);
                        write(&mut *queue, at, &out).unwrap();
                        read(&mut *queue, at, &mut back).unwrap();
                        assert!(out[..] == back[..]);
                    }
                });
            }
        });
        drop(name);
    }
}

/// A queue may be used by one thread and then by another.
#[test]
fn a_queue_can_be_handed_on() {
    for Bench { device, .. } in benches() {
        let mut queue = device.open_queue().unwrap();
        let out = buffer(&*device, 16384);
        write(&mut *queue, 0, &out).unwrap();
        let mut queue = std::thread::scope(|threads| {
            let (device, out) = (&device, &out);
            let work = move || {
                let mut back = buffer(&**device, 16384);
                read(&mut *queue, 0, &mut back).unwrap();
                assert!(out[..] == back[..]);
                queue
            };
            threads.spawn(work).join().unwrap()
        });
        write(&mut *queue, 0, &out).unwrap();
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write {
        at: u64,
        blocks: u64,
        pieces: usize,
        fua: bool,
        seed: u64,
    },
    Read {
        at: u64,
        blocks: u64,
        pieces: usize,
    },
    Zero {
        at: u64,
        blocks: u64,
    },
    Flush,
}

fn steps(blocks: u64) -> impl Strategy<Value = Vec<Step>> {
    let place = move || (0..blocks, 1..64_u64).prop_map(move |(at, n)| (at, n.min(blocks - at)));
    let step = prop_oneof![
        4 => (place(), 1..6_usize, any::<bool>(), any::<u64>())
            .prop_map(|((at, blocks), pieces, fua, seed)| Step::Write { at, blocks, pieces, fua, seed }),
        4 => (place(), 1..6_usize).prop_map(|((at, blocks), pieces)| Step::Read { at, blocks, pieces }),
        1 => place().prop_map(|(at, blocks)| Step::Zero { at, blocks }),
        1 => Just(Step::Flush),
    ];
    prop::collection::vec(step, 1..60)
}

/// Runs random operations one by one on the device and on a vector. Offsets are in units of 4096 bytes.
fn against_a_vector(device: &dyn BlockDevice, steps: &[Step]) {
    const UNIT: u64 = 4096;
    let mut queue = device.open_queue().unwrap();
    let mut model = vec![0_u8; device.len_bytes() as usize];
    let zeros = buffer(device, model.len().min(1 << 20));
    for at in (0..model.len()).step_by(zeros.len()) {
        write(
            &mut *queue,
            at as u64,
            &zeros[..zeros.len().min(model.len() - at)],
        )
        .unwrap();
    }
    let bytes = |at: u64, blocks: u64| (at * UNIT) as usize..((at + blocks) * UNIT) as usize;
    for step in steps {
        match *step {
            Step::Write {
                at,
                blocks,
                pieces,
                fua,
                seed,
            } => {
                let mut out = buffer(device, (blocks * UNIT) as usize);
                pattern(seed, at, &mut out);
                let piece = blocks.div_ceil(pieces as u64) * UNIT;
                let segments = out.chunks(piece as usize).map(Segment::Write).collect();
                one(&mut *queue, Op::Write, at * UNIT, segments, fua).unwrap();
                model[bytes(at, blocks)].copy_from_slice(&out);
            }
            Step::Read { at, blocks, pieces } => {
                let mut back = buffer(device, (blocks * UNIT) as usize);
                let piece = blocks.div_ceil(pieces as u64) * UNIT;
                let segments = back.chunks_mut(piece as usize).map(Segment::Read).collect();
                one(&mut *queue, Op::Read, at * UNIT, segments, false).unwrap();
                assert!(model[bytes(at, blocks)] == back[..], "{step:?}");
            }
            Step::Zero { at, blocks } => {
                match range(&mut *queue, Op::WriteZeroes, at * UNIT, blocks * UNIT) {
                    Ok(()) => model[bytes(at, blocks)].fill(0),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported),
                }
            }
            Step::Flush => range(&mut *queue, Op::Flush, 0, 0).unwrap(),
        }
    }
}

#[test]
fn random_operations_do_as_a_vector_does() {
    for Bench { name, device, .. } in benches() {
        let mut runner = TestRunner::new(config(12));
        let outcome = runner.run(&steps(device.len_bytes() / 4096), |steps| {
            against_a_vector(&*device, &steps);
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn windows_stay_inside() {
    let inner: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(LEN));
    let new = |at, len| OffsetDevice::new(Arc::clone(&inner), at, len);
    for (at, len) in [
        (1, None),
        (LEN + 512, None),
        (512, Some(LEN)),
        (0, Some(1000)),
        (512, Some(u64::MAX)),
    ] {
        assert_eq!(
            new(at, len).err().unwrap().kind(),
            ErrorKind::InvalidInput,
            "{at} {len:?}"
        );
    }
    let window = new(4096, Some(8192)).unwrap();
    let mut queue = window.open_queue().unwrap();
    assert!(write(&mut *queue, 8192, &[1; 512]).is_err());
    write(&mut *queue, 7680, &[1; 512]).unwrap();
    let mut whole = inner.open_queue().unwrap();
    let mut back = [0; 1024];
    read(&mut *whole, 4096 + 7680, &mut back).unwrap();
    assert_eq!((back[511], back[512]), (1, 0));
}
