//! Buffered writes on full disks: the error comes from the write, never from write-back. Accepted data is
//! there after a sync, and after reopening.

mod host;
use crate::oracle;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oracle::image::{Scratch, Shape, shape_of, tools};
use oracle::seeds::{Deadline, soak};
use throughline::internal::OpenBlockDevice;
use throughline::{DirtyLimits, Error, File, FileOptions, OpenOptions, RawFile, Reason, Volume};
use throughline_device::BlockDevice;
use throughline_testing::sectors::{SECTOR_BYTES, Sector, filled, parse};
use throughline_testkit::kernel;

const NAMES: [&str; 10] = [
    "bigalloc 4k in 16k",
    "bigalloc 1k in 4k",
    "ext4 4k",
    "ext4 1k",
    "ext3 1k",
    "ext3 4k",
    "ext2 1k",
    "uninit_bg",
    "tiny",
    "bigalloc 1k in 16k",
];
const SECTOR: u64 = SECTOR_BYTES as u64;

fn options(cache_bytes: u64) -> OpenOptions {
    let mut limits = DirtyLimits::default();
    limits.limit_bytes = Some(cache_bytes / 2);
    let mut options = OpenOptions::new();
    options.write(true);
    options.cache_bytes(Some(cache_bytes)).dirty_limits(limits);
    options
}

fn shape(name: &str, mib: u64) -> Shape {
    Shape {
        mib,
        ..*shape_of(name)
    }
}

/// How a file is filled.
#[derive(Clone, Copy, Debug)]
enum Pattern {
    /// From front to back.
    Stream,
    /// Every other block, or further apart: the most mapping for the least data.
    Comb(u64),
    /// At random places in a long sparse file.
    Scattered,
}

/// The accepted writes of one file: offset, length and version of each.
#[derive(Default)]
struct Accepted {
    writes: Vec<(u64, u64, u64)>,
}

impl Accepted {
    fn bytes(&self) -> u64 {
        self.writes.iter().map(|(_, len, _)| len).sum()
    }

    /// Checks that every accepted byte is there; where writes overlap, the later one counts.
    fn check(&self, file: &File, number: u64) -> Result<(), String> {
        let mut newest = std::collections::BTreeMap::new();
        for (at, len, version) in &self.writes {
            for sector in (0..*len).step_by(SECTOR_BYTES) {
                newest.insert(at + sector, *version);
            }
        }
        let mut bytes = [0; SECTOR_BYTES];
        for (at, version) in newest {
            file.read_exact_at(&mut bytes, at)
                .map_err(|error| format!("file {number} at {at}: {error}"))?;
            let wanted = Sector::Data {
                file: number,
                offset: at,
                version,
            };
            if parse(&bytes) != wanted {
                return Err(format!(
                    "file {number}: {:?}, not {wanted:?}",
                    parse(&bytes)
                ));
            }
        }
        Ok(())
    }
}

/// Writes in a pattern until there is no space; any other error is a failure.
fn fill_up(
    file: &File,
    number: u64,
    pattern: Pattern,
    seed: u64,
    most_bytes: u64,
) -> Result<Accepted, String> {
    let mut random = fastrand::Rng::with_seed(seed ^ number);
    let mut accepted = Accepted::default();
    let mut at = 0;
    // After a refusal, a few smaller writes may still fit.
    let mut refused = 0;
    for version in 1.. {
        let (offset, len) = match pattern {
            Pattern::Stream => (at, random.u64(1..200) * SECTOR),
            Pattern::Comb(_) => (at, SECTOR),
            Pattern::Scattered => (random.u64(..1 << 17) * 4096, random.u64(1..20) * SECTOR),
        };
        let len = len >> refused.min(7);
        let len = (len / SECTOR).max(1) * SECTOR;
        match file.write_at(&filled(len as usize, number, offset, version), offset) {
            Ok(0) => return Err(format!("wrote 0 of {len} bytes")),
            Ok(written) => {
                // Part of a sector may have been written.
                let whole = written as u64 / SECTOR * SECTOR;
                accepted.writes.push((offset, whole, version));
                if whole != written as u64 {
                    return Err(format!("wrote {written} bytes: no whole block"));
                }
            }
            Err(Error::Caller(Reason::NoSpace)) => refused += 1,
            // A comb may reach the maximum file size before the disk is full.
            Err(Error::Caller(Reason::TooLarge)) => return Ok(accepted),
            Err(error) => return Err(format!("write {version}: {error}")),
        }
        at += match pattern {
            Pattern::Comb(apart) => apart,
            _ => len,
        };
        if refused > 10 || accepted.bytes() >= most_bytes {
            return Ok(accepted);
        }
    }
    Ok(accepted)
}

