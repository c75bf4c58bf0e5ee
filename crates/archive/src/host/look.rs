//! What there is to see of a name on the host, but for the data. All of it is of one inode.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags, SeekFrom};
use rustix::io::Errno;

use super::unreached;
use crate::content::Extent;
use crate::error::{Error, Result};
use crate::host_tree::{Attributes, Held, Status, open_file};
use crate::meta::{Meta, Time, Xattr};

/// A name, and what it leads to.
pub(super) struct Seen {
    pub(super) path: PathBuf,
    pub(super) status: Status,
    pub(super) meta: Meta,
    /// Of a symlink.
    pub(super) target: Vec<u8>,
    /// Of a regular file.
    pub(super) extents: Vec<Extent>,
}

impl Seen {
    /// Looks at a name in an open directory, without following it. `listed`: its type, where the directory
    /// says it. `path` is for messages and for the tree.
    pub(super) fn look(
        dir: impl AsFd,
        name: &OsStr,
        listed: FileType,
        path: PathBuf,
    ) -> Result<Seen> {
        let failed = |error: Errno| Error::io(path.display(), error);
        // Not every file system lists types.
        let looked = Held::look_at(&dir, name, listed).and_then(|held| {
            match (listed, held.status().kind()) {
                (FileType::Unknown, FileType::Directory) => {
                    Held::look_at(&dir, name, FileType::Directory)
                }
                _ => Ok(held),
            }
        });
        let held = looked.map_err(|error| match error {
            Errno::NOENT => Error::Changed(path.display().to_string()),
            error => failed(error),
        })?;
        let status = *held.status();
        let open = || {
            let is_same = |found: &Status| found.identity == status.identity;
            let opened = open_file(&dir, name, OFlags::RDONLY, false, is_same);
            opened.map_err(|error| unreached(path.display(), error))
        };
        let xattrs = match (xattrs(&held.attributes()), status.kind()) {
            // Without /proc, files have to be opened.
            (Err(Errno::NOSYS), FileType::RegularFile) => {
                xattrs(&Attributes::Open(open()?.0.as_fd()))
            }
            (read, _) => read,
        };
        let meta = meta(&status, attributes_of(&path, xattrs)?);
        let (mut target, mut extents) = (Vec::new(), Vec::new());
        match status.kind() {
            FileType::Symlink => target = held.link_target().map_err(failed)?,
            FileType::RegularFile => {
                extents = data(&status, || Ok(open()?.0), failed)?;
            }
            _ => {}
        }
        Ok(Seen {
            path,
            status,
            meta,
            target,
            extents,
        })
    }

    /// The last part of the path.
    pub(super) fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }
}

/// What the tree is to know of the directory that it begins with.
pub(super) fn meta_of_root(path: &Path, dir: impl AsFd, status: &Status) -> Result<Meta> {
    let read = xattrs(&Attributes::Open(dir.as_fd()));
    Ok(meta(status, attributes_of(path, read)?))
}

fn meta(status: &Status, xattrs: Vec<Xattr>) -> Meta {
    let (seconds, nanoseconds) = status.modified;
    Meta {
        permissions: (status.mode & 0o7777) as u16,
        uid: status.uid,
        gid: status.gid,
        mtime: Time {
            seconds,
            nanoseconds,
        },
        // Reading the tree changes these, and so would the image.
        atime: None,
        ctime: None,
        xattrs,
    }
}

fn attributes_of(path: &Path, read: std::result::Result<Vec<Xattr>, Errno>) -> Result<Vec<Xattr>> {
    read.map_err(|error| match error {
        Errno::NOSYS => Error::Unsupported(format!(
            "{}: its extended attributes cannot be read, because /proc is not mounted",
            path.display()
        )),
        error => Error::io(path.display(), error),
    })
}

fn xattrs(of: &Attributes<'_>) -> std::result::Result<Vec<Xattr>, Errno> {
    let names = match of.names() {
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        names => names?,
    };
    let mut xattrs = Vec::new();
    for name in names {
        // It may have been removed between the two calls.
        if let Some(value) = of.get(&name)? {
            xattrs.push((name, value));
        }
    }
    Ok(xattrs)
}

/// The data of a file: all of it, or what `SEEK_DATA` finds if it has fewer blocks than its size needs.
fn data(
    status: &Status,
    open: impl FnOnce() -> Result<File>,
    failed: impl Fn(Errno) -> Error,
) -> Result<Vec<Extent>> {
    let size = status.size;
    let run = |offset: u64, end: u64| Extent {
        offset,
        length: end - offset,
        at: offset,
    };
    if size == 0 {
        return Ok(Vec::new());
    }
    if status.blocks.saturating_mul(512) >= size {
        return Ok(vec![run(0, size)]);
    }
    let file = open()?;
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
            .map_err(&failed)?
            .min(size);
        if end <= start {
            break;
        }
        extents.push(run(start, end));
        at = end;
    }
    Ok(extents)
}
