//! The command line's shape.

use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::commands;
use crate::context::{GLOBAL_OPTIONS, Globals};

/// Files in and out of ext2, ext3 and ext4 images, at the disk's speed, without root and without mounting
///
/// IMAGE:/path is a place in an image (a file or a block device), - is standard input or output, everything else
/// is a path on the host. IMAGE:/path is read as a host path only where IMAGE does not exist and the folder 'IMAGE:'
/// does.
#[derive(Debug, Parser)]
#[command(
    name = "throughline",
    version,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// Options for all commands.
    #[command(flatten)]
    pub(crate) globals: Globals,
    /// Print results as JSON (info, ls, tree, stat, df, du, tune, replay, status, explain, cp --stats, lab compare, lab founding, lab gate, lab models)
    #[arg(long)]
    pub(crate) json: bool,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// `--json` behind the command's name.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct JsonFlag {
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what an image is: features, geometry, free space, state, and how its device is driven
    Info(commands::info::InfoArgs),
    /// List directories
    Ls(commands::ls::LsArgs),
    /// Show a directory tree
    Tree(commands::tree::TreeArgs),
    /// Show what is known about a file
    Stat(commands::stat::StatArgs),
    /// Write files to standard output
    Cat(commands::cat::CatArgs),
    /// Copy into, out of, between and inside images
    ///
    /// Between images, the host and streams, in any direction. Holes stay holes, and several names of one file stay
    /// names of one file within a copy. Below the target no symbolic link is followed. Extended attributes are copied with
    /// -a, --preserve=xattr and --preserve=all, lists of access rights (ACLs) wherever the mode is kept: -p, -a,
    /// --preserve=mode.
    Cp(commands::cp::CpArgs),
    /// Remove files and directories
    Rm(commands::rm::RmArgs),
    /// Make directories
    Mkdir(commands::mkdir::MkdirArgs),
    /// Rename or move inside one image
    Mv(commands::mv::MvArgs),
    /// Make hard or symbolic links
    ///
    /// A hard link's target is a place in the same image. A symbolic link's target is text: ln -s ../lib
    /// IMAGE:/usr/lib; where it is written as a place in the same image, its path is what is stored.
    Ln(commands::ln::LnArgs),
    /// Print where a symbolic link points
    Readlink(commands::readlink::ReadlinkArgs),
    /// Change permission bits
    Chmod(commands::chmod::ChmodArgs),
    /// Change owner and group
    Chown(commands::chown::ChownArgs),
    /// Look for files by name, type, size, age, owner, permissions
    Find(commands::find::FindArgs),
    /// Make devices, fifos and sockets
    Mknod(commands::mknod::MknodArgs),
    /// Show extended attributes
    Getfattr(commands::getfattr::GetfattrArgs),
    /// Set extended attributes, or take them away
    Setfattr(commands::setfattr::SetfattrArgs),
    /// Show lists of access rights (ACLs)
    Getfacl(commands::getfacl::GetfaclArgs),
    /// Change lists of access rights (ACLs)
    Setfacl(commands::setfacl::SetfaclArgs),
    /// Show the flags of files: immutable, append-only and others
    Lsattr(commands::lsattr::LsattrArgs),
    /// Change the flags of files
    Chattr(commands::chattr::ChattrArgs),
    /// Show or set the label of an image
    Label(commands::label::LabelArgs),
    /// Show the UUIDs of images
    Uuid(commands::label::UuidArgs),
    /// Change times, or make empty files
    Touch(commands::touch::TouchArgs),
    /// Set the size of files
    Truncate(commands::truncate::TruncateArgs),
    /// Run many commands on one open image, from a file, a pipe or a terminal
    ///
    /// The image is opened once. From a file or a pipe the first command that fails is the last one, unless --keep-going says
    /// otherwise; its exit code is the shell's.
    Shell(commands::shell::ShellArgs),
    /// Show free space
    Df(commands::df::DfArgs),
    /// Show how much space files take
    Du(commands::du::DuArgs),
    /// Show how the I/O path to an image, a file or a device is set up, and measure it
    ///
    /// What is shown is derived from the machine and the device, or set by the global options, which hold for one run:
    /// nothing is stored. --measure reads a part of it, past all caches, with I/Os of several sizes.
    Tune(commands::tune::TuneArgs),
    /// Recover images that were not closed: replay the journal, and nothing else
    ///
    /// What the journal holds is put in place (its fast commits too), files that lost their last name are freed,
    /// truncations are finished, and the journal is empty afterwards. An image that needs none of that is not touched.
    /// Every command that changes an image does the same first.
    ///
    /// Exit codes, of several images or-ed together, as e2fsck's: 0: recovered, or nothing to do; 4: errors are left, run
    /// e2fsck -f; 8: it could not be done. 2: a wrong command line.
    Replay(commands::replay::ReplayArgs),
    /// Mount an image: no root is needed, and programs just work
    ///
    /// Ends when the mount answers, and leaves a server in the background, which 'throughline umount' ends. Without root it goes
    /// through fusermount3 (Debian package fuse3).
    Mount(commands::mount::MountArgs),
    /// Unmount images, and wait until they are closed
    ///
    /// What ends with 0 is on the disk. A mount whose server has ended, killed for example, is cleaned up.
    Umount(commands::umount::UmountArgs),
    /// Show what a mount does: throughput, dirty memory, pauses, queue depth, cache hits, its journal
    Status(commands::status::StatusArgs),
    /// Make a link by the name of fuse2fs, so that programs that run fuse2fs run throughline
    ///
    /// Called by that name, throughline takes fuse2fs's arguments and options, and has its exit codes.
    InstallFuse2fs(commands::install::Fuse2fsArgs),
    /// Make the link that mount(8) and fstab need for the type fuse.throughline
    InstallHelpers(commands::install::HelpersArgs),
    /// Show what the I/O path did while a command ran
    ///
    /// Without --kernel the command is one of throughline's own (explain cp a.bin disk.img:/b), and its account comes from our
    /// engine: bytes asked for, bios, their sizes, splits and merges, the time to the first bio, queue depth, pauses, cache hits,
    /// journal commits. With --kernel it is any command, and its account comes from the kernel's tracepoints (explain --kernel --
    /// dd if=/dev/zero of=/mnt/f bs=4M count=10 oflag=direct). The account goes to standard error, behind what the command itself
    /// says there.
    ///
    /// An account is of an image, file or device, from opening to closing it; of an experiment ('lab run NAME', 'lab founding'), of
    /// a variant, in its measured samples. Watching takes time: figures that are measured under it are not those without.
    ///
    /// 'explain mount IMAGE DIR' stays in the foreground, and tells when it is unmounted what programs had the mount do. What other
    /// processes do is not in it: of a mount that is there already 'throughline status DIR' tells, of the targets dir:, file: and
    /// make: of 'lab run' --kernel, of mount: and fuse2fs: neither, and nor of the experiments mount/… and cp/…, which start
    /// servers and programs of their own.
    ///
    /// Files that --out kept are for 'lab compare' and 'lab report' too, which show accounts side by side.
    ///
    /// Exit codes: those of the command. With --kernel 128 and the signal's number where a signal ended it, and 125 where the
    /// kernel could not be watched, 126 where the command could not be run, 127 where there is no such command.
    Explain(commands::explain::ExplainArgs),
    /// Measure, compare, bisect and report what I/O paths do: ours, or any file system's
    Lab(commands::lab::LabArgs),
    /// Print the places that begin with a word, for shells
    #[command(hide = true)]
    CompletePlace(commands::complete::CompleteArgs),
    /// Print completions for a shell, those of places in images among them
    Completions(commands::generate::CompletionsArgs),
    /// Write the manual pages into a directory, or the main one to standard output
    Man(commands::generate::ManArgs),
}

