//! `founding/3`, report 3: streaming buffered writes, in the report's old way and in ours, compared with our
//! direct I/O and with the kernel: its file systems and a plain file, through its page cache, with
//! `RWF_DONTCACHE`, and with O_DIRECT. One writer and eight, with the same total size; each run is a write
//! and an fsync.

mod bars;
mod kernels;
mod model;
mod old_way;
mod trace;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use throughline_device::AlignedBuf;

use crate::interleave::{Sample, Variant};
use crate::kernel::{e2fsck, mkfs};
use crate::outcome::Outcome;
use crate::record::Machine;
use crate::stats::quantile;
use crate::streams::targets::{self, Ours};
use crate::streams::writers::{self, Race, SOURCE_BYTES, Stream, race};
use crate::warm::{note, warm};
use crate::{Result, Settings};
use kernels::KernelTarget;
use model::Pace;
use old_way::{Accounts, OldWay};
use trace::{Extent, Seen};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Call size of buffered writers.
const CALL_BYTES: usize = 1 << 20;
/// Call size of direct writers: direct I/O is fastest with long calls.
const DIRECT_CALL_BYTES: usize = SOURCE_BYTES;

const WRITERS: [u64; 2] = [1, 8];

/// Percentiles of the time of a call.
const CALLS: [(&str, f64); 3] = [("call, p50", 0.5), ("call, p99", 0.99), (SLOWEST, 0.999)];
const SLOWEST: &str = "call, p99.9";

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let scratch = settings.scratch()?;
    let total_bytes = total_bytes(settings)?;
    outcome.count("bytes per sample, MiB", (total_bytes / MIB) as f64);
    let bench = Bench {
        source: writers::source(),
        total_bytes,
        dir: scratch.path().into(),
        settings,
    };
    let image_path = bench.ext4("image")?;
    let image = Ours::image(&image_path, settings)?;
    let plain = Ours::plain(&bench.written_out("plain", total_bytes)?, settings)?;
    let kernels = bench.kernels(outcome)?;
    bench.measure(outcome, &image, &plain, &kernels)?;
    drop(kernels);
    image.close()?;
    bench.trace_image(outcome, &image_path)?;
    bench.trace_plain(outcome, &plain)?;
    bars::add(outcome);
    model::measure(&bench, outcome)?;
    note(outcome);
    outcome.note(format!(
        "calls of {} KiB, of our direct writes {} KiB; machine cpu is the processor time of the whole machine",
        CALL_BYTES / 1024,
        DIRECT_CALL_BYTES / 1024
    ));
    Ok(())
}

/// Makes an ext4 of the usual blocks. By default a small image, that of a run with a small `--scale`, has
/// blocks of 1 KiB: another file system than the one the experiment is about.
fn make_ext4(image: &Path) -> Result<()> {
    mkfs("ext4", image, &["-b", &trace::BLOCK_BYTES.to_string()]).map(drop)
}

/// A sixth of the memory, so that the kernel cannot keep all of it dirty, or less if the disk lacks room. A
/// multiple of 1 MiB for each of eight writers.
fn total_bytes(settings: &Settings<'_>) -> Result<u64> {
    let memory_bytes = Machine::here().memory_mib * MIB;
    let full = (memory_bytes / 6).clamp(GIB, 16 * GIB);
    let disk = rustix::fs::statvfs(&settings.dir)?;
    // Room for five files and some reserve.
    let room = disk.f_bavail * disk.f_frsize / 7;
    let wanted = settings.scaled(full, 64 * MIB).min(room);
    Ok((wanted - wanted % (8 * MIB)).max(8 * MIB))
}

/// State shared by all variants.
struct Bench<'a> {
    source: AlignedBuf,
    total_bytes: u64,
    dir: PathBuf,
    settings: &'a Settings<'a>,
}

/// How our own targets are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Old,
    Buffered,
    Direct,
}

impl Way {
    const ALL: [Way; 3] = [Way::Old, Way::Buffered, Way::Direct];

    fn name(self) -> &'static str {
        match self {
            Way::Old => "old way",
            Way::Buffered => "buffered",
            Way::Direct => "direct",
        }
    }

    fn call_bytes(self) -> usize {
        match self {
            Way::Direct => DIRECT_CALL_BYTES,
            _ => CALL_BYTES,
        }
    }
}

