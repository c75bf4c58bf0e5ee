//! Damaged and hostile images of formats that are only read: any may be refused; nothing may panic, or take
//! much memory. The only test of its process, as it looks at the memory of that.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crc32c::crc32c;
use throughline_device::LockMode;
use throughline_image::{Backing, DiskOptions, Format, ReadAt, VirtualDisk, no_objects};
use throughline_testkit::program::{self, has};
use throughline_testkit::seed;
use throughline_testkit::tier::{each_at_once, pick};

const DISK_BYTES: usize = 5 << 20;
/// The reader's tables, and what a test process has anyway.
const MAX_MEMORY_KIB: u64 = 300 << 10;

/// The highest memory of this process.
fn memory_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.unwrap().split_whitespace().next().unwrap();
    number.parse().unwrap()
}

fn made(folder: &Path, (format, options): (&str, &str)) -> Vec<u8> {
    let mut command = program::command("qemu-img");
    command.current_dir(folder);
    let name = format!("{options}.{format}");
    command.args(["convert", "-O", format, "-o", options, "raw", &name]);
    assert!(command.status().unwrap().success(), "{format}, {options}");
    fs::read(folder.join(name)).unwrap()
}

/// Whether all of the disk can be read.
fn is_read(image: &Path, format: Format) -> bool {
    let options = DiskOptions {
        write: false,
        lock: LockMode::Shared,
        backing: Backing::none(),
        objects: no_objects,
    };
    let Ok(disk) = VirtualDisk::open_as(format, image, &options) else {
        return false;
    };
    let len_bytes = disk.len_bytes().unwrap();
    let mut buffer = vec![0; 96 << 10];
    let mut is_read = true;
    // Its begin, its end, and some of what is between.
    let begin = (0..len_bytes.min(2 * DISK_BYTES as u64)).step_by(buffer.len());
    let far = (1..60).map(|part| len_bytes / 60 * part + 512);
    for at in begin.chain(far).chain([len_bytes.saturating_sub(512)]) {
        let len = buffer.len().min((len_bytes - at.min(len_bytes)) as usize);
        is_read &= disk.read_exact_at(&mut buffer[..len], at).is_ok();
    }
    is_read
}

/// The headers and the tables of regions of a vhdx have checksums.
fn seal(bytes: &mut [u8]) {
    for (at, len) in [(1, 4), (2, 4), (3, 64), (4, 64)] {
        let Some(part) = bytes
            .get_mut(at << 16..)
            .and_then(|it| it.get_mut(..len << 10))
        else {
            continue;
        };
        part[4..8].fill(0);
        let sum = crc32c(part);
        part[4..8].copy_from_slice(&sum.to_le_bytes());
    }
}

/// The places of what is not zero: with so little on the disk, most of it are headers and tables.
fn places(sound: &[u8]) -> Vec<usize> {
    let words = sound.chunks_exact(4).enumerate();
    let used = words.filter(|(_, word)| *word != [0; 4]);
    used.map(|(at, _)| at * 4).collect()
}

fn damage(sound: &[u8], places: &[usize], numbers: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = sound.to_vec();
    for _ in 0..=numbers.usize(..3) {
        let at = match numbers.usize(..4) {
            // Of a header there is little, of the data more.
            0 => numbers.usize(..20) * 4,
            1 => (64 << 10) * numbers.usize(1..5) + numbers.usize(..24) * 4,
            _ => places[numbers.usize(..places.len())],
        };
        let len = [1, 1, 4, 8][numbers.usize(..4)];
        let kind = numbers.usize(..4);
        for byte in bytes.iter_mut().skip(at).take(len) {
            *byte = match kind {
                0 => 0xff,
                1 => 0,
                2 => *byte ^ 1 << numbers.usize(..8),
                _ => numbers.u8(..),
            };
        }
    }
    if numbers.usize(..3) > 0 {
        seal(&mut bytes);
    }
    if numbers.usize(..6) == 0 {
        bytes.truncate(numbers.usize(..bytes.len()));
    }
    bytes
}

