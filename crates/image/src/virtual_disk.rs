//! [`VirtualDisk`]: the disk in an image of a format, with its backing files.
//!
//! Invariants:
//! - An image never makes another file be opened, unless its user has allowed that file ([`Backing`]).
//! - Every file of a chain is locked: the first one as its user says, the others against writers.
//! - A chain has at most [`MAX_CHAIN`] files.
//! - An image is written only if its tables agree: on tables that do not, `imago` gives clusters away twice,
//!   and its allocator can recurse without end.
//!
//! What a crash leaves. `imago` writes data before the table that refers to it, but waits for the disk in
//! between only where it is told to. So:
//! - `imago` refers to a new table before its count is on the disk. So after a crash, counts can be too low.
//!   They are mended before an image is written again ([`qcow2_check::mend`]).
//! - Tables and reference counts are written through a descriptor with `O_DSYNC`, each when the one before
//!   it is on the disk. There are few such writes: they are cached until [`VirtualDisk::flush`].
//! - Before that writes them, all data is on the disk.
//! - A write to a part of a cluster that was in a backing file, compressed or shared with a snapshot copies
//!   the rest of the cluster, which may have been promised long ago. Such a copy is on the disk before
//!   anything can refer to it.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use imago::file::File as Storage;
use imago::qcow2::Qcow2;
use imago::raw::Raw;
use imago::{FormatAccess, Mapping};
use parking_lot::{Mutex, RwLock};
use rustix::fs::{Mode, OFlags};
use throughline_device::{LockMode, LockedFile, OpenOptions};

use crate::format::Format;
use crate::qcow2_check;
use crate::qcow2_header::Header;
use crate::source::ReadAt;

/// The maximum number of files of a chain.
const MAX_CHAIN: usize = 64;

/// The files that an image may name as its backing files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backing {
    allowed: Vec<PathBuf>,
}

impl Backing {
    /// None.
    pub fn none() -> Backing {
        Backing::default()
    }

    /// Also this file, or all files below this directory.
    #[must_use]
    pub fn allow(mut self, path: impl Into<PathBuf>) -> Backing {
        self.allowed.push(path.into());
        self
    }

    /// Whether a file, named by its absolute path without symbolic links, is one of them.
    fn allows(&self, file: &Path) -> bool {
        let mut allowed = self.allowed.iter();
        allowed.any(|path| std::fs::canonicalize(path).is_ok_and(|path| file.starts_with(path)))
    }
}

/// An image needs a backing file that its user has not allowed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("it needs the backing file {}, which is not allowed", file.display())]
pub struct NotAllowed {
    /// That file.
    pub file: PathBuf,
}

/// How to open a [`VirtualDisk`].
#[derive(Clone, Debug)]
pub struct DiskOptions {
    /// The format; `None`: by content ([`Format::of`]).
    pub format: Option<Format>,
    /// For writing, too.
    pub write: bool,
    /// The lock on the image. Its backing files are locked as shared, unless this is [`LockMode::None`].
    pub lock: LockMode,
    /// The backing files that it may have.
    pub backing: Backing,
}

/// See the head of this file. Its contents can be read and written by several threads.
pub struct VirtualDisk {
    // Discarding needs it alone. Dropped before the locks, as that writes what is cached.
    disk: RwLock<FormatAccess<Storage>>,
    /// Held while clusters are copied or freed, and while tables are written.
    tables: Mutex<()>,
    cluster_bytes: u64,
    write: bool,
    format: Format,
    name: String,
    len_bytes: u64,
    /// The image, then its backing files.
    files: Vec<LockedFile>,
}

impl fmt::Debug for VirtualDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.format)
    }
}

