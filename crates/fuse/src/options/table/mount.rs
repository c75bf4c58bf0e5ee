//! Options of the mount and its server.

use tracing::level_filters::LevelFilter;

use super::{Known, flag, sets, with_value};
use crate::options::group::Group;
use crate::options::values::named;

pub(super) const TABLE: &[Known] = &[
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
