//! Options that are accepted and ignored, and options that are known and refused.
//!
//! Invariant: ignoring an accepted option breaks no promise. Such an option requests what is the case anyway,
//! is meant for another program, or tunes something that does not exist here.

use super::MountOptions;
use super::group::Group;
use super::table::{Known, with_value};

const fn ignored(name: &'static str, value: &'static str) -> Known {
    with_value(name, value, Group::Ignored, "", |_, _| Ok(()))
}

/// Accepted and ignored.
pub(super) static IGNORED: &[Known] = &[
    // For mount(8), fstab and systemd.
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
    // libfuse's: they request what is the case anyway, or tune code that does not exist here.
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
    // The kernel handles file locks itself.
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
    // mount(8) copies these from the list of mounts on a remount.
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
    // The same kind of options of fuse2fs and the kernel's ext4.
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
    with_value("data", "ordered", Group::Ignored, "", data_mode),
];

/// libfuse's modules. `iconv` converts names between character sets; only its identity conversion is
/// accepted, which is its default.
fn modules(_: &mut MountOptions, names: &str) -> Result<(), String> {
    let mut names = names.split(':').filter(|name| !name.is_empty());
    match names.find(|name| *name != "iconv") {
        None => Ok(()),
        Some("subdir") => Err(
            "only whole volumes can be mounted: mount the volume, then bind the directory".into(),
        ),
        Some(_) => Err(
            "there is no such module: only iconv is supported, without a conversion of names"
                .into(),
        ),
    }
}

fn data_mode(_: &mut MountOptions, mode: &str) -> Result<(), String> {
    match mode {
        // Ordered, which is always the case, is stricter than writeback.
        "ordered" | "writeback" => Ok(()),
        _ => Err(
            "only data=ordered is supported: data is written before the metadata that refers to it"
                .into(),
        ),
    }
}

/// A character set of names. Names are bytes here and are not converted.
fn same_bytes(_: &mut MountOptions, set: &str) -> Result<(), String> {
    match set.to_ascii_uppercase().as_str() {
        "UTF-8" | "UTF8" | "" => Ok(()),
        _ => Err("names are not converted: write UTF-8".into()),
    }
}

fn as_listed(options: &mut MountOptions, _: &str) -> Result<(), String> {
    options.as_listed = true;
    Ok(())
}

/// Options that are known and refused: name and reason.
pub(super) static REFUSED: &[(&str, &str)] = &[
    ("bind", "that is for 'mount --bind'"),
    ("nobarrier", "fsync is not durable without flushes"),
    (
        "subdir",
        "only whole volumes can be mounted: mount the volume, then bind the directory",
    ),
    ("dax", "an image is not memory"),
    (
        "jqfmt",
        "only quota files inside the volume are supported: tune2fs -O quota",
    ),
    (
        "usrjquota",
        "only quota files inside the volume are supported: tune2fs -O quota",
    ),
    (
        "grpjquota",
        "only quota files inside the volume are supported: tune2fs -O quota",
    ),
    ("sb", "backup superblocks are for 'e2fsck -b'"),
];
