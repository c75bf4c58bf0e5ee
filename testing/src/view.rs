//! A tree as a program sees it, as data to compare: of our mount, of the kernel's mount of the same image, of
//! a copy.
//!
//! Not included: access times, which reading changes, and inode numbers, which mounts assign in their own way
//! (hard links are identified by the names they share).

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, Metadata};
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// Bytes read at a time, and bytes per hashed unit: holes and zeros are equal.
const PIECE: usize = 256 << 10;
const UNIT: usize = 4096;
const ZEROES: [u8; UNIT] = [0; UNIT];
/// Maximum size of an attribute list and of an attribute value in Linux.
const MAX_XATTR_BYTES: usize = 64 << 10;

/// What is visible of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Number of links.
    pub links: u64,
    /// Size in bytes.
    pub len: u64,
    /// Device number of a device file.
    pub device: u64,
    /// Time of the last change of the contents: seconds since 1970 and nanoseconds.
    pub modified: (i64, i64),
    /// Time of the last change of the inode.
    pub changed: (i64, i64),
    /// Hash of the contents of a regular file.
    pub content: u64,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// If the file has several names in the tree: the first of them, in byte order.
    pub same_as: Option<Vec<u8>>,
    /// Extended attributes, ACLs among them.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A tree: what is visible, by path below its root. The root itself is the empty path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    entries: BTreeMap<Vec<u8>, Entry>,
}

impl View {
    /// Reads a whole tree.
    ///
    /// # Panics
    /// At the first error, with its path.
    #[track_caller]
    pub fn of(root: &Path) -> View {
        let mut names = HashMap::new();
        let mut entries = BTreeMap::new();
        let mut todo = vec![PathBuf::new()];
        while let Some(path) = todo.pop() {
            let full = root.join(&path);
            // Only the root of the tree may be given through a symbolic link.
            let full = if path.as_os_str().is_empty() {
                root.to_owned()
            } else {
                full
            };
            let meta = fs::symlink_metadata(&full).unwrap_or_else(|e| failed("lstat", &full, e));
            if meta.is_dir() {
                list(&full, |name| todo.push(path.join(name)));
            }
            let key = path.into_os_string().into_vec();
            if !meta.is_dir() && meta.nlink() > 1 {
                let all: &mut Vec<_> = names.entry((meta.dev(), meta.ino())).or_default();
                all.push(key.clone());
            }
            entries.insert(key, look(&full, &meta));
        }
        for all in names.values_mut() {
            all.sort();
            for path in all.iter() {
                if let Some(entry) = entries.get_mut(path) {
                    entry.same_as = Some(all[0].clone());
                }
            }
        }
        View { entries }
    }

    /// What a copy made by a program can have in common with the original: without change times, properties
    /// of how directories are stored, the root itself, and its `lost+found`.
    #[must_use]
    pub fn as_copy(mut self) -> View {
        self.entries
            .retain(|path, _| !path.is_empty() && path != b"lost+found");
        for entry in self.entries.values_mut() {
            entry.changed = (0, 0);
            if is_dir(entry.mode) {
                (entry.len, entry.links) = (0, 0);
            }
        }
        self
    }

    /// The entries by path, in byte order.
    pub fn entries(&self) -> &BTreeMap<Vec<u8>, Entry> {
        &self.entries
    }

    /// The entry of one path below the root.
    pub fn entry(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path.as_bytes())
    }

    /// Fails the test unless both views are equal.
    ///
    /// # Panics
    /// If they differ, with the first differences.
    #[track_caller]
    pub fn assert_same(&self, other: &View, what: &str) {
        let differences = self.differences(other);
        let shown: Vec<&str> = differences.iter().take(8).map(String::as_str).collect();
        let count = differences.len();
        assert!(
            count == 0,
            "{what}: {count} differences:\n{}",
            shown.join("\n")
        );
    }

    /// The differences between two views, one per line.
    pub fn differences(&self, other: &View) -> Vec<String> {
        let shown = |path: &[u8]| format!("/{}", String::from_utf8_lossy(path));
        let mut all = Vec::new();
        for (path, entry) in &self.entries {
            match other.entries.get(path) {
                None => all.push(format!("{}: only in the first", shown(path))),
                Some(there) if there != entry => {
                    let path = shown(path);
                    all.push(format!(
                        "{path}: first  {entry:?}\n{path}: second {there:?}"
                    ));
                }
                Some(_) => {}
            }
        }
        let surplus = other
            .entries
            .keys()
            .filter(|path| !self.entries.contains_key(*path));
        all.extend(surplus.map(|path| format!("{}: only in the second", shown(path))));
        all
    }
}

