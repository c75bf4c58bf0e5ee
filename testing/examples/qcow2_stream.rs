//! How fast a disk streams into a new qcow2 image, beside `qemu-img convert`; and out of it, beside the same
//! file read as a raw disk. Prints the rates and their ratios, for several rounds, one after another.
//!
//! ```text
//! cargo run --release -p throughline-testing --example qcow2_stream -- DIR [MIB [ROUNDS]]
//! ```
//!
//! DIR gets a source of MIB (2048) MiB of noise. Nothing is in the system's cache when something is read, and
//! what is written is on the disk when its time ends. `qemu-img` runs in two ways: with direct I/O (`-t none
//! -T none`), and through the system's cache (`-t writeback -T writeback`), each with a sync at its end. The
//! library's caches are small ([`CACHE_BYTES`]): in a virtual machine that returns free memory to its host,
//! memory that is touched for the first time can cost more than the disk.

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use rustix::fs::{Advice, fadvise};
use throughline::{Backing, OpenOptions, RawFile};
use throughline_device::LockMode;
use throughline_image::{DiskOptions, VirtualDisk, no_objects, overlay};

const CALL_BYTES: usize = 8 << 20;
const CACHE_BYTES: u64 = 128 << 20;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("a directory is needed")?;
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (len_bytes, rounds) = (number(2048)? << 20, number(5)?);
    let [source, ours, theirs] =
        ["source.raw", "ours.qcow2", "theirs.qcow2"].map(|name| Path::new(&folder).join(name));
    let mut numbers = fastrand::Rng::with_seed(1);
    let mut file = BufWriter::with_capacity(CALL_BYTES, File::create(&source)?);
    for _ in 0..len_bytes / 8 {
        file.write_all(&numbers.u64(..).to_le_bytes())?;
    }
    file.into_inner()?.sync_all()?;
    for round in 0..rounds {
        let rate =
            |begin: Instant| len_bytes as f64 / f64::from(1 << 20) / begin.elapsed().as_secs_f64();
        let convert = |cache: &str| -> Result<f64> {
            forget(&source)?;
            let _ = fs::remove_file(&theirs);
            let begin = Instant::now();
            let mut qemu = Command::new("qemu-img");
            qemu.args([
                "convert", "-f", "raw", "-O", "qcow2", "-t", cache, "-T", cache,
            ]);
            let done = qemu.arg(&source).arg(&theirs).status()?;
            assert!(done.success(), "qemu-img convert failed");
            File::open(&theirs)?.sync_all()?;
            Ok(rate(begin))
        };
        let direct = convert("none")?;
        forget(&source)?;
        let _ = fs::remove_file(&ours);
        let begin = Instant::now();
        overlay::create_empty(&ours, len_bytes)?;
        let to = disk(&ours, true)?;
        copy(&raw(&source)?, len_bytes, Some(&to))?;
        to.sync_all()?;
        drop(to);
        let written = rate(begin);
        let cached = convert("writeback")?;
        println!(
            "round {round}: written {written:.0} MiB/s; qemu-img direct {direct:.0} ({:.2}), cached {cached:.0} \
             ({:.2})",
            written / direct,
            written / cached
        );
        let read = |image: &RawFile| -> Result<f64> {
            forget(&ours)?;
            let begin = Instant::now();
            copy(image, len_bytes, None)?;
            Ok(rate(begin))
        };
        // The first reading of a file can be slower: on a virtual machine, its host has a cache, too.
        read(&raw(&ours)?)?;
        let mut rates = [0.0; 2];
        for which in [round % 2, (round + 1) % 2] {
            rates[usize::try_from(which)?] = match which {
                0 => read(&disk(&ours, false)?)?,
                _ => read(&raw(&ours)?)?,
            };
        }
        let [of_disk, of_file] = rates;
        println!(
            "round {round}: read {of_disk:.0} MiB/s; the file as a raw disk {of_file:.0} ({:.2})",
            of_disk / of_file
        );
    }
    Ok(())
}

/// The disk in a qcow2 image, through the library.
fn disk(image: &Path, write: bool) -> Result<RawFile> {
    let disk_options = DiskOptions {
        write,
        lock: LockMode::None,
        backing: Backing::none(),
        objects: no_objects,
    };
    let disk = VirtualDisk::open(image, &disk_options)?;
    Ok(options(write).open_raw_device(disk)?)
}

fn raw(image: &Path) -> Result<RawFile> {
    Ok(options(false).open_raw(image)?)
}

fn options(write: bool) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(write).cache_bytes(Some(CACHE_BYTES));
    options
}

/// Reads all of a disk, and writes it to another one, if there is one.
fn copy(from: &RawFile, len_bytes: u64, to: Option<&RawFile>) -> Result<()> {
    let mut buffer = vec![0; CALL_BYTES];
    let mut at = 0;
    while at < len_bytes {
        let len = buffer.len().min(usize::try_from(len_bytes - at)?);
        from.read_exact_at(&mut buffer[..len], at)?;
        if let Some(to) = to {
            to.write_all_at(&buffer[..len], at)?;
        }
        at += len as u64;
    }
    Ok(())
}

/// Drops what the system has cached of a file.
fn forget(path: &Path) -> Result<()> {
    let file = File::open(path)?;
    file.sync_all()?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    Ok(())
}
