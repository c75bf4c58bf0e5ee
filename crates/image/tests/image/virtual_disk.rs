//! Disks in images: what is written is read, beside a model; and images whose tables are damaged.

use std::fs;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use throughline_device::LockMode;
use throughline_image::{Backing, DiskOptions, ReadAt, VirtualDisk, no_objects};
use throughline_testkit::program::{self, has};

const DISK_BYTES: usize = 1 << 20;

/// A generator of numbers (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % most
    }
}

fn options(write: bool, backing: Backing) -> DiskOptions {
    DiskOptions {
        write,
        lock: if write {
            LockMode::Exclusive
        } else {
            LockMode::Shared
        },
        backing,
        objects: no_objects,
    }
}

fn qemu(arguments: &[&str]) -> Option<i32> {
    let ran = program::command("qemu-img")
        .args(arguments)
        .output()
        .unwrap();
    ran.status.code()
}

fn is_missing() -> bool {
    if has(&["qemu-img"]) {
        return false;
    }
    throughline_testkit::missing!("qemu-img is not installed");
    true
}

fn create(path: &Path, shape: &str, base: Option<&str>) {
    let path = path.to_str().unwrap();
    let mut arguments = vec!["create", "-q", "-f", "qcow2", "-o", shape];
    if let Some(base) = base {
        arguments.extend(["-b", base, "-F", "raw"]);
    }
    arguments.extend([path, "1M"]);
    assert_eq!(qemu(&arguments), Some(0));
}

/// Random writes, discards and reads; returns what the disk must hold.
fn exercise(disk: &VirtualDisk, model: &mut [u8], numbers: &mut Numbers) {
    for step in 0..150 {
        let at = numbers.below(DISK_BYTES / 512) * 512;
        let len = (1 + numbers.below(40)) * 512;
        let end = (at + len).min(DISK_BYTES);
        match numbers.below(9) {
            0 => disk.flush().unwrap(),
            8 => {
                disk.discard(at as u64, (end - at) as u64).unwrap();
                // What it holds now is told by a read.
                disk.read_exact_at(&mut model[at..end], at as u64).unwrap();
            }
            1..=3 => {
                let mut read = vec![0; end - at];
                disk.read_exact_at(&mut read, at as u64).unwrap();
                assert!(read == model[at..end], "step {step}: bytes {at} to {end}");
            }
            _ => {
                model[at..end].fill(step as u8 + 1);
                disk.write_all_at(&model[at..end], at as u64).unwrap();
            }
        }
    }
}

#[test]
fn a_disk_holds_what_is_written_over_its_backing_file() {
    if is_missing() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [base, image, raw] = ["base", "image", "raw"].map(|name| folder.path().join(name));
    let shapes = [
        "cluster_size=512",
        "cluster_size=4096",
        "cluster_size=64k",
        "compat=0.10",
    ];
    for (seed, shape) in (1..=8).flat_map(|seed| shapes.map(|shape| (seed, shape))) {
        let mut numbers = Numbers(seed * 0x9e37_79b9);
        let mut model: Vec<u8> = (0..DISK_BYTES).map(|at| (at / 512) as u8).collect();
        fs::write(&base, &model).unwrap();
        create(&image, shape, Some("base"));
        for _ in 0..3 {
            let allowed = options(true, Backing::none().allow(&base));
            let disk = VirtualDisk::open(&image, &allowed).unwrap();
            exercise(&disk, &mut model, &mut numbers);
        }
        let [image, raw] = [&image, &raw].map(|path| path.to_str().unwrap());
        assert_eq!(
            qemu(&["check", "-q", image]),
            Some(0),
            "{shape}, seed {seed}"
        );
        assert_eq!(qemu(&["convert", "-O", "raw", image, raw]), Some(0));
        assert!(fs::read(raw).unwrap() == model, "{shape}, seed {seed}");
    }
}

#[test]
fn ranges_outside_of_the_disk_are_refused() {
    if is_missing() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    create(&image, "cluster_size=64k", None);
    let disk = VirtualDisk::open(&image, &options(true, Backing::none())).unwrap();
    let end = disk.len_bytes().unwrap();
    for at in [end - 511, end, u64::MAX - 100] {
        let read = disk.read_exact_at(&mut [0; 512], at).unwrap_err();
        assert_eq!(read.kind(), ErrorKind::UnexpectedEof);
        let written = disk.write_all_at(&[0; 512], at).unwrap_err();
        assert_eq!(written.kind(), ErrorKind::InvalidInput);
        assert!(disk.discard(at, 512).is_err());
    }
    // Nobody else may write meanwhile.
    let second = VirtualDisk::open(&image, &options(true, Backing::none())).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::ResourceBusy);
}

/// Changes bytes of the header and of the tables. Any of it may be refused; nothing may panic, hang, or take
/// much memory.
#[test]
fn damaged_tables_do_no_harm() {
    if is_missing() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    create(&image, "cluster_size=4096", None);
    let disk = VirtualDisk::open(&image, &options(true, Backing::none())).unwrap();
    exercise(&disk, &mut vec![0; DISK_BYTES], &mut Numbers(7));
    drop(disk);
    let sound = fs::read(&image).unwrap();
    // The header, and what begins like a table: a number with few bits in 8 bytes.
    let places: Vec<usize> = (0..sound.len() / 8)
        .filter(|at| {
            *at < 16 || (sound[at * 8] & 0xc0 != 0 && sound[at * 8 + 1..at * 8 + 4] == [0; 3])
        })
        .collect();
    let (mut read, mut written, mut panicked) = (0, 0, Vec::new());
    for seed in 1..=1500 {
        let mut numbers = Numbers(seed * 0x9e37_79b9_7f4a);
        let mut bytes = sound.clone();
        for _ in 0..=numbers.below(3) {
            let at = places[numbers.below(places.len())] * 8 + numbers.below(8);
            bytes[at] = match numbers.below(3) {
                0 => 0xff,
                1 => bytes[at] ^ 1 << numbers.below(8),
                _ => numbers.below(256) as u8,
            };
        }
        fs::write(&image, &bytes).unwrap();
        let mut tried = |write| {
            catch_unwind(AssertUnwindSafe(|| use_disk(&image, write))).unwrap_or_else(|_| {
                panicked.push(seed);
                false
            })
        };
        read += u32::from(tried(false));
        written += u32::from(tried(true));
        let len = fs::metadata(&image).unwrap().len();
        assert!(len < 1 << 40, "seed {seed}: the image has {len} bytes");
    }
    assert!(panicked.is_empty(), "panics with the seeds {panicked:?}");
    // Damage that is not noticed at once is what is tried here.
    assert!(
        read > 150 && written > 100,
        "{read} were read, {written} were written"
    );
}

/// Reads the whole disk, and writes everywhere. Returns whether it could be opened.
fn use_disk(image: &Path, write: bool) -> bool {
    let Ok(disk) = VirtualDisk::open(image, &options(write, Backing::none())) else {
        return false;
    };
    let mut buffer = vec![0; 64 << 10];
    for at in (0..disk.len_bytes().unwrap().min(2 << 20)).step_by(buffer.len()) {
        let _ = disk.read_exact_at(&mut buffer, at);
        if write {
            let _ = disk.write_all_at(&buffer[..4608], at + 512);
        }
    }
    if write {
        let _ = disk.discard(8192, 8192);
        let _ = disk.flush();
    }
    true
}
