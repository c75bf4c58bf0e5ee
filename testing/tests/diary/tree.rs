//! The tree in an image: names, and the identity that every sector of every file contains. Read by us, or
//! by the kernel.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::Errno;
use throughline::{File, OpenOptions, Volume};
use throughline_testing::attributes::Found;
use throughline_testing::sectors::{SECTOR_BYTES, Sector, parse};

/// The directories of the load.
pub(crate) const DIRS: [&str; 2] = ["/a", "/b"];

/// A file as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Its number, which is also its owner.
    pub(crate) id: u32,
    pub(crate) sectors: Vec<Sector>,
    pub(crate) mode: u32,
    pub(crate) attributes: Found,
}

/// All names.
pub(crate) type Tree = BTreeMap<String, Seen>;

/// The thread that a name belongs to.
pub(crate) fn thread_of(name: &str) -> Option<usize> {
    let (thread, _) = name
        .rsplit('/')
        .next()?
        .strip_prefix('t')?
        .split_once('-')?;
    thread.parse().ok()
}

fn seen(
    path: &str,
    (id, mode): (u32, u32),
    bytes: &[u8],
    attributes: Found,
) -> Result<Seen, String> {
    if !bytes.len().is_multiple_of(SECTOR_BYTES) {
        return Err(format!("{path} has {} bytes", bytes.len()));
    }
    Ok(Seen {
        id,
        sectors: bytes.chunks(SECTOR_BYTES).map(parse).collect(),
        mode: mode & 0o7777,
        attributes,
    })
}

/// The extended attributes of a file of a volume.
pub(crate) fn attributes_of_file(file: &File) -> throughline::Result<Found> {
    let node = file.node();
    let mut found = Found::new();
    for name in node.xattrs().names()? {
        let value = node.xattrs().get(&name)?.unwrap_or_default();
        found.insert(String::from_utf8_lossy(&name).into_owned(), value);
    }
    Ok(found)
}

/// The extended attributes of a file of a mount.
pub(crate) fn attributes_of_path(path: &Path) -> Result<Found, Errno> {
    let mut bytes = vec![0; 1 << 16];
    let len = rustix::fs::listxattr(path, &mut bytes[..])?;
    let names = String::from_utf8_lossy(&bytes[..len]).into_owned();
    let mut found = Found::new();
    for name in names.split_terminator('\0') {
        let len = rustix::fs::getxattr(path, name, &mut bytes[..])?;
        found.insert(name.to_owned(), bytes[..len].to_vec());
    }
    Ok(found)
}

/// Reads the tree through the library.
pub(crate) fn of_volume(volume: &Volume) -> Result<Tree, String> {
    let mut tree = Tree::new();
    for dir in DIRS {
        let message = |error: throughline::Error| format!("{dir}: {error}");
        for entry in volume.read_dir(dir).map_err(message)? {
            let name = entry.map_err(message)?.file_name();
            let path = format!("{dir}/{}", name.to_string_lossy());
            let message = |error: throughline::Error| format!("{path}: {error}");
            let metadata = volume.metadata(&path).map_err(message)?;
            let file = volume.open_file(&path).map_err(message)?;
            let mut bytes = vec![0; metadata.len() as usize];
            file.read_exact_at(&mut bytes, 0).map_err(message)?;
            let attributes = attributes_of_file(&file).map_err(message)?;
            let about = (metadata.uid(), metadata.mode());
            let seen = seen(&path, about, &bytes, attributes)?;
            tree.insert(path, seen);
        }
    }
    Ok(tree)
}

/// Reads the tree of an image, opened read-only.
pub(crate) fn of_image(image: &Path) -> Result<Tree, String> {
    let volume = OpenOptions::new()
        .open(image)
        .map_err(|error| format!("opening read-only: {error}"))?;
    of_volume(&volume)
}

/// Reads the tree of a kernel mount at `root`.
pub(crate) fn of_mount(root: &Path) -> Result<Tree, String> {
    let mut tree = Tree::new();
    for dir in DIRS {
        let message = |error: std::io::Error| format!("{dir}: {error}");
        for entry in std::fs::read_dir(root.join(&dir[1..])).map_err(message)? {
            let entry = entry.map_err(message)?;
            let path = format!("{dir}/{}", entry.file_name().to_string_lossy());
            let bytes = std::fs::read(entry.path()).map_err(message)?;
            let metadata = entry.metadata().map_err(message)?;
            let attributes = attributes_of_path(&entry.path());
            let attributes = attributes.map_err(|errno| message(errno.into()))?;
            let about = (metadata.uid(), metadata.mode());
            let seen = seen(&path, about, &bytes, attributes)?;
            tree.insert(path, seen);
        }
    }
    Ok(tree)
}

/// The difference between two readings of one image.
pub(crate) fn differences(one: &Tree, other: &Tree) -> Option<String> {
    let paths = one.keys().chain(other.keys());
    let mut different: Vec<&String> = paths
        .filter(|path| one.get(*path) != other.get(*path))
        .collect();
    different.sort();
    different.dedup();
    let text = |seen: Option<&Seen>| {
        seen.map_or("absent".into(), |seen| {
            let (id, sectors) = (seen.id, seen.sectors.len());
            let names: Vec<_> = seen.attributes.keys().collect();
            format!("file {id} of {sectors} sectors, {:o}, {names:?}", seen.mode)
        })
    };
    let lines = different.iter().map(|path| {
        format!(
            "{path}: {} / {}",
            text(one.get(*path)),
            text(other.get(*path))
        )
    });
    (!different.is_empty()).then(|| lines.collect::<Vec<_>>().join("\n"))
}
