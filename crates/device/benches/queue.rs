//! The cost of a queue: nanoseconds per 4 KiB request, in wall-clock time and this thread's CPU time, on the
//! null and memory devices, and with each engine on a file. `cargo bench -p throughline-device [-- FOLDER]`.

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use throughline_device::{
    AlignedBuf, BlockDevice, Done, EngineChoice, MemoryDevice, NullDevice, Op, OpenOptions,
    Segment, scope,
};

const LEN: u64 = 64 << 20;
/// Fits into the processor's cache, so that the memory device's own cost shows.
const CACHED: u64 = 1 << 20;
const UNIT: usize = 4096;

fn main() {
    let mut arguments = std::env::args().skip(1);
    if !arguments.any(|a| a == "--bench") {
        return; // `cargo test` only checks that it builds
    }
    let folder = std::env::args()
        .skip(1)
        .find(|a| !a.starts_with("--"))
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let path = folder.join(format!("throughline-bench-{}", std::process::id()));
    measure("null", Arc::new(NullDevice::new(LEN)), LEN, 2_000_000);
    measure(
        "memory",
        Arc::new(MemoryDevice::new(LEN)),
        CACHED,
        1_000_000,
    );
    for engine in [EngineChoice::Uring, EngineChoice::Threads] {
        let options = OpenOptions::new()
            .engine(engine)
            .write(true)
            .create(true)
            .len_bytes(LEN);
        match options.open(&path) {
            Ok(device) => measure(&format!("{engine:?}"), device, LEN, 5_000),
            Err(error) => println!("{engine:?}: {error}"),
        }
    }
    let _ = std::fs::remove_file(&path);
}

/// Measures `count` requests within the first `span` bytes.
fn measure(name: &str, device: Arc<dyn BlockDevice>, span: u64, count: usize) {
    let mut queue = device.open_queue().expect("a queue");
    let mut memory = AlignedBuf::zeroed(UNIT * 64, 4096);
    let mut done: Vec<Done> = Vec::new();
    for at in (0..LEN).step_by(memory.len()) {
        scope(&mut *queue, |s| {
            s.submit(0, Op::Write, at, [Segment::Write(&memory)], false)
        });
    }
    let place =
        |i: usize| (i as u64).wrapping_mul(0x9e37_79b9) % (span / UNIT as u64) * UNIT as u64;
    for op in [Op::Read, Op::Write] {
        let alone = time_each(count, || {
            for i in 0..count {
                scope(&mut *queue, |s| {
                    s.submit(0, op, place(i), [segment(op, &mut memory[..UNIT])], false);
                    s.reap(1, &mut done);
                });
                assert!(black_box(&done)[0].result.is_ok());
                done.clear();
            }
        });
        let depth = queue.depth().min(16);
        let deep = time_each(count, || {
            for batch in 0..count / depth {
                scope(&mut *queue, |s| {
                    for (i, piece) in memory.chunks_mut(UNIT).take(depth).enumerate() {
                        s.submit(0, op, place(batch * depth + i), [segment(op, piece)], false);
                    }
                    s.reap(depth, &mut done);
                });
                assert!(black_box(&done).iter().all(|d| d.result.is_ok()));
                done.clear();
            }
        });
        println!("{name:8} {op:?}: alone {alone}, at depth {depth} {deep}");
    }
}

/// Wall-clock and CPU nanoseconds per request, of `count` requests.
fn time_each(count: usize, work: impl FnOnce()) -> String {
    let cpu = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("a clock");
    let (begin, cpu_begin) = (Instant::now(), cpu());
    work();
    let each = |time: Duration| time.as_nanos() / count as u128;
    format!(
        "{} ns ({} CPU)",
        each(begin.elapsed()),
        each(cpu() - cpu_begin)
    )
}

fn segment(op: Op, memory: &mut [u8]) -> Segment<'_> {
    match op {
        Op::Read => Segment::Read(memory),
        _ => Segment::Write(memory),
    }
}
