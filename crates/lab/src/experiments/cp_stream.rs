//! `cp/stream`: one large file into a fresh ext4 image, beside `dd oflag=direct bs=1M` of the same file onto a
//! preallocated file on the same disk.

use std::process::Command;

use super::Experiment;
use crate::command::{make_data, own_cp, timed};
use crate::interleave::{Variant, interleave};
use crate::kernel::{e2fsck, mke2fs};
use crate::outcome::Outcome;
use crate::{Result, Settings};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "cp/stream",
    about: "cp of a 4 GiB file into an ext4 image, beside dd oflag=direct onto a preallocated file",
    run,
};

const GIB: u64 = 1 << 30;

fn run(settings: &Settings<'_>) -> Result<Outcome> {
    let mut outcome = Outcome::new(EXPERIMENT.name);
    let scratch = settings.scratch()?;
    let (source, image, plain) = (
        scratch.path().join("source"),
        scratch.path().join("image"),
        scratch.path().join("plain"),
    );
    let len_bytes = settings.scaled(4 * GIB, 64 << 20) & !((1 << 20) - 1);
    make_data(&source, len_bytes)?;
    let engine = settings.engine.to_string();

    let ours = || {
        mke2fs(
            &image,
            len_bytes + len_bytes / 4 + (64 << 20),
            &["-t", "ext4"],
        )?;
        let (spent, report) = own_cp(&[
            "--engine",
            &engine,
            &source.to_string_lossy(),
            &format!("{}:/file", image.display()),
        ])?;
        e2fsck(&image)?;
        std::fs::remove_file(&image)?;
        Ok(vec![
            ("throughput", "MB/s", spent.mb_per_s(len_bytes)),
            ("bios per MiB", "", report.number("bios_per_mib")),
            ("peak memory", "MiB", report.number("peak_memory_mib")),
        ])
    };
    let dd = || {
        crate::kernel::run(
            "fallocate",
            &["-l", &len_bytes.to_string(), &plain.to_string_lossy()],
        )?;
        let arguments = [
            format!("if={}", source.display()),
            format!("of={}", plain.display()),
        ];
        let (spent, _) = timed(Command::new("dd").args(arguments).args([
            "bs=1M",
            "oflag=direct",
            "conv=notrunc,fsync",
            "status=none",
        ]))?;
        std::fs::remove_file(&plain)?;
        Ok(vec![("throughput", "MB/s", spent.mb_per_s(len_bytes))])
    };
    let mut variants = [
        Variant::new("ours", ours),
        Variant::new("dd oflag=direct", dd),
    ];
    interleave(
        &mut outcome,
        &mut variants,
        settings.rounds.unwrap_or(5),
        settings,
    )?;
    drop(variants);
    outcome.ratio_at_least(
        "cp into ext4 / dd oflag=direct",
        "throughput",
        "ours",
        "dd oflag=direct",
        0.95,
    );
    outcome
        .notes
        .push("both sides end with an fsync; e2fsck -fn found nothing after each copy".into());
    Ok(outcome)
}
