//! What is below a directory of a volume, as a tree of the crate `archive`: to be written as a tar, or packed
//! into another image.

use std::collections::HashMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use throughline_archive::{
    self as archive, Device, Extent, FileContent, Item, Kind, Limits, Meta, NodeId, Source,
    SourceId, Sources, Time, Tree,
};

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::file::File;
use crate::metadata::{FileType, Metadata};
use crate::node::Node;
use crate::time::since_epoch;
use crate::volume::Volume;

/// Deeper than a walk goes.
const DEPTH_MAX: u32 = 2050;

/// The tree below a directory, with the directory itself as its root, and where the contents are: they are
/// read when they are asked for. Memory: about 150 bytes for each name.
///
/// Each node has its type, permissions, owner, time of modification, extended attributes and holes; several
/// names of a file are one node. Flags of inodes and other times are left out. So is an empty `lost+found` of
/// root's with mode 0700 in the root of a volume: it is the file system's.
///
/// ```no_run
/// use throughline::archive::write_tar;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let volume = throughline::Volume::open("disk.img")?;
/// let (tree, sources) = throughline::read_tree(&volume.open_dir("/etc")?)?;
/// write_tar(&tree, &sources, &mut std::fs::File::create("etc.tar")?)?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`archive::Error::Io`] with the path and an [`Error`] inside: damage, device errors.
/// [`archive::Error::Limit`] for a tree that is too large for the default [`Limits`].
pub fn read_tree(directory: &Dir) -> archive::Result<(Tree, Sources)> {
    read_tree_past(directory, &mut Err)
}

/// As [`read_tree`]. If a file or directory cannot be read, or is nested more than 2048 deep, `left_out` is
/// called with the error. If that returns `Ok`, it is left out with all below it.
///
/// # Errors
/// As there, and what `left_out` returns.
pub fn read_tree_past(
    directory: &Dir,
    left_out: &mut dyn FnMut(archive::Error) -> archive::Result<()>,
) -> archive::Result<(Tree, Sources)> {
    let mut sources = Sources::new();
    let id = sources.add(Box::new(Files {
        volume: directory.volume(),
    }));
    let reader = read(directory, Limits::default(), Some(id), left_out)?;
    Ok((reader.tree, sources))
}

/// The same without contents, and the inode of each node by its number.
pub(crate) fn read_names(directory: &Dir, limits: Limits) -> archive::Result<(Tree, Vec<u64>)> {
    let mut reader = read(directory, limits, None, &mut Err)?;
    reader.inodes.resize(reader.tree.id_bound(), 0);
    Ok((reader.tree, reader.inodes))
}

/// `contents`: the source of the files' contents; `None` leaves them out.
fn read(
    directory: &Dir,
    limits: Limits,
    contents: Option<SourceId>,
    left_out: &mut dyn FnMut(archive::Error) -> archive::Result<()>,
) -> archive::Result<Reader> {
    let mut reader = Reader {
        volume: directory.volume(),
        tree: Tree::new(Limits {
            depth: DEPTH_MAX,
            ..limits
        }),
        contents,
        linked: HashMap::new(),
        inodes: Vec::new(),
    };
    let found = directory.node(".").map_err(|error| at(b".", error))?;
    let is_top = is_top(&found);
    let meta = meta(&found).map_err(|error| at(b".", error))?;
    let root = reader.tree.mkdir(b"/", &meta.0)?;
    reader.note(root, found.ino());
    let mut walk = directory.walk(".").map_err(|error| at(b".", error))?;
    let mut listed = PathBuf::from(".");
    while let Some(entry) = walk.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                left_out(at(listed.as_os_str().as_bytes(), error))?;
                continue;
            }
        };
        let path = entry.path();
        let path = path.strip_prefix(".").unwrap_or(path);
        match reader.add(path.as_os_str().as_bytes(), entry.ino()) {
            // As it would be for all that follow.
            Err(full @ archive::Error::Limit { .. }) => return Err(full),
            Err(error) => {
                left_out(error)?;
                walk.skip_dir();
                continue;
            }
            Ok(()) => {}
        }
        // The walk enters a directory next, and goes on in that of another entry.
        let next = match entry.file_type() {
            FileType::Directory => Some(path),
            _ => path.parent(),
        };
        listed = next
            .filter(|next| *next != Path::new(""))
            .unwrap_or(Path::new("."))
            .to_owned();
    }
    if is_top {
        reader.leave_out_lost_and_found();
    }
    Ok(reader)
}

/// Whether a directory is the root of its volume.
pub(crate) fn is_top(directory: &Node) -> bool {
    let root = directory.volume().root().and_then(|root| root.node("."));
    root.is_ok_and(|root| root.ino() == directory.ino())
}

/// An error with the path at which it occurred.
pub(crate) fn at(path: &[u8], error: Error) -> archive::Error {
    archive::Error::Io {
        place: Path::new(std::ffi::OsStr::from_bytes(path))
            .display()
            .to_string(),
        source: io::Error::other(error),
    }
}

struct Reader {
    volume: Volume,
    tree: Tree,
    contents: Option<SourceId>,
    /// Nodes that have more names, by inode.
    linked: HashMap<u64, NodeId>,
    /// The inode of each node, by its number.
    inodes: Vec<u64>,
}

