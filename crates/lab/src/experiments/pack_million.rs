//! `pack/million`: images from 100,000 and 1,000,000 small files: how time and memory grow.

use super::pack::{Builder, Tree};
use crate::interleave::Variant;
use crate::outcome::{Outcome, ratios};
use crate::{Result, Settings};

const FEW: &str = "a tenth of the files";
const MANY: &str = "all files";
const MAX_MEMORY_MIB: f64 = 512.0;

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let scratch = settings.scratch()?;
    let files = settings.scaled(1_000_000, 10_000);
    let image = &scratch.path().join("image");
    let few = &Tree::small(scratch.path().join("few"), files / 10, 100)?;
    let many = &Tree::small(scratch.path().join("many"), files, 100)?;
    let variants = [
        Variant::new(FEW, || few.sample(Builder::Pack, image)),
        Variant::new(MANY, || many.sample(Builder::Pack, image)),
    ];
    outcome.measure(settings, 3, variants)?;
    ratios! { outcome;
        "all files / a tenth of the files, time" => "time", MANY, FEW, at_most 11.0;
    }
    let peak_mib = outcome.most(MANY, "peak memory");
    outcome.at_most("peak memory of all files, MiB", peak_mib, MAX_MEMORY_MIB);
    outcome.count("files", files as f64);
    Ok(())
}
