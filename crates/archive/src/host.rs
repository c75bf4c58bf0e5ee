//! A directory of this machine as a source. No root is needed: owners, modes and attributes are those that
//! `lstat(2)` and `listxattr(2)` show.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::hash::BuildHasher;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;

use crate::content::{Extent, FileContent, SourceId};
use crate::error::{Error, Result};
use crate::meta::{Device, Kind, Meta, Time, Xattr};
use crate::source::{Item, Source};
use crate::tree::{NodeId, Tree};

/// A number that changes when a file does: of its device, inode, size, and times of change.
pub(crate) fn fingerprint(metadata: &std::fs::Metadata) -> u64 {
    foldhash::quality::FixedState::with_seed(0).hash_one((
        (metadata.dev(), metadata.ino(), metadata.size()),
        (metadata.mtime(), metadata.mtime_nsec()),
        (metadata.ctime(), metadata.ctime_nsec()),
    ))
}

/// The files of a directory: 16 bytes for each, and its name.
pub(crate) struct HostDirectory {
    root: PathBuf,
    /// The directory above, and the name.
    directories: Vec<(u32, u32)>,
    files: Vec<HostFile>,
    /// Names, each after its length in a byte.
    names: Vec<u8>,
}

struct HostFile {
    directory: u32,
    name: u32,
    fingerprint: u64,
}

impl HostDirectory {
    fn name(&mut self, name: &[u8]) -> Result<u32> {
        let at = u32::try_from(self.names.len());
        let at = at.map_err(|_| Error::limit(self.root.display(), "names need more than 4 GiB"))?;
        self.names.push(name.len() as u8);
        self.names.extend_from_slice(name);
        Ok(at)
    }

    fn text(&self, at: u32) -> OsString {
        let at = at as usize;
        let length = usize::from(self.names[at]);
        OsString::from_vec(self.names[at + 1..at + 1 + length].to_vec())
    }

    fn path(&self, file: &HostFile) -> PathBuf {
        let mut parts = vec![self.text(file.name)];
        let mut directory = file.directory;
        while directory != 0 {
            let (above, name) = self.directories[directory as usize];
            parts.push(self.text(name));
            directory = above;
        }
        let mut path = self.root.clone();
        path.extend(parts.into_iter().rev());
        path
    }
}

impl Source for HostDirectory {
    fn describe(&self) -> String {
        self.root.display().to_string()
    }

    fn open_item(&self, item: u32) -> Result<Box<dyn Item + '_>> {
        let known = &self.files[item as usize];
        let path = self.path(known);
        let name = path.display().to_string();
        let file = match open(&path) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => return Err(Error::Changed(name)),
            Err(error) => return Err(Error::io(name, error)),
        };
        let open = OpenFile {
            file,
            name,
            fingerprint: known.fingerprint,
        };
        open.finish()?;
        Ok(Box::new(open))
    }
}

/// Opens what was a regular file: neither what a link that was put there leads to, nor waiting for a pipe.
fn open(path: &Path) -> std::result::Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open(path, flags, rustix::fs::Mode::empty()).map(File::from)
}

struct OpenFile {
    file: File,
    name: String,
    fingerprint: u64,
}

impl Item for OpenFile {
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<()> {
        self.file
            .read_exact_at(buffer, at)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => Error::Changed(self.name.clone()),
                _ => Error::io(&self.name, error),
            })
    }

    fn finish(&self) -> Result<()> {
        let now = self
            .file
            .metadata()
            .map_err(|error| Error::io(&self.name, error))?;
        if fingerprint(&now) == self.fingerprint {
            Ok(())
        } else {
            Err(Error::Changed(self.name.clone()))
        }
    }
}

/// Adds what is below a directory to a tree; the source is to be added under `id`. Paths that are `unwanted`
/// are not looked at, and regular files that are `left_out`, by device and inode, are not added.
pub(crate) fn scan(
    root: &Path,
    tree: &mut Tree,
    id: SourceId,
    unwanted: &dyn Fn(&[u8]) -> bool,
    left_out: &[(u64, u64)],
) -> Result<HostDirectory> {
    let source = HostDirectory {
        root: root.to_owned(),
        directories: vec![(0, 0)],
        files: Vec::new(),
        names: Vec::new(),
    };
    let mut scan = Scan {
        source,
        tree,
        id,
        unwanted,
        left_out,
        linked: HashMap::new(),
    };
    // The directory itself may be given as a symlink.
    let metadata = std::fs::metadata(root).map_err(|error| Error::io(root.display(), error))?;
    let canonical = root
        .canonicalize()
        .map_err(|error| Error::io(root.display(), error))?;
    let meta = meta(&canonical, &metadata)?;
    scan.tree.mkdir(b"/", &meta)?;
    let mut left = vec![(root.to_owned(), 0)];
    while let Some((path, number)) = left.pop() {
        scan.directory(&path, number, &mut left)?;
    }
    Ok(scan.source)
}

struct Scan<'t> {
    source: HostDirectory,
    tree: &'t mut Tree,
    id: SourceId,
    unwanted: &'t dyn Fn(&[u8]) -> bool,
    left_out: &'t [(u64, u64)],
    /// Nodes that have more names, by device and inode.
    linked: HashMap<(u64, u64), NodeId>,
}

