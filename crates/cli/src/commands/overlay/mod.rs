//! `overlay`: what an overlay changed, and what becomes of it.

mod diff;

use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use throughline::overlay;

use crate::context::Context;
use crate::objects::{is_object, shown};
use crate::output::note;
use crate::problem::{Failure, Problem};
use crate::progress::Progress;
use crate::text::quote;

/// Arguments of `overlay`.
#[derive(Args, Debug)]
pub(crate) struct OverlayArgs {
    #[command(subcommand)]
    command: OverlayCommand,
}

#[derive(Subcommand, Debug)]
enum OverlayCommand {
    /// List what was changed: files of the file system in it, or bytes of the disk
    ///
    /// One line for each file: A (added), M (modified, or its attributes) or D (deleted), and its path.
    Diff(DiffArgs),
    /// Write base and changes to a new raw image
    ///
    /// Overlay and base stay as they are.
    Commit(CommitArgs),
    /// Lay an overlay over another base, and keep what it shows
    ///
    /// Bytes in which the two bases differ are copied to the overlay; the bases are only read. Use it when a
    /// base was moved or replaced by a copy, or after commit, with the new image as the base.
    Rebase(RebaseArgs),
    /// Upload an overlay, or the image that it shows, to object storage
    ///
    /// The object is there as a whole or not at all, and an object that is there is not replaced. Other
    /// machines can use it as an image or as a base (s3://BUCKET/KEY, gs:// or az://). Nothing is copied on
    /// this machine.
    Upload(UploadArgs),
}

/// Arguments of `overlay diff`.
#[derive(Args, Debug)]
struct DiffArgs {
    /// Overlay, and the partition in it if there are several (OVERLAY@2)
    #[arg(value_name = "OVERLAY")]
    file: PathBuf,
    /// List the bytes of the disk that the overlay has itself (begin and length), in clusters
    #[arg(long)]
    ranges: bool,
}

/// Arguments of `overlay commit`.
#[derive(Args, Debug)]
struct CommitArgs {
    /// Overlay
    #[arg(value_name = "OVERLAY")]
    file: PathBuf,
    /// New image
    #[arg(value_name = "NEW")]
    to: PathBuf,
}

/// Arguments of `overlay rebase`.
#[derive(Args, Debug)]
struct RebaseArgs {
    /// Overlay
    #[arg(value_name = "OVERLAY")]
    file: PathBuf,
    /// New base
    #[arg(value_name = "BASE")]
    base: PathBuf,
}

/// Arguments of `overlay upload`.
#[derive(Args, Debug)]
struct UploadArgs {
    /// Overlay
    #[arg(value_name = "OVERLAY")]
    file: PathBuf,
    /// Object: s3://BUCKET/KEY, gs://BUCKET/KEY or az://CONTAINER/KEY
    #[arg(value_name = "OBJECT")]
    object: PathBuf,
    /// Upload base and changes as one raw image, not the overlay itself (qcow2)
    #[arg(long)]
    flatten: bool,
    /// Replace an object that is there
    #[arg(short, long)]
    force: bool,
}

/// Runs one of the commands.
pub(crate) fn run(args: &OverlayArgs, context: &mut Context) -> Result<(), Failure> {
    if context.globals.overlay.is_some() {
        let why =
            "--overlay is for commands that work on an image; here the overlay is an argument";
        return Err(Failure::Usage(why.into()));
    }
    match &args.command {
        OverlayCommand::Diff(args) => diff::run(&args.file, args.ranges, context),
        OverlayCommand::Commit(args) => {
            let file = shown(&args.file);
            let doing = || format!("cannot commit {} to {}", quote(&file), quote(&args.to));
            long(context, doing, |image, progress| {
                overlay::commit(&args.file, image, &args.to, progress)
            })
        }
        OverlayCommand::Rebase(args) => {
            let base = shown(&args.base);
            let doing = || format!("cannot lay {} over {}", quote(&args.file), quote(&base));
            long(context, doing, |image, progress| {
                overlay::rebase(&args.file, image, &args.base, progress)
            })
        }
        OverlayCommand::Upload(args) => upload(args, context),
    }
}

fn upload(args: &UploadArgs, context: &mut Context) -> Result<(), Failure> {
    let to = shown(&args.object);
    let doing = || format!("cannot upload {} to {}", quote(&args.file), quote(&to));
    let what = overlay::Upload {
        flatten: args.flatten,
        replace: args.force,
    };
    let done = long(context, doing, |image, progress| {
        overlay::upload(&args.file, image, &args.object, what, progress)
    });
    done?;
    let base = overlay::base(&args.file).ok().flatten();
    if let Some(base) = base.filter(|base| !is_object(base))
        && !args.flatten
        && !context.globals.quiet
    {
        note(&format!(
            "the base of the uploaded overlay is a file, {}: it is read only where that is. --flatten uploads \
             both as one image",
            quote(&base)
        ));
    }
    Ok(())
}

/// Does something long, with progress on a terminal.
fn long(
    context: &mut Context,
    doing: impl Fn() -> String,
    work: impl FnOnce(&throughline::ImageOptions, overlay::Progress<'_>) -> throughline::Result<()>,
) -> Result<(), Failure> {
    let image = context.globals.image_options();
    let interrupt = context.interrupt().clone();
    interrupt.arm()?;
    let shown = Progress::bytes(Some(0), context.globals.quiet);
    let mut interrupted = false;
    let mut progress = |done, of| {
        shown.at(done, of);
        interrupted = interrupt.check().is_err();
        match interrupted {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => Ok(()),
        }
    };
    let done = work(&image, &mut progress);
    shown.clear();
    if interrupted {
        interrupt.check()?;
    }
    done.map_err(|error| Problem::from(error).met(doing()))
}

/// The base of an overlay, which must have one, as it is opened.
fn base_of(overlay: &Path, context: &Context) -> Result<PathBuf, Problem> {
    let base = overlay::base_to_open(overlay, &context.globals.image_options())?;
    base.ok_or_else(|| {
        Problem::new("it has no base: it is an image of its own")
            .with_next("'--overlay FILE' of other commands makes an overlay")
    })
}

/// Opens the volume in an image for reading.
fn volume(
    file: &Path,
    partition: Option<&str>,
    context: &Context,
) -> Result<throughline::Volume, Failure> {
    let mut options = context.globals.open_options(false)?;
    options.partition(partition.map(str::to_owned));
    let opened = options.open(file).map_err(Problem::from);
    opened.map_err(|problem| problem.met(format!("cannot open {}", quote(shown(file)))))
}
