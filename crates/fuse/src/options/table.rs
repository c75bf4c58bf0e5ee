//! The options of `-o`: one table for parsing, for the help, and for suggestions on misspelt names.
//!
//! Invariants: each name is in the table once. An ignored option is in the group for such options in the
//! help, and ignoring it breaks no promise.

use std::path::Path;

use throughline::internal::object_shown;
use throughline::{QuotaLimits, UnknownFormat};
use tracing::level_filters::LevelFilter;

use super::group::Group;
use super::ignored::IGNORED;
use super::size::{parse_offset, parse_seconds};
use super::values::{named, parse_id, parse_mask, parse_on_error};
use super::{Access, Atime, CacheSize, MountOptions};

/// One option.
pub struct Known {
    /// The word before the `=`.
    pub name: &'static str,
    /// The placeholder of the value after the `=`, for the help; empty if it takes none.
    pub value: &'static str,
    /// Its help text.
    pub help: &'static str,
    /// Its group in the help.
    pub group: Group,
    /// Sets it from the text after the `=`. The error says what a valid value is.
    pub(super) set: Setter,
}

pub(super) type Setter = fn(&mut MountOptions, &str) -> Result<(), String>;

/// All options that are accepted.
pub fn known() -> impl Iterator<Item = &'static Known> {
    TABLE.iter().chain(IGNORED)
}

const fn flag(name: &'static str, group: Group, help: &'static str, set: Setter) -> Known {
    with_value(name, "", group, help, set)
}

pub(super) const fn with_value(
    name: &'static str,
    value: &'static str,
    group: Group,
    help: &'static str,
    set: Setter,
) -> Known {
    Known {
        name,
        value,
        help,
        group,
        set,
    }
}

macro_rules! sets {
    ($($field:ident).+ = $value:expr) => {
        |options: &mut MountOptions, _: &str| {
            options.$($field).+ = $value;
            Ok(())
        }
    };
}

