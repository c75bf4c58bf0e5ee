//! What a queue costs: nanoseconds for each 4 KiB request on devices that cost nothing, and what the
//! engines reach on a file. `cargo bench -p throughline-device [-- FOLDER]`.

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use throughline_device::{
    AlignedBuf, BlockDevice, Done, EngineChoice, MemoryDevice, NullDevice, Op, OpenOptions,
    Segment, scope,
};

const LEN: u64 = 64 << 20;
const UNIT: usize = 4096;

fn main() {
    let mut arguments = std::env::args().skip(1);
    if !arguments.any(|a| a == "--bench") {
        return; // `cargo test` only wants to know that it builds
    }
    let folder = std::env::args()
        .skip(1)
        .find(|a| !a.starts_with("--"))
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let path = folder.join(format!("throughline-bench-{}", std::process::id()));
    measure("null", Arc::new(NullDevice::new(LEN)), 2_000_000);
    measure("memory", Arc::new(MemoryDevice::new(LEN)), 500_000);
    for engine in [EngineChoice::Uring, EngineChoice::Threads] {
        let options = OpenOptions::new()
            .engine(engine)
            .write(true)
            .create(true)
            .len_bytes(LEN);
        match options.open(&path) {
            Ok(device) => measure(&format!("{engine:?}"), device, 5_000),
            Err(error) => println!("{engine:?}: {error}"),
        }
    }
    let _ = std::fs::remove_file(&path);
}

fn measure(name: &str, device: Arc<dyn BlockDevice>, count: usize) {
    let mut queue = device.open_queue().expect("a queue");
    let mut memory = AlignedBuf::zeroed(UNIT * 64, 4096);
    let mut done: Vec<Done> = Vec::new();
    for at in (0..LEN).step_by(memory.len()) {
        scope(&mut *queue, |s| {
            s.submit(0, Op::Write, at, [Segment::Write(&memory)], false)
        });
    }
    let place = |i: usize| (i as u64).wrapping_mul(0x9e37_79b9) % (LEN / UNIT as u64) * UNIT as u64;
    for op in [Op::Read, Op::Write] {
        let begin = Instant::now();
        for i in 0..count {
            scope(&mut *queue, |s| {
                s.submit(0, op, place(i), [segment(op, &mut memory[..UNIT])], false);
                s.reap(1, &mut done);
            });
            assert!(black_box(&done)[0].result.is_ok());
            done.clear();
        }
        let alone = begin.elapsed().as_nanos() / count as u128;
        let (begin, depth) = (Instant::now(), queue.depth().min(16));
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
        let deep = begin.elapsed().as_nanos() / count as u128;
        println!("{name:8} {op:?}: {alone} ns alone, {deep} ns at depth {depth}");
    }
}

fn segment(op: Op, memory: &mut [u8]) -> Segment<'_> {
    match op {
        Op::Read => Segment::Read(memory),
        _ => Segment::Write(memory),
    }
}
