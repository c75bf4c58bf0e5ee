//! What there is to see of a name on the host, but for the data.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::open;
use crate::content::Extent;
use crate::error::{Error, Result};
use crate::meta::{Meta, Time, Xattr};

/// A name, and what it leads to.
pub(super) struct Seen {
    pub(super) path: PathBuf,
    pub(super) metadata: Metadata,
    pub(super) meta: Meta,
    /// Of a symlink.
    pub(super) target: Vec<u8>,
    /// Of a regular file.
    pub(super) extents: Vec<Extent>,
}

impl Seen {
    /// Looks at a name, without following it.
    pub(super) fn look(path: PathBuf) -> Result<Seen> {
        let metadata = match std::fs::symlink_metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::Changed(path.display().to_string()));
            }
            Err(error) => return Err(Error::io(path.display(), error)),
        };
        let meta = meta(&path, &metadata)?;
        let (mut target, mut extents) = (Vec::new(), Vec::new());
        if metadata.is_symlink() {
            let read = std::fs::read_link(&path);
            let read = read.map_err(|error| Error::io(path.display(), error))?;
            target = read.as_os_str().as_bytes().to_vec();
        } else if metadata.is_file() {
            extents = data(&path, &metadata)?;
        }
        Ok(Seen {
            path,
            metadata,
            meta,
            target,
            extents,
        })
    }

    /// The last part of the path.
    pub(super) fn name(&self) -> &[u8] {
        self.path.file_name().map_or(&[], OsStr::as_bytes)
    }

    /// Device and inode.
    pub(super) fn identity(&self) -> (u64, u64) {
        (self.metadata.dev(), self.metadata.ino())
    }
}

pub(super) fn meta(path: &Path, metadata: &Metadata) -> Result<Meta> {
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
    // Most files have none, or few.
    let mut few = [0; 256];
    let mut many = Vec::new();
    let mut listed = rustix::fs::llistxattr(path, &mut few[..]);
    while listed == Err(Errno::RANGE) && many.len() < 1 << 20 {
        many.resize((many.len() * 8).max(1 << 10), 0);
        listed = rustix::fs::llistxattr(path, &mut many[..]);
    }
    let length = match listed {
        Ok(length) => length,
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let names = if many.is_empty() { &few[..] } else { &many };
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
fn data(path: &Path, metadata: &Metadata) -> Result<Vec<Extent>> {
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
