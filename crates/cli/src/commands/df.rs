//! `df`.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use throughline::StatFs;

use crate::args::JsonFlag;
use crate::context::Context;
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
    #[command(flatten)]
    pub(crate) json: JsonFlag,
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
    let mut rows = vec![header(args)];
    if args.print_type {
        rows[0].insert(1, "Type".to_owned());
    }
    context.each(&args.images, |context, place| {
        let image = image_of(place)?;
        let volume = context.open_image(&image)?;
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
            let mut row = row(args, &image.to_string_lossy(), &stat).to_vec();
            if args.print_type {
                row.insert(1, format.to_owned());
            }
            rows.push(row);
        }
        Ok(())
    })?;
    if context.json {
        return context.out.json(&Value::Array(found));
    }
    if rows.len() == 1 {
        return Ok(());
    }
    // Names and formats are left-aligned, figures right-aligned.
    let left = 1 + usize::from(args.print_type);
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(at, (cell, width))| match at < left {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        });
        context.out.line(cells.collect::<Vec<_>>().join(" "))?;
    }
    Ok(())
}

fn header(args: &DfArgs) -> Vec<String> {
    let titles = match (args.inodes, args.human_readable) {
        (true, _) => ["Image", "Inodes", "IUsed", "IFree", "IUse%"],
        (false, true) => ["Image", "Size", "Used", "Avail", "Use%"],
        (false, false) => ["Image", "1K-blocks", "Used", "Available", "Use%"],
    };
    titles.map(str::to_owned).to_vec()
}

fn row(args: &DfArgs, image: &str, stat: &StatFs) -> [String; 5] {
    if args.inodes {
        let (all, free) = (u64::from(stat.inodes), u64::from(stat.free_inodes));
        let used = all.saturating_sub(free);
        let count = |number: u64| {
            if args.human_readable {
                human(number)
            } else {
                number.to_string()
            }
        };
        return [
            image.to_owned(),
            count(all),
            count(used),
            count(free),
            percent(used, free),
        ];
    }
    let used = stat.blocks.saturating_sub(stat.free_blocks);
    let size = |blocks: u64| {
        let bytes = blocks.saturating_mul(stat.block_bytes.into());
        if args.human_readable {
            human(bytes)
        } else {
            bytes.div_ceil(1024).to_string()
        }
    };
    [
        image.to_owned(),
        size(stat.blocks),
        size(used),
        size(stat.available_blocks),
        percent(used, stat.available_blocks),
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
