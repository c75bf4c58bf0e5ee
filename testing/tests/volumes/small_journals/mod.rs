//! Journals that are too small for their load: it succeeds, in as many transactions as necessary, from
//! several threads and without a deadlock. Journals too small for any load are refused. Sequence numbers
//! wrap around, and so do logs, at every block.
//!
//! `THROUGHLINE_SEED=n` repeats one seed, `THROUGHLINE_SOAK=1` runs many more.

mod load;
use crate::oracle;
mod shrunk;

use std::sync::Arc;
use std::time::Duration;

use load::{FILES, THREADS};
use oracle::image::{Scratch, Shape, shape, tools};
use oracle::seeds::{Deadline, run_all, seeds, soak};
use throughline::internal::OpenBlockDevice;
use throughline::{OpenOptions, Volume, VolumeOptions};
use throughline_device::BlockDevice;
use throughline_testing::{Image, PowerDevice};

/// The smallest journals that `mke2fs` makes: 1024 blocks.
fn smallest() -> [Shape; 4] {
    [
        shape("ext3 1k", 1024, false, "-t ext3 -J size=1"),
        shape("ext4 1k", 1024, true, "-t ext4 -O fast_commit -J size=1"),
        shape("ext3 4k", 4096, false, "-t ext3 -J size=4"),
        shape(
            "ext4 4k",
            4096,
            true,
            "-t ext4 -O fast_commit,orphan_file -J size=4",
        ),
    ]
    .map(|shape| shape.mib(32))
}

fn in_call(call: &'static str) -> impl Fn(throughline::Error) -> String {
    move |error| format!("{call}: {error}")
}

fn image(shape: &Shape, scratch: &Scratch) -> Image {
    Image::read_file(&scratch.make(shape)).expect("an image")
}

/// Opens a volume on which nothing is committed by age, only when necessary.
fn open(device: Arc<dyn BlockDevice>) -> Result<Volume, String> {
    OpenOptions::new()
        .write(true)
        .volume(VolumeOptions::new().commit_interval(Duration::from_secs(3600)))
        .open_block_device(device)
        .map_err(in_call("open"))
}

/// Checks an image with `e2fsck`: with `recover`, `-fy` repairs it first and the result is returned;
/// otherwise it must be sound as it is.
fn fsck(image: &Image, scratch: &Scratch, recover: bool) -> Result<Image, String> {
    let device = PowerDevice::new(image.clone(), 0);
    if recover {
        let (code, output) = scratch.e2fsck(&device, &["-fy"]);
        if !(0..=1).contains(&code) {
            return Err(format!("e2fsck -fy exited with {code}: {output}"));
        }
        let recovered = Image::read_file(&scratch.path()).map_err(|e| e.to_string())?;
        scratch.check(&PowerDevice::new(recovered.clone(), 0))?;
        return Ok(recovered);
    }
    scratch.check(&device).map(|()| image.clone())
}

/// Runs a load that fills the log many times; the volume must be sound after a close and after a crash.
fn fill(image: Image, seed: u64, scratch: &Scratch) -> Result<(), String> {
    let device = Arc::new(PowerDevice::new(image, seed));
    let volume = open(Arc::clone(&device) as _)?;
    let threads = |round: u64| -> Result<(), String> {
        std::thread::scope(|scope| {
            let spawn = |number| {
                let volume = &volume;
                scope.spawn(move || load::work(volume, number, seed ^ round << 32))
            };
            let workers: Vec<_> = (0..THREADS).map(spawn).collect();
            let mut joined = workers
                .into_iter()
                .map(|worker| worker.join().expect("a worker"));
            joined.try_for_each(|done| done.map_err(in_call("work")))
        })
    };
    threads(0)?;
    volume.sync().map_err(in_call("sync"))?;
    // The state if the process ended here.
    let crashed = device.contents();
    threads(1)?;
    load::remove(&volume).map_err(in_call("remove"))?;
    volume.close().map_err(in_call("close"))?;
    fsck(&device.contents(), scratch, false)?;
    let recovered = fsck(&crashed, scratch, true)?;
    let ours = Arc::new(PowerDevice::new(crashed, seed));
    open(Arc::clone(&ours) as _)?
        .close()
        .map_err(in_call("close"))?;
    fsck(&ours.contents(), scratch, false)?;
    for (who, image) in [("we", ours.contents()), ("e2fsck", recovered)] {
        let volume = open(Arc::new(PowerDevice::new(image, 0)))?;
        load::check(&volume).map_err(|what| format!("recovered by {who}: {what}"))?;
    }
    Ok(())
}

#[test]
fn work_that_is_larger_than_the_log() {
    if !tools() {
        return;
    }
    let shapes = smallest();
    let most = if soak() { 40 } else { 4 };
    let seeds = seeds(most);
    run_all(&seeds, |seed, scratch| {
        let shape = &shapes[seed as usize % shapes.len()];
        fill(image(shape, scratch), seed, scratch)
            .map_err(|what| format!("{}, seed {seed}: {what}", shape.name))
    });
    throughline_testkit::ledger::judged(seeds.len() as u64, "seeds of work larger than the log");
}

