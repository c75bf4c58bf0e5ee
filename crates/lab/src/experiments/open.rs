//! `open/1tib`: time and memory to open an image of 1 TiB.

use std::time::Instant;

use crate::interleave::Variant;
use crate::kernel::mke2fs;
use crate::meter::memory_kib;
use crate::outcome::Outcome;
use crate::{Result, Settings};

const TIB: u64 = 1 << 40;

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let scratch = settings.scratch()?;
    let image = scratch.path().join("image");
    let lazy = "lazy_itable_init=1,lazy_journal_init=1";
    mke2fs(&image, TIB, &["-t", "ext4", "-E", lazy])?;
    let own = std::process::id();
    let open = |write: bool| {
        let before = memory_kib(own, "VmRSS:");
        let began = Instant::now();
        let volume = settings.opening().write(write).open(&image)?;
        let opened = began.elapsed();
        volume.metadata("/")?;
        let grown = memory_kib(own, "VmRSS:").saturating_sub(before);
        volume.close()?;
        Ok(vec![
            ("time", "ms", opened.as_secs_f64() * 1e3),
            ("memory growth", "MiB", grown as f64 / 1024.0),
        ])
    };
    let variants = [
        Variant::new("read only", || open(false)),
        Variant::new("writable", || open(true)),
    ];
    outcome.measure(settings, 10, variants)?;
    for variant in ["read only", "writable"] {
        let [time, memory] = ["time", "memory growth"].map(|of| outcome.most(variant, of));
        outcome.at_most(&format!("opening, {variant}, worst, ms"), time, 50.0);
        let name = format!("memory growth, {variant}, worst, MiB");
        outcome.at_most(&name, memory, 32.0);
    }
    let peak = memory_kib(own, "VmHWM:") as f64 / 1024.0;
    outcome.count("peak memory of the whole process, MiB", peak);
    Ok(())
}