impl Bench<'_> {
    /// A host file, fully written.
    fn written_out(&self, name: &str, len_bytes: u64) -> Result<PathBuf> {
        let path = self.dir.join(name);
        targets::write_out(&path, len_bytes, &self.source, &|| Ok(()))?;
        Ok(path)
    }

    /// An image file with room for the streams, the file system's metadata, and the space that allocators
    /// tend to leave free.
    fn image(&self, name: &str) -> Result<PathBuf> {
        self.written_out(name, (self.total_bytes / 4 * 5 + 128 * MIB).max(320 * MIB))
    }

    fn ext4(&self, name: &str) -> Result<PathBuf> {
        let image = self.image(name)?;
        make_ext4(&image).map(|()| image)
    }

    fn measure(
        &self,
        outcome: &mut Outcome,
        image: &Ours,
        plain: &Ours,
        kernels: &[KernelTarget],
    ) -> Result<()> {
        let mut variants = Vec::new();
        for writers in WRITERS {
            for (target, ours) in [("image", image), ("plain file", plain)] {
                for way in Way::ALL {
                    let name = label(target, way.name(), writers);
                    let sample = move || self.sample(ours, way, writers);
                    variants.push(Variant::new(name, sample));
                }
            }
            for of in kernels {
                for (name, way) in &of.ways {
                    variants.push(Variant::new(label(of.target, name, writers), move || {
                        let each_bytes = self.total_bytes / writers;
                        let streams = of.kernel.streams(writers, each_bytes, *way)?;
                        let race = self.race(writers, CALL_BYTES, streams)?;
                        Ok(self.quantities(&race, writers))
                    }));
                }
            }
        }
        outcome.measure(self.settings, 5, variants)
    }

    fn race(
        &self,
        writers: u64,
        call_bytes: usize,
        streams: Vec<Box<dyn Stream + '_>>,
    ) -> Result<Race> {
        let (all_bytes, each_bytes) = (self.total_bytes, self.total_bytes / writers);
        warm(all_bytes / 4 * 5);
        race(&self.source, each_bytes, call_bytes, streams)
    }

    fn quantities(&self, race: &Race, writers: u64) -> Sample {
        let (spent, bytes) = (&race.spent, self.total_bytes);
        let mut sample = vec![
            ("throughput", "MiB/s", spent.mib_per_s(bytes)),
            ("cpu", "s/GiB", spent.cpu_s_per_gib(bytes)),
            ("machine cpu", "s/GiB", spent.machine_cpu_s_per_gib(bytes)),
        ];
        for (quantity, share) in CALLS {
            sample.push((quantity, "ms", quantile(&race.calls, share) / 1e6));
        }
        if writers > 1 {
            sample.push(("smallest share", "", race.shares.0));
            sample.push(("largest share", "", race.shares.1));
        }
        sample
    }

    fn sample(&self, ours: &Ours, way: Way, writers: u64) -> Result<Sample> {
        let accounts = Arc::new(Accounts::default());
        let before = ours.throttled();
        let race = self.run_ours(ours, way, writers, &accounts)?;
        let mut sample = self.quantities(&race, writers);
        let mib = self.total_bytes as f64 / MIB as f64;
        match (way, before, ours.throttled()) {
            (Way::Old, ..) => {
                let calls = accounts.take_balance_calls() as f64;
                sample.push(("balance calls", "per MiB", calls / mib));
            }
            (Way::Buffered, Some(before), Some(after)) => {
                let calls = (after.balance_calls - before.balance_calls) as f64;
                let paused = after.pauses.total.saturating_sub(before.pauses.total);
                let waited = after.waits.total.saturating_sub(before.waits.total);
                sample.push(("balance calls", "per MiB", calls / mib));
                sample.push(("pauses, all writers", "s", paused.as_secs_f64()));
                sample.push(("waits for room", "s", waited.as_secs_f64()));
            }
            _ => {}
        }
        Ok(sample)
    }

    fn run_ours(
        &self,
        ours: &Ours,
        way: Way,
        writers: u64,
        accounts: &Arc<Accounts>,
    ) -> Result<Race> {
        let each_bytes = self.total_bytes / writers;
        let streams = ours.streams(writers, each_bytes, way != Way::Buffered)?;
        let stream = |stream| -> Box<dyn Stream> {
            match way {
                Way::Old => Box::new(OldWay::new(stream, accounts, Pace::none())),
                _ => Box::new(stream),
            }
        };
        let streams = streams.into_iter().map(stream).collect();
        self.race(writers, way.call_bytes(), streams)
    }

    fn watched(&self, ours: &Ours, (writers, limit_bytes): Case) -> Result<(Seen, Race)> {
        trace::watch(ours, || {
            ours.set_dirty_limit(limit_bytes)?;
            let race = self.run_ours(ours, Way::Buffered, writers, &Arc::default());
            ours.set_dirty_limit(None)?;
            race
        })
    }

    /// Traces runs on the image. The image is closed after each run, to find out where its files are stored.
    fn trace_image(&self, outcome: &mut Outcome, path: &Path) -> Result<()> {
        for case in CASES {
            // A new file system, without the files of earlier runs.
            make_ext4(path)?;
            let image = Ours::image(path, self.settings)?;
            let (seen, race) = self.watched(&image, case)?;
            image.close()?;
            e2fsck(path)?;
            let extents = trace::extents_of(path, case.0)?;
            report(outcome, &seen, &race, extents, "image", case);
        }
        Ok(())
    }

    fn trace_plain(&self, outcome: &mut Outcome, plain: &Ours) -> Result<()> {
        for case in CASES {
            let (seen, race) = self.watched(plain, case)?;
            let each_bytes = self.total_bytes / case.0;
            let region = |number| (number * each_bytes, each_bytes, number as usize, 0);
            let extents = (0..case.0).map(region).collect();
            report(outcome, &seen, &race, extents, "plain file", case);
        }
        Ok(())
    }
}

