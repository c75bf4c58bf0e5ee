//! [`VirtualDisk`]: the disk in an image of a format, with its backing files.
//!
//! Invariants:
//! - An image never makes another file be opened, unless its user has allowed that file ([`Backing`]).
//! - Every file of a chain is locked: the first one as its user says, the others against writers.
//! - A chain has at most [`MAX_CHAIN`] files.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use throughline_device::{LockMode, LockedFile, OpenOptions};

use crate::format::Format;
use crate::qcow2::{self, Base, Header, NewBacking, Opening, Qcow2};
use crate::source::ReadAt;
use crate::store::Store;

/// The maximum number of files of a chain.
const MAX_CHAIN: usize = 64;

/// The files that an image may name as its backing files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backing {
    allowed: Vec<PathBuf>,
}

impl<P: Into<PathBuf>> FromIterator<P> for Backing {
    fn from_iter<I: IntoIterator<Item = P>>(paths: I) -> Backing {
        let allowed = paths.into_iter().map(Into::into);
        Backing {
            allowed: allowed.collect(),
        }
    }
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

    /// Whether this name, of something that is not a file, is one of them.
    pub fn allows_name(&self, name: &Path) -> bool {
        self.allowed.iter().any(|path| path == name)
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
    /// For writing, too.
    pub write: bool,
    /// The lock on the image. Its backing files are locked as shared, unless this is [`LockMode::None`].
    pub lock: LockMode,
    /// The backing files that it may have.
    pub backing: Backing,
}

/// What an image is laid over, opened by its user.
pub struct OpenBase {
    /// Its disk.
    pub disk: Box<dyn ReadAt + Send + Sync>,
    /// Another content has another version.
    pub version: String,
}

impl fmt::Debug for OpenBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenBase").field(&self.version).finish()
    }
}

/// See the head of this file. Its contents can be read and written by several threads.
pub struct VirtualDisk {
    // Dropped before the locks, as that writes what is in memory.
    disk: Qcow2,
    write: bool,
    name: String,
    /// The image, then its backing files.
    _files: Vec<LockedFile>,
}

impl fmt::Debug for VirtualDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl VirtualDisk {
    /// Opens the qcow2 image at `path`.
    ///
    /// # Errors
    /// - As [`OpenOptions::open`].
    /// - [`io::ErrorKind::PermissionDenied`] if it needs a file that is not allowed;
    /// - [`io::ErrorKind::Unsupported`] for what is not supported, or not for writing;
    /// - [`io::ErrorKind::InvalidData`] if it is damaged.
    pub fn open(path: &Path, options: &DiskOptions) -> io::Result<VirtualDisk> {
        Self::open_with(path, options, None)
    }

    /// The same, of an image that is laid over `base`, whatever the image says of it.
    ///
    /// # Errors
    /// As [`VirtualDisk::open`]; [`io::ErrorKind::InvalidData`] if the image was made over another version.
    pub fn open_over(
        path: &Path,
        options: &DiskOptions,
        base: OpenBase,
    ) -> io::Result<VirtualDisk> {
        Self::open_with(path, options, Some(base))
    }

    fn open_with(
        path: &Path,
        options: &DiskOptions,
        base: Option<OpenBase>,
    ) -> io::Result<VirtualDisk> {
        let mut chain = Chain {
            backing: &options.backing,
            files: Vec::new(),
            base,
        };
        let locked = chain.lock(path, options.write, options.lock)?;
        let disk = chain.qcow2(locked, path, options.write, options.lock)?;
        Ok(VirtualDisk {
            disk,
            write: options.write,
            name: path.display().to_string(),
            _files: chain.files,
        })
    }

    /// The disk of a qcow2 image in a store of yours, over `base` where the image has nothing. The image's
    /// own name of a backing file is not used. Nothing is locked.
    ///
    /// # Errors
    /// As [`VirtualDisk::open`].
    pub fn in_store(
        store: Box<dyn Store>,
        base: Option<Box<dyn ReadAt + Send + Sync>>,
        write: bool,
    ) -> io::Result<VirtualDisk> {
        let header = Header::read(&*store)?;
        let opening = if write { Opening::Write } else { Opening::Read };
        Ok(VirtualDisk {
            disk: Qcow2::open(store, header, base, opening)?,
            write,
            name: "qcow2".into(),
            _files: Vec::new(),
        })
    }

    /// Makes an empty qcow2 image of a disk of `len_bytes` in an empty store. `backing` is the name of a
    /// backing file and its format, as the image is to have them.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if the disk is too large or the name too long; of the device.
    pub fn create(
        store: &dyn Store,
        len_bytes: u64,
        backing: Option<(&str, Format)>,
    ) -> io::Result<()> {
        let format = backing.map(|(_, format)| format.to_string());
        let format = format.unwrap_or_default();
        let backing = backing.map(|(name, _)| NewBacking {
            name,
            format: &format,
            version: None,
        });
        qcow2::create(store, len_bytes, backing)
    }

