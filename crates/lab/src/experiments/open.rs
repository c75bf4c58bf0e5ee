//! `open/1tib`: opening an image of 1 TiB: time and memory.

use std::time::Instant;

use super::Experiment;
use crate::interleave::{Variant, interleave};
use crate::kernel::mke2fs;
use crate::outcome::Outcome;
use crate::{Error, Result, Settings};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "open/1tib",
    about: "opening a 1 TiB ext4 image on a sparse file: time and memory",
    run,
};

const TIB: u64 = 1 << 40;

fn run(settings: &Settings<'_>) -> Result<Outcome> {
    let mut outcome = Outcome::new(EXPERIMENT.name);
    let scratch = settings.scratch()?;
    let image = scratch.path().join("image");
    mke2fs(
        &image,
        TIB,
        &["-t", "ext4", "-E", "lazy_itable_init=1,lazy_journal_init=1"],
    )?;
    let open = |write: bool| {
        let before = resident_kib()?;
        let began = Instant::now();
        let volume = settings
            .opening()
            .write(write)
            .open(&image)
            .map_err(|e| Error::new(e.to_string()))?;
        let opened = began.elapsed();
        volume
            .metadata("/")
            .map_err(|e| Error::new(e.to_string()))?;
        let grown = resident_kib()?.saturating_sub(before);
        volume.close().map_err(|e| Error::new(e.to_string()))?;
        Ok(vec![
            ("time", "ms", opened.as_secs_f64() * 1e3),
            ("memory growth", "MiB", grown as f64 / 1024.0),
        ])
    };
    let mut variants = [
        Variant::new("read only", || open(false)),
        Variant::new("writable", || open(true)),
    ];
    interleave(
        &mut outcome,
        &mut variants,
        settings.rounds.unwrap_or(10),
        settings,
    )?;
    drop(variants);
    for variant in ["read only", "writable"] {
        let worst = |quantity| {
            outcome
                .samples(variant, quantity)
                .iter()
                .copied()
                .fold(0.0, f64::max)
        };
        let (time, memory) = (worst("time"), worst("memory growth"));
        outcome.at_most(&format!("opening, {variant}, worst, ms"), time, 50.0);
        outcome.at_most(
            &format!("memory growth, {variant}, worst, MiB"),
            memory,
            32.0,
        );
    }
    outcome.counters.insert(
        "peak memory of the whole process, MiB".into(),
        status_kib("VmHWM:")? as f64 / 1024.0,
    );
    Ok(outcome)
}

fn resident_kib() -> Result<u64> {
    status_kib("VmRSS:")
}

fn status_kib(field: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|l| l.strip_prefix(field))
        .unwrap_or_default();
    line.trim()
        .trim_end_matches(" kB")
        .parse()
        .map_err(|e| Error::new(format!("/proc/self/status, {field} {e}")))
}
