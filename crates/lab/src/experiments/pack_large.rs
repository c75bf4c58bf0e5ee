//! `pack/large`: an image from four files, 4 GiB in all, compared with `mke2fs -d`, the crate `mkext4`, and
//! `dd oflag=direct` of the same files.

use std::path::{Path, PathBuf};

use super::pack::{Builder, MKE2FS, MKEXT4, PACK, Tree};
use crate::command::{make_data, timed};
use crate::interleave::{Sample, Variant};
use crate::kernel::named;
use crate::meter::Meter;
use crate::outcome::{Outcome, ratios};
use crate::{Result, Settings};

const FILES: u64 = 4;
const DD: &str = "dd, direct";

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let scratch = settings.scratch()?;
    let mib_each = settings.scaled(1024, 16);
    let dir = scratch.path().join("tree");
    std::fs::create_dir(&dir)?;
    let sources: Vec<PathBuf> = (0..FILES)
        .map(|number| dir.join(number.to_string()))
        .collect();
    for source in &sources {
        make_data(source, mib_each << 20)?;
    }
    let image = &scratch.path().join("image");
    let tree = &Tree::large(dir, FILES * (mib_each << 20));
    let mut variants: Vec<_> = Builder::present(outcome)
        .into_iter()
        .map(|builder| Variant::new(builder.name(), move || tree.sample(builder, image)))
        .collect();
    let sources = &sources;
    variants.push(Variant::new(DD, move || dd(sources, mib_each, image)));
    outcome.measure(settings, 5, variants)?;
    ratios! { outcome;
        "mke2fs -d / pack, time" => "time", MKE2FS, PACK, at_least 3.0;
        "mkext4 / pack, time" => "time", MKEXT4, PACK;
        "dd oflag=direct / pack, time" => "time", DD, PACK, at_least 0.95;
    }
    outcome.count("MiB", (FILES * mib_each) as f64);
    Ok(())
}

/// Copies the files one after another into one new file, which is then synced.
fn dd(sources: &[PathBuf], mib_each: u64, target: &Path) -> Result<Sample> {
    let _ = std::fs::remove_file(target);
    rustix::fs::sync();
    let meter = Meter::start();
    for (source, number) in sources.iter().zip(0..) {
        let mut dd = named("dd");
        dd.arg(format!("if={}", source.display()))
            .arg(format!("of={}", target.display()))
            .arg(format!("seek={}", mib_each * number))
            .args(["bs=1M", "oflag=direct", "conv=notrunc", "status=none"]);
        timed(&mut dd)?;
    }
    std::fs::File::open(target)?.sync_all()?;
    Ok(vec![("time", "s", meter.spent().wall.as_secs_f64())])
}
