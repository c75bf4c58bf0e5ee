//! What the experiments of `pack` share: trees of small files, and the programs that make an image from one.
//!
//! | variant | command |
//! | --- | --- |
//! | `pack` | `throughline pack TREE -o IMAGE` |
//! | `mke2fs -d` | `mke2fs -t ext4 -d TREE IMAGE` |
//! | `mkext4` | the example `mkfs` of the crate `mkext4`, if `THROUGHLINE_MKEXT4` names it |
//!
//! All make a new file of the same size with as many inodes, which is then synced to the disk: that counts.
//! The tree is in the host's cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{discarded, own};
use crate::interleave::Sample;
use crate::kernel::{e2fsck, named};
use crate::meter::Meter;
use crate::outcome::Outcome;
use crate::{Error, Result};

/// The variants.
pub(super) const PACK: &str = "pack";
pub(super) const MKE2FS: &str = "mke2fs -d";
pub(super) const MKEXT4: &str = "mkext4";

/// Names the example `mkfs` of the crate `mkext4`.
const MKEXT4_PATH: &str = "THROUGHLINE_MKEXT4";

/// What makes an image from a tree.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Builder {
    Pack,
    Mke2fs,
    Mkext4,
}

impl Builder {
    /// Those that there are here; the outcome says which are not.
    pub(super) fn present(outcome: &mut Outcome) -> Vec<Builder> {
        let mut builders = vec![Builder::Pack, Builder::Mke2fs];
        match std::env::var_os(MKEXT4_PATH) {
            Some(_) => builders.push(Builder::Mkext4),
            None => outcome.note(format!(
                "mkext4: skipped: {MKEXT4_PATH} does not name it (cargo install mkext4 --version 0.0.3 \
                 --example mkfs --root DIR makes DIR/bin/mkfs)"
            )),
        }
        builders
    }

    /// The name of its variant.
    pub(super) fn name(self) -> &'static str {
        match self {
            Builder::Pack => PACK,
            Builder::Mke2fs => MKE2FS,
            Builder::Mkext4 => MKEXT4,
        }
    }

    fn command(self, tree: &Tree, image: &Path) -> Result<Command> {
        let (bytes, inodes) = (tree.image_bytes.to_string(), tree.inodes.to_string());
        let mut command = match self {
            Builder::Pack => own()?,
            Builder::Mke2fs => named("mke2fs"),
            Builder::Mkext4 => named(&std::env::var(MKEXT4_PATH).unwrap_or_default()),
        };
        match self {
            Builder::Pack => command
                .args(["pack", "-N", &inodes, "--size", &bytes])
                .arg(&tree.path)
                .arg("-o")
                .arg(image),
            Builder::Mke2fs => command
                .args(["-q", "-t", "ext4", "-N", &inodes, "-d"])
                .arg(&tree.path)
                .arg(image)
                .arg(format!("{}k", tree.image_bytes >> 10)),
            Builder::Mkext4 => command
                .env("MKEXT4_INODES", &inodes)
                .arg(&tree.path)
                .arg(image)
                .arg(&bytes),
        };
        Ok(command)
    }
}

/// A tree on the host, and the image that holds it.
pub(super) struct Tree {
    path: PathBuf,
    image_bytes: u64,
    inodes: u64,
}

impl Tree {
    /// Creates a tree of `files` files of up to 4 KiB, 2 KiB on average, `per_folder` of them in a directory,
    /// and a hundred such directories in one.
    pub(super) fn small(path: PathBuf, files: u64, per_folder: u64) -> Result<Tree> {
        let mut random = fastrand::Rng::with_seed(120_000);
        let mut content = vec![0u8; 4096];
        random.fill(&mut content);
        let mut folder = path.clone();
        for number in 0..files {
            if number % per_folder == 0 {
                let index = number / per_folder;
                folder = path.join(format!("{:03}/{:02}", index / 100, index % 100));
                fs::create_dir_all(&folder)?;
            }
            let name = format!("file-{number:07}");
            fs::write(folder.join(name), &content[..random.usize(0..4096)])?;
        }
        let folders = files.div_ceil(per_folder);
        Ok(Tree {
            path,
            image_bytes: files * 4096 + files * 512 + (64 << 20),
            inodes: files + files / 50 + folders + 64,
        })
    }

    /// The files of a directory that has none below it, `bytes` in all.
    pub(super) fn large(path: PathBuf, bytes: u64) -> Tree {
        Tree {
            path,
            image_bytes: bytes + bytes / 16 + (128 << 20),
            inodes: 1024,
        }
    }

    /// Makes `image` once: the time and the peak memory. Checks the image.
    pub(super) fn sample(&self, builder: Builder, image: &Path) -> Result<Sample> {
        match fs::remove_file(image) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::new(format!("{}: {e}", image.display())));
            }
            _ => rustix::fs::sync(),
        }
        let mut command = builder.command(self, image)?;
        let meter = Meter::start();
        let (_, peak_mib) = discarded(&mut command)?;
        fs::File::open(image)?.sync_all()?;
        let spent = meter.spent();
        e2fsck(image)?;
        Ok(vec![
            ("time", "s", spent.wall.as_secs_f64()),
            ("peak memory", "MiB", peak_mib),
        ])
    }
}
