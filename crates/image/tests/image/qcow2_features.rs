//! Images as `qemu-img` makes them: compressed, with snapshots, not closed, with narrow counts.

use std::fs;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use throughline_device::LockMode;
use throughline_image::{Backing, DiskOptions, ReadAt, Store, VirtualDisk, no_objects};
use throughline_testkit::program::{self, has};

const DISK_BYTES: usize = 4 << 20;

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    /// `None` without `qemu-img`, which is said.
    fn new() -> Option<Place> {
        if !has(&["qemu-img", "qemu-io"]) {
            throughline_testkit::missing!("qemu-img and qemu-io are not installed (qemu-utils)");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        Some(Place { folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command: Command = program::command(program);
        command.current_dir(self.folder.path()).args(arguments);
        command.output().unwrap()
    }

    fn qemu(&self, arguments: &[&str]) {
        let ran = self.run("qemu-img", arguments);
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "qemu-img {arguments:?}: {said}");
    }

    /// Without errors and without leaks.
    fn check(&self, name: &str) {
        let ran = self.run("qemu-img", &["check", name]);
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "qemu-img check {name}: {said}");
    }

    fn raw(&self, name: &str) -> Vec<u8> {
        self.qemu(&["convert", "-O", "raw", name, "out.raw"]);
        fs::read(self.path("out.raw")).unwrap()
    }
}

fn open(image: &Path, write: bool) -> std::io::Result<VirtualDisk> {
    let options = DiskOptions {
        write,
        lock: match write {
            true => LockMode::Exclusive,
            false => LockMode::Shared,
        },
        backing: Backing::none().allow(image.parent().unwrap()),
        objects: no_objects,
    };
    VirtualDisk::open(image, &options)
}

fn content(disk: &VirtualDisk) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(disk.len_bytes().unwrap()).unwrap()];
    disk.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Bytes that compress, but not to nothing.
fn some_bytes() -> Vec<u8> {
    let line = |at: usize| at.wrapping_mul(2_654_435_761) >> 20;
    (0..DISK_BYTES).map(|at| line(at / 7) as u8).collect()
}

/// Writes here and there.
fn write(disk: &VirtualDisk, model: &mut [u8], mark: u8) {
    for (from, len) in [
        (0, 512),
        (70_000, 3_000),
        (1 << 20, 200_000),
        (DISK_BYTES - 512, 512),
    ] {
        let from = from / 512 * 512;
        let end = (from + len / 512 * 512).min(DISK_BYTES);
        model[from..end].fill(mark);
        disk.write_all_at(&model[from..end], from as u64).unwrap();
    }
}

#[test]
fn compressed_clusters_are_read_and_replaced() {
    let Some(place) = Place::new() else { return };
    let raw = some_bytes();
    fs::write(place.path("raw"), &raw).unwrap();
    for shape in [
        "cluster_size=4k",
        "cluster_size=64k",
        "compression_type=zstd",
        "cluster_size=2M",
        "compat=0.10",
    ] {
        place.qemu(&["convert", "-c", "-O", "qcow2", "-o", shape, "raw", "image"]);
        let mut model = raw.clone();
        assert!(
            content(&open(&place.path("image"), false).unwrap()) == model,
            "{shape}"
        );
        let disk = open(&place.path("image"), true).unwrap();
        write(&disk, &mut model, 7);
        assert!(content(&disk) == model, "{shape}");
        drop(disk);
        place.check("image");
        assert!(place.raw("image") == model, "{shape}");
    }
}

