//! Every feature of an image: made by `mke2fs`, filled and changed by us, judged by `e2fsck`, `debugfs` and, where this
//! process is root, by the kernel's ext4 on a loop device; and the other way round.
//!
//! `THROUGHLINE_SOAK=1` adds the cross product of features.

mod attributes;
mod debugfs;
mod expected;
mod face;
mod fs;
mod gated;
mod kernel;
mod life;
mod tool;
mod tree;

use life::Load::{Full, Small};

/// A test for each recipe: its name, the arguments of `mke2fs`, the size, and how much goes in.
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
    inodes_of_128: &["-t", "ext4", "-b", "1024", "-I", "128", "-O", "^extra_isize", "-N", "8192"], "64M", Full;
    inodes_of_512: &["-t", "ext4", "-b", "1024", "-I", "512", "-N", "8192"], "64M", Full;
    inodes_of_1024: &["-t", "ext4", "-b", "1024", "-I", "1024", "-N", "8192"], "64M", Full;
    large_dir: &["-t", "ext4", "-b", "1024", "-O", "large_dir", "-N", "8192"], "64M", Full;
    without_dir_nlink: &["-t", "ext4", "-b", "1024", "-O", "^dir_nlink", "-N", "8192"], "64M", Small;
    without_sparse_super: &["-t", "ext4", "-b", "1024", "-O", "^sparse_super,^resize_inode", "-N", "8192"], "64M", Small;
    sparse_super2: &["-t", "ext4", "-b", "1024", "-O", "sparse_super2,^resize_inode", "-N", "8192"], "64M", Small;
    without_resize_inode: &["-t", "ext4", "-b", "1024", "-O", "^resize_inode", "-N", "8192"], "64M", Small;
    without_large_file: &["-t", "ext4", "-b", "1024", "-O", "^large_file,^huge_file", "-N", "8192"], "64M", Small;
    without_64bit: &["-t", "ext4", "-b", "1024", "-O", "^64bit", "-N", "8192"], "64M", Small;
    without_flex_bg: &["-t", "ext4", "-b", "1024", "-O", "^flex_bg", "-N", "8192"], "64M", Full;
    flex_bg_of_4: &["-t", "ext4", "-b", "1024", "-G", "4", "-g", "2048", "-N", "8192"], "64M", Full;
    meta_bg: &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode", "-N", "8192"], "64M", Full;
    meta_bg_of_many_groups: &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode,^flex_bg,^64bit", "-g", "512", "-N", "8192"], "64M", Full;
    uninit_bg: &["-t", "ext4", "-b", "1024", "-O", "uninit_bg,^metadata_csum", "-N", "8192"], "64M", Full;
    without_checksums: &["-t", "ext4", "-b", "1024", "-O", "^uninit_bg,^metadata_csum", "-N", "8192"], "64M", Small;
    metadata_csum_seed: &["-t", "ext4", "-b", "1024", "-O", "metadata_csum,metadata_csum_seed", "-N", "8192"], "64M", Full;
    without_extra_isize: &["-t", "ext4", "-b", "1024", "-O", "^extra_isize", "-N", "8192"], "64M", Small;
    orphan_file: &["-t", "ext4", "-b", "1024", "-O", "orphan_file", "-N", "8192"], "64M", Full;
    inline_data: &["-t", "ext4", "-b", "1024", "-O", "inline_data", "-N", "8192"], "64M", Full;
    inline_data_in_1024: &["-t", "ext4", "-b", "4096", "-I", "1024", "-O", "inline_data", "-N", "8192"], "64M", Full;
    ea_inode: &["-t", "ext4", "-b", "1024", "-O", "ea_inode", "-N", "8192"], "64M", Small;
    mmp: &["-t", "ext4", "-b", "1024", "-O", "mmp", "-E", "mmp_update_interval=1", "-N", "8192"], "64M", Small;
    project: &["-t", "ext4", "-b", "1024", "-O", "project", "-N", "8192"], "64M", Small;
    stable_inodes: &["-t", "ext4", "-b", "1024", "-O", "stable_inodes", "-N", "8192"], "64M", Small;
    fast_commit: &["-t", "ext4", "-b", "1024", "-O", "fast_commit", "-N", "8192"], "64M", Small;
    lazily_made_tables: &["-t", "ext4", "-b", "1024", "-E", "lazy_itable_init=1,lazy_journal_init=1", "-N", "8192"], "64M", Full;
    made_in_full: &["-t", "ext4", "-b", "1024", "-E", "lazy_itable_init=0", "-N", "8192"], "64M", Small;
    nothing_reserved: &["-t", "ext4", "-b", "1024", "-m", "0", "-N", "8192"], "64M", Small;
    tiny_last_group: &["-t", "ext2", "-b", "1024", "-N", "8192"], "49300K", Small;
    one_group: &["-t", "ext4", "-b", "4096", "-O", "^has_journal", "-N", "4096"], "16M", Small;
    many_groups: &["-t", "ext4", "-b", "1024", "-g", "256", "-O", "^flex_bg,^resize_inode", "-N", "8192"], "48M", Small;
    many_groups_of_4k: &["-t", "ext4", "-b", "4096", "-g", "512", "-N", "8192"], "64M", Full;
}

