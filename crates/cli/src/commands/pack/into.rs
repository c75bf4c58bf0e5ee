//! `pack --into`: sources over a directory of an image that exists.

use serde_json::json;
use throughline::{PackInto, PackedInto};

use super::PackArgs;
use crate::commands::mkfs::epoch;
use crate::context::Context;
use crate::images::Access;
use crate::place::Place;
use crate::problem::{Doing, Failure, Problem};
use crate::progress::Progress;
use crate::sources::{self, Wanted};

/// Lays the sources over the directory.
pub(super) fn run(args: &PackArgs, place: &Place, context: &mut Context) -> Result<(), Failure> {
    let doing = || format!("cannot pack into {place}");
    let latest = epoch()?;
    let opened = context.open(place, Access::Write)?;
    let directory = opened.volume.open_dir(&opened.path).doing(doing)?;
    let without = match place {
        Place::Image { image, .. } => vec![image.as_path()],
        _ => Vec::new(),
    };
    let wanted = Wanted {
        exclude: &args.exclude,
        platform: args.platform.as_ref(),
        without,
        quiet: context.globals.quiet,
        is_tls_unverified: !args.tls_verify,
        interrupt: context.interrupt().clone(),
        ..Wanted::default()
    };
    let begun = PackInto::begin(&directory, sources::limits(&wanted)).doing(doing);
    let (mut into, mut merge) = begun?;
    if let Some(time) = latest {
        into.epoch(time);
    }
    if let Some((uid, gid)) = args.owner {
        merge.tree_mut().set_owner_of_new(uid, gid);
    }
    let (tree, sources) = sources::merged_onto(merge, &args.sources, &wanted)?;
    into.check(&tree, &sources).doing(doing)?;
    let progress = Progress::bytes(Some(0), context.globals.quiet || context.json);
    let interrupt = context.interrupt().clone();
    let applied = into.apply(&tree, &sources, &mut |done, of| {
        progress.at(done, of);
        interrupt.check().is_ok()
    });
    progress.clear();
    interrupt.check()?;
    let done = applied.map_err(|error| {
        let problem = Problem::from(error);
        let part = "a part of it may be there";
        let next = match problem.next.clone() {
            Some(next) => format!("{part}; {next}"),
            None => part.to_owned(),
        };
        problem.with_next(next).met(doing())
    })?;
    // What is said to be there is to be there.
    opened.volume.sync().doing(doing)?;
    if context.json {
        return context.out.json(&value(&done));
    }
    match context.globals.quiet {
        true => Ok(()),
        false => context.out.line(text(&done, place)),
    }
}

fn value(done: &PackedInto) -> serde_json::Value {
    json!({
        "directories": done.directories,
        "files": done.files,
        "others": done.others,
        "hard_links": done.hard_links,
        "removed": done.removed,
        "data_bytes": done.data_bytes,
    })
}

fn text(done: &PackedInto, place: &Place) -> String {
    format!(
        "{place}: new directories: {}, files: {}, others: {}; removed: {}; bytes of data: {}",
        done.directories, done.files, done.others, done.removed, done.data_bytes
    )
}