#[test]
fn journals_smaller_than_any_tool_makes() {
    if !tools() {
        return;
    }
    let scratch = Scratch::new();
    let (mut refused, mut worked) = (Vec::new(), Vec::new());
    for shape in smallest().iter().take(2) {
        let made = scratch.make(shape);
        for blocks in [2, 3, 5, 9, 17, 33, 65, 129, 257, 513] {
            let image = shrunk::with_log(&made, blocks);
            let what = format!("{}, a journal of {blocks} blocks", shape.name);
            let _deadline = Deadline::new(what.clone());
            let device = Arc::new(PowerDevice::new(image.clone(), 1));
            match OpenOptions::new()
                .write(true)
                .open_block_device(Arc::clone(&device) as _)
            {
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains("journal"), "{what}: {text}");
                    assert!(
                        device.contents() == image,
                        "{what}: refused, but written to"
                    );
                    refused.push(blocks);
                }
                Ok(volume) => {
                    drop(volume);
                    let filled = small_fill(image, &scratch);
                    filled.unwrap_or_else(|error| panic!("{what}: {error}"));
                    worked.push(blocks);
                }
            }
        }
    }
    eprintln!("refused: {refused:?}; worked: {worked:?}");
    assert!(refused.contains(&2) && worked.contains(&513));
    assert!(refused.iter().max() < worked.iter().min());
}

/// As [`fill`], without recovery by e2fsck, which requires 1024 blocks.
fn small_fill(image: Image, scratch: &Scratch) -> Result<(), String> {
    let device = Arc::new(PowerDevice::new(image, 2));
    let volume = open(Arc::clone(&device) as _)?;
    load::work(&volume, 0, 3).map_err(in_call("work"))?;
    volume.sync().map_err(in_call("sync"))?;
    let crashed = Arc::new(PowerDevice::new(device.contents(), 3));
    volume.close().map_err(in_call("close"))?;
    open(Arc::clone(&crashed) as _)?
        .close()
        .map_err(in_call("recovery"))?;
    for device in [device, crashed] {
        shrunk::check(&device.contents(), scratch)?;
    }
    Ok(())
}

/// Small transactions in sequence, starting at sequence number `first`; after some of them, the crash state
/// is recovered and checked.
fn laps(image: Image, first: u32, seed: u64, scratch: &Scratch) -> Result<(), String> {
    let image = shrunk::with_sequence(image, first);
    let device = Arc::new(PowerDevice::new(image, seed));
    let volume = open(Arc::clone(&device) as _)?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut files = Vec::new();
    for number in 0..FILES {
        files.push(load::create(&volume, number).map_err(in_call("create"))?);
    }
    let steps = if soak() { 3000 } else { 500 };
    let mut appended = vec![0; FILES];
    for step in 0..steps {
        let number = random.usize(..FILES);
        load::append(&files[number], number, random.u64(1..4)).map_err(in_call("append"))?;
        files[number].sync_all().map_err(in_call("fsync"))?;
        appended[number] = files[number].size().map_err(in_call("size"))?;
        if step % 29 == 3 {
            let crashed = device.contents();
            recovered(&crashed, &appended, seed)
                .map_err(|what| format!("after {step} steps: {what}"))?;
            if step % 232 == 3 {
                let theirs = fsck(&crashed, scratch, true)?;
                recovered(&theirs, &appended, seed)
                    .map_err(|what| format!("after {step} steps, by e2fsck: {what}"))?;
            }
        }
    }
    drop(files);
    volume.close().map_err(in_call("close"))?;
    fsck(&device.contents(), scratch, false).map(drop)
}

fn recovered(image: &Image, sizes: &[u64], seed: u64) -> Result<(), String> {
    let volume = open(Arc::new(PowerDevice::new(image.clone(), seed)))?;
    for (number, size) in sizes.iter().enumerate().filter(|(_, size)| **size > 0) {
        load::check_file(&volume, number, *size)?;
    }
    volume.close().map_err(in_call("close"))
}

#[test]
fn sequence_numbers_and_logs_go_around() {
    if !tools() {
        return;
    }
    let shapes = smallest();
    let firsts = [u32::MAX - 40, u32::MAX - 400, 1, (1 << 31) - 100];
    let most = if soak() { 64 } else { 4 };
    let seeds = seeds(most);
    run_all(&seeds, |seed, scratch| {
        let (shape, first) = (
            &shapes[seed as usize % 4],
            firsts[(seed as usize / 4 + seed as usize) % 4],
        );
        laps(image(shape, scratch), first, seed, scratch)
            .map_err(|what| format!("{}, seed {seed}, from {first}: {what}", shape.name))
    });
    throughline_testkit::ledger::judged(seeds.len() as u64, "seeds of laps of the log");
}
