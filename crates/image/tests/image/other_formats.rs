//! Images of other programs that are only read, as `qemu-img` makes them: vmdk and vhdx.

use std::fs;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use throughline_device::LockMode;
use throughline_image::{Backing, DiskOptions, Format, OnlyRead, ReadAt, VirtualDisk, no_objects};
use throughline_testkit::program::{self, has};

/// Of each disk; no multiple of what the formats allocate.
const DISK_BYTES: usize = (33 << 20) + 512;

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    /// `None` without `qemu-img`, which is said.
    fn new() -> Option<Place> {
        if !has(&["qemu-img"]) {
            throughline_testkit::missing!("qemu-img is not installed (qemu-utils)");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        Some(Place { folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn qemu(&self, arguments: &[&str]) {
        let mut command = program::command("qemu-img");
        command.current_dir(self.folder.path()).args(arguments);
        let ran = command.output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "qemu-img {arguments:?}: {said}");
    }

    /// `image` has the disk of `raw` in this form.
    fn convert(&self, format: &str, options: &str) -> PathBuf {
        self.qemu(&["convert", "-O", format, "-o", options, "raw", "image"]);
        self.path("image")
    }
}

fn open(image: &Path, write: bool) -> Result<VirtualDisk, Error> {
    let options = DiskOptions {
        write,
        lock: LockMode::Shared,
        backing: Backing::none().allow(image.parent().unwrap()),
        objects: no_objects,
    };
    let format = Format::of(&fs::File::open(image)?)?;
    VirtualDisk::open_as(format, image, &options)
}

fn content(disk: &VirtualDisk) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(disk.len_bytes().unwrap()).unwrap()];
    // In pieces of several sizes, which begin within grains and blocks.
    let mut at = 0;
    for step in [512, 4096, 61 << 10, 3 << 20, 70_000].into_iter().cycle() {
        let end = (at + step).min(bytes.len());
        disk.read_exact_at(&mut bytes[at..end], at as u64).unwrap();
        at = end;
        if at == bytes.len() {
            return bytes;
        }
    }
    unreachable!("the steps have no end")
}

/// Runs of zeros and of bytes that compress more or less.
fn some_bytes() -> Vec<u8> {
    let mut numbers = fastrand::Rng::with_seed(1);
    let mut bytes = Vec::with_capacity(DISK_BYTES);
    while bytes.len() < DISK_BYTES {
        let len = 1 << numbers.usize(9..21);
        let kind = numbers.usize(..3);
        bytes.extend((0..len).map(|_| match kind {
            0 => 0,
            1 => numbers.u8(..4),
            _ => numbers.u8(..),
        }));
    }
    bytes.truncate(DISK_BYTES);
    bytes[DISK_BYTES - 1] = 1;
    bytes
}

#[test]
fn every_byte_is_read() {
    let Some(place) = Place::new() else { return };
    let raw = some_bytes();
    fs::write(place.path("raw"), &raw).unwrap();
    for (format, options) in [
        ("vmdk", "subformat=monolithicSparse"),
        ("vmdk", "subformat=monolithicSparse,compat6"),
        ("vmdk", "subformat=streamOptimized"),
        ("vhdx", "subformat=dynamic"),
        ("vhdx", "subformat=dynamic,block_size=1M"),
        ("vhdx", "subformat=dynamic,block_state_zero=off"),
        ("vhdx", "subformat=fixed"),
    ] {
        let disk = open(&place.convert(format, options), false).unwrap();
        assert_eq!(disk.format().to_string(), format);
        // It may have been rounded up.
        let mut found = content(&disk);
        let more = found.split_off(DISK_BYTES);
        assert!(found == raw, "{format}, {options}");
        assert!(more.iter().all(|byte| *byte == 0), "{format}, {options}");
        let end = disk.len_bytes().unwrap();
        for at in [end - 511, end, u64::MAX - 100] {
            let past = disk.read_exact_at(&mut [0; 512], at).unwrap_err();
            assert_eq!(past.kind(), ErrorKind::UnexpectedEof, "{format}, {options}");
        }
        assert!(disk.write_all_at(&[1; 512], 0).is_err());
        assert!(disk.discard(0, 512).is_err());
        drop(disk);
        let refused = open(&place.path("image"), true).unwrap_err();
        assert!(refused.get_ref().unwrap().is::<OnlyRead>(), "{refused}");
    }
}

