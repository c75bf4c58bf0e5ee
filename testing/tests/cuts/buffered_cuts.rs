//! A device that stops in the middle of buffered work: its content is what a crash would leave. No file shows
//! previous content of its blocks or data of another file, and everything synced is there.
//!
//! Nothing is removed or truncated after the sync: reuse of blocks is up to the journal.

use crate::oracle;

use std::sync::Arc;

use oracle::image::{Scratch, Shape, bytes_of, load, shape_of, tools};
use oracle::seeds::{chosen, run_all, seeds, soak};
use throughline::internal::OpenBlockDevice;
use throughline::{DirtyLimits, Fallocate, File, FileOptions, OpenOptions, Volume};
use throughline_device::{BlockDevice, Op};
use throughline_testing::sectors::{SECTOR_BYTES, Sector, filled, parse};
use throughline_testing::{Fault, FaultDevice};

const NAMES: [&str; 8] = [
    "ext4 4k",
    "ext4 1k",
    "no journal",
    "ext3 1k",
    "ext2 1k",
    "ext2 4k",
    "bigalloc 4k in 16k",
    "bigalloc 1k in 16k",
];
const FILES: u64 = 5;
/// The initial content of all free space.
const OLD: u8 = 0xa5;

fn in_call(call: &'static str) -> impl Fn(throughline::Error) -> String {
    move |error| format!("{call}: {error}")
}

fn options(seed: u64) -> OpenOptions {
    let limits = DirtyLimits::new(Some(256 << 10 << (seed % 3)), None);
    let mut options = OpenOptions::new();
    options.write(true);
    options
        .cache_bytes(Some(1 << 20 << (seed % 3)))
        .dirty_limits(limits);
    options
}

/// An image with all free blocks set to the old bytes.
fn base(shape: &Shape, scratch: &Scratch) -> Result<Vec<u8>, String> {
    let device = scratch.device(shape);
    let volume = OpenOptions::new()
        .write(true)
        .open_block_device(Arc::clone(&device))
        .map_err(in_call("open"))?;
    let file = FileOptions::new()
        .direct(true)
        .create(true)
        .open(&volume, "/old")
        .map_err(in_call("create"))?;
    let old = vec![OLD; 1 << 20];
    let mut at = 0;
    for len in [1 << 20, 64 << 10, 4 << 10, 1 << 10] {
        while let Ok(written) = file.write_at(&old[..len], at) {
            at += written as u64;
        }
    }
    file.sync_all().map_err(in_call("sync"))?;
    drop(file);
    volume.remove_file("/old").map_err(in_call("remove"))?;
    volume.create_dir("/kept").map_err(in_call("mkdir"))?;
    for number in 0..FILES {
        let file = volume.create_file(kept(number));
        file.and_then(|file| file.write_all_at(&kept_bytes(number), 0))
            .map_err(in_call("write"))?;
    }
    volume.close().map_err(in_call("close"))?;
    Ok(bytes_of(&*device))
}

fn kept(number: u64) -> String {
    format!("/kept/f{number}")
}

fn kept_bytes(number: u64) -> Vec<u8> {
    filled(
        (number as usize + 1) * 30_000 / SECTOR_BYTES * SECTOR_BYTES,
        100 + number,
        0,
        1,
    )
}

/// Works on several files until the device fails.
fn work(volume: &Volume, seed: u64) -> throughline::Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut files: Vec<File> = Vec::new();
    for number in 0..FILES {
        files.push(volume.create_file(format!("/f{number}"))?);
    }
    // Also overwrites synced data; then the new data may be seen there as well.
    for version in 2..60 {
        let number = random.u64(..FILES);
        let file = &files[number as usize];
        let sectors = [random.u64(1..12), random.u64(1..400), 8][random.usize(..3)];
        let size = file.size()?;
        let at = match random.u8(..4) {
            0 | 1 => size.next_multiple_of(512),
            2 => random.u64(..2000) * 512,
            _ => random.u64(..=size / 512) * 512,
        };
        let bytes = filled((sectors * 512) as usize, number, at, version);
        let mut mode = FileOptions::new();
        match random.u8(..20) {
            0..13 => file.write_all_at(&bytes, at)?,
            13..15 => file.reopen(mode.direct(true))?.write_all_at(&bytes, at)?,
            15 => file
                .reopen(mode.data_sync(true))?
                .write_all_at(&bytes, at)?,
            16 => drop(file.allocate(Fallocate::Allocate, at, sectors * 512)),
            17 => drop(file.allocate(Fallocate::ZeroRange, at, sectors * 512)),
            18 => file.sync_all()?,
            _ => volume.sync()?,
        }
    }
    Ok(())
}

