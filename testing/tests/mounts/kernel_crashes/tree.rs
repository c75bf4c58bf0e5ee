//! The content of a volume as our engine reads it: every name with all its attributes.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::path::Path;
use std::sync::Arc;

use throughline_block::Disk;
use throughline_ext::{FileType, Fs, Inode, OpenOptions, Timestamp};

/// One name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: FileType,
    ino: u32,
    size: u64,
    /// A digest of a file's content; the target of a symbolic link.
    content: Vec<u8>,
    permissions: u16,
    owner: (u32, u32),
    links: u16,
    device: Option<(u32, u32)>,
    /// Times of access and creation.
    accessed: (Timestamp, Option<Timestamp>),
    /// Times of modification and of change.
    pub(crate) changed: (Timestamp, Timestamp),
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Every name, by path from the root.
pub(crate) type Tree = BTreeMap<String, Entry>;

/// Opens an image.
pub(crate) fn open(image: &Path, write: bool) -> throughline_ext::Result<Fs> {
    let device = throughline_device::OpenOptions::new()
        .write(write)
        .direct(false)
        .open(image)
        .expect("the image opens");
    let mut options = OpenOptions::default();
    options.write = write;
    Fs::open(Arc::new(Disk::new(device).expect("a disk")), &options)
}

/// Reads the whole volume.
pub(crate) fn tree(fs: &Fs) -> throughline_ext::Result<Tree> {
    let mut tree = Tree::new();
    let mut waiting = vec![(String::from("/"), fs.root()?)];
    while let Some((path, inode)) = waiting.pop() {
        let read = entry(fs, &inode).inspect_err(|_| eprintln!("at {path}"))?;
        tree.insert(path.clone(), read);
        if !inode.is_dir() {
            continue;
        }
        let mut at = 0;
        loop {
            let names = fs.list_dir(&inode, at)?;
            let Some(last) = names.last() else { break };
            at = last.next;
            for name in names {
                if !matches!(name.name.as_slice(), b"." | b"..") {
                    let path = format!("{path}{}/", String::from_utf8_lossy(&name.name));
                    waiting.push((path, fs.inode(name.ino)?));
                }
            }
        }
    }
    Ok(tree)
}

fn entry(fs: &Fs, inode: &Arc<Inode>) -> throughline_ext::Result<Entry> {
    let meta = fs.metadata(inode)?;
    let content = match meta.file_type {
        FileType::Regular => digest(fs, inode, meta.size_bytes)?,
        FileType::Symlink => fs.read_link(inode)?,
        _ => Vec::new(),
    };
    let mut attributes = BTreeMap::new();
    for name in fs.list_xattrs(inode)? {
        let value = fs.get_xattr(inode, &name)?;
        attributes.insert(name, value);
    }
    Ok(Entry {
        kind: meta.file_type,
        ino: meta.ino.0,
        size: meta.size_bytes,
        content,
        permissions: meta.permissions,
        owner: (meta.uid, meta.gid),
        links: meta.links,
        device: meta.device,
        accessed: (meta.accessed, meta.created),
        changed: (meta.modified, meta.changed),
        attributes,
    })
}

fn digest(fs: &Fs, inode: &Inode, size: u64) -> throughline_ext::Result<Vec<u8>> {
    let mut sums = [!0_u32, 0x1234_5678];
    let mut buf = vec![0; 64 << 10];
    let mut at = 0;
    while at < size {
        let done = fs.read_at(inode, at, &mut [IoSliceMut::new(&mut buf)])?;
        if done == 0 {
            break;
        }
        for sum in &mut sums {
            *sum = throughline_extfmt::checksum::crc32c(*sum, &buf[..done]);
        }
        at += done as u64;
    }
    Ok(sums.iter().flat_map(|sum| sum.to_le_bytes()).collect())
}

/// The first names in which two trees differ, in words.
pub(crate) fn differences(ours: &Tree, theirs: &Tree) -> Vec<String> {
    let names: std::collections::BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    names
        .into_iter()
        .filter(|name| ours.get(*name) != theirs.get(*name))
        .take(5)
        .map(|name| format!("{name}:\n  {:?}\n  {:?}", ours.get(name), theirs.get(name)))
        .collect()
}
