//! Buffered I/O on failing devices. After a successful sync all writes are on the device; a sync that cannot
//! achieve that fails, as does each later one until one can; nothing hangs.
//!
//! Faults affect only data, recognised by its sectors. `fault_countdown` covers failed metadata writes.

use crate::oracle;

use std::sync::Arc;

use oracle::image::{Scratch, Shape, bytes_of, shape_of, tools};
use oracle::seeds::{Deadline, run_all, seeds, soak};
use throughline::internal::OpenBlockDevice;
use throughline::{DirtyLimits, FileOptions, Handle, OpenOptions, RawFile, Volume};
use throughline_device::{BlockDevice, MemoryDevice, Op, Request};
use throughline_testing::sectors::{MAGIC, SECTOR_BYTES, filled};
use throughline_testing::{Fault, FaultDevice};

type Check = Result<(), String>;

const BUDGET: u64 = 2 << 20;
const LIMIT: u64 = 512 << 10;

fn in_call(call: &'static str) -> impl Fn(throughline::Error) -> String {
    move |error| format!("{call}: {error}")
}

/// Whether a request writes data sectors of this test.
fn is_data(request: &Request) -> bool {
    request.op() == Op::Write
        && request.slices().any(|bytes| {
            bytes
                .chunks(SECTOR_BYTES)
                .any(|sector| sector.starts_with(&MAGIC))
        })
}

/// Whether a request writes data sectors of one file.
fn is_data_of(request: &Request, file: u64) -> bool {
    let head = [MAGIC, file.to_le_bytes()].concat();
    request.op() == Op::Write
        && request.slices().any(|bytes| {
            bytes
                .chunks(SECTOR_BYTES)
                .any(|sector| sector.starts_with(&head))
        })
}

fn options() -> OpenOptions {
    let mut limits = DirtyLimits::default();
    limits.limit_bytes = Some(LIMIT);
    let mut options = OpenOptions::new();
    options.write(true);
    options.cache_bytes(Some(BUDGET)).dirty_limits(limits);
    options
}

/// A raw file on a failing device in memory, and the underlying device.
fn raw(fault: Fault, seed: u64) -> (RawFile, Arc<FaultDevice>, Arc<dyn BlockDevice>) {
    let below: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(8 << 20));
    let device = FaultDevice::new(Arc::clone(&below), fault);
    let device = Arc::new(device.only_where(is_data).seeded(seed));
    let raw = options().open_raw_block_device(Arc::clone(&device) as _);
    (raw.expect("opens"), device, below)
}

fn volume(shape: &Shape, scratch: &Scratch) -> (Volume, Arc<FaultDevice>, Arc<dyn BlockDevice>) {
    let below = scratch.device(shape);
    let device = FaultDevice::new(Arc::clone(&below), Fault::Never);
    let device = Arc::new(device.only_where(is_data));
    let volume = options().open_block_device(Arc::clone(&device) as _);
    (volume.expect("opens"), device, below)
}

/// Some writes of whole sectors at random places, also applied to `model`. Returns the first error.
fn some_writes(
    handle: &Handle,
    model: &mut Vec<u8>,
    random: &mut fastrand::Rng,
    count: u32,
) -> Option<throughline::Error> {
    for version in 0..u64::from(count) {
        let at = random.usize(..1200) * SECTOR_BYTES;
        let bytes = filled(random.usize(1..160) * SECTOR_BYTES, 1, at as u64, version);
        let (written, error) = match handle.write_at(&bytes, at as u64) {
            Ok(written) => (written, None),
            Err(error) => (0, Some(error)),
        };
        if written > 0 {
            model.resize(model.len().max(at + written), 0);
            model[at..at + written].copy_from_slice(&bytes[..written]);
        }
        if error.is_some() {
            return error;
        }
    }
    None
}

