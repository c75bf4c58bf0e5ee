//! Lending of borrowed and owned memory, small enough for Miri: `cargo +nightly miri test`.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use throughline_device::{
    AlignedBuf, AlignedPool, BlockDevice, Completion, Done, Lane, Limits, MemoryDevice, NullDevice,
    OffsetDevice, Op, PagePool, Pages, Queue, Request, Segment, scope,
};

#[test]
fn lent_memory_is_returned() {
    let device = MemoryDevice::new(1 << 20);
    let mut queue = device.open_queue().unwrap();
    let out: Vec<u8> = (0..4096_u32).map(|i| i as u8).collect();
    let mut back = vec![0; 4096];
    let mut done = Vec::new();
    let result = scope(&mut *queue, |s| {
        s.submit(
            1,
            Op::Write,
            262_144 - 2048,
            [Segment::Write(&out[..512]), Segment::Write(&out[512..])],
            true,
        );
        s.reap(1, &mut done);
        let (first, second) = back.split_at_mut(1024);
        // More segments than a request stores inline, some of them empty.
        let pieces = first
            .chunks_mut(128)
            .map(Segment::Read)
            .chain([Segment::Read(&mut [])]);
        s.submit(2, Op::Read, 262_144 - 2048, pieces, false);
        s.submit(3, Op::Read, 262_144 - 1024, [Segment::Read(second)], false);
        s.submit_range(4, Op::Flush, 0, 0);
        s.reap(3, &mut done);
        (s.in_flight(), s.depth())
    });
    assert_eq!(result, (0, 128));
    let ends: Vec<_> = done
        .iter()
        .map(|d| (d.tag, d.op, d.len_bytes, d.result.is_ok()))
        .collect();
    let expected = [
        (1, Op::Write, 4096, true),
        (2, Op::Read, 1024, true),
        (3, Op::Read, 3072, true),
        (4, Op::Flush, 0, true),
    ];
    assert_eq!(ends, expected);
    assert_eq!(out, back);
}

#[test]
fn a_panic_returns_what_was_lent() {
    let device = MemoryDevice::new(65536);
    let mut queue = device.open_queue().unwrap();
    let mut memory = vec![1; 512];
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        scope(&mut *queue, |s| {
            s.submit(0, Op::Read, 0, [Segment::Read(&mut memory)], false);
            panic!("in the middle");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!((queue.in_flight(), memory), (0, vec![0; 512]));
}

#[test]
fn memory_of_the_wrong_direction_panics() {
    let device = MemoryDevice::new(65536);
    let mut queue = device.open_queue().unwrap();
    for op in [Op::Read, Op::Flush] {
        let shared = [0; 512];
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            scope(&mut *queue, |s| {
                s.submit(0, op, 0, [Segment::Write(&shared)], false)
            });
        }));
        assert!(panicked.is_err());
    }
}

fn shared_pages(pool: &PagePool, bytes: usize, fill: u8) -> Arc<Pages> {
    let mut pages = pool.take(bytes).unwrap();
    pages.fill(fill);
    Arc::new(pages)
}

fn share(pages: &Arc<Pages>, from: usize, len: usize) -> Segment<'static> {
    let pages = Arc::clone(pages);
    Segment::Shared { pages, from, len }
}

#[test]
fn shared_memory_goes_with_borrowed_memory() {
    let device = MemoryDevice::new(1 << 20);
    let mut queue = device.open_queue().unwrap();
    let mut pages = shared_pages(&PagePool::new(1 << 20), 4096, 3);
    let (borrowed, mut back) = ([4; 512], [0; 2048]);
    scope(&mut *queue, |s| {
        let pieces = [
            share(&pages, 1024, 512),
            Segment::Write(&borrowed),
            share(&pages, 0, 0),
            share(&pages, 3072, 1024),
        ];
        s.submit(0, Op::Write, 0, pieces, false);
        assert!(
            Arc::get_mut(&mut pages).is_none(),
            "the request has a share"
        );
        s.submit(0, Op::Read, 0, [Segment::Read(&mut back)], false);
    });
    let expected: Vec<u8> = [[3; 512], [4; 512], [3; 512], [3; 512]].concat();
    assert_eq!(back[..], expected[..]);
    assert!(Arc::get_mut(&mut pages).is_some());
}

