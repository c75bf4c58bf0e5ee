//! `install-fuse2fs`, `install-mke2fs` and `install-helpers`: links under the names by which other programs
//! run this one.

mod trusted;

use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::context::Context;
use crate::mount::HELPER_NAME;
use crate::problem::{Doing, Failure, Problem};
use crate::text::quote;

/// Arguments of `install-fuse2fs` and `install-mke2fs`.
#[derive(Args, Debug)]
pub(crate) struct NamesArgs {
    /// The directory for the links: one early in PATH, for example ~/.local/bin
    dir: PathBuf,
    /// Remove the links
    #[arg(long)]
    remove: bool,
}

/// Arguments of `install-helpers`.
#[derive(Args, Debug)]
pub(crate) struct HelpersArgs {
    /// The directory where mount(8) looks for helpers
    #[arg(long, value_name = "DIR", default_value = "/sbin")]
    sbin: PathBuf,
    /// Copy this program to DIR as a file of root's, /usr/local/bin if none is given, and link to the copy:
    /// for a program that other users can change, which root must not run
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true,
          default_missing_value = trusted::USUAL_DIR)]
    copy: Option<PathBuf>,
    /// Also let mounts use io_uring from the next boot on: sets the option of the kernel's fuse module
    #[arg(long)]
    io_uring: bool,
    /// The directory where modprobe(8) looks for options of modules
    #[arg(long, value_name = "DIR", default_value = "/etc/modprobe.d")]
    modprobe: PathBuf,
    /// Remove the link, and the module's option; with --copy, also the copy
    #[arg(long)]
    remove: bool,
}

/// The file with the option of the kernel's fuse module.
const MODULE_FILE: &str = "throughline-fuse.conf";
const MODULE_OPTION: &str = "# Written by throughline install-helpers --io-uring\n\
                             options fuse enable_uring=1\n";
/// Shows and switches the option until the next boot.
const MODULE_SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Creates the names in a directory, or removes them.
pub(crate) fn names(
    names: &[&str],
    args: &NamesArgs,
    context: &mut Context,
) -> Result<(), Failure> {
    names
        .iter()
        .try_for_each(|name| named(name, &args.dir, args.remove, context))
}

/// Creates or removes one name, and says if another program comes before it.
fn named(name: &str, dir: &Path, remove: bool, context: &mut Context) -> Result<(), Failure> {
    let link = dir.join(name);
    let this = this_program()?;
    change(&link, &this, remove)?;
    if remove || context.globals.quiet {
        return Ok(());
    }
    context
        .out
        .line(format!("{} runs throughline", link.display()))?;
    if let Some(first) = first_in_path(name)
        && !same(&first, &link)
    {
        context.out.line(format!(
            "note: {} comes first in PATH, so programs run that one",
            first.display()
        ))?;
    }
    // In a directory of a user's own, the link gives others nothing that they do not have.
    if trusted::is_needed()
        && dir
            .canonicalize()
            .is_ok_and(|dir| trusted::check(&dir).is_ok())
        && let Err(why) = trusted::check(&this)
    {
        context
            .out
            .line(format!("note: others can change that program: {why}"))?;
    }
    Ok(())
}

/// Creates what mount(8) and fstab need.
pub(crate) fn helpers(args: &HelpersArgs, context: &mut Context) -> Result<(), Failure> {
    let link = args.sbin.join(HELPER_NAME);
    change(&link, &helper_program(args, &link)?, args.remove)?;
    if args.remove
        && let Some(dir) = &args.copy
    {
        trusted::remove_copy(dir)?;
    }
    let option = args.modprobe.join(MODULE_FILE);
    match (args.remove, args.io_uring) {
        (true, _) => remove_option(&option)?,
        (false, true) => std::fs::write(&option, MODULE_OPTION)
            .doing(|| format!("cannot write {}", quote(&option)))?,
        (false, false) => {}
    }
    if args.remove || context.globals.quiet {
        return Ok(());
    }
    context.out.line(format!(
        "{} runs throughline. Now these work:\n\
         \x20 mount -t fuse.throughline IMAGE DIR -o OPTIONS\n\
         and in /etc/fstab (0 0: fsck does not support the type; mounting replays the journal):\n\
         \x20 IMAGE  DIR  fuse.throughline  defaults,nofail  0 0\n\
         umount(8) unmounts it.",
        link.display()
    ))?;
    match args.io_uring {
        true => context.out.line(format!(
            "{} lets mounts use io_uring from the next boot on. For now, as root:\n\
             \x20 echo Y > {MODULE_SWITCH}\n\
             If fuse is built into the kernel, add this to the kernel's command line:\n\
             \x20 fuse.enable_uring=1",
            option.display()
        )),
        false => Ok(()),
    }
}

/// The program that the helper is, or was: one that only root can change, if root installs it.
fn helper_program(args: &HelpersArgs, link: &Path) -> Result<PathBuf, Failure> {
    match &args.copy {
        Some(dir) if args.remove => return Ok(trusted::copy_in(dir)),
        Some(dir) => return trusted::copy(dir),
        None => {}
    }
    let this = this_program()?;
    if args.remove || !trusted::is_needed() {
        return Ok(this);
    }
    trusted::check(&this).map(|_| this).map_err(|why| {
        Problem::new(format!(
            "root would run a program that others can change: {why}"
        ))
        .with_next(format!(
            "--copy copies it to {} first, and links to the copy",
            trusted::USUAL_DIR
        ))
        .met(format!("cannot make {}", quote(link)))
    })
}

/// Removes the module's option if it was written here.
fn remove_option(file: &Path) -> Result<(), Failure> {
    match std::fs::read_to_string(file) {
        Ok(text) if text == MODULE_OPTION => {
            std::fs::remove_file(file).doing(|| format!("cannot remove {}", quote(file)))
        }
        // The file does not exist, or this command did not write it.
        _ => Ok(()),
    }
}

fn this_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().doing(|| "cannot find this program")
}

/// Makes or removes a link to `program`, which is this one or a copy of it.
fn change(link: &Path, program: &Path, remove: bool) -> Result<(), Failure> {
    if remove {
        let cannot = || format!("cannot remove {}", quote(link));
        return match std::fs::read_link(link) {
            Ok(_) if same(link, program) || is_replaceable(link) => {
                std::fs::remove_file(link).doing(cannot)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            _ => Err(Problem::new("it is not a link to this program").met(cannot())),
        };
    }
    let cannot = || format!("cannot make {}", quote(link));
    match symlink(program, link) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if same(link, program) {
                return Ok(());
            }
            // Keep another program. Replace a link that is dangling or leads to another copy of this program.
            if !is_replaceable(link) {
                return Err(Problem::from(error)
                    .with_next("use another directory, or move that file away")
                    .met(cannot()));
            }
            std::fs::remove_file(link).doing(cannot)?;
            symlink(program, link).doing(cannot)
        }
        Err(error) => {
            let next = match error.kind() {
                io::ErrorKind::PermissionDenied => "run it as root, or use a directory of your own",
                io::ErrorKind::NotFound => "make the directory: mkdir -p DIR",
                _ => return Err(Problem::from(error).met(cannot())),
            };
            Err(Problem::from(error).with_next(next).met(cannot()))
        }
    }
}

fn is_replaceable(link: &Path) -> bool {
    std::fs::read_link(link).is_ok_and(|target| {
        target.file_name().is_some_and(|name| name == "throughline")
            || std::fs::metadata(link).is_err()
    })
}

fn first_in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|program| program.exists())
}

fn same(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}
