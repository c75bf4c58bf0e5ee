//! `founding/1`, report 1: a file of 48 KiB on ext3, then 4096 KiB direct writes at offset 48 KiB, over and over: the
//! range behind one indirect block. One bio per mapped run against one bio per page, and the kernel's ext3 on loop.
//!
//! The report's fault was that a mapping of many blocks was submitted a page at a time. Here the naive variant is the
//! same engine told to aim at bios of one page. Both on the disk, in memory, on the host's memory file system, and on the
//! model of the reporter's disk and computer.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use throughline::{FileOptions, Volume};
use throughline_device::{AlignedBuf, BlockDevice, Op};
use throughline_models::{Clock, Content};

use super::Experiment;
use crate::hollow::load_image;
use crate::interleave::{Sample, Variant, interleave};
use crate::kernel::{e2fsck, may_mount, mke2fs, open_on_loop};
use crate::meter::Meter;
use crate::outcome::Outcome;
use crate::{Error, Result, Settings, modelled};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "founding/1",
    about: "report 1: 4096 KiB direct overwrites behind an indirect block; runs, one bio per page, the kernel's ext3",
    run,
};

const HEAD_BYTES: u64 = 48 << 10;
const CALL_BYTES: u64 = 4096 << 10;
const PAGE_BYTES: u32 = 4096;
const IMAGE_BYTES: u64 = 64 << 20;
const NAME: &str = "/report1";

fn run(settings: &Settings<'_>) -> Result<Outcome> {
    let mut outcome = Outcome::new(EXPERIMENT.name);
    let scratch = settings.scratch()?;
    let image = |name: &str| scratch.path().join(name);
    for name in ["ours", "naive", "kernel", "memory"] {
        mke2fs(&image(name), IMAGE_BYTES, &["-t", "ext3", "-b", "4096"])?;
    }
    let on_disk = |name: &str, target| -> Result<Target> {
        Target::new(
            settings
                .opening()
                .bio_target(target)
                .open(image(name))
                .map_err(as_error)?,
        )
    };
    let in_memory = |target| -> Result<Target> {
        let device = Arc::new(load_image(&image("memory"))?) as Arc<dyn BlockDevice>;
        Target::new(
            settings
                .opening()
                .bio_target(target)
                .open_block_device(device)
                .map_err(as_error)?,
        )
    };
    let (ours, naive) = (on_disk("ours", None)?, on_disk("naive", Some(PAGE_BYTES))?);
    let (ours_memory, naive_memory) = (in_memory(None)?, in_memory(Some(PAGE_BYTES))?);
    let (ours_model, naive_model) = (
        on_model(settings, &image("memory"), None)?,
        on_model(settings, &image("memory"), Some(PAGE_BYTES))?,
    );
    let kernel = kernel_file(&image("kernel"), &mut outcome)?;
    let ram = RamDisk::new(settings, &mut outcome)?;
    let calls = settings.scaled(1000, 20) / 5;
    // The reporter's disk takes 41 ms for each.
    let model_calls = settings.scaled(20, 4);

    // One buffer for all: how the memory lies makes a difference of its own.
    let buffer = AlignedBuf::zeroed(CALL_BYTES as usize, PAGE_BYTES as usize);
    let mut variants = vec![
        Variant::new("ours", || ours.sample(&buffer, calls)),
        Variant::new("one bio per page", || naive.sample(&buffer, calls)),
        Variant::new("memory: ours", || ours_memory.sample(&buffer, calls)),
        Variant::new("memory: one bio per page", || {
            naive_memory.sample(&buffer, calls)
        }),
        Variant::new("model: ours", || ours_model.sample(&buffer, model_calls)),
        Variant::new("model: one bio per page", || {
            naive_model.sample(&buffer, model_calls)
        }),
    ];
    if let Some(ram) = &ram {
        variants.push(Variant::new("RAM disk: ours", || {
            ram.ours.sample(&buffer, calls)
        }));
        variants.push(Variant::new("RAM disk: one bio per page", || {
            ram.naive.sample(&buffer, calls)
        }));
    }
    if let Some(file) = &kernel {
        variants.push(Variant::new("kernel ext3 on loop", || {
            kernel_sample(file, &buffer, calls)
        }));
    }
    interleave(
        &mut outcome,
        &mut variants,
        settings.rounds.unwrap_or(10),
        settings,
    )?;
    drop(variants);
    outcome.counters.insert(
        "bio target, KiB".into(),
        f64::from(ours.volume.disk().bio_target_bytes()) / 1024.0,
    );
    let expected = CALL_BYTES.div_ceil(u64::from(ours.volume.disk().bio_target_bytes()));
    for (target, name) in [(ours, "ours"), (naive, "naive")] {
        let Target { volume, file, .. } = target;
        drop(file);
        volume.close().map_err(as_error)?;
        e2fsck(&image(name))?;
    }
    bars(&mut outcome, expected as f64);
    outcome.notes.push(
        "model: 'xeon-disk'; the time that its waits spin in place of a timer is not counted as processor time".into(),
    );
    Ok(outcome)
}

/// The report's file on an image in memory that is as slow as the reporter's disk.
fn on_model(settings: &Settings<'_>, image: &Path, target: Option<u32>) -> Result<Target> {
    let content = Content::Device(Arc::new(load_image(image)?));
    let device = modelled::open("xeon-disk", |options| options.content(content))?;
    let clock = device.clock().clone();
    let volume = settings
        .opening()
        .bio_target(target)
        .open_block_device(Arc::new(device))
        .map_err(as_error)?;
    Ok(Target {
        clock: Some(clock),
        ..Target::new(volume)?
    })
}

