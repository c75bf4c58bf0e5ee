//! Images made by `mke2fs`, and their checks by e2fsprogs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;

use tempfile::TempDir;
use throughline_block::Disk;
use throughline_ext::{Fs, OpenOptions};

/// An image in a directory of its own, removed at the end.
pub(crate) struct Image {
    _dir: TempDir,
    /// Its path.
    pub(crate) path: PathBuf,
}

fn run(program: &str, args: &[&str]) -> Option<Output> {
    match Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .env("PAGER", "cat")
        .output()
    {
        Ok(output) => Some(output),
        Err(error) => {
            throughline_testkit::missing!("cannot run {program}: {error}");
            None
        }
    }
}

impl Image {
    /// Makes an image; `None`, with a message on stderr, if there is no `mke2fs`.
    pub(crate) fn make(args: &[&str], size: &str) -> Option<Self> {
        let dir = TempDir::new().expect("a place for temporary files");
        let path = dir.path().join("image");
        let mut all = vec!["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
        all.extend(args);
        all.extend([path.to_str().expect("UTF-8"), size]);
        let made = run("mke2fs", &all)?;
        assert!(
            made.status.success(),
            "mke2fs {all:?}: {}",
            String::from_utf8_lossy(&made.stderr)
        );
        Some(Self { _dir: dir, path })
    }

    fn name(&self) -> &str {
        self.path.to_str().expect("UTF-8")
    }

    /// Opens it with options.
    pub(crate) fn open_with(
        &self,
        edit: impl FnOnce(&mut OpenOptions),
    ) -> throughline_ext::Result<Fs> {
        let device = throughline_device::OpenOptions::new()
            .write(true)
            .direct(false)
            .open(&self.path);
        let disk = Disk::new(device.expect("the image opens")).expect("a disk");
        let mut options = OpenOptions::default();
        options.write = true;
        options.use_reserved = Some(true);
        edit(&mut options);
        Fs::open(Arc::new(disk), &options)
    }

    /// Opens it for writing.
    pub(crate) fn open(&self) -> Fs {
        self.open_with(|_| ()).expect("the volume opens")
    }

    /// Asserts that `e2fsck -fn` finds nothing.
    pub(crate) fn check(&self) {
        let checked = run("e2fsck", &["-fn", self.name()]).expect("e2fsck, since there is mke2fs");
        let text = String::from_utf8_lossy(&checked.stdout);
        assert!(checked.status.success(), "e2fsck -fn: {text}");
    }

    /// Repairs with `e2fsck -fy`; returns its output.
    pub(crate) fn repair(&self) -> String {
        let checked = run("e2fsck", &["-fy", self.name()]).expect("e2fsck, since there is mke2fs");
        assert!(
            checked.status.code().is_some_and(|code| code < 4),
            "e2fsck -fy failed"
        );
        String::from_utf8_lossy(&checked.stdout).into_owned()
    }

    /// The output of a `debugfs` request.
    pub(crate) fn debugfs(&self, request: &str) -> String {
        let answered =
            run("debugfs", &["-R", request, self.name()]).expect("debugfs, since there is mke2fs");
        String::from_utf8_lossy(&answered.stdout).into_owned()
    }

    /// Changes the image with `debugfs`, one request per line.
    pub(crate) fn debugfs_write(&self, requests: &str) {
        let script = self.path.with_extension("script");
        std::fs::write(&script, requests).expect("a script");
        let args = ["-w", "-f", script.to_str().expect("UTF-8"), self.name()];
        let done = run("debugfs", &args).expect("debugfs, since there is mke2fs");
        assert!(
            done.status.success(),
            "{requests}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
    }

    /// The names that `debugfs` finds in a directory, including `.` and `..`, with their inodes.
    pub(crate) fn names(&self, path: &str) -> BTreeMap<String, u32> {
        let listed = self.debugfs(&format!("ls -p \"{path}\""));
        let mut names = BTreeMap::new();
        for line in listed.lines() {
            // /inode/mode/uid/gid/name/size/
            let fields: Vec<_> = line.split('/').collect();
            if let [_, ino, _, _, _, name, ..] = fields.as_slice() {
                let ino = ino.parse().expect("a number");
                if ino == 0 {
                    // A free record at the start of a block.
                    continue;
                }
                assert!(
                    names.insert((*name).to_owned(), ino).is_none(),
                    "{name} twice in {path}"
                );
            }
        }
        names
    }
}

/// A small generator of random numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}