fn must_be(what: &str, found: &[u8], model: &[u8]) -> Check {
    match found
        .iter()
        .zip(model)
        .position(|(found, model)| found != model)
    {
        _ if found.len() < model.len() => Err(format!("{what}: {} bytes", found.len())),
        Some(at) => Err(format!("{what}: byte {at} differs, of {}", model.len())),
        None => Ok(()),
    }
}

/// Reads everything through a handle.
fn content(handle: &Handle, len: usize) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0xee; len];
    let n = handle.read_at(&mut bytes, 0).map_err(in_call("read"))?;
    bytes.truncate(n);
    Ok(bytes)
}

/// The n-th data write fails once: whatever was reported, after a successful sync the bytes are on the
/// device.
fn one_fault(fault: Fault, seed: u64) -> Check {
    let (raw, device, below) = raw(fault, seed);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model = Vec::new();
    let mut errors = 0;
    for _ in 0..6 {
        if let Some(error) = some_writes(&raw, &mut model, &mut random, 12) {
            return Err(format!(
                "a write failed ({error}) although space was free again"
            ));
        }
        must_be("in the cache", &content(&raw, model.len())?, &model)?;
        // There is one failure, so a sync may fail only a few times.
        while let Err(error) = raw.sync_all() {
            errors += 1;
            if errors > 3 {
                return Err(format!("one failed write is reported without end: {error}"));
            }
        }
        must_be("on the device", &bytes_of(&*below), &model)?;
    }
    if matches!(fault, Fault::Once(n) if n < device.requests()) && device.failed() != 1 {
        return Err("the fault did not occur".into());
    }
    drop(raw);
    must_be("closed", &bytes_of(&*below), &model)
}

#[test]
fn a_write_that_fails_once_is_written_again() {
    let _deadline = Deadline::new("one fault".into());
    let most = throughline_testkit::tier::pick(8, 40, 400);
    for n in 0..most {
        for fault in [Fault::Once(n), Fault::Torn(n), Fault::AfterDone(n)] {
            one_fault(fault, n).unwrap_or_else(|what| panic!("{fault:?}: {what}"));
        }
    }
}

/// A device that fails and comes back: meanwhile every sync fails, even with nothing new written. The data
/// stays readable, and syncs succeed again once the device is back.
#[test]
fn sync_reports_the_error_until_it_succeeds() {
    let _deadline = Deadline::new("a device that recovers".into());
    for seed in 0..if soak() { 300 } else { 20 } {
        let (raw, device, below) = raw(Fault::Never, seed);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut model = Vec::new();
        assert!(some_writes(&raw, &mut model, &mut random, 3).is_none());
        raw.sync_all().expect("a device that works");
        device.set_fault(Fault::From(0));
        let at = random.u64(..100) * 512;
        let bytes = filled(random.usize(1..200) * 512, 1, at, 99);
        let written = raw.write_at(&bytes, at).expect("there is room");
        model.resize(model.len().max(at as usize + written), 0);
        model[at as usize..][..written].copy_from_slice(&bytes[..written]);
        for round in 0..4 {
            let result = match round % 2 {
                0 => raw.sync_all(),
                _ => raw.sync_data(),
            };
            assert!(result.is_err(), "seed {seed}: sync {round} reports nothing");
            let read = content(&raw, model.len()).and_then(|found| must_be("", &found, &model));
            read.unwrap_or_else(|what| panic!("seed {seed}, with the device gone: {what}"));
        }
        device.set_fault(Fault::Never);
        let mut again = (0..3).map(|_| raw.sync_all());
        assert!(
            again.any(|result| result.is_ok()),
            "seed {seed}: sync fails on"
        );
        must_be("on the device", &bytes_of(&*below), &model)
            .unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        raw.sync_all()
            .expect("sync works once the errors are reported");
    }
}

