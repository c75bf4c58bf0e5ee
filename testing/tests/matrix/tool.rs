//! Running e2fsprogs and other tools, and an image that is removed on drop.

use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;
use throughline::{OpenOptions, Volume};

/// Runs a program to its end.
pub(crate) fn output(program: &str, args: &[&str]) -> Output {
    let path = format!(
        "{}:/usr/sbin:/sbin",
        std::env::var("PATH").unwrap_or_default()
    );
    let mut command = Command::new(program);
    command
        .args(args)
        .env("PATH", path)
        .env("LC_ALL", "C")
        .env("PAGER", "cat")
        .env("DEBUGFS_PAGER", "cat");
    command
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"))
}

/// Whether e2fsprogs is installed; prints what is missing to standard error.
pub(crate) fn has_tools() -> bool {
    let path = format!(
        "{}:/usr/sbin:/sbin",
        std::env::var("PATH").unwrap_or_default()
    );
    ["mke2fs", "e2fsck", "debugfs"].into_iter().all(|tool| {
        let there = Command::new(tool)
            .arg("-V")
            .env("PATH", &path)
            .output()
            .is_ok();
        if !there {
            throughline_testkit::missing!("{tool} is not installed");
        }
        there
    })
}

/// Whether the long versions of the tests were requested.
pub(crate) fn soak() -> bool {
    std::env::var_os("THROUGHLINE_SOAK").is_some_and(|value| value == "1")
}

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
        let image = Self { dir, path };
        let mut all = vec!["-q", "-F"];
        all.extend(args);
        all.extend([image.name(), size]);
        let output = output("mke2fs", &all);
        let text = String::from_utf8_lossy(&output.stderr);
        if text.contains("Invalid filesystem option") || text.contains("invalid option") {
            throughline_testkit::left_out!("mke2fs {args:?}: {}", text.trim());
            return None;
        }
        assert!(output.status.success(), "mke2fs {all:?}: {text}");
        Some(image)
    }

    /// A copy in its own directory, with holes preserved.
    pub(crate) fn copy(&self) -> Self {
        let dir = TempDir::with_prefix("throughline-matrix-").expect("a place for temporary files");
        let path = dir.path().join("image");
        let copied = output(
            "cp",
            &[
                "--sparse=always",
                self.name(),
                path.to_str().expect("UTF-8"),
            ],
        );
        assert!(
            copied.status.success(),
            "cp: {}",
            String::from_utf8_lossy(&copied.stderr)
        );
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
    pub(crate) fn check(&self, when: &str) {
        let checked = output("e2fsck", &["-fn", self.name()]);
        let text = String::from_utf8_lossy(&checked.stdout);
        assert!(
            checked.status.success(),
            "{when}: e2fsck -fn: {text}{}",
            String::from_utf8_lossy(&checked.stderr)
        );
    }

    /// Repairs with `e2fsck -fy` what other tools left inconsistent.
    pub(crate) fn repair(&self) {
        let fixed = output("e2fsck", &["-fy", self.name()]);
        let text = String::from_utf8_lossy(&fixed.stdout);
        assert!(
            fixed.status.code().is_some_and(|code| code < 4),
            "e2fsck -fy: {text}"
        );
    }

    /// Runs `debugfs` requests, one per line; returns the output.
    pub(crate) fn debugfs(&self, writing: bool, requests: &str) -> String {
        let script = self.sibling("requests");
        std::fs::write(&script, requests).expect("a script");
        let mut args = vec!["-f", script.to_str().expect("UTF-8"), self.name()];
        if writing {
            args.insert(0, "-w");
        }
        let done = output("debugfs", &args);
        let text = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "debugfs {requests}: {text}");
        String::from_utf8_lossy(&done.stdout).into_owned()
    }
}
