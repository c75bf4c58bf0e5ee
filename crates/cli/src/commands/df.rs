//! `df`.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use throughline::StatFs;

use super::columns::{Cell, aligned};
use crate::context::Context;
use crate::objects;
use crate::place::Place;
use crate::problem::{Doing, Failure};
use crate::text::{human, quote};

/// Arguments of `df`.
#[derive(Args, Debug)]
pub(crate) struct DfArgs {
    /// Images, or paths in them
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<Place>,
    /// Show sizes as 1.5K, 12M
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Show inodes instead of space
    #[arg(short, long)]
    inodes: bool,
    /// Show the format too: ext2, ext3 or ext4
    #[arg(short = 'T', long)]
    print_type: bool,
}

/// The image of a place, or the host path if it is one.
pub(crate) fn image_of(place: &Place) -> Result<PathBuf, Failure> {
    match place {
        Place::Image { image, .. } => Ok(image.clone()),
        Place::Host(path) => Ok(path.clone()),
        Place::Stream => Err(Failure::Usage(
            "an image cannot be read from a stream: write its path".into(),
        )),
    }
}

/// Shows the space of each image.
pub(crate) fn run(args: &DfArgs, context: &mut Context) -> Result<(), Failure> {
    let mut found = Vec::new();
    let mut rows = vec![row(args, "Image", "Type", titles(args))];
    context.each(&args.images, |context, place| {
        let image = image_of(place)?;
        let volume = context.open_image(&image)?;
        let image = objects::shown(&image);
        if let Place::Image { path, .. } = place {
            volume
                .metadata(path)
                .doing(|| format!("cannot access {place}"))?;
        }
        let stat = volume
            .stat_fs()
            .doing(|| format!("cannot read the counters of {}", quote(&image)))?;
        let format = volume
            .info()
            .doing(|| format!("cannot read {}", quote(&image)))?
            .format;
        if context.json {
            found.push(value(&image.to_string_lossy(), format, &stat));
        } else {
            let image = image.to_string_lossy();
            rows.push(row(args, &image, format, figures(args, &stat)));
        }
        Ok(())
    })?;
    if context.json {
        return context.out.json(&found);
    }
    if rows.len() == 1 {
        return Ok(());
    }
    let mut lines = aligned(&rows).into_iter();
    lines.try_for_each(|line| context.out.line(line))
}

fn row<T: ToString>(args: &DfArgs, image: &str, format: &str, figures: [T; 4]) -> Vec<Cell> {
    let format = args.print_type.then(|| Cell::left(format));
    let names = [Cell::left(image)].into_iter().chain(format);
    names.chain(figures.map(Cell::right)).collect()
}

fn titles(args: &DfArgs) -> [&'static str; 4] {
    match (args.inodes, args.human_readable) {
        (true, _) => ["Inodes", "IUsed", "IFree", "IUse%"],
        (false, true) => ["Size", "Used", "Avail", "Use%"],
        (false, false) => ["1K-blocks", "Used", "Available", "Use%"],
    }
}

fn figures(args: &DfArgs, stat: &StatFs) -> [String; 4] {
    let (all, free, available, unit_bytes) = match args.inodes {
        true => {
            let free = stat.free_inodes.into();
            (stat.inodes.into(), free, free, 1)
        }
        false => {
            let unit_bytes = stat.block_bytes.into();
            (
                stat.blocks,
                stat.free_blocks,
                stat.available_blocks,
                unit_bytes,
            )
        }
    };
    let used = all.saturating_sub(free);
    let shown = |count: u64| {
        let count = count.saturating_mul(unit_bytes);
        match (args.human_readable, args.inodes) {
            (true, _) => human(count),
            (false, true) => count.to_string(),
            (false, false) => count.div_ceil(1024).to_string(),
        }
    };
    [
        shown(all),
        shown(used),
        shown(available),
        percent(used, available),
    ]
}

/// The used percentage, rounded up as `df` does; `-` if there is no space at all.
fn percent(used: u64, available: u64) -> String {
    let whole = u128::from(used) + u128::from(available);
    if whole == 0 {
        "-".to_owned()
    } else {
        format!("{}%", (u128::from(used) * 100).div_ceil(whole))
    }
}

fn value(image: &str, format: &str, stat: &StatFs) -> Value {
    let bytes = |blocks: u64| blocks.saturating_mul(stat.block_bytes.into());
    json!({
        "image": image,
        "format": format,
        "block_bytes": stat.block_bytes,
        "size_bytes": bytes(stat.blocks),
        "free_bytes": bytes(stat.free_blocks),
        "available_bytes": bytes(stat.available_blocks),
        "inodes": stat.inodes,
        "inodes_free": stat.free_inodes,
    })
}
