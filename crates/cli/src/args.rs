//! The syntax of the command line.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use throughline_face::command_line::{is_global, with_help};
use throughline_face::explain::ExplainArgs;
use throughline_face::globals::Globals;

use crate::{commands, help};

/// The commands that take `--json` after their name, beside those that describe it themselves.
const WITH_JSON: [&str; 13] = [
    "info", "mkfs", "pack", "resize", "ls", "tree", "stat", "getfattr", "df", "du", "tune",
    "replay", "status",
];

fn json(help: &'static str) -> Arg {
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue);
    json.help(help)
}

/// Read, edit and mount ext2, ext3 and ext4 images without root, at the speed of the disk
///
/// IMAGE:/path names a file in an image (a file or a block device), - is standard input or output, and
/// everything else is a path on the host. IMAGE:/path is a host path only if IMAGE does not exist and the
/// directory 'IMAGE:' does. In a disk with partitions, IMAGE means the only partition with an ext file
/// system, IMAGE@2 means partition 2, and IMAGE@root that with the label root.
/// If there is no file of that name, a command that reads takes * and ? in /path as a pattern. A command that
/// changes or removes files does so only with --glob: quotes do not pass the shell.
/// IMAGE may be an object in object storage, which is only read: s3://BUCKET/KEY, gs://, az:// or https://.
/// If its URL has a password (https://USER:PASSWORD@HOST/KEY) or a signature (a query), that is shown
/// nowhere, and the list of processes has it only for a moment. It need not be in an argument at all: name
/// the URL without it, and have the whole URL in THROUGHLINE_URLS (several are separated by white space), or
/// in a file that THROUGHLINE_URLS_FILE names, one a line.
#[derive(Debug, Parser)]
#[command(
    name = "throughline",
    version,
    arg_required_else_help = true,
    override_help = help::SCREEN,
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// Print results as JSON (info, mkfs, pack, resize, ls, tree, stat, getfattr, df, du, tune, replay,
    /// overlay diff, status, explain, cp --stats, lab bisect, lab compare, lab founding, lab gate, lab
    /// models)
    #[arg(long)]
    pub(crate) json: bool,
    /// Options for all commands.
    #[command(flatten)]
    pub(crate) globals: Globals,
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// The description of the command line.
    pub(crate) fn command() -> clap::Command {
        let command = <Cli as CommandFactory>::command()
            .mut_subcommand("overlay", |all| {
                all.mut_subcommand("diff", |diff| diff.arg(json("Print the result as JSON")))
            })
            .mut_subcommand("cp", |cp| {
                cp.arg(json("Print the output of --stats as JSON").requires("stats"))
            });
        with_help(WITH_JSON.iter().fold(command, |all, name| {
            all.mut_subcommand(name, |one| one.arg(json("Print the result as JSON")))
        }))
    }

    /// Parses the words of a command line, the first of which is the program's name.
    pub(crate) fn try_parse_from(
        words: impl IntoIterator<Item = OsString>,
    ) -> Result<Cli, clap::Error> {
        Cli::of_matches(&Cli::command().try_get_matches_from(words)?)
    }

    fn of_matches(matches: &ArgMatches) -> Result<Cli, clap::Error> {
        let json = has_json(matches);
        Cli::from_arg_matches(matches).map(|cli| Cli { json, ..cli })
    }

    /// The same for a command that is run inside another one, with the images that are open already. A global
    /// option that would have no effect there is an error.
    pub(crate) fn try_parse_inner(
        words: impl IntoIterator<Item = OsString>,
    ) -> Result<Cli, clap::Error> {
        let mut command = Cli::command();
        let matches = command.try_get_matches_from_mut(words)?;
        match outer_option(&command, &matches) {
            Some(option) => Err(command.error(
                clap::error::ErrorKind::ArgumentConflict,
                format!(
                    "--{option} has no effect on a single command of 'shell' or 'find -exec': give it to \
                     'shell' or 'find' itself"
                ),
            )),
            None => Cli::of_matches(&matches),
        }
    }
}

