//! The options of `-o`: one table, from which they are read, explained and, when misspelt, guessed.
//!
//! Invariants: a name is in the table once; an option that is accepted and does nothing says so in its help, and none of
//! them is one whose promise we would break by ignoring it.

use tracing::level_filters::LevelFilter;

use super::ignored::IGNORED;
use super::size::{parse_offset, parse_seconds};
use super::values::{named, parse_id, parse_mask, parse_on_error};
use super::{Access, Atime, CacheSize, MountOptions};

/// One option.
pub struct Known {
    /// The word before the `=`.
    pub name: &'static str,
    /// What stands behind the `=`, for the help; empty: nothing does.
    pub value: &'static str,
    /// What it is for.
    pub help: &'static str,
    /// Where it is shown.
    pub group: Group,
    /// Enters it; the text is what stood behind the `=`. The error says what would be right.
    pub(super) set: Setter,
}

pub(super) type Setter = fn(&mut MountOptions, &str) -> Result<(), String>;

/// What an option is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The image and how it is opened.
    Image,
    /// Who may do what.
    Access,
    /// When changes become durable.
    Durability,
    /// Times of files.
    Times,
    /// What the file system offers.
    Features,
    /// How it looks from outside.
    Mount,
    /// Accepted, and without a meaning here.
    Ignored,
}

impl Group {
    /// All, in the order of the help.
    pub const ALL: [Group; 7] = [
        Group::Image,
        Group::Access,
        Group::Durability,
        Group::Times,
        Group::Features,
        Group::Mount,
        Group::Ignored,
    ];

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Group::Image => "The image",
            Group::Access => "Who may do what",
            Group::Durability => "When changes become durable",
            Group::Times => "Times of files",
            Group::Features => "Features",
            Group::Mount => "The mount",
            Group::Ignored => "Accepted, and without a meaning here",
        }
    }
}

/// All options that are taken.
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