/// A traced run: the number of writers, and a dirty limit that replaces the budget's default.
type Case = (u64, Option<u64>);

/// In the last case, writers reach the throttle however fast the device is.
const CASES: [Case; 3] = [(1, None), (8, None), (8, Some(64 * MIB))];

fn label(target: &str, way: &str, writers: u64) -> String {
    match writers {
        1 => format!("{target}, {way}, 1 writer"),
        _ => format!("{target}, {way}, {writers} writers"),
    }
}

/// Adds the counts and limits of a traced run.
fn report(
    outcome: &mut Outcome,
    seen: &Seen,
    race: &Race,
    extents: Vec<Extent>,
    target: &str,
    (writers, limit_bytes): Case,
) {
    let of = |what: &str| match limit_bytes {
        None => label(target, what, writers),
        Some(limit) => {
            let limited = format!("{what}, limit {} MiB", limit / MIB);
            label(target, &limited, writers)
        }
    };
    let data = seen.data_bios(extents);
    let mib = data.bytes as f64 / MIB as f64;
    let per_mib = |count: f64| count / mib.max(1.0);
    let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    let mut count = |what: &str, value: f64| outcome.count(of(what), value);
    let most_dirty = seen.dirty.most_bytes as f64 / MIB as f64;
    count("dirty memory at most, MiB", most_dirty);
    count("dirty memory sampled, times", seen.dirty.samples as f64);
    count("data bios per MiB", per_mib(data.bios as f64));
    count("balance calls per MiB", per_mib(seen.balance_calls as f64));
    count("waits for room", seen.waits.count as f64);
    count("waits for room, longest, ms", ms(seen.waits.longest));
    if limit_bytes.is_some() {
        outcome.at_least(&of("smallest share"), race.shares.0, 0.8);
        outcome.at_most(&of("largest share"), race.shares.1, 1.2);
    }
    let of_limit = seen.dirty.most_of_limit;
    outcome.at_most(&of("dirty memory, of its limit"), of_limit, 1.0);
    outcome.at_most(&of("longest pause, ms"), ms(seen.pauses.longest), 200.0);
    outcome.at_least(&of("data bios that ascend"), data.ascending, 0.99);
    let by_others = data.by_others as f64;
    outcome.at_most(&of("data bios not by the flusher"), by_others, 0.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_of_any_size_has_the_blocks_that_the_trace_expects() {
        if !throughline_testkit::program::has(&["mkfs.ext4"]) {
            return throughline_testkit::missing!("mkfs.ext4");
        }
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(16 * MIB).unwrap();
        make_ext4(image.path()).unwrap();
        let bytes = std::fs::read(image.path()).unwrap();
        assert_eq!(1024_u64 << bytes[1024 + 0x18], trace::BLOCK_BYTES);
    }
}
