//! `lsattr`.

use clap::Args;
use throughline::Node;

use super::flags::show;
use crate::below::{Reach, each, node};
use crate::context::{Context, place_parser};
use crate::images::Access;
use crate::place::Place;
use crate::problem::{Doing, Failure};
use crate::text::printable;
use crate::walk::sorted;

/// Arguments of `lsattr`.
#[derive(Args, Debug)]
pub(crate) struct LsattrArgs {
    /// Files in images, and directories whose contents are shown
    #[arg(required = true, value_name = "IMAGE:/PATH", value_parser = place_parser())]
    places: Vec<Place>,
    /// Show names that begin with a dot too
    #[arg(short, long)]
    all: bool,
    /// Show directories themselves, not their contents
    #[arg(short, long)]
    directory: bool,
    /// Include the contents of directories
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Show the project ID too
    #[arg(short, long)]
    project: bool,
}

/// Shows the flags of each place.
pub(crate) fn run(args: &LsattrArgs, context: &mut Context) -> Result<(), Failure> {
    let places = context.expand(&args.places, Access::Read)?;
    context.each(&places, |context, place| {
        let opened = context.open(place, Access::Read)?;
        let cannot = || format!("cannot access {place}");
        let top = node(&opened.volume, &opened.path, true).doing(cannot)?;
        if args.directory || !top.is_dir() {
            return line(args, context, place, &top);
        }
        if args.recursive {
            let reach = Reach {
                follow: true,
                recursive: true,
                links: false,
            };
            let start = place.clone();
            return each(context, &opened, reach, &mut |context, place, node, _| {
                let is_hidden = |place: &Place| match place {
                    Place::Image { path, .. } => path
                        .file_name()
                        .is_some_and(|name| name.as_encoded_bytes().starts_with(b".")),
                    _ => false,
                };
                if *place == start || (!args.all && is_hidden(place)) {
                    return Ok(());
                }
                line(args, context, place, node)
            });
        }
        let dir = opened.volume.open_dir(&opened.path).doing(cannot)?;
        for entry in sorted(&dir, context, cannot)? {
            let is_hidden = entry.name.as_encoded_bytes().starts_with(b".");
            if is_hidden && !args.all {
                continue;
            }
            let place = place.join(&entry.name);
            let cannot = || format!("cannot access {place}");
            let shown = entry.meta.doing(cannot).and_then(|meta| {
                if meta.is_symlink() {
                    return Ok(());
                }
                let node = dir.node(&entry.name).doing(cannot)?;
                line(args, context, &place, &node)
            });
            if let Err(failure) = shown {
                context.complain(failure)?;
            }
        }
        Ok(())
    })
}

fn line(
    args: &LsattrArgs,
    context: &mut Context,
    place: &Place,
    node: &Node,
) -> Result<(), Failure> {
    let mut line = String::new();
    if args.project {
        line.push_str(&format!("{:>5} ", node.project()));
    }
    line.push_str(&show(node.flags()));
    line.push(' ');
    context.out.bytes(line.as_bytes())?;
    let argument = place.to_argument();
    let shown = printable(&argument, context.out.terminal).into_owned();
    context.out.line(shown)
}
