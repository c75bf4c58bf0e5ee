//! An image file made by `mke2fs`, in its own temporary directory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::program;

/// Time limit for e2fsprogs on one image; they usually need a second.
const LIMIT: Duration = Duration::from_secs(300);

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
        let ran = program::run(
            Command::new("mke2fs")
                .args(["-q", "-F"])
                .args(arguments.split_whitespace())
                .arg(&path)
                .arg(size),
            LIMIT,
        );
        let output = ran.stderr.trim();
        if output.contains("Invalid filesystem option") || output.contains("invalid option") {
            throughline_testkit::left_out!("mke2fs {arguments}: {output}");
            return None;
        }
        ran.good(&format!("mke2fs {arguments}"));
        Some(DiskImage { dir, path })
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
        program::run(&mut command, LIMIT).good("cp");
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
        let ran = program::run(Command::new("e2fsck").arg("-fn").arg(&self.path), LIMIT);
        ran.good(&format!("{when}: e2fsck -fn"));
    }

    /// Runs `debugfs` requests, one per line, on the image, and returns the output.
    ///
    /// # Panics
    /// If `debugfs` fails.
    pub fn debugfs(&self, requests: &str) -> String {
        let script = self.sibling("requests");
        std::fs::write(&script, requests).expect("a script");
        let mut command = Command::new("debugfs");
        command
            .env("PAGER", "cat")
            .env("DEBUGFS_PAGER", "cat")
            .arg("-f")
            .arg(&script)
            .arg(&self.path);
        program::run(&mut command, LIMIT).good("debugfs").stdout
    }
}
