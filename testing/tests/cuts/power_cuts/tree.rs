//! The tree on a volume, as our engine reads it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use throughline::{FileType, OpenOptions, Volume};
use throughline_testing::attributes::Found;
use throughline_testing::{Image, PowerDevice};

use super::names::Id;
use super::oracle::external;

/// The type of an object with a name; the workloads create no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    File,
    Dir,
    Symlink,
}

/// One name and its object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub ino: u64,
    pub kind: EntryKind,
    pub id: Id,
    pub gid: u32,
    pub mode: u32,
    pub links: u32,
    pub size: u64,
    /// The bytes of a file; the target of a symbolic link.
    pub content: Vec<u8>,
    /// Extended attributes, including ACLs.
    pub attributes: Found,
}

/// All names, by path.
pub type Tree = BTreeMap<String, Entry>;

/// Options for volumes that live for a few milliseconds.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    options.cache_bytes(Some(1 << 20)).readahead_max(Some(0));
    options
}

/// Reads everything except the root, `lost+found` and `shared` themselves.
///
/// # Errors
/// What could not be read.
pub fn read(image: &Image) -> Result<Tree, String> {
    let device = Arc::new(PowerDevice::new(image.clone(), 0));
    let volume = external::open_power(options().write(false), &device);
    let volume = volume.map_err(|error| format!("opening for reading: {error}"))?;
    let mut tree = Tree::new();
    walk(&volume, "", &mut tree).map_err(|error| format!("reading the tree: {error}"))?;
    tree.remove("/lost+found");
    tree.remove("/shared");
    Ok(tree)
}

fn walk(volume: &Volume, dir: &str, tree: &mut Tree) -> throughline::Result<()> {
    let top = if dir.is_empty() { "/" } else { dir };
    for found in volume.read_dir(top)? {
        let name = found?.file_name().to_string_lossy().into_owned();
        if name == "." || name == ".." {
            continue;
        }
        let path = format!("{dir}/{name}");
        let about = volume.symlink_metadata(&path)?;
        let content = match about.file_type() {
            FileType::File => {
                let mut bytes = vec![0; about.len() as usize];
                let file = volume.open_file(&path)?;
                file.read_exact_at(&mut bytes, 0)?;
                bytes
            }
            FileType::Symlink => volume
                .read_link(&path)?
                .into_os_string()
                .into_encoded_bytes(),
            _ => Vec::new(),
        };
        let entry = Entry {
            ino: about.ino(),
            kind: match about.file_type() {
                FileType::Directory => EntryKind::Dir,
                FileType::Symlink => EntryKind::Symlink,
                _ => EntryKind::File,
            },
            id: about.uid(),
            gid: about.gid(),
            mode: about.mode(),
            links: about.nlink(),
            size: about.len(),
            content,
            attributes: attributes(volume, about.ino())?,
        };
        tree.insert(path.clone(), entry);
        if about.file_type() == FileType::Directory {
            walk(volume, &path, tree)?;
        }
    }
    Ok(())
}

fn attributes(volume: &Volume, ino: u64) -> throughline::Result<Found> {
    let node = volume.node_by_ino(ino)?;
    let mut found = Found::new();
    for name in node.xattrs().names()? {
        let value = node.xattrs().get(&name)?.unwrap_or_default();
        found.insert(String::from_utf8_lossy(&name).into_owned(), value);
    }
    Ok(found)
}

/// The first difference.
pub fn difference(ours: &Tree, theirs: &Tree) -> Option<String> {
    let short = |entry: Option<&Entry>| {
        entry.map(|e| {
            let (at, n) = (&e.content, e.content.len().min(16));
            format!(
                "inode {} {:?} id {} mode {:o} links {} size {} {:?} attributes {:?}",
                e.ino,
                e.kind,
                e.id,
                e.mode,
                e.links,
                e.size,
                &at[..n],
                e.attributes
                    .iter()
                    .map(|(name, value)| (name, value.len()))
                    .collect::<Vec<_>>()
            )
        })
    };
    let mut paths: Vec<&String> = ours.keys().chain(theirs.keys()).collect();
    paths.sort_unstable();
    let path = paths
        .into_iter()
        .find(|path| ours.get(*path) != theirs.get(*path))?;
    let (a, b) = (ours.get(path), theirs.get(path));
    Some(format!(
        "{path}: ours {:?}, e2fsck's {:?}",
        short(a),
        short(b)
    ))
}
