//! The server's memory stays within its budget plus 64 MiB under any load.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use throughline_testing::sectors::filled;
use throughline_testing::{DiskImage, Mounted};

use crate::mount_robust::proc::anonymous_bytes;
use crate::oracle::seeds::soak;

const CACHE_BYTES: u64 = 32 << 20;
const BESIDE_BYTES: u64 = 64 << 20;
const OPTIONS: &str = "cache_size=32M";

/// Size of the load: fast or long test.
struct Scale {
    image: &'static str,
    stream_mib: u64,
    files: u64,
    open: u64,
    levels: u64,
}

const FAST: Scale = Scale {
    image: "900m",
    stream_mib: 256,
    files: 10_000,
    open: 3_000,
    levels: 200,
};

const LONG: Scale = Scale {
    image: "4000m",
    stream_mib: 1024,
    files: 100_000,
    // In addition to what 100,000 files left while their metadata was not written home; `many_open_files` has
    // more.
    open: 5_000,
    levels: 1000,
};

/// Samples the memory of a process while `work` runs. Returns the maximum.
fn most_during(pid: u32, work: impl FnOnce()) -> u64 {
    let (done, most) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                most.fetch_max(anonymous_bytes(pid), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        // Also on panic: the sampling thread must end.
        let _end = End(&done);
        work();
        most.fetch_max(anonymous_bytes(pid), Ordering::Relaxed);
    });
    most.into_inner()
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn stream(root: &Path, mib: u64) {
    let path = root.join("stream");
    let piece = filled(1 << 20, 1, 0, 1);
    let mut file = File::create(&path).expect("a file");
    for _ in 0..mib {
        file.write_all(&piece).expect("a write");
    }
    file.sync_all().expect("a sync");
    drop(file);
    let mut file = File::open(&path).expect("the file");
    let mut buffer = vec![0; 1 << 20];
    while file.read(&mut buffer).expect("a read") > 0 {}
    std::fs::remove_file(&path).expect("a removal");
}

/// Creates files in directories of a thousand, from four threads, and stats all of them.
fn many(root: &Path, files: u64) {
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for number in 0..files / 4 {
                    let dir = root.join(format!("many-{thread}-{}", number / 1000));
                    if number % 1000 == 0 {
                        std::fs::create_dir(&dir).expect("a directory");
                    }
                    std::fs::write(dir.join(format!("file-{number}")), b"small").expect("a file");
                }
            });
        }
    });
    let mut seen = 0;
    for entry in std::fs::read_dir(root).expect("the root") {
        let entry = entry.expect("an entry");
        if !entry.file_name().to_string_lossy().starts_with("many-") {
            continue;
        }
        for name in std::fs::read_dir(entry.path()).expect("a directory") {
            let file = name.and_then(|name| name.metadata()).expect("a file");
            seen += u64::from(file.is_file());
        }
    }
    assert_eq!(seen, files / 4 * 4);
}

/// Holds many files open after writing to each.
fn open(root: &Path, most: u64) {
    let mut limits = getrlimit(Resource::Nofile);
    limits.current = limits.maximum;
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limits.maximum,
            ..limits
        },
    );
    let room = limits.current.map_or(most, |room| room.saturating_sub(200));
    let dir = root.join("open");
    std::fs::create_dir(&dir).expect("a directory");
    let files: Vec<File> = (0..most.min(room))
        .map(|number| {
            let mut file = File::create(dir.join(number.to_string())).expect("a file");
            file.write_all(b"open").expect("a write");
            file
        })
        .collect();
    assert!(files.len() > 100);
}

fn deep(root: &Path, levels: u64) {
    let mut dir = root.to_owned();
    for level in 0..levels {
        dir.push((level % 10).to_string());
        std::fs::create_dir(&dir).expect("a directory");
    }
    std::fs::write(dir.join("file"), b"deep").expect("a file");
}

/// Each open file costs about 2.5 KiB outside the budget, so their number is limited: 20,000 come to 84 to 97
/// MiB, at the bound.
#[test]
fn many_open_files() {
    if !Mounted::possible() {
        return;
    }
    let Some(image) = DiskImage::make("-t ext4", FAST.image) else {
        return;
    };
    let mounted = Mounted::new(image.path(), OPTIONS);
    let most = if soak() { 15_000 } else { FAST.open };
    let most = most_during(mounted.pid(), || open(mounted.root(), most));
    eprintln!("many open files: at most {} KiB", most >> 10);
    let status = mounted.status();
    assert!(
        most <= CACHE_BYTES + BESIDE_BYTES,
        "{} MiB\n{status:#}",
        most >> 20
    );
    mounted.unmount();
}

#[test]
fn the_server_keeps_to_its_budget() {
    if !Mounted::possible() {
        return;
    }
    let scale = if soak() { LONG } else { FAST };
    let Some(image) = DiskImage::make("-t ext4", scale.image) else {
        return;
    };
    let mounted = Mounted::new(image.path(), OPTIONS);
    let root = mounted.root();
    let loads: [(&str, &dyn Fn()); 4] = [
        ("streaming", &|| stream(root, scale.stream_mib)),
        ("many files", &|| many(root, scale.files)),
        ("many open files", &|| open(root, scale.open)),
        ("deep directories", &|| deep(root, scale.levels)),
    ];
    let mut over = Vec::new();
    for (what, load) in loads {
        let most = most_during(mounted.pid(), load);
        eprintln!("{what}: at most {} KiB", most >> 10);
        if most > CACHE_BYTES + BESIDE_BYTES {
            over.push(format!(
                "{what}: {} MiB\n{:#}",
                most >> 20,
                mounted.status()
            ));
        }
    }
    assert!(over.is_empty(), "more than 96 MiB:\n{}", over.join("\n"));
    mounted.unmount();
}
