//! `setfattr`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::{ArgAction, Args};
use throughline::{Error, Reason, XattrMode};

use crate::below::node;
use crate::context::{Context, place_parser};
use crate::images::Access;
use crate::place::Place;
use crate::problem::{Doing, Failure, Problem};
use crate::value::parse;

/// Arguments of `setfattr`.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct SetfattrArgs {
    /// Files in images
    #[arg(required = true, value_name = "IMAGE:/PATH", value_parser = place_parser())]
    places: Vec<Place>,
    /// Set this attribute, by its full name: user.mime_type
    #[arg(short, long, value_name = "NAME", required_unless_present = "remove")]
    name: Option<String>,
    /// Its value: text, in quotes or not, with \\ooo for bytes; hexadecimal behind 0x; base64 behind 0s; empty if not given
    #[arg(
        short,
        long,
        value_name = "VALUE",
        requires = "name",
        allow_hyphen_values = true
    )]
    value: Option<OsString>,
    /// Take this attribute away
    #[arg(short = 'x', long, value_name = "NAME", conflicts_with = "name")]
    remove: Option<String>,
    /// Symbolic links themselves, not what they point to
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Sets or removes an attribute of each place.
pub(crate) fn run(args: &SetfattrArgs, context: &mut Context) -> Result<(), Failure> {
    let value = match &args.value {
        Some(text) => parse(text.as_bytes())
            .map_err(|reason| Failure::Usage(format!("invalid value: {reason}")))?,
        None => Vec::new(),
    };
    let places = context.expand(&args.places, Access::Write)?;
    context.each(&places, |context, place| {
        let opened = context.open(place, Access::Write)?;
        let cannot = || format!("cannot change the attributes of {place}");
        let node = node(&opened.volume, &opened.path, !args.no_dereference).doing(cannot)?;
        let changed = match (&args.name, &args.remove) {
            (Some(name), _) => node.set_xattr(name.as_bytes(), &value, XattrMode::Either),
            (None, Some(name)) => node.remove_xattr(name.as_bytes()),
            (None, None) => Ok(()),
        };
        changed.map_err(problem).doing(cannot)
    })
}

fn problem(error: Error) -> Problem {
    match error {
        Error::Caller(Reason::NoAttribute) => Problem::new("No such attribute"),
        Error::Caller(Reason::Permission) => Problem::new("Operation not permitted").with_next(
            "attributes 'user.…' are for files and directories; 'throughline lsattr' shows whether it is immutable or append-only",
        ),
        Error::Caller(Reason::NoSpace) => Problem::from(error).with_next(
            "the attributes of a file share one block, unless the image has the feature ea_inode ('tune2fs -O ea_inode IMAGE')",
        ),
        Error::Unsupported(_) => Problem::from(error)
            .with_next("names begin with user., trusted., security., or are system.posix_acl_access and _default"),
        other => other.into(),
    }
}
