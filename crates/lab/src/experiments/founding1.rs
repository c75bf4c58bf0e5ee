//! `founding/1`, report 1: a file of 48 KiB on ext3, then repeated direct writes of 4096 KiB at offset 48
//! KiB, the range mapped by one indirect block. Compares one bio per mapped run with one bio per page, and
//! with the kernel's ext3 on a loop device.
//!
//! The report's fault was that a mapping of many blocks was submitted page by page. Here the naive variant is
//! the same engine with a bio target size of one page. Both run on the disk, in memory, on the host's tmpfs,
//! and on the model of the reporter's disk and computer.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use throughline::internal::{OpenBlockDevice, VolumeLayers};
use throughline::{FileOptions, Volume};
use throughline_device::{AlignedBuf, Op};
use throughline_models::Clock;

use crate::hollow::load_image;
use crate::interleave::{Sample, Variant};
use crate::kernel::{LoopMount, e2fsck, may_mount, mke2fs};
use crate::meter::Meter;
use crate::mounts::work::NEW;
use crate::outcome::{Outcome, ratios};
use crate::{Result, Settings, modelled};

const HEAD_BYTES: u64 = 48 << 10;
const CALL_BYTES: u64 = 4096 << 10;
const PAGE_BYTES: u32 = 4096;
const IMAGE_BYTES: u64 = 64 << 20;
const NAME: &str = "/report1";

/// The target size of bios for each variant: the engine's derived size, and the report's page.
const WAYS: [(&str, Option<u32>); 2] = [("ours", None), ("one bio per page", Some(PAGE_BYTES))];

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let scratch = settings.scratch()?;
    // The host's tmpfs, through the engine's system calls, stands in for the report's RAM disk; our memory
    // device only copies.
    let ram = tempfile::tempdir_in("/dev/shm").ok();
    if ram.is_none() {
        outcome.note("the RAM disk was left out: /dev/shm cannot be written");
    }
    let memory = new_image(scratch.path(), "memory")?;
    let kernel = kernel_file(&new_image(scratch.path(), "kernel")?, outcome)?;
    let mut targets = Vec::new();
    for (way, target) in WAYS {
        let mut options = settings.opening();
        options.bio_target(target);
        let dirs = [
            Some(("", scratch.path())),
            ram.as_ref().map(|ram| ("RAM disk: ", ram.path())),
        ];
        for (place, dir) in dirs.into_iter().flatten() {
            let image = new_image(dir, way)?;
            let mut target = Target::new(format!("{place}{way}"), options.open(&image)?)?;
            target.image = Some(image);
            targets.push(target);
        }
        let volume = options.open_block_device(Arc::new(load_image(&memory)?))?;
        targets.push(Target::new(format!("memory: {way}"), volume)?);
        // An image in memory that is as slow as the reporter's disk.
        let content = Arc::new(load_image(&memory)?);
        let device = modelled::open("xeon-disk", Some(content))?;
        let clock = device.clock().clone();
        let volume = options.open_block_device(Arc::new(device))?;
        let mut target = Target::new(format!("model: {way}"), volume)?;
        target.clock = Some(clock);
        targets.push(target);
    }
    let calls = settings.scaled(1000, 20) / 5;
    // A call takes 41 ms on the reporter's disk.
    let model_calls = settings.scaled(20, 4);

    // One buffer for all variants, because memory placement affects the results.
    let buffer = &AlignedBuf::zeroed(CALL_BYTES as usize, PAGE_BYTES as usize);
    let mut variants = Vec::new();
    for target in &targets {
        let calls = target.clock.as_ref().map_or(calls, |_| model_calls);
        let measure = move || target.sample(buffer, calls);
        variants.push(Variant::new(&target.name, measure));
    }
    if let Some(file) = &kernel {
        let measure = || kernel_sample(file, buffer, calls);
        variants.push(Variant::new("kernel ext3 on loop", measure));
    }
    outcome.measure(settings, 10, variants)?;
    let aim = targets[0].volume.disk().bio_target_bytes();
    outcome.count("bio target, KiB", f64::from(aim) / 1024.0);
    for Target {
        volume,
        file,
        image,
        ..
    } in targets
    {
        drop(file);
        volume.close()?;
        image.iter().try_for_each(|image| e2fsck(image))?;
    }
    bars(outcome, CALL_BYTES.div_ceil(u64::from(aim)) as f64);
    outcome.note(
        "model: 'xeon-disk'; the time that it spins instead of waiting for a timer is not counted \
        as processor time",
    );
    Ok(())
}