    /// The path by which it was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The first bytes from `at` on that the image has itself, not its backing file, and where they end.
    ///
    /// # Errors
    /// If the tables are damaged; of the device.
    pub fn next_own(&self, at: u64) -> io::Result<Option<(u64, u64)>> {
        self.disk.next_own(at)
    }

    /// Writes all of `bytes` at byte `at`.
    ///
    /// # Errors
    /// Of the device; [`io::ErrorKind::InvalidInput`] past the end.
    pub fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.check(at, bytes.len() as u64)?;
        self.disk.write(bytes, at)
    }

    /// Returns when all earlier writes survive a crash.
    ///
    /// # Errors
    /// Any failure after which a write may not survive.
    pub fn flush(&self) -> io::Result<()> {
        self.disk.flush()
    }

    /// The bytes are no longer needed. They may keep their content.
    ///
    /// # Errors
    /// Of the device; [`io::ErrorKind::InvalidInput`] past the end.
    pub fn discard(&self, at: u64, len_bytes: u64) -> io::Result<()> {
        self.check(at, len_bytes)?;
        self.disk.discard(at, len_bytes)
    }

    /// A range must be inside of the disk.
    fn check(&self, at: u64, len_bytes: u64) -> io::Result<()> {
        let end = at.checked_add(len_bytes);
        match end.is_some_and(|end| end <= self.disk.len_bytes()) {
            true => Ok(()),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

impl Drop for VirtualDisk {
    /// Writes what is in memory, in order.
    fn drop(&mut self) {
        if self.write {
            // Who closes a volume has flushed it, and knows of errors.
            let _ = self.disk.close();
        }
    }
}

impl ReadAt for VirtualDisk {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.disk.read_exact_at(buffer, at)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.disk.len_bytes())
    }
}

/// The files of a chain while they are opened.
struct Chain<'a> {
    backing: &'a Backing,
    files: Vec<LockedFile>,
    /// What the first image is laid over, if its user opens that.
    base: Option<OpenBase>,
}

impl Chain<'_> {
    /// Opens a file, and keeps its lock.
    fn lock(&mut self, path: &Path, write: bool, lock: LockMode) -> io::Result<File> {
        if self.files.len() >= MAX_CHAIN {
            return Err(damaged(format!("more than {MAX_CHAIN} backing files")));
        }
        let options = OpenOptions::new().direct(false).write(write).lock(lock);
        let locked = options.open_locked(path)?;
        let file = locked.file().try_clone()?;
        self.files.push(locked);
        Ok(file)
    }

    fn qcow2(&mut self, file: File, path: &Path, write: bool, lock: LockMode) -> io::Result<Qcow2> {
        let header = Header::read(&file)?;
        header.check(write)?;
        let opening = match (write, lock) {
            (true, _) => Opening::Write,
            (false, LockMode::None) => Opening::Peek,
            (false, _) => Opening::Read,
        };
        let base = match header.backing_file() {
            Some(_) if self.base.is_some() => {
                let base = self.base.take();
                let made_over = header.backing_version();
                if base
                    .as_ref()
                    .is_some_and(|base| made_over.is_some_and(|it| it != base.version))
                {
                    return Err(damaged(
                        "its base has been replaced since it was made: it fits only the version of then",
                    ));
                }
                base.map(|base| base.disk)
            }
            Some(name) => Some(self.base(name, header.backing_format(), path, lock)?),
            None => None,
        };
        Qcow2::open(Box::new(file), header, base, opening)
    }

    /// What an image at `path` is laid over.
    fn base(
        &mut self,
        name: &str,
        format: Option<&str>,
        path: &Path,
        lock: LockMode,
    ) -> io::Result<Base> {
        let format = match format {
            None => None,
            // As QEMU calls what is raw where it is not a device.
            Some("file" | "host_device") => Some(Format::Raw),
            Some(name) => Some(
                name.parse()
                    .map_err(|_| unsupported(format!("a backing file of the format '{name}'")))?,
            ),
        };
        let backing = self.place(name, path)?;
        let lock = match lock {
            LockMode::None => LockMode::None,
            _ => LockMode::Shared,
        };
        self.open_base(&backing, format, lock)
            .map_err(|error| match error.get_ref() {
                Some(why) if why.is::<NotAllowed>() => error,
                // Of the backing file of the backing file.
                Some(why) if why.to_string().starts_with("backing file") => error,
                _ => io::Error::new(error.kind(), of_backing(&backing, &error)),
            })
    }

    fn open_base(
        &mut self,
        path: &Path,
        format: Option<Format>,
        lock: LockMode,
    ) -> io::Result<Base> {
        let file = self.lock(path, false, lock)?;
        Ok(match format.map_or_else(|| Format::of(&file), Ok)? {
            Format::Raw => Box::new(file),
            Format::Qcow2 => Box::new(self.qcow2(file, path, false, lock)?),
        })
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

fn of_backing(file: &Path, error: &io::Error) -> String {
    format!("backing file {}: {error}", file.display())
}

pub(crate) fn damaged(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

pub(crate) fn unsupported(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, what.into())
}
