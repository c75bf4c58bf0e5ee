//! `mkdir`.

use std::path::{Component, PathBuf};

use clap::Args;
use rustix::io::Errno;
use throughline::{Attributes, NewNode};
use throughline_forms::mode::ModeChange;

use crate::context::Context;
use crate::images::{Access, Opened};
use crate::place::Place;
use crate::problem::{Doing, Failure, Problem};

/// Arguments of `mkdir`.
#[derive(Args, Debug)]
pub(crate) struct MkdirArgs {
    /// Directories to make in images
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<Place>,
    /// Make missing parent directories; no error if a directory exists
    #[arg(short, long)]
    parents: bool,
    /// Permission bits as for chmod, instead of rwxrwxrwx less the umask
    #[arg(short, long, value_name = "MODE", value_parser = ModeChange::parse)]
    mode: Option<ModeChange>,
    /// Print what was made
    #[arg(short, long)]
    verbose: bool,
}

/// Creates each directory.
pub(crate) fn run(args: &MkdirArgs, context: &mut Context) -> Result<(), Failure> {
    let umask = context.images.umask;
    let plain = Attributes::new().mode(0o777 & !umask);
    let last = match &args.mode {
        Some(change) => Attributes::new().mode(change.apply(0o777 & !umask, true, umask)),
        None => plain.clone(),
    };
    // Parent directories must be writable and searchable for their owner.
    let between = Attributes::new().mode((0o777 & !umask) | 0o300);
    context.each(&args.places, |context, place| {
        let opened = context.open(place, Access::Write)?;
        if args.parents {
            parents(args, context, &opened, &between, &last)
        } else {
            opened
                .volume
                .make_node(&opened.path, NewNode::Directory, &last)
                .doing(|| format!("cannot create directory {place}"))?;
            context.verbose_line(args.verbose, || format!("created directory {place}"))
        }
    })
}

fn parents(
    args: &MkdirArgs,
    context: &mut Context,
    opened: &Opened,
    between: &Attributes,
    last: &Attributes,
) -> Result<(), Failure> {
    let Place::Image { image, .. } = &opened.place else {
        return Ok(());
    };
    let mut done = PathBuf::new();
    let mut rest = opened.path.components().peekable();
    while let Some(component) = rest.next() {
        done.push(component);
        if !matches!(component, Component::Normal(_)) {
            continue;
        }
        let place = Place::Image {
            image: image.clone(),
            path: done.clone(),
        };
        let cannot = || format!("cannot create directory {place}");
        let attributes = if rest.peek().is_none() { last } else { between };
        match opened
            .volume
            .make_node(&done, NewNode::Directory, attributes)
            .doing(cannot)
        {
            Ok(_) => context.verbose_line(args.verbose, || format!("created directory {place}"))?,
            Err(failure) if failure.errno() == Some(Errno::EXIST) => {
                if !opened.volume.metadata(&done).doing(cannot)?.is_dir() {
                    return Err(Problem::new("Not a directory").met(cannot()));
                }
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}
