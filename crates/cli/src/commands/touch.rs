//! `touch`.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use throughline::Attributes;

use crate::context::{Context, place_parser};
use crate::images::Access;
use crate::place::Place;
use crate::problem::{Doing, Failure, Kind};
use crate::time::{parse, parse_posix};

/// Arguments of `touch`.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct TouchArgs {
    /// Files in images; one that does not exist is made, empty
    #[arg(required = true, value_name = "IMAGE:/PATH", value_parser = place_parser())]
    places: Vec<Place>,
    /// Only the time of access
    #[arg(short = 'a')]
    access: bool,
    /// Only the time of modification
    #[arg(short = 'm')]
    modification: bool,
    /// Make no files
    #[arg(short = 'c', long)]
    no_create: bool,
    /// This time instead of now: YYYY-MM-DD, 'YYYY-MM-DD HH:MM:SS', with or without a zone, or @SECONDS
    #[arg(short, long, value_name = "TIME", value_parser = parse, group = "time")]
    date: Option<SystemTime>,
    /// This time instead of now: [[CC]YY]MMDDhhmm[.ss]
    #[arg(short = 't', value_name = "STAMP", value_parser = parse_posix, group = "time")]
    stamp: Option<SystemTime>,
    /// The times of this file of the host instead of now
    #[arg(short, long, value_name = "FILE", group = "time")]
    reference: Option<PathBuf>,
    /// Symbolic links themselves, not what they point to
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// Sets each place's times.
pub(crate) fn run(args: &TouchArgs, context: &mut Context) -> Result<(), Failure> {
    let (accessed, modified) = times(args)?;
    let mut attributes = Attributes::new();
    if args.access || !args.modification {
        attributes = attributes.accessed(accessed);
    }
    if args.modification || !args.access {
        attributes = attributes.modified(modified);
    }
    context.each(&args.places, |context, place| {
        let opened = context.open(place, Access::Write)?;
        let cannot = || format!("cannot touch {place}");
        let set = if args.no_dereference {
            opened
                .volume
                .set_symlink_attributes(&opened.path, &attributes)
        } else {
            opened.volume.set_attributes(&opened.path, &attributes)
        };
        match set.doing(cannot) {
            Err(failure) if failure.kind() == Some(Kind::NotFound) && args.no_create => Ok(()),
            Err(failure) if failure.kind() == Some(Kind::NotFound) && !args.no_dereference => {
                let made = attributes.clone().mode(0o666 & !context.images.umask);
                opened
                    .volume
                    .create_file(&opened.path, &made)
                    .doing(cannot)?;
                Ok(())
            }
            other => other,
        }
    })
}

fn times(args: &TouchArgs) -> Result<(SystemTime, SystemTime), Failure> {
    if let Some(reference) = &args.reference {
        let cannot = || format!("cannot read the times of {}", crate::text::quote(reference));
        let meta = std::fs::metadata(reference).doing(cannot)?;
        return Ok((
            meta.accessed().doing(cannot)?,
            meta.modified().doing(cannot)?,
        ));
    }
    let time = args.date.or(args.stamp).unwrap_or_else(SystemTime::now);
    Ok((time, time))
}