#[test]
fn snapshots_stay_as_they_are() {
    let Some(place) = Place::new() else { return };
    for shape in [
        "cluster_size=4k",
        "cluster_size=64k,refcount_bits=64",
        "refcount_bits=2",
        "compat=0.10",
    ] {
        place.qemu(&["create", "-q", "-f", "qcow2", "-o", shape, "image", "4M"]);
        let mut model = vec![0; DISK_BYTES];
        let mut states = Vec::new();
        for mark in 1..=2 {
            let disk = open(&place.path("image"), true).unwrap();
            write(&disk, &mut model, mark);
            drop(disk);
            place.check("image");
            states.push(model.clone());
            place.qemu(&["snapshot", "-c", &format!("s{mark}"), "image"]);
        }
        let disk = open(&place.path("image"), true).unwrap();
        write(&disk, &mut model, 3);
        disk.discard(1 << 20, 1 << 20).unwrap();
        model[1 << 20..2 << 20].fill(0);
        drop(disk);
        place.check("image");
        assert!(place.raw("image") == model, "{shape}");
        for (state, name) in states.iter().zip(["s1", "s2"]) {
            place.qemu(&["convert", "-l", name, "-O", "raw", "image", "out.raw"]);
            assert!(
                fs::read(place.path("out.raw")).unwrap() == *state,
                "{shape}: {name}"
            );
        }
        place.qemu(&["snapshot", "-d", "s1", "image"]);
        place.qemu(&["snapshot", "-a", "s2", "image"]);
        let disk = open(&place.path("image"), true).unwrap();
        let mut model = states[1].clone();
        assert!(content(&disk) == model, "{shape}");
        write(&disk, &mut model, 4);
        drop(disk);
        place.check("image");
    }
}

/// A writer with lazy reference counts that was killed leaves the image dirty.
#[test]
fn an_image_that_qemu_left_dirty_is_mended() {
    let Some(place) = Place::new() else { return };
    let shape = "lazy_refcounts=on";
    place.qemu(&["create", "-q", "-f", "qcow2", "-o", shape, "image", "4M"]);
    let work = [
        "-c",
        "write -P 5 0 300k",
        "-c",
        "flush",
        "-c",
        "sigraise 9",
        "image",
    ];
    let ran = place.run("qemu-io", &work);
    assert!(!ran.status.success());
    let mut model = vec![0; DISK_BYTES];
    model[..300 << 10].fill(5);
    assert!(content(&open(&place.path("image"), false).unwrap()) == model);
    assert_eq!(
        place.run("qemu-img", &["check", "image"]).status.code(),
        Some(2),
        "it is not dirty"
    );
    drop(open(&place.path("image"), true).unwrap());
    place.check("image");
    let disk = open(&place.path("image"), true).unwrap();
    write(&disk, &mut model, 6);
    drop(disk);
    place.check("image");
    assert!(place.raw("image") == model);
}

/// A bitmap is not maintained, so it is marked as out of date, and what it uses is not given away: QEMU frees
/// it.
#[test]
fn bitmaps_are_marked_as_out_of_date() {
    let Some(place) = Place::new() else { return };
    place.qemu(&["create", "-q", "-f", "qcow2", "image", "4M"]);
    place.qemu(&["bitmap", "--add", "image", "one"]);
    let mut model = vec![0; DISK_BYTES];
    let disk = open(&place.path("image"), true).unwrap();
    write(&disk, &mut model, 8);
    drop(disk);
    let leaks = Some(3);
    let checked = place.run("qemu-img", &["check", "image"]).status.code();
    assert_eq!(checked, leaks);
    place.run("qemu-img", &["check", "-r", "leaks", "image"]);
    place.check("image");
    assert!(place.raw("image") == model);
}

/// The counts of an image with clusters of 512 bytes need several blocks, and their table moves.
#[test]
fn the_table_of_counts_grows() {
    let Some(place) = Place::new() else { return };
    for shape in ["cluster_size=512,refcount_bits=64", "cluster_size=512"] {
        place.qemu(&["create", "-q", "-f", "qcow2", "-o", shape, "image", "32M"]);
        let disk = open(&place.path("image"), true).unwrap();
        for at in (0..32_u64 << 20).step_by(64 << 10) {
            disk.write_all_at(&vec![((at >> 16) % 250) as u8 + 1; 64 << 10], at)
                .unwrap();
        }
        drop(disk);
        place.check("image");
        let raw = place.raw("image");
        assert!(
            (0..raw.len()).all(|at| raw[at] == ((at >> 16) % 250) as u8 + 1),
            "{shape}"
        );
    }
}