#[test]
fn a_lane_keeps_what_it_was_given() {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(1 << 20));
    let device = OffsetDevice::new(device, 65536, None).unwrap();
    let pool = PagePool::new(1 << 20);
    let mut lane = Lane::open(&device).unwrap();
    let mut done: Vec<Done> = Vec::new();
    for i in 0..4_u64 {
        let pages = shared_pages(&pool, 4096, i as u8);
        lane.submit(i, Op::Write, i * 4096, [share(&pages, 0, 4096)], i == 3);
    }
    assert_eq!(
        (lane.in_flight(), pool.used_bytes()),
        (4, 4 * 4096),
        "kept by the requests alone"
    );
    lane.submit(9, Op::Write, 1 << 30, [Segment::Write(&[0; 512])], false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            lane.kick();
            lane.reap(5, &mut done);
        });
    });
    done.sort_by_key(|one| one.tag);
    let ends: Vec<_> = done
        .iter()
        .map(|one| (one.tag, one.result.is_ok()))
        .collect();
    assert_eq!(
        ends,
        [(0, true), (1, true), (2, true), (3, true), (9, false)]
    );
    assert_eq!((lane.in_flight(), pool.used_bytes()), (0, 0));
    let mut back = [9; 4 * 4096];
    let mut queue = device.open_queue().unwrap();
    scope(&mut *queue, |s| {
        s.submit(0, Op::Read, 0, [Segment::Read(&mut back)], false)
    });
    let page_of = |i: usize| (i / 4096) as u8;
    assert!(back.iter().enumerate().all(|(i, byte)| *byte == page_of(i)));
}

#[test]
fn a_dropped_lane_releases_its_memory() {
    let pool = PagePool::new(1 << 20);
    let mut lane = Lane::open(&MemoryDevice::new(1 << 20)).unwrap();
    lane.submit(
        0,
        Op::Write,
        0,
        [share(&shared_pages(&pool, 4096, 1), 0, 4096)],
        false,
    );
    drop(lane);
    assert_eq!(pool.used_bytes(), 0);
}

#[test]
fn a_range_outside_its_pages_panics() {
    let pages = shared_pages(&PagePool::new(1 << 20), 4096, 0);
    for (from, len) in [(4096, 512), (0, 8192), (usize::MAX, 1), (512, usize::MAX)] {
        let mut lane = Lane::open(&MemoryDevice::new(1 << 20)).unwrap();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            lane.submit(0, Op::Write, 0, [share(&pages, from, len)], false);
        }));
        assert!(panicked.is_err());
    }
}

#[test]
fn threads_share_a_memory_device() {
    let device = Arc::new(MemoryDevice::new(65536));
    std::thread::scope(|threads| {
        for t in 0..3_u64 {
            let device = &device;
            threads.spawn(move || {
                let mut queue = device.open_queue().unwrap();
                let out = [t as u8 + 1; 512];
                let mut back = [0; 512];
                scope(&mut *queue, |s| {
                    s.submit(0, Op::Write, t * 512, [Segment::Write(&out)], false);
                    s.submit(0, Op::Read, t * 512, [Segment::Read(&mut back)], false);
                });
                assert_eq!(out, back);
            });
        }
    });
}

#[test]
fn requests_gather_and_scatter() {
    /// Copies through the accessors, in odd steps, and returns for reads what was written.
    struct Echo(Vec<u8>, Vec<Completion>);
    impl Queue for Echo {
        fn submit(&mut self, mut request: Request) {
            match request.op() {
                Op::Write => {
                    let mut piece = [0; 7];
                    loop {
                        let n = request.copy_out(self.0.len(), &mut piece);
                        self.0.extend_from_slice(&piece[..n]);
                        if n < piece.len() {
                            break;
                        }
                    }
                    assert!(catch_unwind(AssertUnwindSafe(|| request.copy_in(0, &[1]))).is_err());
                }
                _ => {
                    for (i, piece) in self.0.chunks(5).enumerate() {
                        request.copy_in(i * 5, piece);
                    }
                    assert_eq!(request.copy_in(self.0.len(), &[1, 2, 3]), 0);
                    request.zero_from(self.0.len() - 3);
                }
            }
            self.1.push(Completion {
                request,
                result: Ok(()),
            });
        }
        fn kick(&mut self) {}
        fn reap(&mut self, _: usize, done: &mut Vec<Completion>) {
            done.append(&mut self.1);
        }
        fn in_flight(&self) -> usize {
            self.1.len()
        }
        fn depth(&self) -> usize {
            1
        }
    }
    let mut queue = Echo(Vec::new(), Vec::new());
    let out: Vec<u8> = (1..=50).collect();
    let mut back = [9; 50];
    scope(&mut queue, |s| {
        s.submit(0, Op::Write, 0, out.chunks(11).map(Segment::Write), false)
    });
    scope(&mut queue, |s| {
        s.submit(0, Op::Read, 0, back.chunks_mut(8).map(Segment::Read), false)
    });
    assert_eq!(back[..47], out[..47]);
    assert_eq!(back[47..], [0; 3]);
}

