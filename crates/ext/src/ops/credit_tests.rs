//! Name operations in the smallest possible journals: none touches more blocks than its credits, and all fit.

use std::sync::Arc;

use super::{NewInode, NewKind, RenameMode};
use crate::testing::{Image, Rng};
use crate::{Fs, Inode};

/// Journals of 1024 blocks, the minimum.
const SMALLEST: &[(&str, &[&str])] = &[
    ("24M", &["-t", "ext3", "-b", "1024", "-J", "size=1"]),
    ("24M", &["-t", "ext4", "-b", "1024", "-J", "size=1"]),
    (
        "24M",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-J",
            "size=1",
            "-O",
            "fast_commit",
        ],
    ),
    ("40M", &["-t", "ext4", "-b", "4096", "-J", "size=4"]),
    (
        "24M",
        &["-t", "ext4", "-b", "1024", "-O", "inline_data", "-g", "512"],
    ),
];

fn new(fs: &Fs, dir: &Arc<Inode>, name: &[u8], kind: NewKind<'_>) -> Arc<Inode> {
    let new = NewInode {
        permissions: 0o700,
        uid: 0,
        gid: 0,
        umask: 0,
    };
    fs.create(dir, name, kind, new).expect("a name")
}

/// A long name: a few fill a leaf.
fn name(number: u64) -> Vec<u8> {
    let mut name = format!("{:x}-{number}-", number.wrapping_mul(0x9E37_79B9)).into_bytes();
    name.resize(240, b'n');
    name
}

#[test]
fn changes_of_names_fit_the_smallest_journal() {
    for (seed, (size, args)) in (1..).zip(SMALLEST) {
        let Some(image) = Image::make(size, args) else {
            continue;
        };
        println!("{args:?}: seed {seed}");
        let fs = image.open();
        assert!(fs.journal.has_log(), "{args:?}");
        let root = fs.root().expect("the root");
        let dirs = [b"a", b"b"].map(|name| new(&fs, &root, name, NewKind::Dir));
        let one = new(&fs, &root, b"one", NewKind::File);
        let mut rng = Rng::new(seed);
        let mut there: [Vec<Vec<u8>>; 2] = [Vec::new(), Vec::new()];
        let target = [b't'; 400];
        for number in 0..3000u64 {
            let at = rng.below(2) as usize;
            let (dir, fresh) = (&dirs[at], name(number));
            match rng.below(16) {
                0 if !there[1 - at].is_empty() => {
                    let from = &mut there[1 - at];
                    let old = from.swap_remove(rng.below(from.len() as u64) as usize);
                    fs.rename(&dirs[1 - at], &old, dir, &fresh, RenameMode::NoReplace)
                        .unwrap_or_else(|e| panic!("rename {number}: {e}"));
                }
                1 => fs
                    .link(&one, dir, &fresh)
                    .unwrap_or_else(|e| panic!("link {number}: {e}")),
                2 => drop(new(&fs, dir, &fresh, NewKind::Symlink(&target))),
                3 => drop(new(&fs, dir, &fresh, NewKind::Fifo)),
                4 if !there[at].is_empty() => {
                    let gone = there[at].swap_remove(0);
                    fs.unlink(dir, &gone)
                        .unwrap_or_else(|e| panic!("unlink {number}: {e}"));
                    continue;
                }
                // The number of inodes is limited.
                _ if number > 1500 => fs
                    .link(&one, dir, &fresh)
                    .unwrap_or_else(|e| panic!("link {number}: {e}")),
                _ => drop(new(&fs, dir, &fresh, NewKind::File)),
            }
            there[at].push(fresh);
        }
        let status = fs.journal.status();
        assert_eq!(status.credit_overruns, 0, "{args:?}");
        for (dir, names) in dirs.iter().zip(there) {
            for name in names {
                fs.unlink(dir, &name).expect("removed");
            }
        }
        drop((dirs, one, root));
        fs.close().expect("close");
        image.check(&format!("{args:?}"));
    }
}
