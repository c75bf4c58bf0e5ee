//! Options of when changes become durable.

use super::{Known, flag, sets, with_value};
use crate::options::group::Group;
use crate::options::size::parse_seconds;

pub(super) const TABLE: &[Known] = &[
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
        "allocate",
        Group::Durability,
        "take room on the host with each write: a sparse image on a full disk refuses the write, not a later \
         fsync (regular files on a host with fallocate)",
        sets!(allocate = true),
    ),
    flag(
        "dirsync",
        Group::Durability,
        "every change of a directory is durable when it returns",
        sets!(dirsync = true),
    ),
];
