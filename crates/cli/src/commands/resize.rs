//! `resize`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use throughline::internal::{OpenImages, parse_size};
use throughline::{Format, NewSize, ResizeError, ResizeReport};

use super::df::image_of;
use super::replay::parts;
use crate::context::Context;
use crate::image_name::ImageName;
use crate::images::{in_partition, not_opened};
use crate::place::Place;
use crate::problem::{Failure, Problem};
use crate::progress::Progress;
use crate::text::quote;

/// Arguments of `resize`.
#[derive(Args, Debug)]
pub(crate) struct ResizeArgs {
    /// The image: a file or a block device that is not mounted
    #[arg(value_name = "IMAGE")]
    image: Place,
    /// The size, such as 10G; +SIZE for so much more; max for all of the device or file; min for as little
    /// as possible
    #[arg(value_name = "SIZE", value_parser = new_size)]
    size: NewSize,
    /// Say what would be done, and write nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
}

fn new_size(text: &str) -> Result<NewSize, String> {
    if text == "max" {
        return Ok(NewSize::Max);
    }
    if text == "min" {
        return Ok(NewSize::Min);
    }
    match text.strip_prefix('+') {
        Some(more) => parse_size(more).map(NewSize::More),
        None => parse_size(text).map(NewSize::Bytes),
    }
}

/// Changes the size of an image.
pub(crate) fn run(args: &ResizeArgs, context: &mut Context) -> Result<(), Failure> {
    if context.globals.no_replay {
        return Err(Failure::Usage(
            "--noload and resize exclude each other".into(),
        ));
    }
    let image = image_of(&args.image)?;
    let ImageName { file, partition } = ImageName::of(&image);
    let mut options = context.globals.open_options(!args.dry_run)?;
    options.partition(partition);
    let progress = Progress::bytes(Some(0), context.globals.quiet || context.json);
    progress.name("moving files");
    let show = |done, of| progress.at(done, of);
    let report = match args.dry_run {
        true => options.plan_resize(&file, args.size),
        false => options.resize_showing(&file, args.size, &show),
    };
    progress.clear();
    let report = report.map_err(|error| {
        let offset = context.globals.offset;
        let start_bytes = options.start_bytes(&file).unwrap_or(offset);
        let is_virtual = options.format_of(&file).is_ok_and(|it| it != Format::Raw);
        let problem = match error {
            ResizeError::Size(why) if is_virtual => Problem::new(why).with_next(
                "'qemu-img resize IMAGE SIZE' changes the size of the disk that the volume is in",
            ),
            ResizeError::Volume(error) => {
                not_opened(error, &file, start_bytes, (offset, "--offset "))
            }
            error => in_partition(problem(error), &file, start_bytes, offset),
        };
        problem.met(format!("cannot change the size of {}", quote(&image)))
    })?;
    if context.json {
        return context.out.json(&value(&image, &report, args.dry_run));
    }
    if context.globals.quiet {
        return Ok(());
    }
    context.out.line(text(&image, &report, args.dry_run))
}

/// What is wrong, and what to do.
pub(crate) fn problem(error: ResizeError) -> Problem {
    match error {
        ResizeError::NeedsCheck(why) => {
            Problem::new(why).with_next("run 'e2fsck -f IMAGE', then change the size")
        }
        ResizeError::Volume(error) => error.into(),
        other => Problem::new(other.to_string()),
    }
}

fn value(image: &Path, report: &ResizeReport, is_dry: bool) -> Value {
    let size = &report.size;
    json!({
        "image": image.to_string_lossy(),
        "dry_run": is_dry,
        "block_bytes": size.block_bytes,
        "blocks_before": size.blocks_before,
        "blocks": size.blocks,
        "groups_before": size.groups_before,
        "groups": size.groups,
        "inodes_before": size.inodes_before,
        "inodes": size.inodes,
        "became_meta_bg": size.became_meta_bg,
        "completed": report.completed,
        "recovered": parts(&report.recovery),
    })
}

fn text(image: &Path, report: &ResizeReport, is_dry: bool) -> String {
    let size = &report.size;
    let mut lines: Vec<String> = parts(&report.recovery);
    if report.completed {
        let done = if is_dry { "would be" } else { "was" };
        lines.push(format!(
            "an interrupted change of the size {done} completed"
        ));
    }
    let kib = |blocks: u64| blocks * u64::from(size.block_bytes) / 1024;
    lines.push(if size.blocks == size.blocks_before {
        format!("has {} KiB already", kib(size.blocks))
    } else {
        let is_less = size.blocks < size.blocks_before;
        let changes = match (is_less, is_dry) {
            (false, true) => "would grow",
            (false, false) => "grown",
            (true, true) => "would shrink",
            (true, false) => "shrunk",
        };
        let (before, now) = (kib(size.blocks_before), kib(size.blocks));
        let by = match size.groups.abs_diff(size.groups_before) {
            0 => String::new(),
            groups => format!(
                ", by {groups} block groups and {} inodes",
                size.inodes.abs_diff(size.inodes_before)
            ),
        };
        format!("{changes} from {before} to {now} KiB{by}")
    });
    if size.became_meta_bg {
        let gets = if is_dry { "would get" } else { "has got" };
        lines.push(format!(
            "no descriptor blocks are left in reserve, so it {gets} the feature meta_bg"
        ));
    }
    let image = PathBuf::from(image);
    let lines = lines
        .into_iter()
        .map(|line| format!("{}: {line}", image.display()));
    lines.collect::<Vec<_>>().join("\n")
}
