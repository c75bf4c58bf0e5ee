//! `df`.

use std::path::PathBuf;

use clap::{ArgAction, Args};
use serde_json::{Value, json};
use throughline::StatFs;

use crate::args::JsonFlag;
use crate::context::{Context, place_parser};
use crate::place::Place;
use crate::problem::{Doing, Failure};
use crate::text::{human, quote};

/// Arguments of `df`.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct DfArgs {
    /// Images, or places in them
    #[arg(required = true, value_name = "IMAGE", value_parser = place_parser())]
    images: Vec<Place>,
    /// Sizes as 1.5K, 12M
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Inodes instead of space
    #[arg(short, long)]
    inodes: bool,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// The image of a place, or the host path that names one.
pub(crate) fn image_of(place: &Place) -> Result<PathBuf, Failure> {
    match place {
        Place::Image { image, .. } => Ok(image.clone()),
        Place::Host(path) => Ok(path.clone()),
        Place::Stream => Err(Failure::Usage(
            "an image cannot be read from a stream: write its path".into(),
        )),
    }
}

/// Shows each image's space.
pub(crate) fn run(args: &DfArgs, context: &mut Context) -> Result<(), Failure> {
    let mut found = Vec::new();
    let mut rows = vec![header(args)];
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
        if context.json {
            found.push(value(&image.to_string_lossy(), &stat));
        } else {
            rows.push(row(args, &image.to_string_lossy(), &stat));
        }
        Ok(())
    })?;
    if context.json {
        return context.out.json(&Value::Array(found));
    }
    if rows.len() == 1 {
        return Ok(());
    }
    let widths: Vec<usize> = (0..5)
        .map(|column| {
            rows.iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    for row in rows {
        let text = format!(
            "{:<w0$} {:>w1$} {:>w2$} {:>w3$} {:>w4$}",
            row[0],
            row[1],
            row[2],
            row[3],
            row[4],
            w0 = widths[0],
            w1 = widths[1],
            w2 = widths[2],
            w3 = widths[3],
            w4 = widths[4]
        );
        context.out.line(text)?;
    }
    Ok(())
}

fn header(args: &DfArgs) -> [String; 5] {
    let titles = match (args.inodes, args.human_readable) {
        (true, _) => ["Image", "Inodes", "IUsed", "IFree", "IUse%"],
        (false, true) => ["Image", "Size", "Used", "Avail", "Use%"],
        (false, false) => ["Image", "1K-blocks", "Used", "Available", "Use%"],
    };
    titles.map(str::to_owned)
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

/// Rounded up, as `df` does; `-` of nothing.
fn percent(used: u64, available: u64) -> String {
    let whole = u128::from(used) + u128::from(available);
    if whole == 0 {
        "-".to_owned()
    } else {
        format!("{}%", (u128::from(used) * 100).div_ceil(whole))
    }
}

fn value(image: &str, stat: &StatFs) -> Value {
    let bytes = |blocks: u64| blocks.saturating_mul(stat.block_bytes.into());
    json!({
        "image": image,
        "block_bytes": stat.block_bytes,
        "size_bytes": bytes(stat.blocks),
        "free_bytes": bytes(stat.free_blocks),
        "available_bytes": bytes(stat.available_blocks),
        "inodes": stat.inodes,
        "inodes_free": stat.free_inodes,
    })
}
