//! `statfs` compared with the kernel's.

use std::process::Command;

use throughline_testing::Mount;

use crate::OpenOptions;
use crate::testing::{Image, SHAPES};

/// Blocks, free and available blocks, inodes, free inodes from the kernel; `None` if mounting is not
/// permitted.
fn kernel(image: &Image, name: &str) -> Option<Vec<u64>> {
    eprintln!("{name}:");
    let mount = Mount::or_skip(image.path(), false)?;
    let shown = Command::new("stat")
        .args(["-f", "-c", "%b %f %a %c %d"])
        .arg(mount.root())
        .output()
        .expect("stat runs");
    let text = String::from_utf8_lossy(&shown.stdout);
    Some(
        text.split_whitespace()
            .map(|n| n.parse().expect("a number"))
            .collect(),
    )
}

#[test]
fn every_shape_shows_what_the_kernel_shows() {
    for (name, size, args) in SHAPES {
        let Some(image) = Image::make(size, args) else {
            continue;
        };
        let Some(kernel) = kernel(&image, name) else {
            continue;
        };
        for known in [true, false] {
            if !known {
                // The superblock may not have a count; then both compute it.
                image.edit_super(|sb| sb.s_overhead_clusters.set(0));
            }
            let fs = image.try_open(&OpenOptions::default()).expect(name);
            let ours = fs.statfs().expect(name);
            let ours = [
                ours.blocks,
                ours.free_blocks,
                ours.available_blocks,
                ours.inodes.into(),
                ours.free_inodes.into(),
            ];
            assert_eq!(ours[..], kernel[..], "{name}, overhead known: {known}");
        }
    }
}