#[test]
fn limits_are_held_to() {
    let limits = Limits {
        max_transfer_bytes: 4096,
        max_segments: 2,
        memory_align_bytes: 512,
        virt_boundary_mask: 4095,
        fua: false,
        discard: false,
        write_zeroes: false,
        ..Limits::default()
    };
    let device = MemoryDevice::with_limits(1 << 20, limits);
    let mut queue = device.open_queue().unwrap();
    let memory = AlignedBuf::zeroed(16384, 4096);
    let mut try_one = |ranges: &[(usize, usize)], fua| {
        let mut done = Vec::new();
        scope(&mut *queue, |s| {
            s.submit(
                0,
                Op::Write,
                0,
                ranges.iter().map(|r| Segment::Write(&memory[r.0..r.1])),
                fua,
            );
            s.reap(1, &mut done);
        });
        done.pop().unwrap().result.map_err(|error| error.kind())
    };
    let refused = Err(io::ErrorKind::InvalidInput);
    assert_eq!(try_one(&[(0, 4096)], false), Ok(()));
    assert_eq!(try_one(&[(0, 4096)], true), refused, "fua");
    assert_eq!(try_one(&[(0, 8192)], false), refused, "too long");
    assert_eq!(
        try_one(&[(0, 512), (512, 1024), (1024, 1536)], false),
        refused,
        "too many pieces"
    );
    assert_eq!(try_one(&[(8, 520)], false), refused, "memory alignment");
    assert_eq!(try_one(&[(512, 4096), (8192, 8704)], false), Ok(()));
    assert_eq!(
        try_one(&[(512, 1024), (8192, 8704)], false),
        refused,
        "a gap"
    );
    for op in [Op::Discard, Op::WriteZeroes] {
        let mut done = Vec::new();
        scope(&mut *queue, |s| {
            s.submit_range(0, op, 0, 4096);
            s.reap(1, &mut done);
        });
        assert_eq!(
            done[0].result.as_ref().unwrap_err().kind(),
            io::ErrorKind::Unsupported
        );
    }
}

#[test]
fn the_null_device_touches_nothing() {
    let device = OffsetDevice::new(Arc::new(NullDevice::new(1 << 40)), 1 << 20, None).unwrap();
    let mut queue = device.open_queue().unwrap();
    let mut memory = [5; 512];
    let mut done = Vec::new();
    scope(&mut *queue, |s| {
        s.submit(0, Op::Read, 1 << 30, [Segment::Read(&mut memory)], false);
        s.submit(
            0,
            Op::Write,
            (1 << 40) - 512,
            [Segment::Write(&[0; 512])],
            false,
        );
        s.reap(2, &mut done);
    });
    assert_eq!(memory, [5; 512]);
    let at: Vec<_> = done
        .iter()
        .map(|d| (d.offset_bytes, d.result.is_ok()))
        .collect();
    assert!(
        at.contains(&(1 << 30, true)) && at.contains(&((1 << 40) - 512, false)),
        "{at:?}"
    );
}

#[test]
fn buffers_are_aligned_zeroed_and_recycled() {
    for (len, align) in [(0, 1), (0, 4096), (1, 1), (4097, 512), (65536, 65536)] {
        let mut buffer = AlignedBuf::zeroed(len, align);
        assert_eq!(
            (
                buffer.len(),
                buffer.as_ptr().addr() % align,
                buffer.align_bytes()
            ),
            (len, 0, align)
        );
        assert!(buffer.iter().all(|&b| b == 0));
        buffer.fill(1);
        let sent =
            std::thread::spawn(move || buffer.iter().map(|&b| usize::from(b)).sum::<usize>());
        assert_eq!(sent.join().unwrap(), len);
    }
    let pool = AlignedPool::new(4096, 512, 1);
    let (mut first, second) = (pool.take(), pool.take());
    first[0] = 7;
    let addresses = [first.as_ptr().addr(), second.as_ptr().addr()];
    assert_ne!(addresses[0], addresses[1]);
    drop(first);
    drop(second); // one more than the pool keeps
    let again = pool.take();
    assert_eq!(
        (again.as_ptr().addr(), again[0], pool.buffer_bytes()),
        (addresses[0], 7, 4096)
    );
    assert_eq!(pool.take().len(), 4096);
}

/// Runs itself again in a child process, which must abort.
#[test]
#[cfg(not(miri))]
fn a_lost_request_aborts() {
    use std::os::unix::process::ExitStatusExt;

    struct Loses(Vec<Request>);
    impl Queue for Loses {
        fn submit(&mut self, request: Request) {
            self.0.push(request);
        }
        fn kick(&mut self) {}
        fn reap(&mut self, _: usize, _: &mut Vec<Completion>) {}
        fn in_flight(&self) -> usize {
            0
        }
        fn depth(&self) -> usize {
            1
        }
    }
    if std::env::var_os("THROUGHLINE_TEST_LOSE").is_some() {
        scope(&mut Loses(Vec::new()), |s| {
            s.submit(0, Op::Write, 0, [Segment::Write(&[0; 512])], false)
        });
        return;
    }
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again
        .args(["--exact", "lending::a_lost_request_aborts", "--nocapture"])
        .env("THROUGHLINE_TEST_LOSE", "1");
    let output = again.output().unwrap();
    assert_eq!(output.status.signal(), Some(6), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("lost a request"),
        "{output:?}"
    );
}
