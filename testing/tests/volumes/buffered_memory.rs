//! Memory of buffered streams: at most the budget plus a program's own needs, however much is written or
//! read; dirty memory never exceeds the limit, even briefly; and no pause is longer than 200 ms.

use crate::oracle;

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oracle::image::{load_sparse, tools};
use oracle::seeds::{Deadline, soak};
use throughline::internal::{OpenBlockDevice, RawLayers};
use throughline::{DirtyLimits, Handle, OpenOptions};
use throughline_device::{NullDevice, Op, Request};
use throughline_fileio::throttle::Event;
use throughline_testing::sectors::{MAGIC, SECTOR_BYTES, fill};
use throughline_testing::{Fault, FaultDevice};
use throughline_testkit::e2fs;

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 64 * MIB;
/// A program's own needs.
const BESIDES: u64 = 32 * MIB;
/// Marks the test binary as the child whose memory is measured: the target of the stream, and its size in
/// MiB.
const CHILD: &str = "THROUGHLINE_MEMORY_CHILD";

/// The peak memory of this process, in bytes.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.expect("a figure in KiB") << 10
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    options.cache_bytes(Some(BUDGET));
    options
}

/// Whether a request writes data sectors of this test, or is a long read of data.
fn is_data(request: &Request) -> bool {
    request.op() == Op::Write
        && request
            .slices()
            .next()
            .is_some_and(|bytes| bytes.starts_with(&MAGIC))
}

/// Writes a stream and reads it back, in calls of 1 MiB.
fn stream(handle: &Handle, bytes: u64) {
    let mut buf = vec![0; MIB as usize];
    // Each block starts with a sector marked as data, so that the underlying device can recognise it.
    for block in buf.chunks_mut(4096) {
        fill(&mut block[..SECTOR_BYTES], 1, 0, 1);
    }
    for at in (0..bytes).step_by(MIB as usize) {
        handle.write_all_at(&buf, at).expect("there is room");
    }
    handle.sync_all().expect("a device that works");
    for at in (0..bytes).step_by(MIB as usize) {
        assert_eq!(handle.read_at(&mut buf, at).expect("reads"), buf.len());
    }
}

/// The child: streams, and reports its peak memory. Without the variable it does nothing.
#[test]
fn child() {
    let Ok(what) = std::env::var(CHILD) else {
        return;
    };
    let (kind, rest) = what.split_once(' ').expect("a kind, a size, a path");
    let (mib, path) = rest.split_once(' ').expect("a size, a path");
    let bytes = mib.parse::<u64>().expect("MiB") * MIB;
    match kind {
        "raw" => {
            let device = Arc::new(NullDevice::new(bytes));
            let raw = options().open_raw_block_device(device).expect("opens");
            stream(&raw, bytes);
        }
        "file" => {
            let raw = options().create(true).open_raw(path).expect("opens");
            stream(&raw, bytes);
        }
        "volume" => {
            let below = load_sparse(Path::new(path));
            let device = FaultDevice::new(below, Fault::Lost).only_where(is_data);
            let volume = options()
                .open_block_device(Arc::new(device))
                .expect("opens");
            let file = volume.create_file("/stream").expect("a name");
            stream(&file, bytes);
            drop(file);
            volume.close().expect("closes");
        }
        other => panic!("{other}: no such kind"),
    }
    println!("peak={}", peak_bytes());
}