/// An option for all commands.
pub(crate) fn is_global(arg: &clap::Arg) -> bool {
    arg.get_help_heading() == Some(GLOBAL_OPTIONS)
}

/// The command line for its help: options for all commands are shown once, with the program's, and not with every command's.
pub(crate) fn for_help() -> clap::Command {
    fn without_globals(command: clap::Command) -> clap::Command {
        let command = command.mut_args(|arg| match is_global(&arg) {
            true => arg.hide(true),
            false => arg,
        });
        let note = "Options for all commands: throughline --help";
        let after = match command.get_after_long_help() {
            Some(text) => format!("{text}\n\n{note}"),
            None => note.to_owned(),
        };
        command
            .after_help(note)
            .after_long_help(after)
            .mut_subcommands(without_globals)
    }
    let mut command = Cli::command();
    command.build();
    command.mut_subcommands(without_globals)
}

impl Command {
    /// `--json` was given behind the command's name.
    pub(crate) fn json(&self) -> bool {
        match self {
            Command::Info(args) => args.json.json,
            Command::Cp(args) => args.json,
            Command::Ls(args) => args.json.json,
            Command::Tree(args) => args.json.json,
            Command::Stat(args) => args.json.json,
            Command::Getfattr(args) => args.json.json,
            Command::Df(args) => args.json.json,
            Command::Du(args) => args.json.json,
            Command::Tune(args) => args.json.json,
            Command::Replay(args) => args.json.json,
            Command::Status(args) => args.json.json,
            Command::Lab(args) => args.json(),
            Command::Explain(args) => args.json.json,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CommandFactory;

    #[test]
    fn the_model_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
