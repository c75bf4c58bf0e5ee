//! An image file that `mke2fs` made, in a directory of its own that goes with it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::program;

/// What e2fsprogs may take for one image; they need a second.
const LIMIT: Duration = Duration::from_secs(300);

/// An image file; removed at the end.
pub struct DiskImage {
    dir: TempDir,
    path: PathBuf,
}

impl DiskImage {
    /// Makes one: `mke2fs -q -F ARGUMENTS… IMAGE SIZE`, the arguments separated by blanks. Says on standard error what is
    /// skipped where `mke2fs` is not there or does not know the arguments.
    ///
    /// # Panics
    /// Where `mke2fs` fails otherwise.
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
        let told = ran.stderr.trim();
        if told.contains("Invalid filesystem option") || told.contains("invalid option") {
            eprintln!("skipped: mke2fs {arguments}: {told}");
            return None;
        }
        ran.good(&format!("mke2fs {arguments}"));
        Some(DiskImage { dir, path })
    }

    /// A copy in a directory of its own, holes kept.
    ///
    /// # Panics
    /// Where it cannot be made.
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

    /// A path beside the image, for files that go with it.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `e2fsck -fn` must find nothing.
    ///
    /// # Panics
    /// With what it found.
    #[track_caller]
    pub fn check(&self, when: &str) {
        let ran = program::run(Command::new("e2fsck").arg("-fn").arg(&self.path), LIMIT);
        ran.good(&format!("{when}: e2fsck -fn"));
    }

    /// What `debugfs` answers to requests, one a line, on the image as it lies.
    ///
    /// # Panics
    /// Where `debugfs` cannot run.
    pub fn debugfs(&self, requests: &str) -> String {
        let script = self.beside("requests");
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