fn as_error(error: throughline::Error) -> Error {
    Error::new(error.to_string())
}

/// The report's file on one volume.
struct Target {
    volume: Volume,
    file: throughline::File,
    /// Of a model.
    clock: Option<Clock>,
}

impl Target {
    fn new(volume: Volume) -> Result<Target> {
        let file = volume
            .create_file(NAME)
            .and_then(|file| file.reopen(FileOptions::new().direct(true)))
            .map_err(as_error)?;
        file.write_at(&vec![1; HEAD_BYTES as usize], 0)
            .map_err(as_error)?;
        file.write_at(&vec![2; CALL_BYTES as usize], HEAD_BYTES)
            .map_err(as_error)?;
        Ok(Target {
            volume,
            file,
            clock: None,
        })
    }

    /// `calls` overwrites.
    fn sample(&self, buffer: &[u8], calls: u64) -> Result<Sample> {
        let before = self.volume.disk().counters();
        let spun = modelled::Spun::of(self.clock.as_ref());
        let meter = Meter::start();
        for _ in 0..calls {
            self.file.write_at(buffer, HEAD_BYTES).map_err(as_error)?;
        }
        let spent = spun.taken_from(meter.spent());
        let counted = self.volume.disk().counters().since(&before);
        let bytes = calls * CALL_BYTES;
        Ok(vec![
            ("throughput", "MB/s", spent.mb_per_s(bytes)),
            ("cpu", "s/GiB", spent.cpu_s_per_gib(bytes)),
            (
                "bios per call",
                "",
                counted.bios(Op::Write) as f64 / calls as f64,
            ),
        ])
    }
}

/// Both ways on images in the host's memory file system, through the engine's system calls: what the report's RAM disk
/// is here, where the memory device is a copy and nothing else.
struct RamDisk {
    ours: Target,
    naive: Target,
    _scratch: tempfile::TempDir,
}

impl RamDisk {
    fn new(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<Option<RamDisk>> {
        let Ok(scratch) = tempfile::tempdir_in("/dev/shm") else {
            outcome
                .notes
                .push("the RAM disk was left out: /dev/shm cannot be written".into());
            return Ok(None);
        };
        let open = |name: &str, target| {
            let image = scratch.path().join(name);
            mke2fs(&image, IMAGE_BYTES, &["-t", "ext3", "-b", "4096"])?;
            Target::new(
                settings
                    .opening()
                    .bio_target(target)
                    .open(image)
                    .map_err(as_error)?,
            )
        };
        Ok(Some(RamDisk {
            ours: open("ours", None)?,
            naive: open("naive", Some(PAGE_BYTES))?,
            _scratch: scratch,
        }))
    }
}

fn kernel_file(image: &Path, outcome: &mut Outcome) -> Result<Option<File>> {
    if !may_mount() {
        outcome
            .notes
            .push("the kernel's ext3 on loop was left out: it needs root and loop devices".into());
        return Ok(None);
    }
    let file = open_on_loop(image, "ext3", NAME.trim_start_matches('/'))?;
    let content = AlignedBuf::zeroed((HEAD_BYTES + CALL_BYTES) as usize, PAGE_BYTES as usize);
    file.write_all_at(&content, 0)?;
    Ok(Some(file))
}

fn kernel_sample(file: &File, buffer: &[u8], calls: u64) -> Result<Sample> {
    let meter = Meter::start();
    for _ in 0..calls {
        file.write_all_at(buffer, HEAD_BYTES)?;
    }
    Ok(vec![(
        "throughput",
        "MB/s",
        meter.spent().mb_per_s(calls * CALL_BYTES),
    )])
}

fn bars(outcome: &mut Outcome, expected_bios: f64) {
    let most = |variant: &str| {
        outcome
            .samples(variant, "bios per call")
            .iter()
            .copied()
            .fold(0.0, f64::max)
    };
    let (ours, naive) = (most("ours"), most("one bio per page"));
    let on_model = most("model: ours");
    outcome.at_most("data bios per 4 MiB call, ours", ours, expected_bios + 1.0);
    outcome.at_least("data bios per 4 MiB call, one per page", naive, 1024.0);
    outcome.at_most(
        "model: data bios per 4 MiB call, ours",
        on_model,
        expected_bios + 1.0,
    );
    outcome.ratio_at_most(
        "model: cpu per GiB, ours / one bio per page",
        "cpu",
        "model: ours",
        "model: one bio per page",
        0.78,
    );
    outcome.ratio_at_most(
        "cpu per GiB, ours / one bio per page",
        "cpu",
        "ours",
        "one bio per page",
        0.78,
    );
    outcome.ratio_at_least(
        "memory: throughput, ours / one bio per page",
        "throughput",
        "memory: ours",
        "memory: one bio per page",
        3.0,
    );
    outcome.ratio_at_least(
        "RAM disk: throughput, ours / one bio per page",
        "throughput",
        "RAM disk: ours",
        "RAM disk: one bio per page",
        3.0,
    );
    outcome.ratio_at_least(
        "throughput, ours / kernel ext3 on loop",
        "throughput",
        "ours",
        "kernel ext3 on loop",
        1.0,
    );
    outcome.ratio(
        "throughput, ours / one bio per page",
        "throughput",
        "ours",
        "one bio per page",
    );
}
