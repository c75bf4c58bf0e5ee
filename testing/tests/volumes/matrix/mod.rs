//! Every feature of an image: made by `mke2fs`, filled and changed by us, checked by `e2fsck`, `debugfs` and,
//! if this process is root, by the kernel's ext4 on a loop device; and the other way round.
//!
//! `THROUGHLINE_SOAK=1` adds the cross product of features.

mod attributes;
mod debugfs;
mod expected;
mod external;
mod face;
mod fs;
mod gated;
mod kernel;
mod life;
mod special;
mod tool;
mod tree;

use life::Load::{Full, Small};

/// One test per recipe: its name, the arguments of `mke2fs`, the size, and the amount of data.
macro_rules! writable {
    ($($name:ident: $args:expr, $size:literal, $load:expr;)+) => {
        $(#[test]
        fn $name() {
            life::run($args, $size, $load);
        })+
    };
}

writable! {
    ext2_revision_0: &["-t", "ext2", "-r", "0", "-b", "1024", "-N", "8192"], "48M", Full;
    ext2_1k: &["-t", "ext2", "-b", "1024", "-N", "8192"], "48M", Full;
    ext2_4k: &["-t", "ext2", "-b", "4096", "-N", "8192"], "64M", Full;
    ext2_without_dir_index: &["-t", "ext2", "-b", "2048", "-O", "^dir_index", "-N", "8192"], "48M", Small;
    ext2_without_filetype: &["-t", "ext2", "-b", "1024", "-O", "^filetype", "-N", "8192"], "48M", Full;
    ext2_inodes_of_128: &["-t", "ext2", "-b", "2048", "-I", "128", "-N", "8192"], "48M", Full;
    ext3_1k: &["-t", "ext3", "-b", "1024", "-N", "8192"], "64M", Full;
    ext3_4k: &["-t", "ext3", "-b", "4096", "-N", "8192"], "64M", Full;
    ext4_1k: &["-t", "ext4", "-b", "1024", "-N", "8192"], "64M", Full;
    ext4_2k: &["-t", "ext4", "-b", "2048", "-N", "8192"], "64M", Full;
    ext4_4k: &["-t", "ext4", "-b", "4096", "-N", "8192"], "64M", Full;
    ext4_8k: &["-t", "ext4", "-b", "8192", "-N", "8192"], "128M", Full;
    ext4_16k: &["-t", "ext4", "-b", "16384", "-N", "8192"], "128M", Full;
    ext4_64k: &["-t", "ext4", "-b", "65536", "-N", "8192"], "256M", Full;
    ext2_32k: &["-t", "ext2", "-b", "32768", "-N", "8192"], "256M", Full;
    ext4_without_extents: &["-t", "ext4", "-b", "1024", "-O", "^extent,^64bit", "-N", "8192"], "64M", Full;
    ext4_without_journal: &["-t", "ext4", "-b", "1024", "-O", "^has_journal", "-N", "8192"], "48M", Full;
    inodes_of_128: &["-t", "ext4", "-b", "1024", "-I", "128", "-O", "^extra_isize", "-N", "8192"],
        "64M", Full;
    inodes_of_512: &["-t", "ext4", "-b", "1024", "-I", "512", "-N", "8192"], "64M", Full;
    inodes_of_1024: &["-t", "ext4", "-b", "1024", "-I", "1024", "-N", "8192"], "64M", Full;
    large_dir: &["-t", "ext4", "-b", "1024", "-O", "large_dir", "-N", "8192"], "64M", Full;
    without_dir_nlink: &["-t", "ext4", "-b", "1024", "-O", "^dir_nlink", "-N", "8192"], "64M", Small;
    without_sparse_super: &["-t", "ext4", "-b", "1024", "-O", "^sparse_super,^resize_inode", "-N", "8192"],
        "64M", Small;
    sparse_super2: &["-t", "ext4", "-b", "1024", "-O", "sparse_super2,^resize_inode", "-N", "8192"],
        "64M", Small;
    without_resize_inode: &["-t", "ext4", "-b", "1024", "-O", "^resize_inode", "-N", "8192"], "64M", Small;
    without_large_file: &["-t", "ext4", "-b", "1024", "-O", "^large_file,^huge_file", "-N", "8192"],
        "64M", Small;
    without_64bit: &["-t", "ext4", "-b", "1024", "-O", "^64bit", "-N", "8192"], "64M", Small;
    without_flex_bg: &["-t", "ext4", "-b", "1024", "-O", "^flex_bg", "-N", "8192"], "64M", Full;
    flex_bg_of_4: &["-t", "ext4", "-b", "1024", "-G", "4", "-g", "2048", "-N", "8192"], "64M", Full;
    meta_bg: &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode", "-N", "8192"], "64M", Full;
    meta_bg_of_many_groups:
        &[
            "-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode,^flex_bg,^64bit",
            "-g", "512", "-N", "8192",
        ],
        "64M", Full;
    uninit_bg: &["-t", "ext4", "-b", "1024", "-O", "uninit_bg,^metadata_csum", "-N", "8192"], "64M", Full;
    without_checksums: &["-t", "ext4", "-b", "1024", "-O", "^uninit_bg,^metadata_csum", "-N", "8192"],
        "64M", Small;
    metadata_csum_seed:
        &["-t", "ext4", "-b", "1024", "-O", "metadata_csum,metadata_csum_seed", "-N", "8192"],
        "64M", Full;
    without_extra_isize: &["-t", "ext4", "-b", "1024", "-O", "^extra_isize", "-N", "8192"], "64M", Small;
    orphan_file: &["-t", "ext4", "-b", "1024", "-O", "orphan_file", "-N", "8192"], "64M", Full;
    inline_data: &["-t", "ext4", "-b", "1024", "-O", "inline_data", "-N", "8192"], "64M", Full;
    inline_data_in_1024: &["-t", "ext4", "-b", "4096", "-I", "1024", "-O", "inline_data", "-N", "8192"],
        "64M", Full;
    ea_inode: &["-t", "ext4", "-b", "1024", "-O", "ea_inode", "-N", "8192"], "64M", Small;
    mmp: &["-t", "ext4", "-b", "1024", "-O", "mmp", "-E", "mmp_update_interval=1", "-N", "8192"],
        "64M", Small;
    project: &["-t", "ext4", "-b", "1024", "-O", "project", "-N", "8192"], "64M", Small;
    quota: &["-t", "ext4", "-b", "1024", "-O", "quota", "-N", "8192"], "64M", Full;
    quota_of_all_kinds:
        &[
            "-t", "ext4", "-b", "4096", "-O", "quota,project,ea_inode,orphan_file", "-N", "8192",
            "-E", "quotatype=usrquota:grpquota:prjquota",
        ],
        "64M", Full;
    quota_without_journal:
        &["-t", "ext4", "-b", "2048", "-O", "quota,inline_data,^has_journal", "-N", "8192"], "64M", Small;
    quota_without_extents:
        &["-t", "ext4", "-b", "1024", "-O", "quota,^extent,^64bit,^metadata_csum", "-N", "8192"],
        "64M", Small;
    stable_inodes: &["-t", "ext4", "-b", "1024", "-O", "stable_inodes", "-N", "8192"], "64M", Small;
    fast_commit: &["-t", "ext4", "-b", "1024", "-O", "fast_commit", "-N", "8192"], "64M", Small;
    encrypt_and_verity: &["-t", "ext4", "-b", "1024", "-O", "encrypt,verity", "-N", "8192"], "64M", Full;
    casefold: &["-t", "ext4", "-b", "1024", "-O", "casefold", "-N", "8192"], "64M", Full;
    casefold_inline:
        &[
            "-t", "ext4", "-b", "1024", "-O", "casefold,inline_data,^metadata_csum", "-E",
            "encoding_flags=strict", "-N", "8192",
        ],
        "64M", Full;
    lazily_made_tables:
        &["-t", "ext4", "-b", "1024", "-E", "lazy_itable_init=1,lazy_journal_init=1", "-N", "8192"],
        "64M", Full;
    made_in_full: &["-t", "ext4", "-b", "1024", "-E", "lazy_itable_init=0", "-N", "8192"], "64M", Small;
    nothing_reserved: &["-t", "ext4", "-b", "1024", "-m", "0", "-N", "8192"], "64M", Small;
    tiny_last_group: &["-t", "ext2", "-b", "1024", "-N", "8192"], "49300K", Small;
    one_group: &["-t", "ext4", "-b", "4096", "-O", "^has_journal", "-N", "4096"], "16M", Small;
    many_groups: &["-t", "ext4", "-b", "1024", "-g", "256", "-O", "^flex_bg,^resize_inode", "-N", "8192"],
        "48M", Small;
    bigalloc_1k_in_4k:
        &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "4096", "-N", "8192"], "64M", Full;
    bigalloc_1k_in_16k:
        &["-t", "ext4", "-b", "1024", "-O", "bigalloc,inline_data", "-C", "16384", "-N", "8192"],
        "96M", Full;
    bigalloc_4k_in_16k:
        &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384", "-N", "8192"], "96M", Full;
    bigalloc_4k_in_64k:
        &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "65536", "-N", "8192"], "160M", Full;
    bigalloc_4k_in_1m:
        &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "1048576", "-N", "8192"], "512M", Small;
    bigalloc_bare:
        &[
            "-t", "ext4", "-b", "1024", "-O", "bigalloc,^has_journal,^metadata_csum,^flex_bg",
            "-C", "8192", "-N", "8192",
        ],
        "96M", Small;
    bigalloc_of_many_groups:
        &[
            "-t", "ext4", "-b", "1024", "-O", "bigalloc,^resize_inode,ea_inode", "-C", "4096",
            "-g", "4096", "-N", "8192",
        ],
        "64M", Small;
    many_groups_of_4k: &["-t", "ext4", "-b", "4096", "-g", "512", "-N", "8192"], "64M", Full;
}

