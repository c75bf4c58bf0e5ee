//! `touch`.

use std::time::SystemTime;

use clap::Args;
use rustix::io::Errno;
use throughline::Attributes;
use throughline_forms::time::{parse, parse_posix};

use crate::context::Context;
use crate::images::Access;
use crate::pattern::Glob;
use crate::place::Place;
use crate::problem::{Doing, Failure};

/// Arguments of `touch`.
#[derive(Args, Debug)]
pub(crate) struct TouchArgs {
    /// Files in images; missing ones are created empty
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<Place>,
    /// Change only the access time
    #[arg(short = 'a')]
    access: bool,
    /// Change only the modification time
    #[arg(short = 'm')]
    modification: bool,
    /// Do not create files
    #[arg(short = 'c', long)]
    no_create: bool,
    /// Set this time instead of now: YYYY-MM-DD, 'YYYY-MM-DD HH:MM:SS', with or without a zone, @SECONDS,
    /// 'yesterday', '2 days ago', '+3 hours', or an e-mail date
    #[arg(short, long, value_name = "TIME", value_parser = parse, group = "time")]
    date: Option<SystemTime>,
    /// Set this time instead of now: [[CC]YY]MMDDhhmm[.ss]
    #[arg(short = 't', value_name = "STAMP", value_parser = parse_posix, group = "time")]
    stamp: Option<SystemTime>,
    /// Set the times of this file instead of now; it is on the host or in an image
    #[arg(short, long, value_name = "FILE", group = "time")]
    reference: Option<Place>,
    /// Change symbolic links themselves, not their targets
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    glob: Glob,
}

/// Sets each place's times.
pub(crate) fn run(args: &TouchArgs, context: &mut Context) -> Result<(), Failure> {
    // Open these images for writing before the reference is read, which may be in one of them.
    for place in args.places.iter().filter(|_| args.reference.is_some()) {
        context.open(place, Access::Write)?;
    }
    let (accessed, modified) = times(args, context)?;
    let mut attributes = Attributes::new();
    if args.access || !args.modification {
        attributes = attributes.accessed(accessed);
    }
    if args.modification || !args.access {
        attributes = attributes.modified(modified);
    }
    context.each_opened(&args.places, args.glob.changes(), |context, opened| {
        let cannot = || format!("cannot touch {}", opened.place);
        let set = if args.no_dereference {
            opened
                .volume
                .set_symlink_attributes(&opened.path, &attributes)
        } else {
            opened.volume.set_attributes(&opened.path, &attributes)
        };
        match set.doing(cannot) {
            Err(failure) if failure.errno() == Some(Errno::NOENT) && args.no_create => Ok(()),
            Err(failure) if failure.errno() == Some(Errno::NOENT) && !args.no_dereference => {
                let made = opened.create(attributes.clone(), context.images.umask);
                made.map(drop).doing(cannot)
            }
            other => other,
        }
    })
}

fn times(args: &TouchArgs, context: &mut Context) -> Result<(SystemTime, SystemTime), Failure> {
    if let Some(reference) = &args.reference {
        let cannot = || format!("cannot read the times of {reference}");
        return match reference {
            Place::Host(path) => {
                let meta = std::fs::metadata(path).doing(cannot)?;
                Ok((
                    meta.accessed().doing(cannot)?,
                    meta.modified().doing(cannot)?,
                ))
            }
            Place::Image { .. } => {
                let opened = context.open(reference, Access::Read)?;
                let meta = opened.volume.metadata(&opened.path).doing(cannot)?;
                Ok((meta.accessed(), meta.modified()))
            }
            Place::Stream => Err(Failure::Usage("a stream has no times".into())),
        };
    }
    let time = args.date.or(args.stamp).unwrap_or_else(SystemTime::now);
    Ok((time, time))
}