/// Syncs, closes, runs the checks, reopens and compares.
fn check_all(
    volume: Volume,
    device: Arc<dyn BlockDevice>,
    files: &[Accepted],
    scratch: &Scratch,
) -> Result<(), String> {
    let context = |call: &str| {
        let call = call.to_owned();
        move |error: Error| format!("{call}: {error}")
    };
    let check = |volume: &Volume| {
        (0..).zip(files).try_for_each(|(number, accepted)| {
            let file = volume
                .open_file(format!("/f{number}"))
                .map_err(context("open"))?;
            accepted.check(&file, number)
        })
    };
    volume.sync().map_err(context("sync"))?;
    check(&volume).map_err(|what| format!("synced: {what}"))?;
    volume.close().map_err(context("close"))?;
    scratch.check(&*device)?;
    let again = options(4 << 20)
        .open_block_device(device)
        .map_err(context("open"))?;
    check(&again).map_err(|what| format!("opened again: {what}"))?;
    again.close().map_err(context("close again"))
}

fn create(volume: &Volume, number: u64) -> File {
    volume
        .create_file(format!("/f{number}"))
        .expect("there is room for a name")
}

#[test]
fn accepted_data_is_kept_on_a_full_volume() {
    if !tools() {
        return;
    }
    let scratch = Scratch::new();
    let patterns = [
        Pattern::Stream,
        Pattern::Comb(8192),
        Pattern::Comb(5 << 20),
        Pattern::Scattered,
    ];
    for (index, name) in NAMES.iter().enumerate() {
        for (turn, pattern) in patterns.into_iter().enumerate() {
            let seed = (index * 10 + turn) as u64;
            let what = format!("{name}, {pattern:?}, seed {seed}");
            let _deadline = Deadline::new(what.clone());
            let shape = shape(name, if *name == "tiny" { 2 } else { 12 });
            let device = scratch.device(&shape);
            // One cache in which everything stays until the end, and one that is written back meanwhile.
            let cache = if turn % 2 == 0 { 2 << 20 } else { 64 << 20 };
            let volume = options(cache)
                .open_block_device(Arc::clone(&device))
                .unwrap();
            let before = volume.stat_fs().unwrap().available_blocks;
            let file = create(&volume, 0);
            let accepted = fill_up(&file, 0, pattern, seed, 64 << 20)
                .unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
            file.sync_all()
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            let after = volume.stat_fs().unwrap().available_blocks;
            drop(file);
            check_all(volume, device, &[accepted], &scratch)
                .unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
            // The disk really was full: reservations for mapping blocks are not leaked. A distant block may
            // need four more.
            let wasted = matches!(pattern, Pattern::Stream);
            assert!(
                !wasted || after < before / 20 + 8,
                "{what}: refused with {after} of {before} blocks free"
            );
        }
    }
}

#[test]
fn many_writers_fill_a_disk_together() {
    if !tools() {
        return;
    }
    const WRITERS: u64 = 8;
    let scratch = Scratch::new();
    for (index, name) in NAMES.iter().enumerate().take(if soak() { 10 } else { 7 }) {
        let _deadline = Deadline::new(format!("many, {name}"));
        let device = scratch.device(&shape(name, 16));
        let volume = options(4 << 20)
            .open_block_device(Arc::clone(&device))
            .unwrap();
        let files: Vec<File> = (0..WRITERS).map(|number| create(&volume, number)).collect();
        let accepted: Vec<Accepted> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..)
                .zip(&files)
                .map(|(number, file)| {
                    scope.spawn(move || {
                        let pattern = match number % 4 {
                            0 | 1 => Pattern::Stream,
                            2 => Pattern::Comb(8192),
                            _ => Pattern::Scattered,
                        };
                        let filled = fill_up(file, number, pattern, index as u64, 64 << 20);
                        filled.unwrap_or_else(|wrong| panic!("{name}, writer {number}: {wrong}"))
                    })
                })
                .collect();
            let join = |writer: std::thread::ScopedJoinHandle<'_, _>| writer.join();
            writers
                .into_iter()
                .map(|writer| join(writer).expect("no panic"))
                .collect()
        });
        drop(files);
        check_all(volume, device, &accepted, &scratch)
            .unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
    }
}

