//! `setfattr`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use throughline::{Error, Reason};
use throughline_forms::value::parse;

use crate::context::Context;
use crate::copy::no_room;
use crate::dump;
use crate::images::Access;
use crate::pattern::Glob;
use crate::place::Place;
use crate::problem::{Doing, Failure, Problem};
use crate::text::quote;

/// Arguments of `setfattr`.
#[derive(Args, Debug)]
pub(crate) struct SetfattrArgs {
    /// Files in images; with --restore, the directory for names without an image
    #[arg(required_unless_present = "restore", value_name = "IMAGE:/PATH")]
    places: Vec<Place>,
    /// Set this attribute, by its full name: user.mime_type
    #[arg(short, long, value_name = "NAME", required_unless_present_any = ["remove", "restore"])]
    name: Option<String>,
    /// Its value: text, quoted or not, with \\ooo for bytes; 0x and hexadecimal; 0s and base64; empty if not
    /// given
    #[arg(
        short,
        long,
        value_name = "VALUE",
        requires = "name",
        allow_hyphen_values = true
    )]
    value: Option<OsString>,
    /// Remove this attribute
    #[arg(short = 'x', long, value_name = "NAME", conflicts_with = "name")]
    remove: Option<String>,
    /// Restore from the output of 'getfattr --dump' in this file; -: standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "remove"])]
    restore: Option<PathBuf>,
    /// Change symbolic links themselves, not their targets
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    glob: Glob,
}

/// Sets or removes an attribute of each place.
pub(crate) fn run(args: &SetfattrArgs, context: &mut Context) -> Result<(), Failure> {
    if let Some(dump) = &args.restore {
        return restore(args, context, dump);
    }
    let value = match &args.value {
        Some(text) => parse(text.as_bytes())
            .map_err(|reason| Failure::Usage(format!("invalid value: {reason}")))?,
        None => Vec::new(),
    };
    context.each_opened(&args.places, args.glob.changes(), |_, opened| {
        let cannot = || format!("cannot change the attributes of {}", opened.place);
        let node = opened.node(!args.no_dereference).doing(cannot)?;
        let changed = match (&args.name, &args.remove) {
            (Some(name), _) => node.xattrs().set(name, &value),
            (None, Some(name)) => node.xattrs().remove(name),
            (None, None) => Ok(()),
        };
        changed.map_err(problem).doing(cannot)
    })
}

/// Restores the attributes of the files in a dump.
fn restore(args: &SetfattrArgs, context: &mut Context, dump: &Path) -> Result<(), Failure> {
    let paragraphs = dump::read(dump, &args.places)?;
    context.each(&paragraphs, |context, paragraph| {
        let cannot = || format!("cannot change the attributes of {}", paragraph.place);
        let opened = context.open(&paragraph.place, Access::Write)?;
        let node = opened.node(!args.no_dereference).doing(cannot)?;
        for (number, line) in &paragraph.lines {
            let at = line.iter().position(|byte| *byte == b'=');
            let (name, value) = line.split_at(at.unwrap_or(line.len()));
            let value = parse(value.get(1..).unwrap_or_default()).map_err(|reason| {
                Problem::new(format!("line {number}: {reason}"))
                    .met(format!("cannot restore from {}", quote(dump)))
            })?;
            node.xattrs()
                .set(name, &value)
                .map_err(problem)
                .doing(cannot)?;
        }
        Ok(())
    })
}

fn problem(error: Error) -> Problem {
    match error {
        Error::Caller(Reason::NoAttribute) => Problem::new("No such attribute"),
        Error::Caller(Reason::Permission) => Problem::new("Operation not permitted").with_next(
            "only files and directories can have attributes 'user.…'; 'throughline lsattr' shows whether it \
             is immutable or append-only",
        ),
        Error::Caller(Reason::NoSpace) => no_room(error),
        Error::Unsupported(_) => Problem::from(error)
            .with_next("names begin with user., trusted., security., \
                or are system.posix_acl_access and _default"),
        other => other.into(),
    }
}