impl Scan<'_> {
    fn directory(
        &mut self,
        path: &Path,
        number: u32,
        left: &mut Vec<(PathBuf, u32)>,
    ) -> Result<()> {
        let failed = |error: io::Error| Error::io(path.display(), error);
        let listed: io::Result<Vec<_>> = std::fs::read_dir(path).map_err(failed)?.collect();
        let mut names: Vec<OsString> = listed
            .map_err(failed)?
            .iter()
            .map(std::fs::DirEntry::file_name)
            .collect();
        // Sorted, so that the numbers of nodes do not depend on the host's order.
        names.sort_unstable();
        for name in names {
            let path = path.join(&name);
            if (self.unwanted)(self.inside(&path)) {
                continue;
            }
            let metadata = match std::fs::symlink_metadata(&path) {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(Error::Changed(path.display().to_string()));
                }
                Err(error) => return Err(Error::io(path.display(), error)),
            };
            if metadata.is_dir() {
                let name = self.source.name(name.as_bytes())?;
                self.source.directories.push((number, name));
                left.push((path.clone(), self.source.directories.len() as u32 - 1));
            }
            self.entry(&path, number, name.as_bytes(), &metadata)?;
        }
        Ok(())
    }

    /// The path in the tree.
    fn inside<'p>(&self, path: &'p Path) -> &'p [u8] {
        let inside = path.strip_prefix(&self.source.root);
        inside.expect("below the root").as_os_str().as_bytes()
    }

    fn entry(
        &mut self,
        path: &Path,
        number: u32,
        name: &[u8],
        metadata: &std::fs::Metadata,
    ) -> Result<()> {
        let identity = (metadata.dev(), metadata.ino());
        if metadata.is_file() && self.left_out.contains(&identity) {
            return Ok(());
        }
        let inside = self.inside(path);
        let meta = meta(path, metadata)?;
        let shared = metadata.nlink() > 1 && !metadata.is_dir();
        if let Some(&node) = self.linked.get(&identity).filter(|_| shared) {
            self.tree.link_node(inside, node)?;
            return Ok(());
        }
        let kind = Kind::of_mode(metadata.mode());
        let kind =
            kind.ok_or_else(|| Error::Unsupported(format!("{}: of unknown type", path.display())))?;
        let node = match kind {
            Kind::Directory => self.tree.mkdir(inside, &meta)?,
            Kind::Symlink => {
                let target =
                    std::fs::read_link(path).map_err(|error| Error::io(path.display(), error))?;
                self.tree
                    .symlink(inside, target.as_os_str().as_bytes(), &meta)?
            }
            Kind::File => {
                let extents = extents(path, metadata)?;
                let name = self.source.name(name)?;
                self.source.files.push(HostFile {
                    directory: number,
                    name,
                    fingerprint: fingerprint(metadata),
                });
                let content = FileContent {
                    source: self.id,
                    item: self.source.files.len() as u32 - 1,
                    size: metadata.size(),
                    extents,
                };
                self.tree.add_file(inside, &meta, &content)?
            }
            kind => {
                let number = metadata.rdev();
                let device = Device {
                    major: rustix::fs::major(number),
                    minor: rustix::fs::minor(number),
                };
                self.tree.mknod(inside, kind, device, &meta)?
            }
        };
        if shared {
            self.linked.insert(identity, node);
        }
        Ok(())
    }
}

fn meta(path: &Path, metadata: &std::fs::Metadata) -> Result<Meta> {
    Ok(Meta {
        permissions: (metadata.mode() & 0o7777) as u16,
        uid: metadata.uid(),
        gid: metadata.gid(),
        mtime: Time {
            seconds: metadata.mtime(),
            nanoseconds: metadata.mtime_nsec() as u32,
        },
        // Reading the tree changes these, and so would the image.
        atime: None,
        ctime: None,
        xattrs: xattrs(path).map_err(|error| Error::io(path.display(), error))?,
    })
}

fn xattrs(path: &Path) -> std::result::Result<Vec<Xattr>, Errno> {
    let mut names = vec![0; 1024];
    let length = loop {
        match rustix::fs::llistxattr(path, &mut names[..]) {
            Ok(length) => break length,
            Err(Errno::RANGE) if names.len() < 1 << 20 => names.resize(names.len() * 8, 0),
            Err(Errno::NOTSUP) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
    };
    let mut xattrs = Vec::new();
    let names: &[u8] = &names[..length];
    for name in names
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0; 64 << 10];
        match rustix::fs::lgetxattr(path, name, &mut value[..]) {
            Ok(length) => value.truncate(length),
            Err(Errno::NODATA) => continue,
            Err(error) => return Err(error),
        }
        value.shrink_to_fit();
        xattrs.push((name.to_vec(), value));
    }
    Ok(xattrs)
}

/// The data of a file: all of it, or what `SEEK_DATA` finds if it has fewer blocks than its size needs.
fn extents(path: &Path, metadata: &std::fs::Metadata) -> Result<Vec<Extent>> {
    let size = metadata.size();
    let run = |offset: u64, end: u64| Extent {
        offset,
        length: end - offset,
        at: offset,
    };
    if size == 0 {
        return Ok(Vec::new());
    }
    if metadata.blocks().saturating_mul(512) >= size {
        return Ok(vec![run(0, size)]);
    }
    let failed = |error: Errno| Error::io(path.display(), error);
    let file = open(path).map_err(failed)?;
    let mut extents = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            // This file system does not know.
            Err(Errno::INVAL) if at == 0 => return Ok(vec![run(0, size)]),
            Err(error) => return Err(failed(error)),
        };
        let end = rustix::fs::seek(&file, SeekFrom::Hole(start))
            .map_err(failed)?
            .min(size);
        if end <= start {
            break;
        }
        extents.push(run(start, end));
        at = end;
    }
    Ok(extents)
}