/// Checks that a file contains only zeros and what was written to it.
fn judge(file: &File, number: u64) -> Result<(), String> {
    let mut bytes = vec![0; file.size().map_err(in_call("size"))? as usize];
    let n = file.read_at(&mut bytes, 0).map_err(in_call("read"))?;
    for (at, sector) in bytes[..n].chunks_exact(SECTOR_BYTES).enumerate() {
        match parse(sector) {
            Sector::Zero => {}
            Sector::Data { file, offset, .. } if file == number && offset == at as u64 * 512 => {}
            Sector::Garbage if sector.contains(&OLD) => {
                return Err(format!("file {number}, sector {at}: old bytes of the disk"));
            }
            other => return Err(format!("file {number}, sector {at}: {other:?}")),
        }
    }
    Ok(())
}

fn cut(seed: u64, scratch: &Scratch) -> Result<bool, String> {
    let name = NAMES[seed as usize % NAMES.len()];
    let named = |what: String| format!("seed {seed}, {name}: {what}");
    let image = base(shape_of(name), scratch).map_err(named)?;
    let mut random = fastrand::Rng::with_seed(seed ^ 0xcc7);
    // A complete run gives the approximate number of writes.
    let counted = Arc::new(FaultDevice::counting(load(&image)).only(&[Op::Write]));
    let volume = options(seed).open_block_device(Arc::clone(&counted) as _);
    let volume = volume.map_err(in_call("open")).map_err(named)?;
    work(&volume, seed)
        .map_err(in_call("work"))
        .map_err(named)?;
    volume.close().map_err(in_call("close")).map_err(named)?;
    let mut came = false;
    for _ in 0..if soak() { 20 } else { 4 } {
        let n = random.u64(..counted.requests() + 1);
        let below = load(&image);
        let device = FaultDevice::new(Arc::clone(&below), Fault::From(n)).only(&[Op::Write]);
        let device = Arc::new(device);
        if let Ok(volume) = options(seed).open_block_device(Arc::clone(&device) as _) {
            // Which calls fail, and how, depends on the device.
            let _ = work(&volume, seed);
            let _ = volume.close();
        }
        came |= device.failed() > 0;
        after(&below, scratch).map_err(|what| named(format!("cut at {n}: {what}")))?;
    }
    Ok(came)
}

/// Checks the state after the crash, repaired.
fn after(below: &Arc<dyn BlockDevice>, scratch: &Scratch) -> Result<(), String> {
    let (code, output) = scratch.e2fsck(&**below, &["-fy"]);
    if !(0..=1).contains(&code) {
        return Err(format!("e2fsck -fy exited with {code}: {output}"));
    }
    let repaired = scratch.repaired();
    scratch.check(&*repaired)?;
    let volume = OpenOptions::new()
        .write(true)
        .open_block_device(repaired)
        .map_err(in_call("open"))?;
    for number in 0..FILES {
        if let Ok(file) = volume.open_file(format!("/f{number}")) {
            judge(&file, number).map_err(|what| format!("{what}; e2fsck -fy: {output}"))?;
        }
        let file = volume.open_file(kept(number)).map_err(in_call("kept"))?;
        let expected = kept_bytes(number);
        let mut bytes = vec![0; expected.len() + 1];
        let n = file.read_at(&mut bytes, 0).map_err(in_call("read"))?;
        if bytes[..n] != expected[..] {
            return Err(format!("what was synced in file {number} is gone"));
        }
    }
    volume.close().map_err(in_call("close"))
}

#[test]
fn a_device_that_stops_shows_nothing_old() {
    if !tools() {
        return;
    }
    let most = if soak() { 600 } else { 18 };
    let seeds = seeds(most);
    let came = run_all(&seeds, cut);
    throughline_testkit::ledger::judged(seeds.len() as u64, "cuts of cached writes");
    assert!(
        chosen().is_some() || came.iter().filter(|came| **came).count() > came.len() / 2,
        "the device hardly ever stopped"
    );
}