#[test]
fn damaged_images_do_no_harm() {
    if !has(&["qemu-img"]) {
        throughline_testkit::missing!("qemu-img is not installed (qemu-utils)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut raw = vec![0; DISK_BYTES];
    for at in [0, 1 << 20, 3 << 20, DISK_BYTES - 512] {
        raw[at..at + 512].fill(7);
    }
    fs::write(folder.path().join("raw"), raw).unwrap();
    let first = seed::of_run(0).wrapping_mul(1 << 20);
    let forms = [
        ("vmdk", "subformat=monolithicSparse"),
        ("vmdk", "subformat=streamOptimized"),
        ("vhdx", "subformat=dynamic,block_size=1M"),
    ];
    each_at_once(&forms, 1, |&form| {
        let sound = made(folder.path(), form);
        let format: Format = form.0.parse().unwrap();
        let image = folder.path().join(form.1);
        fs::write(&image, &sound).unwrap();
        assert!(is_read(&image, format), "{form:?}");
        let places = places(&sound);
        let (mut read, mut panicked) = (0, Vec::new());
        let most = pick(30, 200, 20_000);
        for seed in (1..=most).map(|seed| first.wrapping_add(seed)) {
            let mut numbers = fastrand::Rng::with_seed(seed);
            fs::write(&image, damage(&sound, &places, &mut numbers)).unwrap();
            match catch_unwind(AssertUnwindSafe(|| is_read(&image, format))) {
                Ok(was_read) => read += u32::from(was_read),
                Err(_) => panicked.push(seed),
            }
            let memory = memory_kib();
            assert!(
                memory < MAX_MEMORY_KIB,
                "{form:?}, seed {seed}: {memory} KiB"
            );
        }
        assert!(
            panicked.is_empty(),
            "{form:?}: panics with the seeds {panicked:?}"
        );
        // Damage that is not noticed at once is what is tried here.
        let of = u32::try_from(most).unwrap();
        println!("{form:?}: {read} of {of} could be read");
        assert!(
            read > of / 100 && read < of / 10 * 9,
            "{form:?}: {read} of {of}"
        );
    });
    hostile_numbers(folder.path());
}

/// Numbers that would need much memory or time, with checksums that are right.
fn hostile_numbers(folder: &Path) {
    let image = folder.join("damaged");
    let sound = made(folder, ("vhdx", "subformat=dynamic,block_size=1M"));
    // A long region, in a file that has its bytes as a hole.
    let mut bytes = sound.clone();
    for table in [3 << 16, 4 << 16] {
        for entry in 0..2 {
            bytes[table + 16 + entry * 32 + 24..][..4].copy_from_slice(&[0, 0, 0, 0xf0]);
        }
    }
    seal(&mut bytes);
    fs::write(&image, &bytes).unwrap();
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.set_len(16 << 30).unwrap();
    assert!(!is_read(&image, Format::Vhdx));
    // A log, whose entries may say anything.
    let mut bytes = sound;
    for header in [1 << 16, 2 << 16] {
        bytes[header + 48..header + 64].fill(1);
    }
    seal(&mut bytes);
    fs::write(&image, &bytes).unwrap();
    assert!(!is_read(&image, Format::Vhdx));
    // Grain tables at every sector of a long file: they must not all stay in memory.
    let mut bytes = made(folder, ("vmdk", "subformat=monolithicSparse"));
    let tables = 400_000_u32;
    bytes[12..20].copy_from_slice(&(u64::from(tables) * 512 * 8).to_le_bytes());
    bytes[20..28].copy_from_slice(&8_u64.to_le_bytes());
    let directory = bytes.len().next_multiple_of(512);
    bytes[56..64].copy_from_slice(&(directory as u64 / 512).to_le_bytes());
    bytes.resize(directory, 0);
    bytes.extend((0..tables).flat_map(|table| (20_000 + table).to_le_bytes()));
    fs::write(&image, &bytes).unwrap();
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.set_len(1 << 30).unwrap();
    let options = DiskOptions {
        write: false,
        lock: LockMode::Shared,
        backing: Backing::none(),
        objects: no_objects,
    };
    let disk = VirtualDisk::open_as(Format::Vmdk, &image, &options).unwrap();
    let mut sector = [1; 512];
    for table in 0..u64::from(tables) {
        disk.read_exact_at(&mut sector, table * 512 * 8 * 512)
            .unwrap();
    }
    assert_eq!(sector, [0; 512]);
    let memory = memory_kib();
    assert!(memory < MAX_MEMORY_KIB, "{memory} KiB");
}
