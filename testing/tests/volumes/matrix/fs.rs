//! Operations of each side of the comparison: the expectation, our engine, the kernel.
//!
//! A failure is a panic with the operation: these are tests.

use throughline::{Fallocate, FileType, RenameMode};

/// Attributes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) kind: FileType,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) links: u32,
    /// Size in bytes; 0 unless a regular file or symbolic link.
    pub(crate) len: u64,
    /// Major and minor device number.
    pub(crate) device: Option<(u32, u32)>,
    /// Seconds since 1970 and nanoseconds.
    pub(crate) modified: (i64, u32),
}

/// A change. Paths are absolute.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Creates a directory, mode 0755.
    Dir(String),
    /// Creates an empty file, mode 0644.
    File(String),
    /// Writes bytes at an offset, from [`data`] with a seed and a length.
    Write {
        path: String,
        offset: u64,
        seed: u64,
        len: usize,
    },
    Truncate(String, u64),
    Allocate(String, Fallocate, u64, u64),
    Symlink {
        target: String,
        link: String,
    },
    Link {
        from: String,
        to: String,
    },
    /// Creates a special file, mode 0644.
    Node(String, FileType, (u32, u32)),
    Unlink(String),
    Rmdir(String),
    Rename(String, String, RenameMode),
    /// Sets mode, user and group. The mode of a symbolic link does not change.
    Attributes(String, u32, u32, u32),
    Modified(String, (i64, u32)),
}

/// A file system or a stand-in for one.
pub(crate) trait FileSystem {
    /// The names in a directory, sorted, without `lost+found` in the root.
    fn list(&mut self, dir: &str) -> Vec<String>;
    fn stat(&mut self, path: &str) -> Stat;
    /// Reads at an offset until the buffer is full or the file ends.
    fn read(&mut self, path: &str, offset: u64, to: &mut [u8]) -> usize;
    fn read_link(&mut self, path: &str) -> String;
    fn apply(&mut self, step: &Step);
}

/// A path in a directory.
pub(crate) fn join(dir: &str, name: &str) -> String {
    format!("{}/{name}", dir.trim_end_matches('/'))
}

/// `len` bytes determined by the seed.
pub(crate) fn data(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// Bytes compared at a time.
const PIECE: usize = 1 << 20;
/// Files up to this size are compared completely, larger ones at both ends.
const WHOLE: u64 = 128 << 20;

/// Panics at the first difference between two trees; returns how many files were compared.
pub(crate) fn compare(
    what: &str,
    expected: &mut dyn FileSystem,
    found: &mut dyn FileSystem,
) -> usize {
    let mut count = 0;
    let mut todo = vec![String::from("/")];
    while let Some(dir) = todo.pop() {
        let names = expected.list(&dir);
        let there = found.list(&dir);
        if names != there {
            let missing: Vec<_> = names.iter().filter(|name| !there.contains(name)).collect();
            let surplus: Vec<_> = there.iter().filter(|name| !names.contains(name)).collect();
            panic!("{what}: in {dir}: missing {missing:?}, surplus {surplus:?}");
        }
        for path in names.iter().map(|name| join(&dir, name)) {
            let stat = expected.stat(&path);
            assert_eq!(
                found.stat(&path),
                stat,
                "{what}: {path} (left: found, right: expected)"
            );
            match stat.kind {
                FileType::Directory => todo.push(path),
                FileType::Symlink => assert_eq!(
                    found.read_link(&path),
                    expected.read_link(&path),
                    "{what}: {path}"
                ),
                FileType::File => compare_contents(what, &path, stat.len, expected, found),
                _ => {}
            }
            count += 1;
        }
    }
    count
}

fn compare_contents(
    what: &str,
    path: &str,
    len: u64,
    expected: &mut dyn FileSystem,
    found: &mut dyn FileSystem,
) {
    let piece = PIECE as u64;
    let starts: Vec<u64> = match len {
        0..=WHOLE => (0..len).step_by(PIECE).collect(),
        _ => vec![0, len - piece],
    };
    let (mut want, mut got) = (vec![0; PIECE], vec![0; PIECE]);
    for at in starts {
        let wanted = expected.read(path, at, &mut want);
        let n = found.read(path, at, &mut got);
        assert_eq!(n, wanted, "{what}: {path}: bytes read at {at}");
        if want[..n] != got[..n] {
            let first = want
                .iter()
                .zip(&got)
                .position(|(a, b)| a != b)
                .unwrap_or_default();
            panic!(
                "{what}: {path} of {len} bytes differs from byte {} on: {:02x?} instead of {:02x?}",
                at + first as u64,
                &got[first..n.min(first + 16)],
                &want[first..n.min(first + 16)]
            );
        }
    }
}
