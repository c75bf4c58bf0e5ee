//! Options of access and permissions.

use super::{Known, flag, sets, with_value};
use crate::options::Access;
use crate::options::group::Group;
use crate::options::values::{parse_id, parse_mask};

pub(super) const TABLE: &[Known] = &[
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
        "the image is a stranger's: ro, nosuid, nodev; no mount without the whole sandbox; no attributes \
         security.* and trusted.*; a bound on the server's memory, and on the time of a request, after which \
         the mount ends",
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
];
