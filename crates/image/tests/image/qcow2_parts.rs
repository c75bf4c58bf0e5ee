//! qcow2 images with extended L2 entries, whose clusters are there in parts: read as QEMU reads them, and not
//! written.

use std::fs;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use throughline_device::LockMode;
use throughline_image::{Backing, DiskOptions, ReadAt, VirtualDisk, no_objects};
use throughline_testkit::program::{self, has};
use throughline_testkit::seed;

const DISK_BYTES: usize = 6 << 20;

fn is_missing() -> bool {
    if has(&["qemu-img", "qemu-io"]) {
        return false;
    }
    throughline_testkit::missing!("qemu-img and qemu-io are not installed (qemu-utils)");
    true
}

fn run(folder: &Path, program: &str, arguments: &[&str]) {
    let mut command = program::command(program);
    let ran = command.current_dir(folder).args(arguments).output();
    let ran = ran.unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{program} {arguments:?}: {said}");
}

fn open(image: &Path, write: bool) -> std::io::Result<VirtualDisk> {
    let options = DiskOptions {
        write,
        lock: LockMode::Shared,
        backing: Backing::none().allow(image.parent().unwrap()),
        objects: no_objects,
    };
    VirtualDisk::open(image, &options)
}

/// What is read in pieces that begin and end in the middle of parts.
fn content(disk: &VirtualDisk, numbers: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(disk.len_bytes().unwrap()).unwrap()];
    let mut at = 0;
    while at < bytes.len() {
        let end = (at + 1 + numbers.usize(..300_000)).min(bytes.len());
        disk.read_exact_at(&mut bytes[at..end], at as u64).unwrap();
        at = end;
    }
    bytes
}

/// An image with random work of QEMU on it.
fn make(folder: &Path, shape: &str, numbers: &mut fastrand::Rng) {
    let base: Vec<u8> = (0..DISK_BYTES).map(|at| (at / 512) as u8).collect();
    fs::write(folder.join("base"), base).unwrap();
    let mut arguments = vec!["create", "-q", "-f", "qcow2", "-o", shape];
    if numbers.bool() {
        arguments.extend(["-b", "base", "-F", "raw"]);
    }
    arguments.extend(["image", "6M"]);
    run(folder, "qemu-img", &arguments);
    let mut commands = Vec::new();
    for _ in 0..60 {
        let at = numbers.usize(..DISK_BYTES / 512) * 512;
        let longest = [2, 20, 300][numbers.usize(..3)];
        let len = (1 + numbers.usize(..longest)) * 512;
        let len = len.min(DISK_BYTES - at);
        commands.push(match numbers.usize(..6) {
            0 => format!("write -z {at} {len}"),
            1 => format!("write -z -u {at} {len}"),
            2 => format!("discard {at} {len}"),
            _ => format!("write -P {} {at} {len}", numbers.u8(1..)),
        });
    }
    let mut arguments = Vec::new();
    for command in &commands {
        arguments.extend(["-c", command]);
    }
    arguments.push("image");
    run(folder, "qemu-io", &arguments);
}

const SHAPES: [&str; 3] = [
    "extended_l2=on,cluster_size=16k",
    "extended_l2=on,cluster_size=64k",
    "extended_l2=on,cluster_size=2M",
];

#[test]
fn parts_of_clusters_are_read() {
    if is_missing() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let image = folder.join("image");
    let soak = throughline_testkit::tier::soak();
    let first = seed::of_run(0).wrapping_mul(1 << 20);
    for number in 0..if soak { 600 } else { 12 } {
        let seed = first.wrapping_add(number);
        let mut numbers = fastrand::Rng::with_seed(seed);
        let shape = SHAPES[usize::try_from(number).unwrap() % SHAPES.len()];
        make(folder, shape, &mut numbers);
        run(
            folder,
            "qemu-img",
            &["convert", "-O", "raw", "image", "raw"],
        );
        let theirs = fs::read(folder.join("raw")).unwrap();
        let disk = open(&image, false).unwrap();
        let ours = content(&disk, &mut numbers);
        assert!(ours == theirs, "seed {seed}, {shape}");
        // What the image has itself is listed in order, and ends.
        let mut at = 0;
        while let Some((from, end)) = disk.next_own(at).unwrap() {
            assert!(at <= from && from < end, "seed {seed}: {from} to {end}");
            at = end;
        }
        assert!(at <= DISK_BYTES as u64, "seed {seed}");
        drop(disk);
        // Compressed clusters, which have no parts.
        let packed = [
            "convert", "-c", "-O", "qcow2", "-o", shape, "image", "packed",
        ];
        run(folder, "qemu-img", &packed);
        let disk = open(&folder.join("packed"), false).unwrap();
        assert!(
            content(&disk, &mut numbers) == theirs,
            "seed {seed}, packed"
        );
    }
}

#[test]
fn they_are_not_written() {
    if is_missing() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut numbers = fastrand::Rng::with_seed(1);
    make(folder.path(), SHAPES[1], &mut numbers);
    let image = folder.path().join("image");
    let before = fs::read(&image).unwrap();
    let error = open(&image, true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("extended L2 entries"), "{error}");
    assert!(fs::read(&image).unwrap() == before);
    // Clusters of which a part would be shorter than a sector.
    let mut bytes = before;
    bytes[20..24].copy_from_slice(&12_u32.to_be_bytes());
    fs::write(&image, bytes).unwrap();
    assert_eq!(
        open(&image, false).unwrap_err().kind(),
        ErrorKind::InvalidData
    );
}

/// Any damage may be refused; nothing may panic.
#[test]
fn damaged_entries_do_no_harm() {
    if is_missing() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    make(folder.path(), SHAPES[0], &mut fastrand::Rng::with_seed(2));
    let sound = fs::read(&image).unwrap();
    let words = sound.chunks_exact(8).enumerate();
    // The header, and what looks like an entry with a place or with bits of parts.
    let places: Vec<usize> = words
        .filter(|(at, word)| *at < 16 || word[1..4] == [0; 3] && **word != [0; 8])
        .map(|(at, _)| at * 8)
        .collect();
    let (mut read, mut panicked) = (0, Vec::new());
    for seed in 1..=400 {
        let mut numbers = fastrand::Rng::with_seed(seed);
        let mut bytes = sound.clone();
        for _ in 0..=numbers.usize(..4) {
            let at = places[numbers.usize(..places.len())] + numbers.usize(..16);
            bytes[at] =
                [0xff, bytes[at] ^ 1 << numbers.u8(..8), numbers.u8(..)][numbers.usize(..3)];
        }
        fs::write(&image, &bytes).unwrap();
        let tried = catch_unwind(AssertUnwindSafe(|| {
            let Ok(disk) = open(&image, false) else {
                return 0;
            };
            let mut buffer = vec![0; 50_000];
            for at in (0..disk.len_bytes().unwrap().min(8 << 20)).step_by(buffer.len()) {
                let _ = disk.read_exact_at(&mut buffer, at);
            }
            1
        }));
        match tried {
            Ok(was_read) => read += was_read,
            Err(_) => panicked.push(seed),
        }
    }
    assert!(panicked.is_empty(), "panics with the seeds {panicked:?}");
    assert!(read > 40, "only {read} were read");
}