impl Reader {
    fn add(&mut self, path: &[u8], ino: u64) -> archive::Result<()> {
        if let Some(&node) = self.linked.get(&ino) {
            self.tree.link_node(path, node)?;
            return Ok(());
        }
        let failed = |error| at(path, error);
        let node = self.volume.node_by_ino(ino).map_err(failed)?;
        let (meta, found) = meta(&node).map_err(failed)?;
        let kind = match found.file_type() {
            FileType::Directory => {
                let added = self.tree.mkdir(path, &meta)?;
                self.note(added, ino);
                return Ok(());
            }
            FileType::File => {
                let content = self.content(&node, &found).map_err(failed)?;
                let added = self.tree.add_file(path, &meta, &content)?;
                return self.added(&found, added);
            }
            FileType::Symlink => {
                let target = node.read_link().map_err(failed)?;
                let target = target.as_os_str().as_bytes();
                let added = self.tree.symlink(path, target, &meta)?;
                return self.added(&found, added);
            }
            FileType::CharDevice => Kind::CharDevice,
            FileType::BlockDevice => Kind::BlockDevice,
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
        };
        let numbers = found.device().map_or(Device::default(), |device| Device {
            major: device.major,
            minor: device.minor,
        });
        let added = self.tree.mknod(path, kind, numbers, &meta)?;
        self.added(&found, added)
    }

    fn added(&mut self, found: &Metadata, node: NodeId) -> archive::Result<()> {
        self.note(node, found.ino());
        if found.nlink() > 1 {
            self.linked.insert(found.ino(), node);
        }
        Ok(())
    }

    fn note(&mut self, node: NodeId, ino: u64) {
        let needed = self.inodes.len().max(node.index() + 1);
        self.inodes.resize(needed, 0);
        self.inodes[node.index()] = ino;
    }

    /// Where a file has data, in the order of its bytes.
    fn content(&self, node: &Node, found: &Metadata) -> Result<FileContent> {
        let size = found.len();
        let Some(source) = self.contents else {
            return Ok(FileContent::hole(size));
        };
        let mut extents = Vec::new();
        let mut next = 0;
        let file = if size > 0 {
            Some(node.open_file()?)
        } else {
            None
        };
        while let Some(file) = file.as_ref().filter(|_| next < size) {
            let Some(start) = file.seek_data(next)?.filter(|start| *start < size) else {
                break;
            };
            let end = file.seek_hole(start)?.unwrap_or(size).min(size);
            if end <= start {
                break;
            }
            extents.push(Extent {
                offset: start,
                length: end - start,
                at: start,
            });
            next = end;
        }
        Ok(FileContent {
            source,
            item: u32::try_from(found.ino()).unwrap_or(u32::MAX),
            size,
            extents,
        })
    }

    fn leave_out_lost_and_found(&mut self) {
        let found = self.tree.lookup(b"lost+found");
        if found.is_some_and(|node| self.tree.node(node).is_usual_lost_and_found()) {
            self.tree.remove(b"lost+found");
        }
    }
}

fn meta(node: &Node) -> Result<(Meta, Metadata)> {
    let found = node.metadata()?;
    let attributes = node.xattrs();
    let mut xattrs = Vec::new();
    for name in attributes.names()? {
        if let Some(value) = attributes.get(&name)? {
            xattrs.push((name, value));
        }
    }
    let meta = Meta {
        permissions: (found.mode() & 0o7777) as u16,
        uid: found.uid(),
        gid: found.gid(),
        mtime: time(found.modified()),
        atime: None,
        ctime: None,
        xattrs,
    };
    Ok((meta, found))
}

fn time(time: SystemTime) -> Time {
    let (seconds, nanoseconds) = since_epoch(time);
    Time {
        seconds,
        nanoseconds,
    }
}

/// The files of a volume, by their inodes.
struct Files {
    volume: Volume,
}

impl Source for Files {
    fn describe(&self) -> String {
        "the volume".to_owned()
    }

    fn open_item(&self, item: u32) -> archive::Result<Box<dyn Item + '_>> {
        let opened = self.volume.node_by_ino(item.into());
        let opened = opened.and_then(|node| node.open_file());
        let file = opened.map_err(|error| failed(item, error))?;
        Ok(Box::new(OpenFile { item, file }))
    }
}

fn failed(item: u32, error: Error) -> archive::Error {
    at(format!("inode {item}").as_bytes(), error)
}

struct OpenFile {
    item: u32,
    file: File,
}

impl Item for OpenFile {
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> archive::Result<()> {
        let read = self.file.read_exact_at(buffer, at);
        read.map_err(|error| failed(self.item, error))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn times_before_1970_have_nanoseconds_after_their_second() {
        let before = UNIX_EPOCH - Duration::new(3, 250_000_000);
        let expected = Time {
            seconds: -4,
            nanoseconds: 750_000_000,
        };
        assert_eq!(time(before), expected);
        let whole = UNIX_EPOCH - Duration::from_secs(7);
        assert_eq!(time(whole), Time::from_seconds(-7));
    }
}
