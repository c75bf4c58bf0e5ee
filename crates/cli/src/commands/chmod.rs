//! `chmod`.

use clap::Args;
use throughline::Attributes;
use throughline_forms::mode::{ModeChange, show};

use crate::context::Context;
use crate::pattern::Glob;
use crate::place::Place;
use crate::problem::{Doing, Failure};
use crate::walk::{Reach, each};
use throughline_forms::kind::letter;

/// Arguments of `chmod`.
#[derive(Args, Debug)]
pub(crate) struct ChmodArgs {
    /// Octal like 0644, or clauses like u+x,g-w
    #[arg(value_name = "MODE", allow_hyphen_values = true, value_parser = ModeChange::parse)]
    mode: ModeChange,
    /// Files in images
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<Place>,
    /// Include the contents of directories; symbolic links are skipped
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Print what was changed
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    glob: Glob,
}

/// Changes each place's mode.
pub(crate) fn run(args: &ChmodArgs, context: &mut Context) -> Result<(), Failure> {
    let reach = Reach::files(args.recursive, args.glob.changes());
    each(context, &args.places, reach, |context, at| {
        let before = at.meta.mode();
        let umask = context.images.umask;
        let after = args.mode.apply(before, at.meta.is_dir(), umask);
        at.node()?
            .set_attributes(&Attributes::new().mode(after))
            .doing(|| format!("cannot change the mode of {}", at.place))?;
        context.verbose_line(args.verbose, || {
            let letter = letter(at.meta.file_type());
            let text = |mode: u32| format!("{mode:04o} ({})", show(letter, mode).split_off(1));
            let (before, after) = (text(before), text(after));
            format!("mode of {} changed from {before} to {after}", at.place)
        })
    })
}