/// Reserved but unneeded space is available to others: after overwriting existing data, removing a dirty
/// file, or truncating one.
#[test]
fn promises_are_given_back() {
    if !tools() {
        return;
    }
    let scratch = Scratch::new();
    let names = [
        "ext4 4k",
        "ext4 1k",
        "ext3 1k",
        "ext2 1k",
        "bigalloc 4k in 16k",
        "bigalloc 1k in 4k",
    ];
    for name in names {
        let _deadline = Deadline::new(format!("promises, {name}"));
        let device = scratch.device(&shape(name, 12));
        let volume = options(64 << 20)
            .open_block_device(Arc::clone(&device))
            .unwrap();
        // The first file in the directory may allocate a directory block.
        drop(create(&volume, 0));
        volume.remove_file("/f0").unwrap();
        volume.sync().unwrap();
        let empty = volume.stat_fs().unwrap().available_blocks;
        for round in 0..40 {
            let file = create(&volume, 0);
            file.write_all_at(&filled(5 << 20, 0, 0, 1), 0)
                .unwrap_or_else(|error| panic!("{name}, round {round}: {error}"));
            assert!(
                volume.stat_fs().unwrap().available_blocks < empty,
                "{name}: what is promised counts as free"
            );
            match round % 4 {
                0 => file.sync_all().unwrap(),
                1 => file.set_len(700).unwrap(),
                2 => file.write_all_at(&filled(5 << 20, 0, 0, 2), 0).unwrap(),
                _ => {}
            }
            drop(file);
            volume.remove_file("/f0").unwrap();
        }
        volume.sync().unwrap();
        let left = volume.stat_fs().unwrap().available_blocks;
        assert_eq!(left, empty, "{name}: leaked blocks");
        volume.close().unwrap();
        scratch
            .check(&*device)
            .unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
    }
}

/// A raw file on a full host file system. Needs root to mount one.
#[test]
fn a_raw_file_on_a_full_host_reports_no_space() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["-t", "tmpfs", "-o", "size=8m"];
    let mounted = match kernel::Mount::new("none".as_ref(), folder.path(), &arguments) {
        Ok(mounted) => mounted,
        Err(why) => {
            throughline_testkit::missing!("no tmpfs can be mounted without root: {why}");
            return;
        }
    };
    let _deadline = Deadline::new("a full host".into());
    raw_until_full(&folder.path().join("file"));
    mounted.unmount();
}

fn raw_until_full(path: &std::path::Path) {
    let raw = options(2 << 20)
        .create(true)
        .open_raw(path)
        .expect("a file is made");
    let total = AtomicU64::new(0);
    let full = |raw: &RawFile| loop {
        let at = total.load(Ordering::Relaxed);
        assert!(
            at < 16 << 20,
            "the 8 MiB file system accepts more than 16 MiB"
        );
        match raw.write_at(&filled(48 << 10, 1, at, 1), at) {
            Ok(written) => total.fetch_add(written as u64, Ordering::Relaxed),
            Err(Error::Caller(Reason::NoSpace)) => return,
            Err(error) => panic!("{error}"),
        };
    };
    full(&raw);
    let accepted = total.load(Ordering::Relaxed);
    assert!(accepted > 4 << 20, "only {accepted} bytes accepted");
    raw.sync_all()
        .expect("every accepted byte has space reserved");
    // Overwriting existing data needs no space.
    raw.write_all_at(&filled(1 << 20, 1, 0, 2), 0)
        .expect("room");
    raw.sync_all()
        .expect("every accepted byte has space reserved");
    let direct = raw.reopen(FileOptions::new().direct(true)).unwrap();
    assert_eq!(direct.size().unwrap(), accepted);
    drop((raw, direct));
    let found = std::fs::read(path).unwrap();
    assert_eq!(found.len() as u64, accepted);
    for (at, sector) in found.chunks_exact(SECTOR_BYTES).enumerate() {
        let offset = at as u64 * SECTOR;
        let version = if offset < 1 << 20 { 2 } else { 1 };
        let wanted = Sector::Data {
            file: 1,
            offset,
            version,
        };
        assert_eq!(parse(sector), wanted);
    }
}