/// An empty disk, and one of a single sector.
#[test]
fn small_disks_are_read() {
    let Some(place) = Place::new() else { return };
    for (format, options) in [
        ("vmdk", "subformat=monolithicSparse"),
        ("vmdk", "subformat=streamOptimized"),
        ("vhdx", "subformat=dynamic"),
    ] {
        for raw in [vec![7; 512], vec![0; 1 << 20]] {
            fs::write(place.path("raw"), &raw).unwrap();
            let disk = open(&place.convert(format, options), false).unwrap();
            let found = content(&disk);
            assert!(found.starts_with(&raw), "{format}, {options}");
        }
    }
}

/// An overlay of such an image is written.
#[test]
fn they_are_backing_files() {
    let Some(place) = Place::new() else { return };
    let raw = some_bytes();
    fs::write(place.path("raw"), &raw).unwrap();
    for (format, options) in [
        ("vmdk", "subformat=streamOptimized"),
        ("vhdx", "subformat=dynamic"),
    ] {
        let base = fs::read(place.convert(format, options)).unwrap();
        let over = [
            "create", "-q", "-f", "qcow2", "-b", "image", "-F", format, "over",
        ];
        place.qemu(&over);
        let options = DiskOptions {
            write: true,
            lock: LockMode::Exclusive,
            backing: Backing::none().allow(place.folder.path()),
            objects: no_objects,
        };
        let disk = VirtualDisk::open(&place.path("over"), &options).unwrap();
        let mut model = content(&disk);
        assert!(model.starts_with(&raw), "{format}");
        model[70_144..200_192].fill(9);
        disk.write_all_at(&model[70_144..200_192], 70_144).unwrap();
        assert!(content(&disk) == model, "{format}");
        drop(disk);
        place.qemu(&["check", "-q", "over"]);
        place.qemu(&["convert", "-O", "raw", "over", "shown"]);
        assert!(fs::read(place.path("shown")).unwrap() == model, "{format}");
        assert!(fs::read(place.path("image")).unwrap() == base, "{format}");
    }
}

fn refusal(image: &Path) -> String {
    let error = open(image, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    error.to_string()
}

/// A header must not make another file be opened.
#[test]
fn what_needs_other_files_is_refused() {
    let Some(place) = Place::new() else { return };
    fs::write(place.path("raw"), some_bytes()).unwrap();
    for options in [
        "subformat=monolithicFlat",
        "subformat=twoGbMaxExtentSparse",
        "subformat=twoGbMaxExtentFlat",
    ] {
        let said = refusal(&place.convert("vmdk", options));
        assert!(said.contains("in other files"), "{options}: {said}");
    }
    // One part of a disk is not the disk.
    place.convert("vmdk", "subformat=twoGbMaxExtentSparse");
    let said = refusal(&place.path("image-s001"));
    assert!(said.contains("in other files"), "{said}");
    place.convert("vmdk", "subformat=monolithicSparse");
    let link = [
        "create", "-q", "-f", "vmdk", "-b", "image", "-F", "vmdk", "link",
    ];
    place.qemu(&link);
    let said = refusal(&place.path("link"));
    assert!(said.contains("changes of another one"), "{said}");
    // A disk of a VHDX with a parent: a flag of its metadata.
    let image = place.convert("vhdx", "subformat=dynamic");
    let mut bytes = fs::read(&image).unwrap();
    let parameters = [0x37, 0x67, 0xa1, 0xca, 0x36, 0xfa, 0x43, 0x4d];
    let entry = bytes.windows(8).position(|it| it == parameters).unwrap();
    let offset = u32::from_le_bytes(bytes[entry + 16..][..4].try_into().unwrap());
    let region = entry & !0xffff;
    bytes[region + offset as usize + 4] |= 2;
    fs::write(&image, &bytes).unwrap();
    let said = refusal(&image);
    assert!(said.contains("changes of another one"), "{said}");
}

/// Whoever can write to a raw disk, such as a guest, can make it begin like another format.
#[test]
fn a_disk_with_partitions_is_not_taken_for_another_format() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    for (begin, format) in [(&b"KDMV\x01\0\0\0"[..], "vmdk"), (b"vhdxfile", "vhdx")] {
        let mut bytes = vec![0; 1 << 20];
        bytes[..begin.len()].copy_from_slice(begin);
        fs::write(&path, &bytes).unwrap();
        let file = fs::File::open(&path).unwrap();
        assert_eq!(Format::of(&file).unwrap().to_string(), format);
        bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
        fs::write(&path, &bytes).unwrap();
        let error = Format::of(&fs::File::open(&path).unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        assert!(error.to_string().contains(format), "{error}");
    }
}
