//! An image file made by `mke2fs`, in its own temporary directory.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use throughline_testkit::{e2fs, program};

/// An image file, removed on drop.
pub struct DiskImage {
    dir: TempDir,
    path: PathBuf,
}

impl DiskImage {
    /// Runs `mke2fs -q -F ARGUMENTS… IMAGE SIZE`, with arguments separated by blanks. Prints what is skipped
    /// to standard error and returns `None` if `mke2fs` is not installed or does not know the arguments.
    ///
    /// # Panics
    /// If `mke2fs` fails otherwise.
    pub fn make(arguments: &str, size: &str) -> Option<DiskImage> {
        if !program::has(&["mke2fs", "e2fsck"]) {
            return None;
        }
        let dir = TempDir::with_prefix("throughline-image-").expect("a place for temporary files");
        let path = dir.path().join("image");
        let words: Vec<_> = arguments.split_whitespace().collect();
        e2fs::mke2fs_if_supported(&path, size, &words).then_some(DiskImage { dir, path })
    }

    /// A copy in its own directory, with holes preserved.
    ///
    /// # Panics
    /// If the copy fails.
    pub fn copy(&self) -> DiskImage {
        let dir = TempDir::with_prefix("throughline-image-").expect("a place for temporary files");
        let path = dir.path().join("image");
        let mut command = Command::new("cp");
        command.arg("--sparse=always").arg(&self.path).arg(&path);
        program::run(&mut command, e2fs::LIMIT).good("cp");
        DiskImage { dir, path }
    }

    /// The image file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path in the same directory, for related files.
    pub fn sibling(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs `e2fsck -fn`, which must find nothing.
    ///
    /// # Panics
    /// If it finds something, with its output.
    #[track_caller]
    pub fn check(&self, when: &str) {
        e2fs::assert_clean_after(&self.path, when);
    }

    /// Runs `debugfs` requests, one per line, on the image, and returns the output.
    ///
    /// # Panics
    /// If `debugfs` fails.
    #[track_caller]
    pub fn debugfs(&self, requests: &str) -> String {
        e2fs::debugfs_all(&self.path, requests)
    }
}
