//! Names on real images: made by `mke2fs`, changed by us, checked by `e2fsck` and `debugfs`.

mod growth;
mod ignore_case;
mod image;
mod kernel;
mod listing;
mod model;
mod orphans;
mod paths;
mod rules;

use image::{Image, Random};
use model::Model;

/// Volumes with every format of directories: name, arguments of `mke2fs`, size, and requests that `debugfs`
/// then runs.
const VOLUMES: [(&str, &[&str], &str, &str); 12] = [
    ("linear", &["-t", "ext2", "-O", "^dir_index"], "32M", ""),
    (
        "linear, 1 KiB",
        &["-t", "ext2", "-b", "1024", "-O", "^dir_index"],
        "32M",
        "",
    ),
    (
        "no types",
        &["-t", "ext2", "-b", "1024", "-O", "^filetype"],
        "32M",
        "",
    ),
    (
        "revision 0",
        &["-t", "ext2", "-r", "0", "-b", "1024"],
        "32M",
        "",
    ),
    ("half MD4", &["-t", "ext3", "-b", "1024"], "32M", ""),
    (
        "half MD4 unsigned",
        &["-t", "ext3", "-b", "1024"],
        "32M",
        "ssv flags 2",
    ),
    (
        "legacy",
        &["-t", "ext3", "-b", "1024"],
        "32M",
        "ssv def_hash_version legacy",
    ),
    (
        "legacy unsigned",
        &["-t", "ext4", "-b", "1024"],
        "32M",
        "ssv def_hash_version legacy\nssv flags 2",
    ),
    (
        "TEA",
        &["-t", "ext4", "-b", "1024"],
        "32M",
        "ssv def_hash_version tea",
    ),
    (
        "checksums",
        &["-t", "ext4", "-b", "1024", "-O", "metadata_csum,64bit"],
        "32M",
        "",
    ),
    (
        "inline",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-I",
            "256",
            "-O",
            "inline_data,metadata_csum",
        ],
        "32M",
        "",
    ),
    (
        "64 KiB",
        &["-t", "ext4", "-b", "65536", "-O", "metadata_csum"],
        "512M",
        "",
    ),
];

/// Names of many lengths, some of bytes that signed and unsigned hashes treat differently.
fn pool(random: &mut Random, count: usize) -> Vec<String> {
    (0..count)
        .map(|i| {
            let len = match random.below(4) {
                0 => random.below(4),
                1 => random.below(200),
                _ => random.below(30),
            };
            let letter = if random.below(3) == 0 { "é" } else { "x" };
            let mut name = format!("{i}-{}", letter.repeat(len));
            while name.len() > 255 {
                name.pop();
            }
            name
        })
        .collect()
}

#[test]
fn random_names_against_a_model() {
    for (at, (what, args, size, prepare)) in VOLUMES.into_iter().enumerate() {
        let Some(image) = Image::make(args, size) else {
            return;
        };
        if !prepare.is_empty() {
            image.debugfs_write(prepare);
        }
        let seed = 0x5EED_0000 + at as u64;
        eprintln!("{what}, seed {seed:#x}");
        let mut random = Random(seed);
        let names = pool(&mut random, 300);
        against_a_model(&image, Model::new(), &mut random, &names);
    }
}

/// Random operations on both, with checks by e2fsprogs; then removes everything.
fn against_a_model(image: &Image, mut model: Model, random: &mut Random, names: &[String]) {
    let fs = image.open();
    let start = free(&fs);
    model.play(&fs, random, names, 1500);
    model.compare(&fs);
    fs.close().expect("closed");
    image.check();
    model.compare_with_debugfs(image);
    let fs = image.open();
    model.compare(&fs);
    model.play(&fs, random, names, 500);
    model.compare(&fs);
    model.clear(&fs);
    model.compare(&fs);
    let end = free(&fs);
    assert_eq!(end.1, start.1, "free inodes");
    // The root directory keeps the blocks that it gained.
    assert!(
        end.0 <= start.0 && start.0 - end.0 < 200,
        "free blocks: {} of {}",
        end.0,
        start.0
    );
    fs.close().expect("closed");
    image.check();
}

fn free(fs: &throughline_ext::Fs) -> (u64, u64) {
    let stat = fs.statfs().expect("numbers");
    (stat.free_blocks, stat.free_inodes.into())
}
