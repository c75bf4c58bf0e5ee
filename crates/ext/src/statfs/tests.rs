//! The numbers of `statfs` beside the kernel's.

use std::path::Path;
use std::process::Command;

use crate::OpenOptions;
use crate::testing::{Image, SHAPES};

/// A mount that ends with it.
struct Mount<'a>(&'a Path);

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let done = Command::new("umount").arg(self.0).status();
        if !done.is_ok_and(|status| status.success()) {
            eprintln!("{} stays mounted", self.0.display());
        }
    }
}

/// Blocks, free and available blocks, inodes, free inodes, as the kernel has them; `None` where it may not be asked.
fn kernel(image: &Image, name: &str) -> Option<Vec<u64>> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mounting needs root");
        return None;
    }
    let place = tempfile::tempdir().expect("a directory");
    let mounted = Command::new("mount")
        .args(["-o", "ro,loop"])
        .arg(image.path())
        .arg(place.path())
        .output();
    if !mounted.as_ref().is_ok_and(|done| done.status.success()) {
        eprintln!("skipped: the kernel does not mount {name}: {mounted:?}");
        return None;
    }
    let mount = Mount(place.path());
    let shown = Command::new("stat")
        .args(["-f", "-c", "%b %f %a %c %d"])
        .arg(mount.0)
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
                // The superblock may not know; both count then.
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