/// The options that have an effect, except those of [`super::Choices`], which have their own list.
static TABLE: &[Known] = &[
    flag(
        "ro",
        Group::Image,
        "read-only: no byte of the image changes",
        sets!(read_only = true),
    ),
    flag(
        "rw",
        Group::Image,
        "read and write (the default)",
        sets!(read_only = false),
    ),
    with_value(
        "offset",
        "BYTES",
        Group::Image,
        "start of the volume in the image (units: K, M, G; s for sectors of 512 bytes)",
        |options, text| {
            options.offset_bytes = parse_offset(text)?;
            Ok(())
        },
    ),
    with_value(
        "partition",
        "NAME",
        Group::Image,
        "the partition to mount, by number, label or UUID; without it, the only one with an ext volume",
        |options, text| {
            options.partition = Some(text.to_owned());
            Ok(())
        },
    ),
    with_value(
        "format",
        "FORMAT",
        Group::Image,
        "the format of the image, instead of by its content: raw, qcow2, vmdk or vhdx (the last two: ro)",
        |options, text| {
            let format = text.parse();
            options.format = Some(format.map_err(|error: UnknownFormat| error.to_string())?);
            Ok(())
        },
    ),
    with_value(
        "backing",
        "PATH",
        Group::Image,
        "allow the image to have this backing file, or backing files in this directory (may be repeated)",
        |options, text| {
            // The server changes its working directory. A URL is whole as it is.
            let path = match object_shown(Path::new(text)) {
                Some(_) => text.into(),
                None => std::path::absolute(text).map_err(|error| error.to_string())?,
            };
            options.backing.push(path);
            Ok(())
        },
    ),
    with_value(
        "overlay",
        "FILE",
        Group::Image,
        "write changes to this qcow2 image, not to the image itself; it is made if it is not there",
        |options, text| {
            let path = std::path::absolute(text).map_err(|error| error.to_string())?;
            options.overlay = Some(path);
            Ok(())
        },
    ),
    with_value(
        "journal_path",
        "PATH",
        Group::Image,
        "the device or file of an external journal",
        |options, text| {
            // The server changes its working directory.
            let path = std::path::absolute(text).map_err(|error| error.to_string())?;
            options.journal = Some(path);
            Ok(())
        },
    ),
    flag(
        "noload",
        Group::Image,
        "show the image without replaying its journal; only with ro",
        sets!(no_replay = true),
    ),
    flag(
        "norecovery",
        Group::Image,
        "the same as noload,ro, as in fuse2fs",
        |options, _| {
            options.no_replay = true;
            options.read_only = true;
            Ok(())
        },
    ),
    flag(
        "resize",
        Group::Image,
        "grow the volume to the size of its device or file before it is mounted; not with ro",
        sets!(resize = true),
    ),
    with_value(
        "errors",
        "HOW",
        Group::Image,
        "on damage: continue, remount-ro (no more changes) or panic (treated as remount-ro); default: from \
         the superblock",
        |options, text| {
            options.errors = Some(parse_on_error(text)?);
            Ok(())
        },
    ),
    with_value(
        "cache_size",
        "SIZE",
        Group::Image,
        "memory for the page cache (64M, 1G), or a share of the memory this process may use (25%); default: \
         a quarter of it, at most 256M",
        |options, text| {
            options.cache = Some(CacheSize::parse(text)?);
            Ok(())
        },
    ),
    flag(
        "allow_other",
        Group::Access,
        "all users have access, subject to permissions (without root, /etc/fuse.conf must have \
         user_allow_other)",
        sets!(access = Access::All),
    ),
    flag(
        "allow_root",
        Group::Access,
        "root has access too",
        sets!(access = Access::OwnerAndRoot),
    ),
    flag(
        "default_permissions",
        Group::Access,
        "the kernel checks permissions and ACLs (the default, except with fakeroot)",
        sets!(default_permissions = true),
    ),
    flag(
        "fakeroot",
        Group::Access,
        "users with access have root's rights, as far as the kernel leaves the checks to this program",
        sets!(fakeroot = true),
    ),
    with_value(
        "uid",
        "N",
        Group::Access,
        "show all files as owned by this user ID",
        |options, text| {
            options.uid = Some(parse_id(text)?);
            Ok(())
        },
    ),
    with_value(
        "gid",
        "N",
        Group::Access,
        "show all files as owned by this group ID",
        |options, text| {
            options.gid = Some(parse_id(text)?);
            Ok(())
        },
    ),
    with_value(
        "umask",
        "OCTAL",
        Group::Access,
        "show all files with permissions 0777 less these bits",
        |options, text| {
            options.umask = Some(parse_mask(text)?);
            Ok(())
        },
    ),
    flag(
        "suid",
        Group::Access,
        "honour set-user-ID and set-group-ID programs (root only)",
        sets!(suid = true),
    ),
    flag(
        "nosuid",
        Group::Access,
        "ignore set-user-ID and set-group-ID bits of programs (the default)",
        sets!(suid = false),
    ),
    flag(
        "dev",
        Group::Access,
        "honour device files (root only)",
        sets!(dev = true),
    ),
    flag(
        "nodev",
        Group::Access,
        "ignore device files (the default)",
        sets!(dev = false),
    ),
    flag(
        "exec",
        Group::Access,
        "allow programs to be run (the default)",
        sets!(exec = true),
    ),
    flag(
        "noexec",
        Group::Access,
        "do not allow programs to be run",
        sets!(exec = false),
    ),
    flag(
        "untrusted",
        Group::Access,
        "the image is a stranger's: ro, nosuid, nodev; no attributes security.* and trusted.*; a bound on the \
         server's memory, and on the time of a request, after which the mount ends",
        |options, _| {
            options.untrusted = true;
            options.read_only = true;
            options.suid = false;
            options.dev = false;
            Ok(())
        },
    ),
    flag(
        "sandbox",
        Group::Access,
        "the server gives up all rights that it does not need (the default)",
        sets!(sandbox = true),
    ),
    flag(
        "nosandbox",
        Group::Access,
        "the server keeps the rights of the user who mounts",
        sets!(sandbox = false),
    ),
    flag(
        "kernel",
        Group::Access,
        "like a kernel mount: allow_other, default_permissions, suid, dev",
        |options, _| {
            options.access = Access::All;
            options.default_permissions = true;
            options.suid = true;
            options.dev = true;
            Ok(())
        },
    ),
    with_value(
        "commit",
        "SECONDS",
        Group::Durability,
        "changes without a sync are durable after this time at the latest (default 5; 0 means the default)",
        |options, text| {
            options.commit = parse_seconds(text)?;
            Ok(())
        },
    ),
    flag(
        "auto_da_alloc",
        Group::Durability,
        "after a crash, a file that was replaced without fsync, by rename or by truncation and rewriting, \
         has its complete old or new content (the default)",
        sets!(auto_da_alloc = true),
    ),
    flag(
        "noauto_da_alloc",
        Group::Durability,
        "a replaced file may be empty after a crash; a rename over a file does not wait for data",
        sets!(auto_da_alloc = false),
    ),
    flag(
        "sync",
        Group::Durability,
        "every write is durable when it returns",
        sets!(sync = true),
    ),
    flag(
        "async",
        Group::Durability,
        "writes are cached, and fsync makes them durable (the default)",
        |options, _| {
            options.sync = false;
            options.dirsync = false;
            Ok(())
        },
    ),
    flag(
        "dirsync",
        Group::Durability,
        "every change of a directory is durable when it returns",
        sets!(dirsync = true),
    ),
    flag(
        "relatime",
        Group::Times,
        "a read sets the access time if it is older than the last change, or than a day (the default)",
        relatime,
    ),
    flag(
        "noatime",
        Group::Times,
        "reads do not set the access time",
        sets!(atime = Atime::Never),
    ),
    flag(
        "strictatime",
        Group::Times,
        "every read sets the access time",
        sets!(atime = Atime::Always),
    ),
    flag(
        "norelatime",
        Group::Times,
        "the same as strictatime",
        sets!(atime = Atime::Always),
    ),
    flag("atime", Group::Times, "the same as relatime", relatime),
    flag(
        "nodiratime",
        Group::Times,
        "reading a directory does not set its access time",
        sets!(dir_atime = false),
    ),
    flag(
        "diratime",
        Group::Times,
        "reading a directory sets its access time like a file's (the default)",
        sets!(dir_atime = true),
    ),
    flag(
        "lazytime",
        Group::Times,
        "changes that affect only times are written with the next other change of the file, a sync, or its \
         last close",
        sets!(lazytime = true),
    ),
    flag(
        "nolazytime",
        Group::Times,
        "times are written like other changes (the default)",
        sets!(lazytime = false),
    ),
    flag(
        "acl",
        Group::Features,
        "show and honour POSIX ACLs (the default)",
        sets!(acl = true),
    ),
    flag(
        "noacl",
        Group::Features,
        "do not show or honour ACLs",
        sets!(acl = false),
    ),
    flag(
        "user_xattr",
        Group::Features,
        "show user.* attributes, and allow them to be set (the default)",
        sets!(user_xattr = true),
    ),
    flag(
        "nouser_xattr",
        Group::Features,
        "do not show user.* attributes, or allow them to be set",
        sets!(user_xattr = false),
    ),
    flag(
        "discard",
        Group::Features,
        "discard freed blocks once the change is durable: they become holes in the image",
        sets!(discard = true),
    ),
    flag(
        "usrquota",
        Group::Features,
        "enforce the limits of users, on a volume with the feature quota",
        sets!(limits.users = true),
    ),
    flag(
        "quota",
        Group::Features,
        "the same as usrquota",
        sets!(limits.users = true),
    ),
    flag(
        "grpquota",
        Group::Features,
        "enforce the limits of groups",
        sets!(limits.groups = true),
    ),
    flag(
        "prjquota",
        Group::Features,
        "enforce the limits of projects",
        sets!(limits.projects = true),
    ),
    flag(
        "noquota",
        Group::Features,
        "enforce no limits; usage is kept nonetheless (the default)",
        sets!(limits = QuotaLimits::default()),
    ),
    flag(
        "nodiscard",
        Group::Features,
        "do not discard freed blocks, except by fstrim (the default)",
        sets!(discard = false),
    ),
    flag(
        "small_files",
        Group::Features,
        "open files without asking the server, as a read-only mount does: faster for many small files, such as \
         source trees; slower for large existing files that are rewritten",
        sets!(small_files = true),
    ),
    flag(
        "grpid",
        Group::Features,
        "new files inherit the group of their directory",
        sets!(group_of_directory = true),
    ),
    flag(
        "bsdgroups",
        Group::Features,
        "the same as grpid",
        sets!(group_of_directory = true),
    ),
    flag(
        "nogrpid",
        Group::Features,
        "new files get the group of their creator, unless the directory is setgid (the default)",
        sets!(group_of_directory = false),
    ),
    flag(
        "sysvgroups",
        Group::Features,
        "the same as nogrpid",
        sets!(group_of_directory = false),
    ),
    flag(
        "minixdf",
        Group::Features,
        "df includes the volume's own metadata in size and used space",
        sets!(minix_df = true),
    ),
    flag(
        "bsddf",
        Group::Features,
        "df does not include the volume's own metadata (the default)",
        sets!(minix_df = false),
    ),
    with_value(
        "fsname",
        "NAME",
        Group::Mount,
        "show this as the source of the mount, instead of the image",
        |options, text| {
            options.fs_name = Some(named(text)?);
            Ok(())
        },
    ),
    with_value(
        "subtype",
        "NAME",
        Group::Mount,
        "show fuse.NAME as the type of the mount, instead of fuse.throughline",
        |options, text| {
            options.subtype = Some(named(text)?);
            Ok(())
        },
    ),
    flag(
        "auto_unmount",
        Group::Mount,
        "unmount when the server ends, for whatever reason",
        sets!(auto_unmount = true),
    ),
    flag(
        "remount",
        Group::Mount,
        "change the existing mount: ro makes it read-only, which rw cannot undo",
        sets!(remount = true),
    ),
    flag(
        "direct_io",
        Group::Mount,
        "do not cache file data in the kernel",
        sets!(choices.direct_io = true),
    ),
    with_value(
        "log",
        "LEVEL",
        Group::Mount,
        "the server's log level: off, error, warn (the default), info, debug or trace",
        |options, text| {
            options.log = Some(
                text.parse()
                    .map_err(|_| "write off, error, warn, info, debug or trace".to_owned())?,
            );
            Ok(())
        },
    ),
    with_value(
        "log_file",
        "FILE",
        Group::Mount,
        "log to this file, instead of to syslog",
        |options, text| {
            options.log_file = Some(named(text)?.into());
            Ok(())
        },
    ),
    flag(
        "debug",
        Group::Mount,
        "stay in the foreground and log every request",
        sets!(debug = true),
    ),
    flag(
        "fuse2fs_debug",
        Group::Mount,
        "the same as log=debug",
        sets!(log = Some(LevelFilter::DEBUG)),
    ),
];

fn relatime(options: &mut MountOptions, _: &str) -> Result<(), String> {
    options.atime = Atime::Relative;
    options.relatime_said = true;
    Ok(())
}