/// The options that do something, but those of [`super::Choices`], which have a list of their own.
static TABLE: &[Known] = &[
    flag(
        "ro",
        Group::Image,
        "read only: not one byte of the image changes",
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
        "the volume begins so far inside the image (a unit may follow: K, M, G; s for sectors of 512 bytes)",
        |options, text| {
            options.offset_bytes = parse_offset(text)?;
            Ok(())
        },
    ),
    flag(
        "noload",
        Group::Image,
        "show the image as it lies, without regard to what its journal holds; with ro only",
        sets!(no_replay = true),
    ),
    flag(
        "norecovery",
        Group::Image,
        "the same, and read only, as fuse2fs means it",
        |options, _| {
            options.no_replay = true;
            options.read_only = true;
            Ok(())
        },
    ),
    with_value(
        "errors",
        "HOW",
        Group::Image,
        "where damage is found: continue, remount-ro (no more changes) or panic (taken for remount-ro); else what the superblock says",
        |options, text| {
            options.errors = Some(parse_on_error(text)?);
            Ok(())
        },
    ),
    with_value(
        "cache_size",
        "SIZE",
        Group::Image,
        "memory for the page cache (64M, 1G), or a share of what this process may use (10%); else a quarter of it",
        |options, text| {
            options.cache = Some(CacheSize::parse(text)?);
            Ok(())
        },
    ),
    flag(
        "allow_other",
        Group::Access,
        "all users may look in, as permissions allow (without root, /etc/fuse.conf has to say user_allow_other)",
        sets!(access = Access::All),
    ),
    flag(
        "allow_root",
        Group::Access,
        "root may look in too",
        sets!(access = Access::OwnerAndRoot),
    ),
    flag(
        "default_permissions",
        Group::Access,
        "the kernel checks permissions and ACLs (the default, but for fakeroot)",
        sets!(default_permissions = true),
    ),
    flag(
        "fakeroot",
        Group::Access,
        "who may look in may do all that root may, as far as the kernel leaves it to this program",
        sets!(fakeroot = true),
    ),
    with_value(
        "uid",
        "N",
        Group::Access,
        "all files look as this user's",
        |options, text| {
            options.uid = Some(parse_id(text)?);
            Ok(())
        },
    ),
    with_value(
        "gid",
        "N",
        Group::Access,
        "all files look as this group's",
        |options, text| {
            options.gid = Some(parse_id(text)?);
            Ok(())
        },
    ),
    with_value(
        "umask",
        "OCTAL",
        Group::Access,
        "all files look as if everybody had every right to them but these",
        |options, text| {
            options.umask = Some(parse_mask(text)?);
            Ok(())
        },
    ),
    flag(
        "suid",
        Group::Access,
        "set-user-ID and set-group-ID programs work as such (root only)",
        sets!(suid = true),
    ),
    flag(
        "nosuid",
        Group::Access,
        "they do not (the default)",
        sets!(suid = false),
    ),
    flag(
        "dev",
        Group::Access,
        "device files work as such (root only)",
        sets!(dev = true),
    ),
    flag(
        "nodev",
        Group::Access,
        "they do not (the default)",
        sets!(dev = false),
    ),
    flag(
        "exec",
        Group::Access,
        "programs may be run (the default)",
        sets!(exec = true),
    ),
    flag("noexec", Group::Access, "they may not", sets!(exec = false)),
    flag(
        "kernel",
        Group::Access,
        "as the kernel's own mount: allow_other, default_permissions, suid, dev",
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
        "what nobody synced is durable after so long at the latest (5; 0 means 5 too)",
        |options, text| {
            options.commit = parse_seconds(text)?;
            Ok(())
        },
    ),
    flag(
        "auto_da_alloc",
        Group::Durability,
        "a file that is replaced, by a rename or written anew, is whole after a crash without fsync, old or new (the default)",
        sets!(auto_da_alloc = true),
    ),
    flag(
        "noauto_da_alloc",
        Group::Durability,
        "it may be empty then; a rename over a file waits for nothing",
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
        "writes are staged, fsync makes them durable (the default)",
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
        "a read sets the access time where it is older than the last change, or than a day (the default)",
        relatime,
    ),
    flag(
        "noatime",
        Group::Times,
        "reads leave the access time alone",
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
        "the same",
        sets!(atime = Atime::Always),
    ),
    flag("atime", Group::Times, "as relatime", relatime),
    flag(
        "nodiratime",
        Group::Times,
        "reading directories leaves their access time alone",
        sets!(dir_atime = false),
    ),
    flag(
        "diratime",
        Group::Times,
        "directories as files (the default)",
        sets!(dir_atime = true),
    ),
    flag(
        "lazytime",
        Group::Times,
        "changes of times alone wait for another change of the file, a sync or its last close",
        sets!(lazytime = true),
    ),
    flag(
        "nolazytime",
        Group::Times,
        "they do not (the default)",
        sets!(lazytime = false),
    ),
    flag(
        "acl",
        Group::Features,
        "POSIX ACLs (the default)",
        sets!(acl = true),
    ),
    flag(
        "noacl",
        Group::Features,
        "none are shown or honoured",
        sets!(acl = false),
    ),
    flag(
        "user_xattr",
        Group::Features,
        "attributes user.* (the default)",
        sets!(user_xattr = true),
    ),
    flag(
        "nouser_xattr",
        Group::Features,
        "none are shown or set",
        sets!(user_xattr = false),
    ),
    flag(
        "discard",
        Group::Features,
        "blocks that are freed become holes of the image, once that is durable",
        sets!(discard = true),
    ),
    flag(
        "nodiscard",
        Group::Features,
        "they do not, but for fstrim (the default)",
        sets!(discard = false),
    ),
    flag(
        "grpid",
        Group::Features,
        "new files take the group of their directory",
        sets!(group_of_directory = true),
    ),
    flag(
        "bsdgroups",
        Group::Features,
        "the same",
        sets!(group_of_directory = true),
    ),
    flag(
        "nogrpid",
        Group::Features,
        "new files take the group of their maker, but where the directory is setgid (the default)",
        sets!(group_of_directory = false),
    ),
    flag(
        "sysvgroups",
        Group::Features,
        "the same",
        sets!(group_of_directory = false),
    ),
    flag(
        "minixdf",
        Group::Features,
        "df counts the volume's own blocks as space, and as used",
        sets!(minix_df = true),
    ),
    flag(
        "bsddf",
        Group::Features,
        "df leaves them out (the default)",
        sets!(minix_df = false),
    ),
    with_value(
        "fsname",
        "NAME",
        Group::Mount,
        "the source that is shown of the mount, instead of the image",
        |options, text| {
            options.fs_name = Some(named(text)?);
            Ok(())
        },
    ),
    with_value(
        "subtype",
        "NAME",
        Group::Mount,
        "the type that is shown of the mount is fuse.NAME, instead of fuse.throughline",
        |options, text| {
            options.subtype = Some(named(text)?);
            Ok(())
        },
    ),
    flag(
        "auto_unmount",
        Group::Mount,
        "the mount goes when the server does, however that ends",
        sets!(auto_unmount = true),
    ),
    flag(
        "remount",
        Group::Mount,
        "change the mount that is there: ro makes it read-only, rw ends that where it was mounted so",
        sets!(remount = true),
    ),
    flag(
        "direct_io",
        Group::Mount,
        "nothing of any file goes into the kernel's cache",
        sets!(choices.direct_io = true),
    ),
    with_value(
        "log",
        "LEVEL",
        Group::Mount,
        "what the server logs: off, error, warn (the default), info, debug or trace",
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
        "it logs there, instead of to the system's log",
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
        "log as much as log=debug does",
        sets!(log = Some(LevelFilter::DEBUG)),
    ),
];

fn relatime(options: &mut MountOptions, _: &str) -> Result<(), String> {
    options.atime = Atime::Relative;
    options.relatime_said = true;
    Ok(())
}
