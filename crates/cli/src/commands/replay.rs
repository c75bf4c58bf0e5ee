//! `replay`.

use std::path::Path;

use clap::Args;
use serde_json::{Value, json};
use throughline::internal::OpenImages;
use throughline::{Error, RecoveryReport};
use throughline_explain::ours::listening;

use super::df::image_of;
use crate::context::Context;
use crate::image_name::ImageName;
use crate::images::not_opened;
use crate::objects::Identity;
use crate::place::Place;
use crate::problem::{Failure, Problem};
use crate::text::quote;

/// Arguments of `replay`.
#[derive(Args, Debug)]
pub(crate) struct ReplayArgs {
    /// Images
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<Place>,
}

/// Bit of the exit code, as in `e2fsck`: an image still has errors and needs `e2fsck`.
const EXIT_ERRORS_LEFT: u8 = 4;
/// Bit of the exit code, as in `e2fsck`: an image could not be recovered.
const EXIT_FAILED: u8 = 8;

/// Recovers each image.
pub(crate) fn run(args: &ReplayArgs, context: &mut Context) -> Result<(), Failure> {
    if context.globals.no_replay {
        return Err(Failure::Usage(
            "--noload and replay exclude each other".into(),
        ));
    }
    let mut found = Vec::new();
    context.each(&args.images, |context, place| {
        let image = image_of(place)?;
        let report = recover(context, &image)?;
        if context.json {
            found.push(value(&image.to_string_lossy(), &report));
        } else {
            let line = format!("{}: {}", image.display(), summary(&report));
            context.out.line(line)?;
        }
        let left = match (report.errors, report.clean) {
            (true, _) => "it has recorded errors",
            (false, false) => {
                "it was not closed cleanly, or tune2fs asks for a check; there is nothing to replay"
            }
            (false, true) => return Ok(()),
        };
        context.exit_bits |= EXIT_ERRORS_LEFT;
        let problem = Problem::new(left).with_next("run 'e2fsck -f IMAGE'");
        Err(problem.met(format!("{} still has errors", quote(&image))))
    })?;
    context.list(found)
}

fn recover(context: &mut Context, image: &Path) -> Result<RecoveryReport, Failure> {
    let mut options = context.globals.open_options(true)?;
    options.listener(listening(context.images.watched(image).as_ref()));
    let cannot = || format!("cannot recover {}", quote(image));
    let ImageName { file, partition } = ImageName::of(image);
    options.partition(partition);
    check_kind(&file).map_err(|problem| {
        context.exit_bits |= EXIT_FAILED;
        problem.met(cannot())
    })?;
    options.recover(&file).map_err(|error| {
        context.exit_bits |= match error {
            Error::Corrupt(_) => EXIT_ERRORS_LEFT,
            _ => EXIT_FAILED,
        };
        let offset = context.globals.offset;
        let start_bytes = options.start_bytes(&file).unwrap_or(offset);
        not_opened(error, &file, start_bytes, (offset, "--offset ")).met(cannot())
    })
}

fn check_kind(image: &Path) -> Result<(), Problem> {
    if Identity::of(image)?.is_dir {
        return Err(
            Problem::new("Is a directory").with_next("name an image file or a block device")
        );
    }
    Ok(())
}

/// The recovery in words.
pub(crate) fn summary(report: &RecoveryReport) -> String {
    let mut parts = parts(&report.done);
    if parts.is_empty() {
        parts.push("nothing to recover".into());
    }
    parts.join("; ")
}

/// The steps of a recovery in words; empty if there was nothing to do.
pub(crate) fn parts(done: &throughline::Recovery) -> Vec<String> {
    let mut parts = Vec::new();
    if let Some(log) = &done.replayed {
        let mut held = match log.transactions {
            0 => "it was empty".into(),
            count => format!(
                "{}, {}",
                counted(count.into(), "transaction"),
                counted(log.blocks, "block")
            ),
        };
        if log.fast_commits > 0 {
            held = format!(
                "{held}, {}",
                counted(log.fast_commits.into(), "fast commit")
            );
        }
        parts.push(format!("journal replayed: {held}"));
        if log.torn.is_some() {
            parts.push("an incomplete transaction at its end was discarded".into());
        }
    }
    if done.unchecked {
        parts.push("there is no journal to replay: check it with 'e2fsck -f IMAGE'".into());
    }
    let orphans = done.orphans;
    if orphans.freed > 0 {
        parts.push(format!(
            "{} without names freed",
            counted(orphans.freed.into(), "file")
        ));
    }
    if orphans.truncated > 0 {
        parts.push(format!(
            "{} finished",
            counted(orphans.truncated.into(), "truncation")
        ));
    }
    parts
}

fn counted(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

fn value(image: &str, report: &RecoveryReport) -> Value {
    let log = report.done.replayed.as_ref().map(|log| {
        json!({
            "transactions": log.transactions,
            "blocks": log.blocks,
            "revoked": log.revoked,
            "fast_commits": log.fast_commits,
            "torn": log.torn,
            "recorded_errno": log.recorded_errno,
        })
    });
    json!({
        "image": image,
        "journal": log,
        "orphans_freed": report.done.orphans.freed,
        "truncations_finished": report.done.orphans.truncated,
        "errors": report.errors,
        "clean": report.clean,
    })
}
