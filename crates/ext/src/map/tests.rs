//! No mapping change touches more blocks than its credits: an on-disk journal enforces that.

use std::io::IoSlice;
use std::sync::Arc;

use crate::testing::{Image, Rng};
use crate::{Fallocate, Fs, Inode, NewInode, NewKind};

/// Small groups, so that runs and nodes span many of them, and the smallest journals.
const SHAPES: &[&[&str]] = &[
    &["-t", "ext4", "-b", "1024", "-g", "256"],
    &["-t", "ext4", "-b", "4096", "-J", "size=4"],
    &[
        "-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "4096", "-J", "size=1",
    ],
    &["-t", "ext3", "-b", "1024", "-g", "512"],
    &["-t", "ext2", "-b", "1024", "-g", "512"],
    &["-t", "ext2", "-b", "4096"],
];

fn create(fs: &Fs, name: &str) -> Arc<Inode> {
    let root = fs.root().expect("the root");
    let new = NewInode {
        permissions: 0o600,
        uid: 0,
        gid: 0,
        umask: 0,
    };
    fs.create(&root, name.as_bytes(), NewKind::File, new)
        .expect("a file")
}

fn step(fs: &Fs, inode: &Inode, rng: &mut Rng, unit: u64) -> String {
    let (offset, len) = (rng.below(4000) * unit, (1 + rng.below(600)) * unit);
    let mode = match rng.below(12) {
        0..5 => {
            let len = if rng.below(3) == 0 { len } else { unit };
            let _ = fs.write_at(inode, offset, &[IoSlice::new(&vec![7; len as usize])]);
            return format!("write {offset} {len}");
        }
        5 => {
            let _ = fs.truncate(inode, offset);
            return format!("truncate {offset}");
        }
        6 | 7 => Fallocate::PunchHole,
        8 => Fallocate::ZeroRange,
        9 => Fallocate::Allocate,
        10 => Fallocate::Collapse,
        _ => Fallocate::Insert,
    };
    // Running out of space, or a file without extents, is a valid case too.
    let _ = fs.fallocate(inode, mode, offset, len);
    format!("{mode:?} {offset} {len}")
}

#[test]
fn credits_cover_what_is_touched() {
    for (seed, args) in SHAPES.iter().enumerate() {
        let Some(image) = Image::make("24M", args) else {
            continue;
        };
        println!("{args:?}: seed {seed}");
        let fs = image.open();
        let mut rng = Rng::new(seed as u64);
        let inodes = [create(&fs, "a"), create(&fs, "b")];
        let unit = u64::from(fs.geo.block_bytes);
        for round in 0..800 {
            let inode = &inodes[rng.below(2) as usize];
            let done = step(&fs, inode, &mut rng, unit);
            assert_eq!(
                fs.journal.status().credit_overruns,
                0,
                "{done}, step {round} of {args:?}"
            );
            assert!(
                fs.journal.status().aborted.is_none(),
                "{done}, step {round} of {args:?}"
            );
        }
        fs.close().expect("closing");
        image.check("after all");
    }
}
