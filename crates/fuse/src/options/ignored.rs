//! Options that are taken and do nothing, and those that are known and refused.
//!
//! Invariant: what is taken promises nothing that we would break by ignoring it: it says what is so anyway, is meant for another
//! program, or tunes what is another way here.

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
    ignored("auto_da_alloc", ""),
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

/// Options that are known, and refused: name, and why.
pub(super) static REFUSED: &[(&str, &str)] = &[
    (
        "remount",
        "a mount cannot be changed: unmount it, and mount anew",
    ),
    ("bind", "that is for 'mount --bind'"),
    (
        "nobarrier",
        "flushes are what makes fsync a promise: they stay",
    ),
    ("modules", "there are no modules of libfuse here"),
    (
        "direct_io",
        "which cache a file goes through is chosen per open: use O_DIRECT, or without= and with=",
    ),
    (
        "umask",
        "permissions are the image's own; uid= and gid= change how owners look",
    ),
    ("dax", "an image is not memory"),
    ("usrquota", "quotas are not kept"),
    ("grpquota", "quotas are not kept"),
    ("prjquota", "quotas are not kept"),
    ("sb", "another superblock is for 'e2fsck -b' to read"),
];
