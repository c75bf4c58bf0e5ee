//! Power cuts aimed at the superblock: each write of it is torn between its two sectors, in every session
//! that writes it, on volumes of one group, which have no backup. The result opens for us and for `e2fsck`,
//! and what we then write is sound.
//!
//! The kernel tears it too, and changes both sectors: mixtures of the superblocks that it wrote open for us.

use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use throughline::internal::OpenBlockDevice;
use throughline::{NewSize, Volume};
use throughline_testing::{
    Change, Cut, Event, Fault, FaultDevice, Image, Keep, Mount, PowerDevice, Record,
};
use throughline_testkit::{e2fs, kernel};

use super::fsck::Fsck;
use super::judge;
use super::oracle::image::tools;
use super::oracle::seeds::soak;
use super::tree;

const PLACE: std::ops::Range<u64> = 1024..2048;
const SECTOR: usize = 512;

/// Arguments of `mke2fs`, and the size in MiB.
const SHAPES: &[(&str, u64)] = &[
    ("-t ext4 -b 1024 -J size=1", 8),
    ("-t ext4 -b 4096 -J size=4", 16),
    ("-t ext4 -b 1024 -J size=1 -O orphan_file,quota", 8),
    ("-t ext4 -b 1024 -J size=1 -O metadata_csum_seed,^64bit", 8),
    ("-t ext4 -b 1024 -J size=1 -O ^metadata_csum", 8),
    ("-t ext4 -b 1024 -O ^has_journal", 8),
];

type Session = fn(Image, u64) -> Result<Record, String>;

/// What writes the superblock.
const SESSIONS: &[(&str, Session)] = &[
    ("used", |image, seed| session(image, seed, used)),
    ("named", |image, seed| session(image, seed, named)),
    ("recovered", recovered),
    ("stopped", stopped),
    ("grown", |image, seed| resized(image, seed, 12)),
    ("shrunk", |image, seed| resized(image, seed, 6)),
];

fn open(device: &Arc<PowerDevice>) -> Result<Volume, String> {
    let volume = tree::options().open_block_device(Arc::clone(device) as _);
    volume.map_err(|error| format!("opening: {error}"))
}

fn session(
    image: Image,
    seed: u64,
    work: fn(&Volume) -> throughline::Result<()>,
) -> Result<Record, String> {
    let device = Arc::new(PowerDevice::new(image, seed));
    let volume = open(&device)?;
    let done = work(&volume).and_then(|()| volume.close());
    done.map_err(|error| error.to_string())?;
    Ok(device.record())
}

/// Leaves orphans for a while.
fn used(volume: &Volume) -> throughline::Result<()> {
    for round in 0..3 {
        let path = format!("/used{round}");
        let file = volume.create_new(&path)?;
        file.write_all_at(&[7; 3000], 0)?;
        volume.remove_file(&path)?;
        volume.sync()?;
        drop(file);
        volume.sync()?;
    }
    Ok(())
}

fn named(volume: &Volume) -> throughline::Result<()> {
    volume.set_label(b"one")?;
    if volume.set_uuid(*b"0123456789abcdef").is_ok() {
        volume.set_label(b"another")?;
    }
    Ok(())
}

/// A volume that was not closed, and has orphans.
fn crashed(image: Image, seed: u64) -> Result<Image, String> {
    let device = Arc::new(PowerDevice::new(image, seed));
    let volume = open(&device)?;
    let work = || {
        let file = volume.create_new("/orphan")?;
        file.write_all_at(&[3; 5000], 0)?;
        volume.remove_file("/orphan")?;
        volume.sync()?;
        throughline::Result::Ok(file)
    };
    let _file = work().map_err(|error| error.to_string())?;
    Ok(device.contents())
}

fn recovered(image: Image, seed: u64) -> Result<Record, String> {
    let device = Arc::new(PowerDevice::new(crashed(image, seed)?, seed));
    let closed = open(&device)?.close();
    closed.map_err(|error| error.to_string())?;
    Ok(device.record())
}

/// A write fails, which is recorded.
fn stopped(image: Image, seed: u64) -> Result<Record, String> {
    let device = Arc::new(PowerDevice::new(image, seed));
    let failing = Arc::new(FaultDevice::counting(Arc::clone(&device) as _));
    let volume = tree::options().open_block_device(Arc::clone(&failing) as _);
    let volume = volume.map_err(|error| error.to_string())?;
    volume.create_dir("/a").map_err(|error| error.to_string())?;
    failing.set_fault(Fault::Once(failing.requests()));
    match volume.sync() {
        Ok(()) => Err("a failed request went unseen".to_owned()),
        Err(_) => Ok(device.record()),
    }
}

fn resized(image: Image, seed: u64, mib: u64) -> Result<Record, String> {
    let mut all = Image::zeros(image.len_bytes().max(24 << 20));
    let mut bytes = vec![0; image.len_bytes() as usize];
    image.read(0, &mut bytes);
    all.write(0, &bytes);
    let device = Arc::new(PowerDevice::new(all, seed));
    let size = NewSize::Bytes(mib << 20);
    // Not every size is possible.
    let _ = tree::options().resize_block_device(Arc::clone(&device) as _, size);
    Ok(device.record())
}