/// Runs the child and returns its peak memory in bytes.
fn peak_of_child(kind: &str, mib: u64, path: &Path) -> u64 {
    let output = Command::new(std::env::current_exe().expect("our own name"))
        .args([
            "buffered_memory::child",
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(CHILD, format!("{kind} {mib} {}", path.display()))
        .output()
        .expect("we can be started again");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{kind}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let peak = text.split_once("peak=").map(|(_, rest)| rest);
    let peak = peak.and_then(|rest| rest.lines().next()?.trim().parse().ok());
    peak.expect("the child prints its peak")
}

fn must_be_small(kind: &str, mib: u64, path: &Path) {
    let peak = peak_of_child(kind, mib, path);
    eprintln!(
        "{kind}: {mib} MiB through {} MiB: {} MiB",
        BUDGET >> 20,
        peak >> 20
    );
    assert!(
        peak < BUDGET + BESIDES,
        "{kind}: {} MiB of memory for a budget of {} MiB",
        peak >> 20,
        BUDGET >> 20
    );
}

#[test]
fn a_stream_over_a_raw_device_stays_in_its_budget() {
    let mib = if soak() { 64 << 10 } else { 2 << 10 };
    must_be_small("raw", mib, Path::new("-"));
}

#[test]
fn a_stream_into_a_file_of_the_host_stays_in_its_budget() {
    let folder = tempfile::tempdir().unwrap();
    let mib = if soak() { 2 << 10 } else { 256 };
    must_be_small("file", mib, &folder.path().join("stream"));
}

#[test]
fn a_stream_over_a_volume_stays_in_its_budget() {
    if !tools() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let mib: u64 = if soak() { 64 << 10 } else { 2 << 10 };
    File::create(&path)
        .and_then(|file| file.set_len((mib + mib / 8) * MIB))
        .expect("a sparse file");
    assert!(e2fs::mke2fs(&path, "", &["-t", "ext4", "-J", "size=8"]));
    must_be_small("volume", mib, &path);
}

/// A device whose requests take time in proportion to their length: otherwise nothing would stay dirty for
/// long.
fn slow(bytes: u64) -> Arc<FaultDevice> {
    let device = FaultDevice::new(Arc::new(NullDevice::new(bytes)), Fault::Never);
    Arc::new(device.only_where(|request| {
        // At 400 MB/s.
        std::thread::sleep(Duration::from_nanos(request.len_bytes() * 5 / 2));
        false
    }))
}

#[test]
fn dirty_memory_is_never_over_its_limit_and_no_pause_is_long() {
    const WRITERS: u64 = 8;
    const LIMIT: u64 = 8 * MIB;
    let _deadline = Deadline::new("the dirty limit".into());
    let limits = DirtyLimits::new(Some(LIMIT), None);
    let bytes = if soak() { 4096 * MIB } else { 384 * MIB };
    let raw = options()
        .dirty_limits(limits)
        .open_raw_block_device(slow(bytes) as _)
        .expect("opens");
    // Its cache is created with the first buffered call.
    raw.write_all_at(b"first", 0).expect("room");
    let cache = Arc::clone(raw.cache().expect("see above"));
    let longest: Arc<Mutex<Duration>> = Arc::default();
    let shared = Arc::clone(&longest);
    let _listening = cache.throttle().subscribe(Arc::new(move |event: &Event| {
        if let Event::Paused { pause, .. } = event {
            let mut longest = shared.lock().unwrap();
            *longest = (*longest).max(*pause);
        }
    }));
    let (ended, most, samples) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                most.fetch_max(cache.throttle().state().dirty_bytes, Ordering::Relaxed);
                samples.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let writers: Vec<_> = (0..WRITERS)
            .map(|me| {
                let raw = &raw;
                scope.spawn(move || {
                    let share = bytes / WRITERS;
                    let buf = vec![me as u8; 256 << 10];
                    for at in (0..share).step_by(buf.len()) {
                        raw.write_all_at(&buf, me * share + at).expect("room");
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().expect("no panic");
        }
        ended.store(true, Ordering::Relaxed);
        sampler.join().expect("no panic");
    });
    raw.sync_all().expect("a device that works");
    let state = cache.throttle().state();
    let (most, longest) = (most.into_inner(), *longest.lock().unwrap());
    eprintln!(
        "{samples:?} samples: most {most} of {LIMIT} dirty; {} pauses, longest {longest:?}; {} waits, \
        longest {:?}",
        state.pauses.count, state.waits.count, state.waits.longest
    );
    assert!(most <= LIMIT, "{most} bytes dirty, over {LIMIT}");
    assert!(
        most > LIMIT / 4,
        "hardly anything was dirty: the test proves nothing"
    );
    assert!(
        longest <= Duration::from_millis(200) && state.pauses.longest <= Duration::from_millis(200),
        "a pause of {longest:?}"
    );
    assert_eq!(state.dirty_bytes, 0, "dirty after a sync");
}
