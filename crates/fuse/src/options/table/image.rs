//! Options of the image, and of how it is opened.

use std::path::Path;

use throughline::UnknownFormat;
use throughline::internal::object_shown;

use super::{Known, flag, sets, with_value};
use crate::options::CacheSize;
use crate::options::group::Group;
use crate::options::size::parse_offset;
use crate::options::values::parse_on_error;

pub(super) const TABLE: &[Known] = &[
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
];