impl VirtualDisk {
    /// Opens the image at `path`.
    ///
    /// # Errors
    /// - As [`OpenOptions::open`].
    /// - [`io::ErrorKind::PermissionDenied`] if it needs a file that is not allowed;
    /// - [`io::ErrorKind::Unsupported`] for what is not supported, or not for writing;
    /// - [`io::ErrorKind::InvalidData`] if it is damaged.
    pub fn open(path: &Path, options: &DiskOptions) -> io::Result<VirtualDisk> {
        let mut chain = Chain {
            backing: &options.backing,
            files: Vec::new(),
            cluster_bytes: 1,
        };
        // Whoever made the image may have found a panic in what reads it.
        let opened = catch_unwind(AssertUnwindSafe(|| {
            chain.open(path, options.format, options.write, options.lock)
        }));
        let (disk, format) =
            opened.unwrap_or_else(|_| Err(damaged("reading its tables failed")))?;
        Ok(VirtualDisk {
            len_bytes: disk.size(),
            disk: RwLock::new(disk),
            tables: Mutex::new(()),
            cluster_bytes: chain.cluster_bytes,
            write: options.write,
            format,
            name: path.display().to_string(),
            files: chain.files,
        })
    }

    /// The format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The path by which it was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes all of `bytes` at byte `at`.
    ///
    /// # Errors
    /// Of the device; [`io::ErrorKind::InvalidInput`] past the end.
    pub fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let end = self.end(at, bytes.len() as u64)?;
        let disk = self.disk.read();
        if !self.copies(&disk, at)? && !self.copies(&disk, end)? {
            return disk.write(bytes, at);
        }
        let _alone = self.tables.lock();
        disk.write(bytes, at)?;
        self.sync_data()
    }

    /// Whether a write that begins or ends at byte `at` copies the rest of the cluster there.
    fn copies(&self, disk: &FormatAccess<Storage>, at: u64) -> io::Result<bool> {
        if at.is_multiple_of(self.cluster_bytes) || at >= self.len_bytes {
            return Ok(false);
        }
        let mut from = at.saturating_sub(at.checked_rem(self.cluster_bytes).unwrap_or(0));
        let end = from.saturating_add(self.cluster_bytes).min(self.len_bytes);
        // A backing file may have smaller clusters.
        while from < end {
            let (mapping, len_bytes) = disk.get_mapping(from, end.saturating_sub(from))?;
            match mapping {
                Mapping::Raw { writable: true, .. } | Mapping::Zero { .. } if len_bytes > 0 => {
                    from = from.saturating_add(len_bytes);
                }
                Mapping::Eof { .. } => break,
                _ => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Data that is written is on the disk.
    fn sync_data(&self) -> io::Result<()> {
        match self.files.first() {
            Some(image) => image.file().sync_data(),
            None => Ok(()),
        }
    }

    /// Returns when all earlier writes survive a crash.
    ///
    /// # Errors
    /// Any failure after which a write may not survive.
    pub fn flush(&self) -> io::Result<()> {
        let disk = self.disk.read();
        let _alone = self.tables.lock();
        self.sync_data()?;
        disk.flush()?;
        disk.sync()
    }

    /// The bytes are no longer needed. They may keep their content.
    ///
    /// # Errors
    /// Of the device; [`io::ErrorKind::InvalidInput`] past the end.
    pub fn discard(&self, at: u64, len_bytes: u64) -> io::Result<()> {
        self.end(at, len_bytes)?;
        let mut disk = self.disk.write();
        let _alone = self.tables.lock();
        self.sync_data()?;
        match disk.discard_to_any(at, len_bytes) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
            done => done,
        }
    }

    /// The end of a range that must be inside of the disk.
    fn end(&self, at: u64, len_bytes: u64) -> io::Result<u64> {
        let end = at.checked_add(len_bytes);
        end.filter(|end| *end <= self.len_bytes)
            .ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}

impl Drop for VirtualDisk {
    /// Writes what is cached, in order.
    fn drop(&mut self) {
        if self.write {
            // Who closes a volume has flushed it, and knows of errors.
            let _ = self.flush();
        }
    }
}

impl ReadAt for VirtualDisk {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        match self.end(at, buffer.len() as u64) {
            Ok(_) => self.disk.read().read(buffer, at),
            Err(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.len_bytes)
    }
}

/// The files of a chain while they are opened.
struct Chain<'a> {
    backing: &'a Backing,
    files: Vec<LockedFile>,
    /// Of the image itself.
    cluster_bytes: u64,
}

impl Chain<'_> {
    fn open(
        &mut self,
        path: &Path,
        format: Option<Format>,
        write: bool,
        lock: LockMode,
    ) -> io::Result<(FormatAccess<Storage>, Format)> {
        if self.files.len() >= MAX_CHAIN {
            return Err(damaged(format!("more than {MAX_CHAIN} backing files")));
        }
        let mut options = OpenOptions::new().direct(false).write(write);
        options = options.lock(lock);
        let locked = options.open_locked(path)?;
        let format = match format {
            Some(format) => format,
            None => Format::of(locked.file())?,
        };
        let file = locked.file().try_clone()?;
        self.files.push(locked);
        let disk = match format {
            Format::Raw => FormatAccess::new(Raw::open_image(Storage::try_from(file)?, write)?),
            Format::Qcow2 => FormatAccess::new(self.qcow2(file, path, write, lock)?),
        };
        Ok((disk, format))
    }

    fn qcow2(
        &mut self,
        file: File,
        path: &Path,
        write: bool,
        lock: LockMode,
    ) -> io::Result<Qcow2<Storage>> {
        let header = Header::read(&file)?;
        header.check()?;
        if self.files.len() == 1 {
            self.cluster_bytes = header.cluster_bytes();
        }
        let mut image = match write {
            true => {
                let tables = synchronous(&file)?;
                qcow2_check::mend(&file, &header)?;
                let tables = Storage::try_from(tables)?;
                let mut image = Qcow2::<Storage>::open_image(tables, true)?;
                image.set_data_file(Some(Storage::try_from(file)?));
                image
            }
            false => {
                if lock != LockMode::None {
                    qcow2_check::check(&file, &header)?;
                }
                let mut image = Qcow2::<Storage>::open_image(Storage::try_from(file)?, false)?;
                image.set_data_file(None);
                image
            }
        };
        let Some(name) = image.implicit_backing_file().cloned() else {
            image.set_backing(None);
            return Ok(image);
        };
        let format = image.implicit_backing_format().map(String::as_str);
        let format = match format {
            None => None,
            // As QEMU calls what is raw where it is not a device.
            Some("file" | "host_device") => Some(Format::Raw),
            Some(name) => Some(
                name.parse()
                    .map_err(|_| unsupported(format!("a backing file of the format '{name}'")))?,
            ),
        };
        let backing = self.place(&name, path)?;
        let lock = match lock {
            LockMode::None => LockMode::None,
            _ => LockMode::Shared,
        };
        let opened = self.open(&backing, format, false, lock);
        let (disk, _) = opened.map_err(|error| match error.get_ref() {
            Some(why) if why.is::<NotAllowed>() => error,
            // Of the backing file of the backing file.
            Some(why) if why.to_string().starts_with("backing file") => error,
            _ => io::Error::new(error.kind(), of_backing(&backing, &error)),
        })?;
        image.set_backing(Some(disk));
        Ok(image)
    }

    /// The backing file that an image at `path` names.
    fn place(&self, name: &str, path: &Path) -> io::Result<PathBuf> {
        let name = name.strip_prefix("file:").unwrap_or(name);
        if name.is_empty() {
            return Err(damaged("the name of its backing file is empty"));
        }
        let protocol = name.split_once(':').map_or("", |(protocol, _)| protocol);
        if !protocol.is_empty() && !protocol.contains('/') && !path.with_file_name(name).exists() {
            return Err(unsupported(format!("a backing file by '{protocol}:'")));
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        let named = folder.join(name);
        let file = match std::fs::canonicalize(&named) {
            Ok(file) if self.backing.allows(&file) => return Ok(file),
            Ok(file) => file,
            // What does not exist and is not allowed is not told apart.
            Err(error) => match self.allows_missing(&named) {
                true => return Err(io::Error::new(error.kind(), of_backing(&named, &error))),
                false => named,
            },
        };
        let why = NotAllowed { file };
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }

    fn allows_missing(&self, named: &Path) -> bool {
        let Ok(named) = std::path::absolute(named) else {
            return false;
        };
        let mut allowed = self.backing.allowed.iter();
        allowed.any(|path| std::path::absolute(path).is_ok_and(|path| named.starts_with(path)))
    }
}

/// The same file, whose writes are on the disk when they return.
fn synchronous(file: &File) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::DSYNC | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

fn of_backing(file: &Path, error: &io::Error) -> String {
    format!("backing file {}: {error}", file.display())
}

pub(crate) fn damaged(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

pub(crate) fn unsupported(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, what.into())
}
