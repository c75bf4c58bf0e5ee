//! The defaults built in: facts of mke2fs as Debian configures it, in a table of our own.

use super::{Config, Tags};

/// What holds for all types, unless they say otherwise.
const ALL: [(&str, &str); 6] = [
    ("blocksize", "4096"),
    ("inode_size", "256"),
    ("inode_ratio", "16384"),
    (
        "base_features",
        "dir_index,ext_attr,filetype,large_file,resize_inode,sparse_super",
    ),
    ("default_mntopts", "user_xattr,acl"),
    ("enable_periodic_fsck", "no"),
];

/// What ext3 and ext4 have beyond the features of all types.
const FEATURES: [(&str, &str); 2] = [
    ("ext3", "has_journal"),
    (
        "ext4",
        "64bit,dir_nlink,extent,extra_isize,flex_bg,has_journal,huge_file,metadata_csum",
    ),
];

/// The uses: the size of a block in bytes (0: as for all types; -1: any) and the bytes per inode.
const USES: [(&str, i64, i64); 7] = [
    ("floppy", 1024, 8 << 10),
    ("small", 1024, 4 << 10),
    ("big", 0, 32 << 10),
    ("huge", 0, 64 << 10),
    ("news", 0, 4 << 10),
    ("largefile", -1, 1 << 20),
    ("largefile4", -1, 4 << 20),
];

/// The Hurd's kernel supports only inodes of 128 bytes.
const HURD: [(&str, &str); 2] = [("blocksize", "4096"), ("inode_size", "128")];

/// All of it.
pub(super) fn config() -> Config {
    let features = FEATURES.map(|(name, features)| section(name, &[("features", features)]));
    let uses = USES.map(|(name, block_bytes, inode_ratio)| {
        let (block_bytes, inode_ratio) = (block_bytes.to_string(), inode_ratio.to_string());
        let mut tags = vec![("inode_ratio", inode_ratio.as_str())];
        if block_bytes != "0" {
            tags.push(("blocksize", &block_bytes));
        }
        section(name, &tags)
    });
    let types = features.into_iter().chain(uses);
    Config {
        defaults: owned(&ALL),
        types: types.chain([section("hurd", &HURD)]).collect(),
    }
}

fn section(name: &str, tags: &[(&str, &str)]) -> (String, Tags) {
    (name.to_owned(), owned(tags))
}

fn owned(tags: &[(&str, &str)]) -> Tags {
    let owned = tags
        .iter()
        .map(|(tag, value)| ((*tag).to_owned(), (*value).to_owned()));
    owned.collect()
}
