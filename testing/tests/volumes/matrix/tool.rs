//! Running e2fsprogs and other tools, and an image that is removed on drop.

use std::path::PathBuf;

use tempfile::TempDir;
use throughline::{OpenOptions, Volume};
use throughline_testkit::{e2fs, program};

/// Whether e2fsprogs is installed; prints what is missing to standard error.
pub(crate) use throughline_testkit::e2fs::is_there as has_tools;

pub(crate) use throughline_testkit::tier::soak;

/// An image in its own directory.
pub(crate) struct Image {
    dir: TempDir,
    path: PathBuf,
}

impl Image {
    /// Makes an image with `mke2fs`; `None`, with a message on standard error, if it does not support the
    /// options.
    pub(crate) fn make(args: &[&str], size: &str) -> Option<Self> {
        let dir = TempDir::with_prefix("throughline-matrix-").expect("a place for temporary files");
        let path = dir.path().join("image");
        e2fs::mke2fs_if_supported(&path, size, args).then_some(Self { dir, path })
    }

    /// Bytes of a cluster as `dumpe2fs` shows them; those of a block without `bigalloc`.
    pub(crate) fn cluster_bytes(&self, block_bytes: u64) -> u64 {
        let shown = e2fs::dumpe2fs(&self.path, &["-h"]);
        let mut lines = shown.lines();
        let bytes = lines.find_map(|line| line.strip_prefix("Cluster size:"));
        bytes.map_or(block_bytes, |bytes| bytes.trim().parse().expect("a number"))
    }

    /// A copy in its own directory, with holes preserved.
    pub(crate) fn copy(&self) -> Self {
        let dir = TempDir::with_prefix("throughline-matrix-").expect("a place for temporary files");
        let path = dir.path().join("image");
        let mut command = e2fs::tool("cp");
        command.arg("--sparse=always").arg(&self.path).arg(&path);
        program::run(&mut command, e2fs::LIMIT).good("cp");
        Self { dir, path }
    }

    pub(crate) fn name(&self) -> &str {
        self.path.to_str().expect("UTF-8")
    }

    /// A path in the image's directory.
    pub(crate) fn sibling(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A digest of the image's bytes, to detect changes.
    pub(crate) fn digest(&self) -> u64 {
        use std::hash::Hasher;
        use std::io::Read;
        let mut file = std::fs::File::open(&self.path).expect("the image opens");
        let (mut hasher, mut piece) = (std::hash::DefaultHasher::new(), vec![0; 1 << 20]);
        loop {
            match file.read(&mut piece).expect("the image can be read") {
                0 => return hasher.finish(),
                n => hasher.write(&piece[..n]),
            }
        }
    }

    pub(crate) fn open_writable(&self) -> throughline::Result<Volume> {
        OpenOptions::new().write(true).open(&self.path)
    }

    pub(crate) fn open_read_only(&self) -> throughline::Result<Volume> {
        OpenOptions::new().open(&self.path)
    }

    /// Asserts that `e2fsck -fn` finds nothing.
    #[track_caller]
    pub(crate) fn check(&self, when: &str) {
        e2fs::assert_clean_after(&self.path, when);
    }

    /// Repairs with `e2fsck -fy` what other tools left inconsistent.
    #[track_caller]
    pub(crate) fn repair(&self) {
        e2fs::repair(&self.path);
    }

    /// Runs `debugfs` requests, one per line; returns the output.
    pub(crate) fn debugfs(&self, writing: bool, requests: &str) -> String {
        match writing {
            true => e2fs::debugfs_write(&self.path, requests),
            false => e2fs::debugfs_all(&self.path, requests),
        }
    }
}