fn new_image(dir: &Path, name: &str) -> Result<PathBuf> {
    let image = dir.join(name);
    mke2fs(&image, IMAGE_BYTES, &["-t", "ext3", "-b", "4096"])?;
    Ok(image)
}

/// The report's file on one volume.
struct Target {
    name: String,
    volume: Volume,
    file: throughline::File,
    /// The image to check after closing the volume.
    image: Option<PathBuf>,
    /// The clock, on a device model.
    clock: Option<Clock>,
}

impl Target {
    fn new(name: String, volume: Volume) -> Result<Target> {
        let file = volume
            .create_file(NAME)
            .and_then(|file| file.reopen(FileOptions::new().direct(true)))?;
        file.write_at(&vec![1; HEAD_BYTES as usize], 0)?;
        file.write_at(&vec![2; CALL_BYTES as usize], HEAD_BYTES)?;
        Ok(Target {
            name,
            volume,
            file,
            image: None,
            clock: None,
        })
    }

    /// Measures this many calls, each of which overwrites the same range.
    fn sample(&self, buffer: &[u8], calls: u64) -> Result<Sample> {
        let before = self.volume.disk().counters();
        let spun = modelled::Spun::of(self.clock.as_ref());
        let meter = Meter::start();
        for _ in 0..calls {
            self.file.write_at(buffer, HEAD_BYTES)?;
        }
        let spent = spun.taken_from(meter.spent());
        let counted = self.volume.disk().counters().since(&before);
        let (bytes, bios) = (calls * CALL_BYTES, counted.bios(Op::Write) as f64);
        Ok(vec![
            ("throughput", "MB/s", spent.mb_per_s(bytes)),
            ("cpu", "s/GiB", spent.cpu_s_per_gib(bytes)),
            ("bios per call", "", bios / calls as f64),
        ])
    }
}

fn kernel_file(image: &Path, outcome: &mut Outcome) -> Result<Option<File>> {
    if !may_mount() {
        outcome.note("the kernel's ext3 on loop was left out: it needs root and loop devices");
        return Ok(None);
    }
    // From here on, only the open file keeps the file system mounted.
    let name = NAME.trim_start_matches('/');
    let file = LoopMount::new(image, "ext3", None)?
        .root()
        .open(name, NEW | OFlags::DIRECT)?;
    let content = AlignedBuf::zeroed((HEAD_BYTES + CALL_BYTES) as usize, PAGE_BYTES as usize);
    file.write_all_at(&content, 0)?;
    Ok(Some(file))
}

fn kernel_sample(file: &File, buffer: &[u8], calls: u64) -> Result<Sample> {
    let meter = Meter::start();
    for _ in 0..calls {
        file.write_all_at(buffer, HEAD_BYTES)?;
    }
    let rate = meter.spent().mb_per_s(calls * CALL_BYTES);
    Ok(vec![("throughput", "MB/s", rate)])
}

fn bars(outcome: &mut Outcome, expected_bios: f64) {
    let [ours, naive, on_model] = ["ours", "one bio per page", "model: ours"]
        .map(|variant| outcome.most(variant, "bios per call"));
    let most = expected_bios + 1.0;
    outcome.at_most("data bios per 4 MiB call, ours", ours, most);
    outcome.at_least("data bios per 4 MiB call, one per page", naive, 1024.0);
    outcome.at_most("model: data bios per 4 MiB call, ours", on_model, most);
    let naive = |place: &str| format!("{place}one bio per page");
    let (kernel, ours) = ("kernel ext3 on loop", "ours");
    ratios! { outcome;
        "model: cpu per GiB, ours / one bio per page"
            => "cpu", "model: ours", naive("model: "), at_most 0.78;
        "cpu per GiB, ours / one bio per page" => "cpu", ours, naive(""), at_most 0.78;
        "memory: throughput, ours / one bio per page"
            => "throughput", "memory: ours", naive("memory: "), at_least 3.0;
        "RAM disk: throughput, ours / one bio per page"
            => "throughput", "RAM disk: ours", naive("RAM disk: "), at_least 3.0;
        "throughput, ours / kernel ext3 on loop" => "throughput", ours, kernel, at_least 1.0;
        "throughput, ours / one bio per page" => "throughput", ours, naive("");
    }
}