/// Hash trees by each of the versions.
fn hashed(algorithm: &str) {
    let make = || {
        let image = tool::Image::make(&["-t", "ext4", "-b", "1024", "-N", "8192"], "64M")?;
        let tuned = tool::output(
            "tune2fs",
            &["-E", &format!("hash_alg={algorithm}"), image.name()],
        );
        assert!(
            tuned.status.success(),
            "{}",
            String::from_utf8_lossy(&tuned.stderr)
        );
        Some(image)
    };
    life::run_made(make, Full);
}

#[test]
fn hash_legacy() {
    hashed("legacy");
}

#[test]
fn hash_half_md4() {
    hashed("half_md4");
}

#[test]
fn hash_tea() {
    hashed("tea");
}

/// A list of bad blocks belongs to an inode of its own, which we leave alone.
#[test]
fn bad_blocks() {
    let list = tempfile::NamedTempFile::new().expect("a place for temporary files");
    std::fs::write(list.path(), "3000\n3001\n12345\n20000\n").expect("the list");
    let path = list.path().to_str().expect("UTF-8");
    life::run(
        &["-t", "ext4", "-b", "1024", "-l", path, "-N", "8192"],
        "64M",
        Small,
    );
}

/// A directory with more subdirectories than its link count can say.
#[test]
fn more_subdirectories_than_links() {
    if !tool::soak() || !tool::has_tools() {
        eprintln!("skipped: 65,100 subdirectories (THROUGHLINE_SOAK=1 makes them)");
        return;
    }
    let Some(image) = tool::Image::make(&["-t", "ext4", "-b", "1024", "-N", "70000"], "256M")
    else {
        return;
    };
    let volume = image
        .open_writable()
        .expect("the new volume opens for writing");
    let attributes = throughline::Attributes::new();
    let many = volume
        .create_dir("/many", &attributes)
        .expect("a directory");
    for index in 0..65_100 {
        many.create_dir(format!("{index}"), &attributes)
            .unwrap_or_else(|e| panic!("directory {index}: {e}"));
    }
    assert_eq!(many.own_metadata().expect("its metadata").links(), 1);
    drop(many);
    life::close(volume, "with many directories");
    image.check("with many directories");
    let volume = image.open_writable().expect("it opens again");
    let many = volume.open_dir("/many").expect("the directory");
    for index in 0..65_100 {
        many.remove_dir(format!("{index}"))
            .unwrap_or_else(|e| panic!("removing directory {index}: {e}"));
    }
    drop(many);
    volume.remove_dir("/many").expect("an empty directory goes");
    life::close(volume, "without them");
    image.check("without them");
}

/// Block sizes × kinds × optional features.
#[test]
fn cross_product() {
    if !tool::soak() {
        eprintln!("skipped: the cross product of features (THROUGHLINE_SOAK=1 runs it)");
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