/// Threads that write to parts of the same clusters, beside others that read and sync.
#[test]
fn threads_share_clusters() {
    let Some(place) = Place::new() else { return };
    place.qemu(&["create", "-q", "-f", "qcow2", "image", "4M"]);
    let disk = open(&place.path("image"), true).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let disk = &disk;
            scope.spawn(move || {
                for turn in 0..3_u8 {
                    for at in (thread * 512..DISK_BYTES).step_by(4 * 512) {
                        let bytes = [thread as u8 * 16 + turn + 1; 512];
                        disk.write_all_at(&bytes, at as u64).unwrap();
                        let mut read = [0; 512];
                        disk.read_exact_at(&mut read, at as u64).unwrap();
                        assert_eq!(read, bytes);
                    }
                    disk.flush().unwrap();
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..50 {
                disk.discard(0, 0).unwrap();
                content(&disk);
            }
        });
    });
    drop(disk);
    place.check("image");
    let raw = place.raw("image");
    for (at, byte) in raw.iter().enumerate() {
        assert_eq!(usize::from(*byte), at / 512 % 4 * 16 + 3, "byte {at}");
    }
}

/// A file of which one write fails: the one after so many others.
struct Failing {
    file: File,
    left: Arc<AtomicU64>,
}

impl ReadAt for Failing {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        ReadAt::read_exact_at(&self.file, buffer, at)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        ReadAt::len_bytes(&self.file)
    }
}

impl Store for Failing {
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        match self.left.fetch_sub(1, Ordering::Relaxed) {
            1 => Err(io::Error::other("it fails once")),
            _ => Store::write_all_at(&self.file, bytes, at),
        }
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn free(&self, at: u64, len_bytes: u64) {
        Store::free(&self.file, at, len_bytes);
    }
}

/// Whichever write fails, what is written again is there, and no cluster is lost until the next opening.
#[test]
fn a_write_that_fails_costs_no_cluster() {
    let Some(place) = Place::new() else {
        return;
    };
    for number in 1..400 {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(place.path("one.qcow2"));
        let file = file.unwrap();
        VirtualDisk::create(&file, DISK_BYTES as u64, None).unwrap();
        let left = Arc::new(AtomicU64::new(number));
        let store = Failing {
            file,
            left: Arc::clone(&left),
        };
        let mut model = vec![0; DISK_BYTES];
        let disk = VirtualDisk::in_store(Box::new(store), None, true).unwrap();
        let again = |work: &dyn Fn() -> io::Result<()>| work().or_else(|_| work()).unwrap();
        for (round, at) in [0, 70_000, 500_000, 70_000, 3_000_000]
            .into_iter()
            .enumerate()
        {
            let bytes = vec![round as u8 + 1; 150_000];
            again(&|| disk.write_all_at(&bytes, at as u64));
            model[at..at + bytes.len()].copy_from_slice(&bytes);
            if round == 2 {
                again(&|| disk.flush());
                again(&|| disk.discard(65_536, 65_536));
                model[65_536..131_072].fill(0);
            }
        }
        // One frees clusters, whose counts the next one writes.
        again(&|| disk.flush());
        again(&|| disk.flush());
        drop(disk);
        place.check("one.qcow2");
        let shown = open(&place.path("one.qcow2"), false).unwrap();
        assert!(
            content(&shown) == model,
            "write {number}: it shows something else"
        );
        // It counts down past 0 when it has failed.
        if (1..=number).contains(&left.load(Ordering::Relaxed)) {
            assert!(number > 10, "only {number} writes");
            return;
        }
    }
    panic!("more writes than were tried");
}
