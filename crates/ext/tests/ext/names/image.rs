//! Images made by `mke2fs`, and their checks by e2fsprogs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use throughline_block::Disk;
use throughline_ext::{Fs, OpenOptions};
use throughline_testkit::e2fs;

/// An image in a directory of its own, removed at the end.
pub(crate) struct Image {
    _dir: TempDir,
    /// Its path.
    pub(crate) path: PathBuf,
}

impl Image {
    /// Makes an image; `None`, with a message on stderr, if there is no `mke2fs`.
    pub(crate) fn make(args: &[&str], size: &str) -> Option<Self> {
        let dir = TempDir::new().expect("a place for temporary files");
        let path = dir.path().join("image");
        let all = [&["-E", "lazy_itable_init=0,lazy_journal_init=0"], args].concat();
        e2fs::mke2fs(&path, size, &all).then_some(Self { _dir: dir, path })
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
    #[track_caller]
    pub(crate) fn check(&self) {
        e2fs::assert_clean(&self.path);
    }

    /// Repairs with `e2fsck -fy`; returns its output.
    #[track_caller]
    pub(crate) fn repair(&self) -> String {
        e2fs::repair(&self.path)
    }

    /// The output of a `debugfs` request.
    #[track_caller]
    pub(crate) fn debugfs(&self, request: &str) -> String {
        e2fs::debugfs(&self.path, request)
    }

    /// Changes the image with `debugfs`, one request per line.
    #[track_caller]
    pub(crate) fn debugfs_write(&self, requests: &str) {
        e2fs::debugfs_write(&self.path, requests);
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