/// The states in which a write of the superblock is torn.
fn torn(record: &Record, seed: u64, subsets: u64) -> Vec<(String, Image)> {
    let mut random = Rng::with_seed(seed);
    let mut states = record.states();
    let mut found = Vec::new();
    for (at, event) in record.events().iter().enumerate() {
        let Event::Submitted(Change::Write { offset, bytes, .. }) = event else {
            continue;
        };
        if *offset > PLACE.start || offset + (bytes.len() as u64) < PLACE.end {
            continue;
        }
        let superblock = &bytes[(PLACE.start - offset) as usize..][..2 * SECTOR];
        let some = (0..subsets).map(|_| Keep::Some(random.u64(..)));
        for keep in [Keep::Nothing, Keep::Everything].into_iter().chain(some) {
            let before = states.state(Cut { at, keep });
            for half in [0, SECTOR] {
                let mut state = before.clone();
                let sector = &superblock[half..half + SECTOR];
                state.write(PLACE.start + half as u64, sector);
                found.push((format!("write {at}, byte {half} on, {keep:?}"), state));
            }
        }
    }
    found
}

/// Opens a state for reading. `by_us`: we can write to it, and leave it sound. `by_all`: `e2fsck` can repair
/// it.
fn check(
    state: &Image,
    has_journal: bool,
    (by_us, by_all): (bool, bool),
    fsck: &mut Fsck,
) -> Result<(), String> {
    tree::read(state)?;
    if by_all || !has_journal {
        fsck.repair(state)?;
    }
    if has_journal && by_us {
        let recovered = judge::recover(state)?.contents();
        fsck.check(&recovered)
            .map_err(|what| format!("after our recovery: {what}"))?;
    }
    Ok(())
}

#[test]
fn a_torn_write_of_the_superblock_is_harmless() {
    if !tools() {
        return;
    }
    let subsets = if soak() { 30 } else { 1 };
    let mut fsck = Fsck::new();
    let (mut wrong, mut judged) = (Vec::new(), 0);
    for (number, (words, mib)) in SHAPES.iter().enumerate() {
        let Some(image) = made(words, *mib) else {
            continue;
        };
        for (name, session) in SESSIONS {
            let seed = throughline_testkit::seed::of_run(number as u64);
            let record = session(image.clone(), seed)
                .unwrap_or_else(|what| panic!("{words}, {name}: {what}"));
            for (what, state) in torn(&record, seed, subsets) {
                judged += 1;
                let has_journal = !words.contains("^has_journal");
                // An error that is recorded, and a size that is half changed, ask for e2fsck.
                let by_us = !["stopped", "grown", "shrunk"].contains(name);
                if let Err(why) = check(&state, has_journal, (by_us, true), &mut fsck) {
                    wrong.push(format!("{words}, {name}, seed {seed}, {what}: {why}"));
                }
            }
        }
    }
    throughline_testkit::ledger::judged(judged, "torn superblocks");
    assert!(
        wrong.is_empty(),
        "{} of {judged}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(judged >= if soak() { 1_000 } else { 200 }, "only {judged}");
}

fn made(words: &str, mib: u64) -> Option<Image> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let words: Vec<&str> = words.split(' ').collect();
    e2fs::mke2fs_if_supported(&path, &format!("{mib}M"), &words)
        .then(|| Image::read_file(&path).unwrap())
}

/// The image of a mounted volume, as the kernel has written it by now.
fn copied(path: &Path) -> Image {
    loop {
        let image = Image::read_file(path).unwrap();
        if image == Image::read_file(path).unwrap() {
            return image;
        }
    }
}

#[test]
fn superblocks_that_the_kernel_tore_are_read() {
    if !tools() || !kernel::may_use_loops() {
        return;
    }
    let mut fsck = Fsck::new();
    let (mut judged, mut by_e2fsck, mut wrong) = (0, 0, Vec::new());
    for (words, mib) in SHAPES {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let list: Vec<&str> = words.split(' ').collect();
        if !e2fs::mke2fs_if_supported(&path, &format!("{mib}M"), &list) {
            continue;
        }
        let mut images = vec![Image::read_file(&path).unwrap()];
        let Ok(mount) = Mount::with_options(&path, "loop,rw,commit=300") else {
            continue;
        };
        images.push(copied(&path));
        let orphan = std::fs::File::create(mount.root().join("orphan")).unwrap();
        std::fs::remove_file(mount.root().join("orphan")).unwrap();
        orphan.sync_all().unwrap();
        images.push(copied(&path));
        drop(orphan);
        drop(mount);
        images.push(copied(&path));
        for (from, to) in std::iter::zip(&images, &images[1..]) {
            for (half, body) in [(0, from), (SECTOR, from), (0, to), (SECTOR, to)] {
                let mut state = body.clone();
                let other = if std::ptr::eq(body, from) { to } else { from };
                let mut sector = [0; SECTOR];
                other.read(PLACE.start + half as u64, &mut sector);
                state.write(PLACE.start + half as u64, &sector);
                // A clean mark on a volume that is not closed: its write comes after all others.
                if half == 0 && std::ptr::eq(other, &images[3]) != std::ptr::eq(body, &images[3]) {
                    continue;
                }
                judged += 1;
                let has_journal = !words.contains("^has_journal");
                by_e2fsck += u32::from(fsck.repair(&state).is_err());
                if let Err(why) = check(&state, has_journal, (true, false), &mut fsck) {
                    wrong.push(format!("{words}, {half}: {why}"));
                }
            }
        }
    }
    println!("{judged} torn by the kernel, of which e2fsck cannot open {by_e2fsck}");
    throughline_testkit::ledger::judged(judged, "torn superblocks of the kernel");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
