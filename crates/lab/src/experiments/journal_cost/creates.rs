//! Small files, as `cp -r` and `tar` create them, directory by directory: create, write, close. At the end,
//! one sync of the volume.

use std::path::Path;

use throughline::Volume;
use throughline::internal::VolumeLayers;
use throughline_device::Op;

use super::{Bench, Images, WITH, WITHOUT};
use crate::Result;
use crate::interleave::{Sample, Variant};
use crate::kernel::{e2fsck, mkfs};
use crate::meter::Meter;
use crate::outcome::{Outcome, ratios};

const FILES_PER_FOLDER: u64 = 100;
const FILE_BYTES: std::ops::RangeInclusive<usize> = 1024..=4096;

const JOURNAL: &str = "creates, journal";
const NONE: &str = "creates, no journal";
const AGAIN: &str = "creates, no journal again";

pub(super) fn measure(bench: &Bench<'_>, images: &Images, outcome: &mut Outcome) -> Result<()> {
    let files = bench.settings.scaled(50_000, 500);
    let inodes = (files + files / FILES_PER_FOLDER + 1000).to_string();
    let path = &images.journal;
    let variants: Vec<_> = [(JOURNAL, WITH), (NONE, WITHOUT), (AGAIN, WITHOUT)]
        .into_iter()
        .map(|(name, arguments)| {
            let arguments = [arguments, &["-N", &inodes]].concat();
            Variant::new(name, move || {
                mkfs("ext4", path, &arguments)?;
                sample(bench, path, files)
            })
        })
        .collect();
    outcome.measure(bench.settings, 4, variants)?;
    outcome.count("creates: files", files as f64);
    ratios! { outcome;
        "creates: journal / no journal"      => "rate", JOURNAL, NONE, at_least 0.7;
        "creates: control, no journal twice" => "rate", AGAIN, NONE;
        "creates: cpu, journal / no journal" => "cpu", JOURNAL, NONE;
    }
    Ok(())
}

fn sample(bench: &Bench<'_>, path: &Path, files: u64) -> Result<Sample> {
    let volume = bench.settings.volume(path)?;
    let before = (volume.disk().counters(), volume.journal_counts());
    let meter = Meter::start();
    make_tree(&volume, &bench.source, files)?;
    volume.sync()?;
    let spent = meter.spent();
    let io = volume.disk().counters().since(&before.0);
    let journal = volume.journal_counts();
    let closing = Meter::start();
    volume.close()?;
    let closed = closing.spent();
    e2fsck(path)?;
    let per_file = |value: f64| value / files as f64;
    let log_blocks = journal.log_blocks - before.1.log_blocks;
    Ok(vec![
        ("rate", "files/s", files as f64 / spent.wall.as_secs_f64()),
        ("cpu", "us/file", per_file(spent.cpu.as_secs_f64() * 1e6)),
        ("written", "B/file", per_file(io.bytes(Op::Write) as f64)),
        ("writes", "per file", per_file(io.bios(Op::Write) as f64)),
        ("flushes", "", (io.bios(Op::Flush) + io.fua()) as f64),
        ("commits", "", (journal.commits - before.1.commits) as f64),
        ("log blocks", "per file", per_file(log_blocks as f64)),
        ("closing", "s", closed.wall.as_secs_f64()),
    ])
}

/// Creates the same tree on each call.
fn make_tree(volume: &Volume, content: &[u8], files: u64) -> throughline::Result<()> {
    let mut random = fastrand::Rng::with_seed(50_000);
    let root = volume.create_dir("/tree")?;
    let mut made = 0;
    while made < files {
        let folder = root.create_dir(format!("d{:04}", made / FILES_PER_FOLDER))?;
        for number in made..files.min(made + FILES_PER_FOLDER) {
            let file = folder.create_file(format!("file-{number:06}"))?;
            file.write_all_at(&content[..random.usize(FILE_BYTES)], 0)?;
        }
        made += FILES_PER_FOLDER;
    }
    Ok(())
}
