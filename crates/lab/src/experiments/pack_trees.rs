//! `pack/trees`: images from 120,000 small files, in nested directories and in one, compared with `mke2fs -d`
//! and the crate `mkext4`.

use super::pack::{Builder, MKE2FS, MKEXT4, PACK, Tree};
use crate::interleave::Variant;
use crate::outcome::{Outcome, ratios};
use crate::{Result, Settings};

/// The shapes: the name, and the files of a directory (0: all).
const NESTED: (&str, u64) = ("nested", 100);
const FLAT: (&str, u64) = ("one directory", 0);

/// With more files in one directory, `mke2fs -d` takes minutes.
const MAX_FLAT_FILES: u64 = 30_000;

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let scratch = settings.scratch()?;
    let files = settings.scaled(120_000, 1_000);
    let image = scratch.path().join("image");
    let builders = Builder::present(outcome);
    let mut trees = Vec::new();
    for (shape, per_folder) in [NESTED, FLAT] {
        let per_folder = if per_folder == 0 { files } else { per_folder };
        let tree = Tree::small(scratch.path().join(shape), files, per_folder)?;
        trees.push((shape, tree));
    }
    let mut variants = Vec::new();
    for (shape, tree) in &trees {
        for &builder in &builders {
            let image = &image;
            // It looks through the whole directory for each new name.
            if *shape == FLAT.0 && builder == Builder::Mke2fs && files > MAX_FLAT_FILES {
                outcome.note(format!(
                    "{MKE2FS}, {shape}: left out, with more than {MAX_FLAT_FILES} files"
                ));
                continue;
            }
            variants.push(Variant::new(named(builder.name(), shape), move || {
                tree.sample(builder, image)
            }));
        }
    }
    outcome.measure(settings, 5, variants)?;
    let ours = |(shape, _)| named(PACK, shape);
    ratios! { outcome;
        "mke2fs -d / pack, nested directories, time"
            => "time", named(MKE2FS, NESTED.0), ours(NESTED), at_least 3.0;
        "mkext4 / pack, nested directories, time"
            => "time", named(MKEXT4, NESTED.0), ours(NESTED), at_least 1.0;
        "mke2fs -d / pack, one directory, time" => "time", named(MKE2FS, FLAT.0), ours(FLAT);
        "mkext4 / pack, one directory, time"
            => "time", named(MKEXT4, FLAT.0), ours(FLAT), at_least 1.0;
    }
    outcome.count("files", files as f64);
    Ok(())
}

fn named(builder: &str, shape: &str) -> String {
    format!("{builder}, {shape}")
}
