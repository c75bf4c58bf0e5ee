//! A directory of the host as a tree: names, attributes and extended attributes are read at once, the
//! contents when they are packed.

use std::collections::HashMap;
use std::fs::Metadata;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, SeekFrom};

use super::memory::{Content, MemoryTree};
use super::tree::{Attributes, Kind, NodeId, ROOT};
use crate::error::{Error, Result};

/// Most bytes of a list of attributes, and of a value, that Linux has.
const XATTR_MAX: usize = 64 << 10;

/// Whether a path, relative to the directory that is added, is left out.
pub type Exclude<'e> = dyn Fn(&Path) -> bool + 'e;

/// Adds directories of the host to a tree.
pub(crate) struct Host<'e> {
    exclude: &'e Exclude<'e>,
    /// Nodes of files with several names, by device and inode.
    linked: HashMap<(u64, u64), NodeId>,
}

impl MemoryTree {
    /// Adds what is in a directory of the host to the root: over what is there, directory by directory. The
    /// root gets its attributes. Symbolic links in it are not followed.
    ///
    /// # Errors
    /// [`Error::Open`]: what cannot be read.
    pub fn add_host(&mut self, directory: &Path, exclude: &Exclude<'_>) -> Result<()> {
        let mut host = Host {
            exclude,
            linked: HashMap::new(),
        };
        let metadata = std::fs::metadata(directory).map_err(|error| failed(directory, error))?;
        if !metadata.is_dir() {
            let error = io::Error::from(io::ErrorKind::NotADirectory);
            return Err(failed(directory, error));
        }
        self.set_attributes(ROOT, attributes(&metadata));
        host.xattrs(self, ROOT, directory)?;
        // Directories, with their paths below the first.
        let mut stack = vec![(ROOT, PathBuf::new())];
        while let Some((node, below)) = stack.pop() {
            let path = directory.join(&below);
            let entries = std::fs::read_dir(&path).map_err(|error| failed(&path, error))?;
            for entry in entries {
                let name = entry.map_err(|error| failed(&path, error))?.file_name();
                let below = below.join(&name);
                if (host.exclude)(&below) {
                    continue;
                }
                let is_directory = host.add(self, node, name.as_bytes(), &path.join(&name))?;
                stack.extend(is_directory.map(|child| (child, below)));
            }
        }
        Ok(())
    }
}

impl Host<'_> {
    /// Adds a name. Returns the node if it is a directory.
    fn add(
        &mut self,
        tree: &mut MemoryTree,
        parent: NodeId,
        name: &[u8],
        path: &Path,
    ) -> Result<Option<NodeId>> {
        let metadata = std::fs::symlink_metadata(path).map_err(|error| failed(path, error))?;
        let file_type = metadata.file_type();
        let key = (metadata.dev(), metadata.ino());
        let is_linked = metadata.nlink() > 1 && !file_type.is_dir();
        if let Some(node) = self.linked.get(&key).filter(|_| is_linked) {
            tree.link(parent, name, *node);
            return Ok(None);
        }
        let attributes = attributes(&metadata);
        let node = if file_type.is_dir() {
            match tree.directory_named(parent, name) {
                Some(there) => {
                    tree.set_attributes(there, attributes);
                    there
                }
                None => tree.directory(parent, name, attributes),
            }
        } else if file_type.is_file() {
            let content = content(path, &metadata)?;
            tree.file(parent, name, attributes, content)
        } else if file_type.is_symlink() {
            let target = std::fs::read_link(path).map_err(|error| failed(path, error))?;
            tree.symlink(parent, name, attributes, target.as_os_str().as_bytes())
        } else {
            tree.special(parent, name, attributes, special(&metadata))
        };
        if is_linked {
            self.linked.insert(key, node);
        }
        self.xattrs(tree, node, path)?;
        Ok(file_type.is_dir().then_some(node))
    }

    fn xattrs(&self, tree: &mut MemoryTree, node: NodeId, path: &Path) -> Result<()> {
        let mut large = Vec::new();
        let failed = |error: rustix::io::Errno| failed(path, error.into());
        let mut small = [0; 256];
        let names = match rustix::fs::llistxattr(path, &mut small[..]) {
            Ok(0) | Err(rustix::io::Errno::NOTSUP) => return Ok(()),
            Ok(len) => &small[..len],
            Err(rustix::io::Errno::RANGE) => {
                large.resize(XATTR_MAX, 0);
                let len = rustix::fs::llistxattr(path, &mut large[..]).map_err(failed)?;
                &large[..len]
            }
            Err(error) => return Err(failed(error)),
        };
        let mut value = vec![0; XATTR_MAX];
        for name in names
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty())
        {
            let found =
                rustix::fs::lgetxattr(path, std::ffi::OsStr::from_bytes(name), &mut value[..]);
            match found {
                Ok(len) => tree.set_xattr(node, name, &value[..len]),
                // It was removed meanwhile.
                Err(rustix::io::Errno::NODATA) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }
}

fn failed(path: &Path, source: io::Error) -> Error {
    Error::Open {
        path: path.to_owned(),
        source,
    }
}

fn attributes(metadata: &Metadata) -> Attributes {
    Attributes {
        permissions: (metadata.mode() & 0o7777) as u16,
        uid: metadata.uid(),
        gid: metadata.gid(),
        mtime_seconds: metadata.mtime(),
        mtime_nanoseconds: metadata.mtime_nsec() as u32,
    }
}

fn special(metadata: &Metadata) -> Kind<'static> {
    let device = metadata.rdev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let file_type = metadata.file_type();
    if file_type.is_char_device() {
        Kind::CharDevice { major, minor }
    } else if file_type.is_block_device() {
        Kind::BlockDevice { major, minor }
    } else if file_type.is_fifo() {
        Kind::Fifo
    } else {
        Kind::Socket
    }
}

/// Where a file has data: asked only if it has fewer blocks than its size needs.
fn content(path: &Path, metadata: &Metadata) -> Result<Content> {
    let size = metadata.len();
    let path = path.to_owned();
    if metadata.blocks().saturating_mul(512) >= size {
        return Ok(Content::File { path, size });
    }
    let data = ranges(&path, size).map_err(|error| failed(&path, error))?;
    Ok(Content::SparseFile { path, size, data })
}

fn ranges(path: &Path, size: u64) -> io::Result<Vec<Range<u64>>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::open(path, flags, rustix::fs::Mode::empty())?;
    let (mut ranges, mut at) = (Vec::new(), 0);
    while at < size {
        let start = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(start) if start < size => start,
            Ok(_) | Err(rustix::io::Errno::NXIO) => break,
            // This file system does not know.
            Err(rustix::io::Errno::INVAL) => return Ok(std::iter::once(0..size).collect()),
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(&file, SeekFrom::Hole(start))?.clamp(start + 1, size);
        ranges.push(start..end);
        at = end;
    }
    Ok(ranges)
}
