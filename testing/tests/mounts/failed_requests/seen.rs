//! What a mount shows of the tree that the requests change.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::failed_requests::requests::NAMES;

type ByName = BTreeMap<&'static str, String>;

/// The attributes, by path. Reading changes access times, so all mounts are asked for them first.
pub(crate) struct Stats {
    all: ByName,
    /// Allocated blocks, which write-back may change at any time.
    blocks: ByName,
}

impl Stats {
    pub(crate) fn of(root: &Path) -> Stats {
        let (mut all, mut blocks) = (ByName::new(), ByName::new());
        for name in NAMES {
            let (one, of) = stat(&root.join(name));
            all.insert(name, one);
            blocks.insert(name, of);
        }
        Stats { all, blocks }
    }

    /// Compares what a mount shows, now and `again`, with what a fresh one shows in between.
    pub(crate) fn same_as(&self, fresh: &Stats, again: &Stats) -> Result<(), String> {
        same("attributes", &self.all, &fresh.all)?;
        for (name, blocks) in &fresh.blocks {
            let shown = [&self.blocks[name], &again.blocks[name]];
            if !shown.contains(&blocks) {
                return Err(format!("{name}: {shown:?} blocks, fresh {blocks}"));
            }
        }
        Ok(())
    }

    /// Compares with what is shown after the image was opened again, without access times.
    pub(crate) fn same_after_remount(&self, again: &Stats) -> Result<(), String> {
        let times = |all: &ByName| -> ByName {
            let cut = |text: &String| text.split(" atime").next().unwrap_or_default().to_owned();
            all.iter().map(|(name, text)| (*name, cut(text))).collect()
        };
        same("attributes", &times(&self.all), &times(&again.all))
    }
}

/// Contents, names, extended attributes and flags, by path.
pub(crate) struct Contents(ByName);

impl Contents {
    pub(crate) fn of(root: &Path) -> Contents {
        let one = |name: &&'static str| (*name, content(&root.join(name)));
        Contents(NAMES.iter().map(one).collect())
    }

    pub(crate) fn same_as(&self, other: &Contents) -> Result<(), String> {
        same("contents", &self.0, &other.0)
    }
}

fn same(what: &str, one: &ByName, other: &ByName) -> Result<(), String> {
    match one
        .iter()
        .find(|(name, text)| other.get(*name) != Some(text))
    {
        None => Ok(()),
        Some((name, text)) => Err(format!(
            "{what} of {name}: {text}\nbut {:?}",
            other.get(name)
        )),
    }
}

/// The attributes, with access time last, and the allocated blocks.
fn stat(path: &Path) -> (String, String) {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) => return (format!("{:?}", error.raw_os_error()), String::new()),
    };
    let stat = format!(
        "{:o} {}:{} links {} size {} ino {} rdev {} mtime {}.{} ctime {}.{} atime {}.{}",
        meta.mode(),
        meta.uid(),
        meta.gid(),
        meta.nlink(),
        meta.size(),
        meta.ino(),
        meta.rdev(),
        meta.mtime(),
        meta.mtime_nsec(),
        meta.ctime(),
        meta.ctime_nsec(),
        meta.atime(),
        meta.atime_nsec(),
    );
    (stat, meta.blocks().to_string())
}

/// Names, target or bytes; and extended attributes and flags.
fn content(path: &Path) -> String {
    let Ok(meta) = fs::symlink_metadata(path) else {
        return String::new();
    };
    let kind = meta.file_type();
    let data = if kind.is_dir() {
        names(path)
    } else if kind.is_symlink() {
        format!(
            "{:?}",
            fs::read_link(path).map_err(|error| error.raw_os_error())
        )
    } else if kind.is_file() {
        match fs::read(path) {
            Ok(bytes) => format!("{} bytes {:x}", bytes.len(), hash(&bytes)),
            Err(error) => format!("{:?}", error.raw_os_error()),
        }
    } else {
        String::new()
    };
    let flags = match kind.is_dir() || kind.is_file() {
        true => fs::File::open(path)
            .map_err(|error| error.raw_os_error())
            .map(|file| rustix::fs::ioctl_getflags(&file)),
        false => Err(None),
    };
    format!("{data} flags {flags:?} xattrs {}", xattrs(path))
}

fn names(path: &Path) -> String {
    let listed = fs::read_dir(path).and_then(|all| {
        let name = |entry: std::io::Result<fs::DirEntry>| {
            entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
        };
        let mut names = all.map(name).collect::<std::io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    });
    format!("{:?}", listed.map_err(|error| error.raw_os_error()))
}

fn hash(bytes: &[u8]) -> u64 {
    let step = |all: u64, byte: &u8| (all ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn xattrs(path: &Path) -> String {
    let mut list = vec![0; 4096];
    let names = match rustix::fs::llistxattr(path, &mut list[..]) {
        Ok(len) => &list[..len],
        Err(error) => return format!("{error:?}"),
    };
    let mut all = Vec::new();
    for name in names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0; 8192];
        let read = rustix::fs::lgetxattr(path, name, &mut value[..]);
        all.push(format!(
            "{}={:?}",
            name.escape_ascii(),
            read.map(|len| hash(&value[..len]))
        ));
    }
    all.sort();
    all.join(",")
}
