//! Options that are taken and do nothing, and those that are known and refused.
//!
//! Invariant: what is taken promises nothing that we would break by ignoring it: it says what is so anyway, is meant for another
//! program, or tunes what is another way here.

use super::MountOptions;
use super::table::{Group, Known, with_value};

const fn ignored(name: &'static str, value: &'static str) -> Known {
    with_value(name, value, Group::Ignored, "", |_, _| Ok(()))
}

/// Taken, and without a meaning here.
pub(super) static IGNORED: &[Known] = &[
    // What mount(8), fstab and systemd write for themselves.
    ignored("defaults", ""),
    ignored("auto", ""),
    ignored("noauto", ""),
    ignored("nofail", ""),
    ignored("_netdev", ""),
    ignored("user", "[=NAME]"),
    ignored("nouser", ""),
    ignored("users", ""),
    ignored("nousers", ""),
    ignored("owner", ""),
    ignored("noowner", ""),
    ignored("group", ""),
    ignored("nogroup", ""),
    ignored("loop", ""),
    ignored("silent", ""),
    ignored("loud", ""),
    ignored("iversion", ""),
    ignored("noiversion", ""),
    ignored("nomand", ""),
    ignored("comment", "TEXT"),
    ignored("uhelper", "NAME"),
    ignored("helper", "NAME"),
    // libfuse's, which say what is so anyway, or tune a path that is another here.
    ignored("nonempty", ""),
    ignored("use_ino", ""),
    ignored("readdir_ino", ""),
    ignored("hard_remove", ""),
    ignored("kernel_cache", ""),
    ignored("auto_cache", ""),
    ignored("noauto_cache", ""),
    ignored("big_writes", ""),
    ignored("large_read", ""),
    ignored("atomic_o_trunc", ""),
    ignored("async_read", ""),
    ignored("sync_read", ""),
    // Locks are between the programs and the kernel: it never asks us.
    ignored("no_remote_lock", ""),
    ignored("no_remote_flock", ""),
    ignored("no_remote_posix_lock", ""),
    ignored("splice_read", ""),
    ignored("no_splice_read", ""),
    ignored("splice_write", ""),
    ignored("no_splice_write", ""),
    ignored("splice_move", ""),
    ignored("no_splice_move", ""),
    with_value("modules", "[=iconv]", Group::Ignored, "", modules),
    with_value("from_code", "UTF-8", Group::Ignored, "", same_bytes),
    with_value("to_code", "UTF-8", Group::Ignored, "", same_bytes),
    // What mount(8) takes from the list of mounts where it changes one.
    with_value("user_id", "N", Group::Ignored, "", as_listed),
    with_value("group_id", "N", Group::Ignored, "", as_listed),
    with_value("rootmode", "N", Group::Ignored, "", as_listed),
    with_value("blksize", "N", Group::Ignored, "", as_listed),
    ignored("intr", ""),
    ignored("noforget", ""),
    ignored("nopath", ""),
    ignored("clone_fd", ""),
    ignored("remember", "SECONDS"),
    ignored("entry_timeout", "SECONDS"),
    ignored("negative_timeout", "SECONDS"),
    ignored("attr_timeout", "SECONDS"),
    ignored("ac_attr_timeout", "SECONDS"),
    ignored("intr_signal", "NUMBER"),
    ignored("max_read", "BYTES"),
    ignored("max_write", "BYTES"),
    ignored("max_readahead", "BYTES"),
    ignored("max_background", "NUMBER"),
    ignored("max_threads", "NUMBER"),
    ignored("max_idle_threads", "NUMBER"),
    ignored("congestion_threshold", "NUMBER"),
    // fuse2fs's and the kernel's ext4's, of the same kind.
    ignored("no_default_opts", ""),
    ignored("directio", ""),
    ignored("lockfile", "FILE"),
    ignored("oom_score_adj", "NUMBER"),
    ignored("delalloc", ""),
    ignored("block_validity", ""),
    ignored("noblock_validity", ""),
    ignored("barrier", "[=1]"),
    ignored("journal_checksum", ""),
    ignored("nojournal_checksum", ""),
    ignored("init_itable", "[=N]"),
    ignored("noinit_itable", ""),
    ignored("dioread_nolock", ""),
    ignored("dioread_lock", ""),
    ignored("stripe", "BLOCKS"),
    ignored("inode_readahead_blks", "BLOCKS"),
    ignored("max_batch_time", "MICROSECONDS"),
    ignored("min_batch_time", "MICROSECONDS"),
    ignored("nombcache", ""),
    ignored("no_mbcache", ""),
    with_value("data", "ordered", Group::Ignored, "", |_, text| {
        match text {
        // What writeback allows is less than ordered, which is what there is.
        "ordered" | "writeback" => Ok(()),
        _ => Err("data is written before the metadata that speaks of it, data=ordered: there is no other way".into()),
    }
    }),
];

/// libfuse's modules: the one that turns names from a character set into another leaves them as they are between two that
/// are the same, as they are where it is told nothing.
fn modules(_: &mut MountOptions, names: &str) -> Result<(), String> {
    let mut names = names.split(':').filter(|name| !name.is_empty());
    match names.find(|name| *name != "iconv") {
        None => Ok(()),
        Some("subdir") => Err(
            "the root of a mount is the volume's: mount the whole, and bind the directory".into(),
        ),
        Some(_) => Err(
            "there is no such module: iconv is there, which leaves names in UTF-8 as they are"
                .into(),
        ),
    }
}

/// A character set that names are taken to be in: they are bytes here, and stay the same.
fn same_bytes(_: &mut MountOptions, set: &str) -> Result<(), String> {
    match set.to_ascii_uppercase().as_str() {
        "UTF-8" | "UTF8" | "" => Ok(()),
        _ => Err("names stay the bytes that they are: write UTF-8".into()),
    }
}

fn as_listed(options: &mut MountOptions, _: &str) -> Result<(), String> {
    options.as_listed = true;
    Ok(())
}

/// Options that are known, and refused: name, and why.
pub(super) static REFUSED: &[(&str, &str)] = &[
    ("bind", "that is for 'mount --bind'"),
    (
        "nobarrier",
        "flushes are what makes fsync a promise: they stay",
    ),
    (
        "subdir",
        "the root of a mount is the volume's: mount the whole, and bind the directory",
    ),
    ("dax", "an image is not memory"),
    ("usrquota", "quotas are not kept"),
    ("grpquota", "quotas are not kept"),
    ("prjquota", "quotas are not kept"),
    ("sb", "another superblock is for 'e2fsck -b' to read"),
];
