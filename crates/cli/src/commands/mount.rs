//! `mount`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::io::Errno;
use rustix::process::{getgid, getuid};
use throughline_explain::ours::listening;
use throughline_fuse::options::{CacheSize, MountOptions};

use super::mounted;
use crate::context::Context;
use crate::image_name::ImageName;
use crate::images::Access;
use crate::mount::{self, Plan, Stay, Trouble};
use crate::objects;
use crate::output::note;
use crate::problem::{Doing, Failure};
use crate::text::quote;
use crate::unpacked;

/// Arguments of `mount`.
#[derive(Args, Debug)]
#[command(after_long_help = mount::help::options())]
pub(crate) struct MountArgs {
    /// The image: a file, a block device, or /dev/fd/N. Without image and directory, lists the mounts
    #[arg(requires = "dir")]
    image: Option<PathBuf>,
    /// The mount point
    dir: Option<PathBuf>,
    /// Comma-separated options; --help lists them
    #[arg(short, value_name = "OPTIONS", requires = "image")]
    options: Vec<String>,
    /// Stay in the foreground until it is unmounted
    #[arg(short, long, requires = "image")]
    foreground: bool,
    /// Read-only, the same as -o ro
    #[arg(short, long, requires = "image")]
    read_only: bool,
    /// Print what was mounted
    #[arg(short, long)]
    verbose: bool,
}

/// Mounts an image.
pub(crate) fn run(args: &MountArgs, context: &mut Context) -> Result<(), Failure> {
    let (Some(image), Some(dir)) = (&args.image, &args.dir) else {
        return mounted::list(context);
    };
    let plan =
        plan(args, (image, dir), context).inspect_err(|_| context.exit_bits = mount::EXIT_USAGE)?;
    if plan.options.remount {
        let mut lists = args.options.clone();
        lists.extend(args.read_only.then(|| "ro".to_owned()));
        let done = mount::remount(&plan.dir, &plan.options, &lists);
        return done.map_err(|trouble| failure_of(trouble, context));
    }
    match mount::run(&plan) {
        Ok(()) => {
            if args.verbose && mount::is_start() {
                let (image, dir) = (objects::shown(image), dir.display());
                let image = image.display();
                context.out.line(format!("{image} mounted on {dir}"))?;
            }
            if plan.stay == Stay::Background && mount::is_start() && !plan.quiet {
                note_denied_writes(&plan);
            }
            Ok(())
        }
        Err(trouble) => Err(failure_of(trouble, context)),
    }
}

/// Sets the exit code and returns the failure.
fn failure_of(trouble: Trouble, context: &mut Context) -> Failure {
    let (code, failure) = match trouble {
        Trouble::Reported(code) => (code, Failure::Reported),
        Trouble::Failed(code, failure) => (code, failure),
    };
    context.exit_bits = code;
    failure
}

/// Prints a note if the caller may not write to the mount, because mke2fs makes root the owner of the root
/// directory, regardless of who runs it.
fn note_denied_writes(plan: &Plan) {
    let image = objects::shown(&plan.image);
    let denied = rustix::fs::access(&plan.dir, rustix::fs::Access::WRITE_OK);
    if plan.options.read_only || denied != Err(Errno::ACCESS) {
        return;
    }
    let Ok(top) = std::fs::metadata(&plan.dir) else {
        return;
    };
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    note(&format!(
        "the top directory of {} belongs to user {}, and you may not write there; to make it yours: \
         throughline umount {}, then throughline chown {user}:{group} {}:/",
        quote(&image),
        top.uid(),
        quote(&plan.dir),
        quote(&image),
    ));
}

fn plan(
    args: &MountArgs,
    (image, dir): (&Path, &Path),
    context: &Context,
) -> Result<Plan, Failure> {
    let mut options = MountOptions::default();
    // The global options come first, because `-o` takes precedence.
    let globals = &context.globals;
    let ImageName { file, partition } = ImageName::of(image);
    options.offset_bytes = globals.offset;
    if unpacked::is_compressed_image(&file, globals) {
        let problem = unpacked::read_only(&file);
        return Err(problem.met(format!("cannot mount {}", quote(image))));
    }
    options.partition.clone_from(&partition);
    options.format = globals.image_format;
    for path in &globals.backing {
        let whole = match objects::is_object(path) {
            true => Ok(path.clone()),
            false => std::path::absolute(path),
        };
        options
            .backing
            .push(whole.doing(|| format!("cannot find {}", quote(path)))?);
    }
    if let Some(path) = &globals.overlay {
        let whole = std::path::absolute(path);
        options.overlay = Some(whole.doing(|| format!("cannot find {}", quote(path)))?);
    }
    if let Some(path) = &globals.journal_device {
        let whole = std::path::absolute(path);
        options.journal = Some(whole.doing(|| format!("cannot find {}", quote(path)))?);
    }
    options.no_replay = globals.no_replay;
    options.sandbox = !globals.no_sandbox;
    options.cache = globals.cache.map(CacheSize::Bytes);
    options.commit = globals
        .commit
        .map(|seconds| std::time::Duration::from_secs(seconds.into()));
    let lists = args.options.iter().map(String::as_str);
    for list in lists.chain(args.read_only.then_some("ro")) {
        options.add(list).map_err(usage)?;
    }
    options.check().map_err(usage)?;
    if partition.is_some() && options.partition != partition {
        let why = "the name of the image and -o partition= mean different partitions";
        return Err(Failure::plain(why));
    }
    if options.fs_name.is_none() && objects::is_object(&file) {
        options.fs_name = Some(objects::shown(image).display().to_string());
    }
    if options.fs_name.is_none() && options.partition.is_some() && file.is_file() {
        options.fs_name = Some(image.display().to_string());
    }
    let access = if options.read_only {
        Access::Read
    } else {
        Access::Write
    };
    options.log = globals.log.or(options.log);
    if globals.log_file.is_some() {
        options.log_file.clone_from(&globals.log_file);
    }
    mount::start_log(&options)?;
    // This is not a `Failure::Usage`, because the exit code differs.
    let mut open = globals
        .open_options(access != Access::Read)
        .map_err(|failure| Failure::plain(failure.to_string()))?;
    options.apply(&mut open);
    let watched = context.images.watched(image);
    open.listener(listening(watched.as_ref()));
    let stay = if args.foreground || options.debug || watched.is_some() {
        Stay::Foreground
    } else {
        Stay::Background
    };
    Ok(Plan {
        image: file,
        dir: dir.to_owned(),
        options,
        open,
        stay,
        watched,
        quiet: globals.quiet,
    })
}

fn usage(error: throughline_fuse::options::OptionError) -> Failure {
    Failure::plain(error.to_string())
}
