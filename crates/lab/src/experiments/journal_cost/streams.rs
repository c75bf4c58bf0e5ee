//! A buffered stream with its fsync.

use super::{Bench, Images, WITH, WITHOUT};
use crate::Result;
use crate::interleave::{Sample, Variant};
use crate::kernel::{e2fsck, mkfs};
use crate::outcome::{Outcome, ratios};
use crate::streams::targets::Ours;
use crate::streams::writers::{Stream, race};

const CALL_BYTES: usize = 1 << 20;

const JOURNAL: &str = "stream, journal";
const NONE: &str = "stream, no journal";
const AGAIN: &str = "stream, no journal again";

pub(super) fn measure(bench: &Bench<'_>, images: &Images, outcome: &mut Outcome) -> Result<()> {
    let path = &images.journal;
    let variants: Vec<_> = [(JOURNAL, WITH), (NONE, WITHOUT), (AGAIN, WITHOUT)]
        .into_iter()
        .map(|(name, arguments)| {
            Variant::new(name, move || {
                mkfs("ext4", path, arguments)?;
                let image = Ours::image(path, bench.settings)?;
                let sample = sample(bench, &image)?;
                image.close()?;
                Ok(sample)
            })
        })
        .collect();
    outcome.measure(bench.settings, 7, variants)?;
    e2fsck(path)?;
    ratios! { outcome;
        "stream: journal / no journal"      => "throughput", JOURNAL, NONE, at_least 0.97;
        "stream: control, no journal twice" => "throughput", AGAIN, NONE;
        "stream: cpu, journal / no journal" => "cpu", JOURNAL, NONE;
    }
    Ok(())
}

fn sample(bench: &Bench<'_>, image: &Ours) -> Result<Sample> {
    let streams = image
        .streams(1, bench.stream_bytes, false)?
        .into_iter()
        .map(|stream| Box::new(stream) as Box<dyn Stream>)
        .collect();
    let spent = race(&bench.source, bench.stream_bytes, CALL_BYTES, streams)?.spent;
    Ok(vec![
        ("throughput", "MiB/s", spent.mib_per_s(bench.stream_bytes)),
        ("cpu", "s/GiB", spent.cpu_s_per_gib(bench.stream_bytes)),
    ])
}
