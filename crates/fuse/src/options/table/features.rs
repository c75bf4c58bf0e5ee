//! Options of features of the file system.

use throughline::QuotaLimits;

use super::{Known, flag, sets, with_value};
use crate::options::group::Group;
use crate::options::values::parse_id;

pub(super) const TABLE: &[Known] = &[
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
    with_value(
        "resuid",
        "N",
        Group::Features,
        "besides root, this user may use the blocks reserved for root (default: the superblock's)",
        |options, text| {
            options.reserved_user = Some(parse_id(text)?);
            Ok(())
        },
    ),
    with_value(
        "resgid",
        "N",
        Group::Features,
        "members of this group may use them, if it is not 0 (default: the superblock's)",
        |options, text| {
            options.reserved_group = Some(parse_id(text)?);
            Ok(())
        },
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
];