/// Nothing can be written back: memory fills up to the limit, then writers get an error instead of blocking.
#[test]
fn a_writer_at_the_dirty_limit_gets_the_error() {
    let _deadline = Deadline::new("a writer at the limit".into());
    for seed in 0..if soak() { 100 } else { 6 } {
        let (raw, device, below) = raw(Fault::From(0), seed);
        let mut accepted = 0;
        let error = loop {
            let bytes = filled(64 << 10, 1, accepted, seed);
            match raw.write_at(&bytes, accepted) {
                Ok(written) => accepted += written as u64,
                Err(error) => break error,
            }
            assert!(accepted <= LIMIT, "seed {seed}: over the limit");
        };
        assert!(
            matches!(error, throughline::Error::Device(_)),
            "seed {seed}: {error}"
        );
        assert!(
            accepted >= LIMIT / 2,
            "seed {seed}: only {accepted} bytes accepted"
        );
        assert!(raw.sync_all().is_err());
        device.set_fault(Fault::Never);
        let mut again = (0..3).map(|_| raw.sync_all());
        assert!(
            again.any(|result| result.is_ok()),
            "seed {seed}: sync fails on"
        );
        let found = bytes_of(&*below);
        for at in (0..accepted).step_by(64 << 10) {
            let len = (accepted - at).min(64 << 10) as usize;
            must_be("", &found[at as usize..], &filled(len, 1, at, seed))
                .unwrap_or_else(|what| panic!("seed {seed} at {at}: {what}"));
        }
        // After that, everything works again.
        raw.write_all_at(&filled(1 << 20, 1, 0, 7), 0)
            .expect("room");
        raw.sync_all().expect("a device that works");
    }
}

/// A file whose write-back fails does not affect the others.
#[test]
fn a_file_that_fails_keeps_no_other_from_the_device() {
    if !tools() {
        return;
    }
    let _deadline = Deadline::new("two files".into());
    let scratch = Scratch::new();
    for name in ["ext4 4k", "ext3 1k", "ext2 1k", "bigalloc 4k in 16k"] {
        let below = scratch.device(shape_of(name));
        let device = FaultDevice::new(Arc::clone(&below), Fault::From(0));
        let device = Arc::new(device.only_where(|request| is_data_of(request, 1)));
        let volume = options()
            .open_block_device(Arc::clone(&device) as _)
            .unwrap();
        let file = |path: &str| volume.create_file(path).unwrap();
        let (bad, good) = (file("/bad"), file("/good"));
        bad.write_all_at(&filled(100 << 10, 1, 0, 1), 0).unwrap();
        for version in 0..20 {
            good.write_all_at(&filled(200 << 10, 2, 0, version), 0)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            good.sync_all()
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(bad.sync_all().is_err(), "{name}");
            assert!(
                volume.sync().is_err(),
                "{name}: the volume's sync succeeded"
            );
        }
        device.set_fault(Fault::Never);
        bad.sync_all()
            .or_else(|_| bad.sync_all())
            .expect("it works again");
        drop((bad, good));
        volume.close().unwrap();
        scratch
            .check(&*below)
            .unwrap_or_else(|what| panic!("{name}: {what}"));
        let again = options().open_block_device(below).unwrap();
        let bad = again.open_file("/bad").unwrap();
        must_be(
            name,
            &content(&bad, 1 << 20).unwrap(),
            &filled(100 << 10, 1, 0, 1),
        )
        .unwrap();
    }
}