/// Whether `--json` was given, before or after the command's name.
fn has_json(matches: &ArgMatches) -> bool {
    let inner = matches.subcommand().map(|(_, inner)| inner);
    matches!(matches.try_get_one("json"), Ok(Some(true))) || inner.is_some_and(has_json)
}

/// A given option that applies to a whole run of the program: a global one, except `--quiet`.
fn outer_option<'a>(command: &'a clap::Command, matches: &ArgMatches) -> Option<&'a str> {
    let given = |arg: &&Arg| {
        let id = arg.get_id().as_str();
        id != "quiet" && matches.value_source(id) == Some(ValueSource::CommandLine)
    };
    let globals = command.get_arguments().filter(|arg| is_global(arg));
    globals.filter(given).find_map(Arg::get_long)
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show features, geometry, free space, state and I/O settings of an image
    Info(commands::info::InfoArgs),
    /// Make an ext2, ext3 or ext4 file system in a file or on a block device
    ///
    /// The options are those of mke2fs(8), and so is the layout. Defaults are read from mke2fs.conf
    /// (MKE2FS_CONFIG, /etc/mke2fs.conf); Debian's are built in. In a new file, blocks of zeros are holes.
    ///
    /// A target that is not blank is refused without -F; one that is mounted or in use is always refused.
    ///
    /// With SOURCE_DATE_EPOCH in the environment, all times are that time, and a UUID and a hash seed that
    /// are not given follow from the options: the same command makes the same bytes.
    Mkfs(Box<commands::mkfs::MkfsArgs>),
    /// Pack directories, archives and container images into a new image
    ///
    /// The image is an ext4 file system, or what the options of mkfs say, and by default the smallest that
    /// holds the sources. It is planned before anything is written, and gets its name when it is complete and
    /// durable. No root is needed: owners, devices and attributes are taken as they are in the sources.
    ///
    /// The same sources, options and version make the same bytes. The UUID and the hash seed follow from the
    /// content unless -U or -E hash_seed= gives them. With SOURCE_DATE_EPOCH in the environment, the file
    /// system gets that time, and later times of files are set to it. mke2fs.conf is not read.
    ///
    /// docker://NAME is fetched from its registry into a temporary file (TMPDIR), with the credentials of
    /// podman, skopeo or docker (REGISTRY_AUTH_FILE, containers/auth.json, ~/.docker/config.json), and with
    /// the certificates of the system or of SSL_CERT_FILE. With a digest in NAME, it is always the same.
    Pack(Box<commands::pack::PackArgs>),
    /// Write a directory of an image as a tar archive
    ///
    /// The archive is sorted by name and the same every time. It is in the PAX format: times with their
    /// fractions, long names, extended attributes, ACLs, and sparse files, as GNU tar and libarchive read
    /// them. A file with several names is in it once. Sockets, which a tar cannot hold, the flags of inodes,
    /// and an empty lost+found are left out. 'throughline pack' makes the same tree of it.
    ///
    /// The image is only read, also if it needs recovery.
    Tar(commands::tar::TarArgs),
    /// Grow or shrink an image that is not mounted
    ///
    /// SIZE is the new size (K, M, G and T are powers of 1024), +SIZE so much more, max all of the device or
    /// of the file, and min as little as possible. A file is lengthened, or cut where the volume ends. A last
    /// block group that would hold little beside its metadata is left out.
    ///
    /// What is beyond the new end of a smaller volume moves; inodes that move get other numbers. A size that
    /// is too small is refused, with the smallest that is possible.
    ///
    /// An image that needs recovery is recovered first. One that is damaged, or was not closed cleanly and
    /// has nothing to replay, is refused: run e2fsck -f on it.
    ///
    /// Interrupted at any moment, even by a power cut, this leaves the image whole, with all files, and with
    /// the old, the new or a size in between. The same command completes it; e2fsck -fy repairs it. Without a
    /// journal, an image that was to shrink needs e2fsck -fy first.
    Resize(commands::resize::ResizeArgs),
    /// List directories
    Ls(commands::ls::LsArgs),
    /// Show a directory tree
    Tree(commands::tree::TreeArgs),
    /// Show the attributes of a file
    Stat(commands::stat::StatArgs),
    /// Write files to standard output
    Cat(commands::cat::CatArgs),
    /// Copy into, out of, between and inside images
    ///
    /// Copies between images, the host and streams, in any direction. Holes are preserved, and so are hard
    /// links between files of the same copy. Symbolic links below the target are not followed. Extended
    /// attributes are copied with -a, --preserve=xattr and --preserve=all; access control lists (ACLs)
    /// whenever the mode is preserved: -p, -a, --preserve=mode.
    Cp(commands::cp::CpArgs),
    /// Remove files and directories
    Rm(commands::rm::RmArgs),
    /// Make directories
    Mkdir(commands::mkdir::MkdirArgs),
    /// Rename or move inside one image
    Mv(commands::mv::MvArgs),
    /// Make hard or symbolic links
    ///
    /// The target of a hard link is a file in the same image. The target of a symbolic link is text: ln -s
    /// ../lib IMAGE:/usr/lib. If it is given as a path in the same image (IMAGE:/path), only the path is
    /// stored.
    Ln(commands::ln::LnArgs),
    /// Print the target of a symbolic link
    Readlink(commands::readlink::ReadlinkArgs),
    /// Change permission bits
    Chmod(commands::chmod::ChmodArgs),
    /// Change owner and group
    Chown(commands::chown::ChownArgs),
    /// Find files by name, type, size, age, owner or permissions
    Find(commands::find::FindArgs),
    /// Make devices, fifos and sockets
    Mknod(commands::mknod::MknodArgs),
    /// Show extended attributes
    Getfattr(commands::getfattr::GetfattrArgs),
    /// Set or remove extended attributes
    Setfattr(commands::setfattr::SetfattrArgs),
    /// Show access control lists (ACLs)
    Getfacl(commands::getfacl::GetfaclArgs),
    /// Change access control lists (ACLs)
    Setfacl(commands::setfacl::SetfaclArgs),
    /// Show the flags of files: immutable, append-only and others
    Lsattr(commands::lsattr::LsattrArgs),
    /// Change the flags of files
    Chattr(commands::chattr::ChattrArgs),
    /// Show or set the label of an image
    Label(commands::label::LabelArgs),
    /// Show or set the UUIDs of images
    Uuid(commands::label::UuidArgs),
    /// Change file times, or create empty files
    Touch(commands::touch::TouchArgs),
    /// Set the size of files
    Truncate(commands::truncate::TruncateArgs),
    /// Run many commands on one open image, from a file, a pipe or a terminal
    ///
    /// The image is opened once. With commands from a file or a pipe, the shell stops at the first command
    /// that fails and exits with its code, unless --keep-going is given.
    Shell(commands::shell::ShellArgs),
    /// Show free space
    Df(commands::df::DfArgs),
    /// Show how much space files use
    Du(commands::du::DuArgs),
    /// Show the settings of the I/O path to an image, a file or a device, and measure it
    ///
    /// The settings are derived from the machine and the device, or given by global options for this run;
    /// nothing is stored. --measure reads a part of the device, past all caches, with I/Os of several sizes.
    Tune(commands::tune::TuneArgs),
    /// Recover images that were not closed cleanly: replay the journal, and nothing else
    ///
    /// Replays the journal, including fast commits, frees files without a name, finishes interrupted
    /// truncations, and leaves the journal empty. An image that needs no recovery is not changed. Every
    /// command that changes an image does the same first. The exit codes are those of e2fsck.
    Replay(commands::replay::ReplayArgs),
    /// Work with overlays: list what one changed, merge it into a new image, lay it over another base
    ///
    /// --overlay FILE, of mount, cp and every command that changes an image, writes the changes to FILE, a
    /// qcow2 image that QEMU can use, too. The commands here need the base to be allowed, as every image that
    /// names another file: --backing BASE.
    Overlay(commands::overlay::OverlayArgs),
    /// Mount an image as a directory for all programs, without root
    ///
    /// Returns when the mount is ready and leaves a server in the background, which 'throughline umount'
    /// ends. Without root, fusermount3 is needed (Debian package fuse3).
    Mount(commands::mount::MountArgs),
    /// Unmount images, and wait until they are closed
    ///
    /// With exit code 0, all data is on the disk. A mount whose server is dead (killed, for example) is
    /// removed.
    Umount(commands::umount::UmountArgs),
    /// Show the state of a mount: throughput, dirty memory, pauses, queue depth, cache hits, journal
    Status(commands::status::StatusArgs),
    /// Install throughline under the name fuse2fs, for programs that run fuse2fs
    ///
    /// This makes a link. Run through it, throughline takes fuse2fs's arguments and options, and returns its
    /// exit codes.
    InstallFuse2fs(commands::install::NamesArgs),
    /// Install throughline under the names mke2fs, mkfs.ext2, mkfs.ext3 and mkfs.ext4
    ///
    /// This makes links. Run through them, throughline takes mke2fs's arguments, has its defaults, and
    /// returns 1 for every failure.
    InstallMke2fs(commands::install::NamesArgs),
    /// Install the link that mount(8) and fstab need for the type fuse.throughline
    InstallHelpers(commands::install::HelpersArgs),
    /// Show what the I/O path did while a command ran
    ///
    /// Without --kernel, the command is one of throughline's (explain cp a.bin disk.img:/b), and the account
    /// comes from our engine: bytes requested, bios, their sizes, splits and merges, the time to the first
    /// bio, queue depth, pauses, cache hits, journal commits. With --kernel, it is any command, and the
    /// account comes from the kernel's tracepoints (explain --kernel -- dd if=/dev/zero of=/mnt/f bs=4M
    /// count=10 oflag=direct). The account is written to standard error after the command's own output.
    ///
    /// There is one account for each image, file or device, from open to close; for an experiment ('lab run
    /// NAME', 'lab founding'), one for each variant, over its measured samples. Tracing costs time: figures
    /// measured with it differ from those without.
    ///
    /// 'explain mount IMAGE DIR' stays in the foreground and prints, after the unmount, what the mount did
    /// for all programs. The work of other processes is not included: for an existing mount use 'throughline
    /// status DIR'; for the targets dir:, file: and make: of 'lab run' use --kernel. The targets mount: and
    /// fuse2fs: and the experiments mount/… and cp/…, which start their own servers and programs, cannot be
    /// explained.
    ///
    /// 'lab compare' and 'lab report' also read the files that --out writes, and show accounts side by side.
    Explain(ExplainArgs),
    /// Measure, compare, bisect and report on I/O paths: ours, or that of any file system
    #[command(disable_help_flag = true, arg = commands::lab::words())]
    Lab,
    /// Print the paths in images that begin with a word, for shell completion
    #[command(hide = true)]
    CompletePlace(commands::complete::CompleteArgs),
    /// Print completions for a shell, including paths in images
    Completions(commands::generate::CompletionsArgs),
    /// Write the manual pages into a directory, or the main one to standard output
    Man(commands::generate::ManArgs),
}

impl Command {
    /// Whether it works on images, and needs nothing else. The others start programs, mount, or do not work
    /// on images.
    pub(crate) fn works_on_images(&self) -> bool {
        use Command as C;
        !matches!(
            self,
            C::Mount(_)
                | C::Umount(_)
                | C::Status(_)
                | C::InstallFuse2fs(_)
                | C::InstallMke2fs(_)
                | C::InstallHelpers(_)
                | C::Explain(_)
                | C::Lab
                | C::Completions(_)
                | C::Man(_)
        )
    }
}

#[cfg(test)]
mod tests {
    use throughline_face::command_line::assert_consistent;

    #[test]
    fn the_model_is_consistent() {
        let commands = assert_consistent(super::Cli::command());
        assert!(commands > 40, "{commands} commands");
    }
}