/// Block sizes × kinds × optional features.
#[test]
fn cross_product() {
    if !tool::soak() {
        throughline_testkit::left_out!(
            "the cross product of features (THROUGHLINE_SOAK=1 runs it)"
        );
        return;
    }
    let bases = [
        "extent,64bit,metadata_csum",
        "extent,^64bit,^metadata_csum,uninit_bg",
        "^extent,^64bit,metadata_csum",
        "^extent,^64bit,^metadata_csum",
    ];
    let extras = [
        "",
        "inline_data",
        "meta_bg,^resize_inode",
        "^flex_bg",
        "sparse_super2,^resize_inode",
        "orphan_file",
        "large_dir,ea_inode",
        "^dir_index",
        "^filetype",
        "^has_journal",
        "quota,project",
    ];
    for block in ["1024", "2048", "4096", "16384"] {
        for inode in ["256", "512"] {
            for base in bases {
                for extra in extras {
                    let features = if extra.is_empty() {
                        base.to_owned()
                    } else {
                        format!("{base},{extra}")
                    };
                    eprintln!("-b {block} -I {inode} -O {features}");
                    let args = [
                        "-t", "ext4", "-b", block, "-I", inode, "-O", &features, "-N", "8192",
                    ];
                    life::run(&args, "128M", Small);
                }
            }
        }
    }
}
