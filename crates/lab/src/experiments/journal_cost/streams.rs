//! A buffered stream with its fsync.

use super::{Bench, Images, WITH, WITHOUT};
use crate::Result;
use crate::interleave::{Sample, Variant, interleave};
use crate::kernel::e2fsck;
use crate::outcome::Outcome;
use crate::streams::targets::{self, Image, OurStream, Ours};
use crate::streams::writers::{Stream, race};

const CALL_BYTES: usize = 1 << 20;

const JOURNAL: &str = "stream, journal";
const NONE: &str = "stream, no journal";
const AGAIN: &str = "stream, no journal again";

pub(super) fn measure(bench: &Bench<'_>, images: &Images, outcome: &mut Outcome) -> Result<()> {
    let path = &images.journal;
    let mut variants: Vec<_> = [(JOURNAL, WITH), (NONE, WITHOUT), (AGAIN, WITHOUT)]
        .into_iter()
        .map(|(name, arguments)| {
            Variant::new(name, move || {
                targets::make_ext4(path, arguments)?;
                let image = Image::open(path, bench.settings)?;
                let sample = sample(bench, &image)?;
                image.close()?;
                Ok(sample)
            })
        })
        .collect();
    interleave(outcome, &mut variants, bench.rounds(7), bench.settings)?;
    drop(variants);
    e2fsck(path)?;
    let name = "stream: journal / no journal";
    outcome.ratio_at_least(name, "throughput", JOURNAL, NONE, 0.97);
    outcome.ratio(
        "stream: control, no journal twice",
        "throughput",
        AGAIN,
        NONE,
    );
    outcome.ratio("stream: cpu, journal / no journal", "cpu", JOURNAL, NONE);
    Ok(())
}

fn sample(bench: &Bench<'_>, image: &Image) -> Result<Sample> {
    let streams = image
        .handles(1, bench.stream_bytes, false)?
        .into_iter()
        .map(|(file, base)| Box::new(OurStream { file, base }) as Box<dyn Stream>)
        .collect();
    let spent = race(&bench.source, bench.stream_bytes, CALL_BYTES, streams)?.spent;
    Ok(vec![
        ("throughput", "MiB/s", spent.mib_per_s(bench.stream_bytes)),
        ("cpu", "s/GiB", spent.cpu_s_per_gib(bench.stream_bytes)),
    ])
}