/// Random write failures on a volume with several threads, each with its own file; then the device recovers.
fn by_chance(seed: u64, scratch: &Scratch) -> Check {
    let names = [
        "ext4 4k",
        "ext4 1k",
        "ext3 1k",
        "ext2 1k",
        "bigalloc 1k in 4k",
        "bigalloc 4k in 64k",
    ];
    let name = names[seed as usize % names.len()];
    let (volume, device, below) = volume(shape_of(name), scratch);
    device.set_fault(Fault::Some(50 << (seed % 4)));
    let models: Vec<Result<(String, Vec<u8>), String>> = std::thread::scope(|scope| {
        let volume = &volume;
        let workers: Vec<_> = (0..3_u64)
            .map(|me| {
                scope.spawn(move || {
                    let path = format!("/f{me}");
                    let file = volume.create_file(&path).map_err(in_call("create"))?;
                    let mut random = fastrand::Rng::with_seed(seed * 10 + me);
                    let mut model = Vec::new();
                    for _ in 0..25 {
                        // At the limit, a write may report earlier failures.
                        some_writes(&file, &mut model, &mut random, 4);
                        match random.u8(..6) {
                            0 => drop(file.sync_all()),
                            1 => drop(file.sync_data()),
                            2 => {
                                let direct = file.reopen(FileOptions::new().direct(true));
                                let at = random.u64(..1000) * 512;
                                let bytes = filled(8192, 1, at, 77);
                                let written =
                                    direct.map_err(in_call("reopen"))?.write_at(&bytes, at);
                                // After an error, it may or may not have been written.
                                match written {
                                    Ok(n) => {
                                        let end = at as usize + n;
                                        model.resize(model.len().max(end), 0);
                                        model[at as usize..end].copy_from_slice(&bytes[..n]);
                                    }
                                    Err(_) => rewrite(volume, &file, &mut model, at)?,
                                }
                            }
                            _ => {}
                        }
                        must_be("in the cache", &content(&file, model.len())?, &model)?;
                    }
                    Ok((path, model))
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|_| Err("panicked".into())))
            .collect()
    });
    let models = models.into_iter().collect::<Result<Vec<_>, _>>();
    let models = models.map_err(|what| format!("seed {seed}, {name}: {what}"))?;
    device.set_fault(Fault::Never);
    let named = |what: String| format!("seed {seed}, {name}, healed: {what}");
    (0..3)
        .find_map(|_| volume.sync().ok())
        .ok_or_else(|| named("sync fails on".into()))?;
    volume.close().map_err(in_call("close")).map_err(named)?;
    scratch.check(&*below).map_err(named)?;
    let again = options()
        .open_block_device(below)
        .map_err(in_call("open"))?;
    for (path, model) in models {
        let file = again.open_file(&path).map_err(in_call("open"))?;
        let found = content(&file, model.len() + (1 << 20))?;
        must_be(&path, &found, &model).map_err(named)?;
    }
    Ok(())
}

/// Rewrites data left undefined by a failed direct write, until it succeeds.
fn rewrite(volume: &Volume, file: &Handle, model: &mut Vec<u8>, at: u64) -> Check {
    let bytes = filled(8192, 1, at, 78);
    let mut last = None;
    for _ in 0..1000 {
        // Retry write-back of all dirty data, so that there is room eventually.
        let _ = volume.sync();
        let written = file.write_all_at(&bytes, at);
        if written.is_ok() {
            let end = at as usize + bytes.len();
            model.resize(model.len().max(end), 0);
            model[at as usize..end].copy_from_slice(&bytes);
            return Ok(());
        }
        last = written.err();
    }
    Err(format!("no write succeeds: {last:?}"))
}

#[test]
fn writes_that_fail_by_chance_lose_nothing() {
    if !tools() {
        return;
    }
    let most = if soak() { 1000 } else { 12 };
    let seeds = seeds(most);
    run_all(&seeds, by_chance);
    throughline_testkit::ledger::judged(seeds.len() as u64, "seeds of failing writes");
}

/// A device that fails permanently: closing reports that and returns.
#[test]
fn closing_on_a_dead_device_returns_an_error() {
    if !tools() {
        return;
    }
    let _deadline = Deadline::new("closing".into());
    let scratch = Scratch::new();
    let (volume, device, below) = volume(shape_of("ext4 4k"), &scratch);
    let file = volume.create_file("/f").unwrap();
    file.write_all_at(&filled(64 << 10, 1, 0, 1), 0).unwrap();
    device.set_fault(Fault::From(0));
    drop(file);
    assert!(volume.close().is_err());
    // Nothing was promised to be there; after a repair the volume is consistent.
    let (code, output) = scratch.e2fsck(&*below, &["-fy"]);
    assert!((0..=1).contains(&code), "{output}");
    let repaired = scratch.repaired();
    scratch.check(&*repaired).unwrap();
}
