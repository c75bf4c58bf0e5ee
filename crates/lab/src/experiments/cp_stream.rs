//! `cp/stream`: one large file into a fresh ext4 image, compared with `dd oflag=direct bs=1M` of the same
//! file onto a preallocated file on the same disk.

use std::process::Command;

use crate::command::{make_data, own_cp, timed};
use crate::interleave::Variant;
use crate::kernel::{e2fsck, mke2fs};
use crate::outcome::{Outcome, ratios};
use crate::{Result, Settings};

const GIB: u64 = 1 << 30;

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let scratch = settings.scratch()?;
    let [source, image, plain] = ["source", "image", "plain"].map(|name| scratch.path().join(name));
    let len_bytes = settings.scaled(4 * GIB, 64 << 20) & !((1 << 20) - 1);
    make_data(&source, len_bytes)?;
    let engine = settings.engine.to_string();

    let ours = || {
        let image_bytes = len_bytes + len_bytes / 4 + (64 << 20);
        mke2fs(&image, image_bytes, &["-t", "ext4"])?;
        let to = format!("{}:/file", image.display());
        let (spent, report) = own_cp(&["--engine", &engine, &source.to_string_lossy(), &to])?;
        e2fsck(&image)?;
        std::fs::remove_file(&image)?;
        Ok(vec![
            ("throughput", "MB/s", spent.mb_per_s(len_bytes)),
            ("bios per MiB", "", report.number("bios_per_mib")),
            ("peak memory", "MiB", report.number("peak_memory_mib")),
        ])
    };
    let dd = || {
        let len = len_bytes.to_string();
        crate::kernel::run("fallocate", &["-l", &len, &plain.to_string_lossy()])?;
        let mut dd = Command::new("dd");
        dd.arg(format!("if={}", source.display()))
            .arg(format!("of={}", plain.display()))
            .args(["bs=1M", "oflag=direct"])
            .args(["conv=notrunc,fsync", "status=none"]);
        let (spent, _) = timed(&mut dd)?;
        std::fs::remove_file(&plain)?;
        Ok(vec![("throughput", "MB/s", spent.mb_per_s(len_bytes))])
    };
    let variants = [
        Variant::new("ours", ours),
        Variant::new("dd oflag=direct", dd),
    ];
    outcome.measure(settings, 5, variants)?;
    ratios! { outcome;
        "cp into ext4 / dd oflag=direct" => "throughput", "ours", "dd oflag=direct", at_least 0.95;
    }
    outcome.note("both sides end with an fsync; e2fsck -fn found nothing after each copy");
    Ok(())
}