fn is_dir(mode: u32) -> bool {
    rustix::fs::FileType::from_raw_mode(mode).is_dir()
}

fn failed<T>(call: &str, path: &Path, error: impl std::fmt::Display) -> T {
    panic!("{call} {}: {error}", path.display())
}

fn list(dir: &Path, mut name: impl FnMut(std::ffi::OsString)) {
    for entry in fs::read_dir(dir).unwrap_or_else(|e| failed("opendir", dir, e)) {
        name(
            entry
                .unwrap_or_else(|e| failed("readdir", dir, e))
                .file_name(),
        );
    }
}

fn look(path: &Path, meta: &Metadata) -> Entry {
    let kind = meta.file_type();
    let device = kind.is_block_device() || kind.is_char_device();
    let target = kind
        .is_symlink()
        .then(|| fs::read_link(path).unwrap_or_else(|e| failed("readlink", path, e)));
    Entry {
        mode: meta.mode(),
        uid: meta.uid(),
        gid: meta.gid(),
        links: meta.nlink(),
        len: meta.len(),
        device: if device { meta.rdev() } else { 0 },
        modified: (meta.mtime(), meta.mtime_nsec()),
        changed: (meta.ctime(), meta.ctime_nsec()),
        content: if kind.is_file() {
            hash(path, meta.len())
        } else {
            0
        },
        target: target.map_or_else(Vec::new, |target| target.as_os_str().as_bytes().to_vec()),
        same_as: None,
        xattrs: xattrs(path),
    }
}

/// Hash of the positions and contents of nonzero units: holes and zeros are equal.
fn hash(path: &Path, len: u64) -> u64 {
    let file = File::open(path).unwrap_or_else(|e| failed("open", path, e));
    let mut hasher = DefaultHasher::new();
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < len {
        // `SEEK_DATA` is only a hint that saves reading holes.
        match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(data) => at = data.max(at) / UNIT as u64 * UNIT as u64,
            Err(Errno::NXIO) => break,
            Err(_) => {}
        }
        let read = fill(&file, &mut piece, at).unwrap_or_else(|e| failed("read", path, e));
        if read == 0 {
            failed::<()>(
                "read",
                path,
                format_args!("ends at {at}, before its size of {len}"),
            );
        }
        for (index, unit) in piece[..read].chunks(UNIT).enumerate() {
            if unit != &ZEROES[..unit.len()] {
                hasher.write_u64(at + (index * UNIT) as u64);
                hasher.write(unit);
            }
        }
        at += read as u64;
    }
    hasher.finish()
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &File, to: &mut [u8], at: u64) -> std::io::Result<usize> {
    let mut done = 0;
    while done < to.len() {
        match file.read_at(&mut to[done..], at + done as u64)? {
            0 => break,
            n => done += n,
        }
    }
    Ok(done)
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut bytes = vec![0; MAX_XATTR_BYTES];
    let len = match rustix::fs::llistxattr(path, &mut bytes[..]) {
        Ok(len) => len,
        Err(Errno::OPNOTSUPP) => 0,
        Err(e) => failed("llistxattr", path, e),
    };
    let names = bytes[..len]
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty());
    let value = |name: &[u8]| {
        let mut value = vec![0; MAX_XATTR_BYTES];
        let len = rustix::fs::lgetxattr(path, name, &mut value[..])
            .unwrap_or_else(|e| failed("lgetxattr", path, e));
        value.truncate(len);
        (name.to_vec(), value)
    };
    names.map(value).collect()
}
