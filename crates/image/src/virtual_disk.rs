//! [`VirtualDisk`]: the disk in an image of a format, with its backing files.
//!
//! Invariants:
//! - An image never makes another file be opened, unless its user has allowed that file ([`Backing`]).
//! - Every file of a chain is locked: the first one as its user says, the others against writers.
//! - A chain has at most [`MAX_CHAIN`] files.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use throughline_device::{LockMode, LockedFile, OpenOptions};

use crate::allowed::{Backing, NotAllowed, NotWhole, backing_place, is_url, without_secrets};
use crate::format::{Format, OnlyRead};
use crate::image_file::ImageFile;
use crate::qcow2::{self, Base, Header, NewBacking, Opening, Qcow2};
use crate::source::ReadAt;
use crate::store::Store;
use crate::vhdx::Vhdx;
use crate::vmdk::Vmdk;

/// The maximum number of files of a chain.
const MAX_CHAIN: usize = 64;

/// How to open a [`VirtualDisk`].
#[derive(Clone, Debug)]
pub struct DiskOptions {
    /// For writing, too.
    pub write: bool,
    /// The lock on the image. Its backing files are locked as shared, unless this is [`LockMode::None`].
    pub lock: LockMode,
    /// The backing files that it may have.
    pub backing: Backing,
    /// Opens images that are not files.
    pub objects: OpenObject,
}

/// Opens the image that a name stands for, for reading, if it is not one of a file.
pub type OpenObject = fn(&Path) -> Option<io::Result<Object>>;

/// There are only files.
pub fn no_objects(_name: &Path) -> Option<io::Result<Object>> {
    None
}

/// The bytes of an image that is not a file. They do not change.
pub struct Object {
    /// Those bytes.
    pub bytes: Box<dyn ReadAt + Send + Sync>,
    /// Another content has another version.
    pub version: String,
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Object").field(&self.version).finish()
    }
}

/// As of the image.
impl ReadAt for Object {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.bytes.read_exact_at(buffer, at)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        self.bytes.len_bytes()
    }
}

/// An image that is not a file is only read.
impl Store for Object {
    fn write_all_at(&self, _bytes: &[u8], _at: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn free(&self, _at: u64, _len_bytes: u64) {}
}

/// See the head of this file. Its contents can be read and written by several threads.
pub struct VirtualDisk {
    // Dropped before the locks, as that writes what is in memory.
    disk: Disk,
    format: Format,
    write: bool,
    name: String,
    path: PathBuf,
    /// Of an image that is no file.
    version: Option<String>,
    /// When this is set, the file is removed when the disk is closed.
    unwanted: Option<Arc<AtomicBool>>,
    /// The image, then its backing files.
    _files: Vec<LockedFile>,
}

enum Disk {
    Qcow2(Box<Qcow2>),
    /// Of a format that is only read.
    Other(Base),
}

impl Disk {
    /// The disk, if it is one that can be written.
    fn own(&self) -> io::Result<&Qcow2> {
        match self {
            Disk::Qcow2(disk) => Ok(disk),
            Disk::Other(_) => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
        }
    }
}

impl ReadAt for Disk {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        match self {
            Disk::Qcow2(disk) => disk.read_exact_at(buffer, at),
            Disk::Other(disk) => disk.read_exact_at(buffer, at),
        }
    }

    fn len_bytes(&self) -> io::Result<u64> {
        match self {
            Disk::Qcow2(disk) => disk.len_bytes(),
            Disk::Other(disk) => disk.len_bytes(),
        }
    }
}

impl fmt::Debug for VirtualDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl VirtualDisk {
    /// Opens the qcow2 image at `path`, or the object of that name.
    ///
    /// # Errors
    /// As [`VirtualDisk::open_as`].
    pub fn open(path: &Path, options: &DiskOptions) -> io::Result<VirtualDisk> {
        VirtualDisk::open_as(Format::Qcow2, path, options)
    }

    /// Opens the image of a format at `path`, or the object of that name. A raw one is only read.
    ///
    /// # Errors
    /// - As [`OpenOptions::open`], and of [`DiskOptions::objects`].
    /// - [`io::ErrorKind::PermissionDenied`] if it needs a file that is not allowed;
    /// - [`io::ErrorKind::Unsupported`] for what is not supported, or not for writing;
    /// - [`io::ErrorKind::InvalidData`] if it is damaged, or fits another version of its base.
    pub fn open_as(format: Format, path: &Path, options: &DiskOptions) -> io::Result<VirtualDisk> {
        if options.write && !format.is_written() {
            let why = OnlyRead { format };
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let mut chain = Chain {
            options,
            files: Vec::new(),
            images: 0,
        };
        let mut version = None;
        let store: Box<dyn Store> = match (options.objects)(path) {
            Some(_) if options.write => return Err(io::ErrorKind::ReadOnlyFilesystem.into()),
            Some(object) => {
                let object = object?;
                version = Some(object.version.clone());
                Box::new(object)
            }
            None => Box::new(chain.lock(path, options.write, options.lock)?),
        };
        let disk = match format {
            Format::Qcow2 => {
                let disk = chain.qcow2(store, path, options.write, options.lock)?;
                Disk::Qcow2(Box::new(disk))
            }
            Format::Raw => Disk::Other(Box::new(store)),
            Format::Vmdk => Disk::Other(Box::new(Vmdk::open(Arc::new(store))?)),
            Format::Vhdx => Disk::Other(Box::new(Vhdx::open(Arc::new(store))?)),
        };
        Ok(VirtualDisk {
            disk,
            format,
            write: options.write,
            name: path.display().to_string(),
            path: path.to_owned(),
            version,
            unwanted: None,
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
            disk: Disk::Qcow2(Box::new(Qcow2::open(store, header, base, opening)?)),
            format: Format::Qcow2,
            write,
            name: "qcow2".into(),
            path: PathBuf::new(),
            version: None,
            unwanted: None,
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
            is_shortened: false,
        });
        qcow2::create(store, len_bytes, backing)
    }

    /// The format of the image.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The path by which it was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// If the image is open for writing and has nothing of its own now, its file is removed when the disk is
    /// closed, if its user has set `unwanted` then. It is locked all the time, so nobody else has written to
    /// it.
    ///
    /// # Errors
    /// As of [`VirtualDisk::next_own`].
    pub fn remove_if(&mut self, unwanted: Arc<AtomicBool>) -> io::Result<()> {
        if self.write && self.next_own(0)?.is_none() {
            self.unwanted = Some(unwanted);
        }
        Ok(())
    }

    /// Of an image that is no file: what tells it from other versions ([`Object::version`]).
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// The first bytes from `at` on that the image has itself, not its backing file, and where they end.
    ///
    /// # Errors
    /// If the tables are damaged; of the device.
    pub fn next_own(&self, at: u64) -> io::Result<Option<(u64, u64)>> {
        match &self.disk {
            Disk::Qcow2(disk) => disk.next_own(at),
            Disk::Other(disk) => {
                let len_bytes = disk.len_bytes()?;
                Ok((at < len_bytes).then_some((at, len_bytes)))
            }
        }
    }

    /// Writes all of `bytes` at byte `at`.
    ///
    /// # Errors
    /// Of the device; [`io::ErrorKind::InvalidInput`] past the end.
    pub fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.check(at, bytes.len() as u64)?;
        self.disk.own()?.write(bytes, at)
    }

    /// Returns when all earlier writes survive a crash.
    ///
    /// # Errors
    /// Any failure after which a write may not survive.
    pub fn flush(&self) -> io::Result<()> {
        match &self.disk {
            Disk::Qcow2(disk) => disk.flush(),
            Disk::Other(_) => Ok(()),
        }
    }

    /// The bytes are no longer needed. They may keep their content.
    ///
    /// # Errors
    /// Of the device; [`io::ErrorKind::InvalidInput`] past the end.
    pub fn discard(&self, at: u64, len_bytes: u64) -> io::Result<()> {
        self.check(at, len_bytes)?;
        self.disk.own()?.discard(at, len_bytes)
    }

    /// A range must be inside of the disk.
    fn check(&self, at: u64, len_bytes: u64) -> io::Result<()> {
        let end = at.checked_add(len_bytes);
        let len = self.disk.len_bytes()?;
        match end.is_some_and(|end| end <= len) {
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
            let _ = self.disk.own().and_then(Qcow2::close);
        }
        if self
            .unwanted
            .as_ref()
            .is_some_and(|it| it.load(Ordering::Relaxed))
        {
            // The locks are released after this.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl ReadAt for VirtualDisk {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.disk.read_exact_at(buffer, at)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        self.disk.len_bytes()
    }
}

/// The files of a chain while they are opened.
struct Chain<'a> {
    options: &'a DiskOptions,
    files: Vec<LockedFile>,
    /// How many images were opened.
    images: usize,
}

impl Chain<'_> {
    /// Opens a file, and keeps its lock.
    fn lock(&mut self, path: &Path, write: bool, lock: LockMode) -> io::Result<ImageFile> {
        let options = OpenOptions::new().direct(false).write(write).lock(lock);
        let locked = options.open_locked(path)?;
        let file = locked.file().try_clone()?;
        self.files.push(locked);
        Ok(ImageFile::new(file, write))
    }

    fn qcow2(
        &mut self,
        store: Box<dyn Store>,
        path: &Path,
        write: bool,
        lock: LockMode,
    ) -> io::Result<Qcow2> {
        self.images = self.images.saturating_add(1);
        if self.images > MAX_CHAIN {
            return Err(damaged(format!("more than {MAX_CHAIN} backing files")));
        }
        let header = Header::read(&*store)?;
        header.check(write)?;
        let opening = match (write, lock) {
            (true, _) => Opening::Write,
            (false, LockMode::None) => Opening::Peek,
            (false, _) => Opening::Read,
        };
        let base = match header.backing_file() {
            Some(name) => Some(self.base(name, &header, path, lock)?),
            None => None,
        };
        Qcow2::open(store, header, base, opening)
    }

    /// What an image at `path` is laid over.
    fn base(
        &mut self,
        name: &str,
        header: &Header,
        path: &Path,
        lock: LockMode,
    ) -> io::Result<Base> {
        let format = match header.backing_format() {
            None => None,
            // As QEMU calls what is raw where it is not a device.
            Some("file" | "host_device") => Some(Format::Raw),
            Some(name) => Some(
                name.parse()
                    .map_err(|_| unsupported(format!("a backing file of the format '{name}'")))?,
            ),
        };
        let backing = self.place(name, header.backing_is_shortened(), path)?;
        let lock = match lock {
            LockMode::None => LockMode::None,
            _ => LockMode::Shared,
        };
        let version = header.backing_version();
        self.open_base(&backing, format, version, lock)
            .map_err(|error| match error.get_ref() {
                Some(why) if why.is::<NotAllowed>() || why.is::<NotWhole>() => error,
                // Of the backing file of the backing file.
                Some(why) if why.to_string().starts_with("backing file") => error,
                // It says more than its text: why an object cannot be opened.
                Some(_) if is_url(&backing.to_string_lossy()) => error,
                _ => io::Error::new(error.kind(), of_backing(&backing, &error)),
            })
    }

    fn open_base(
        &mut self,
        path: &Path,
        format: Option<Format>,
        made_over: Option<&str>,
        lock: LockMode,
    ) -> io::Result<Base> {
        let store: Box<dyn Store> = match (self.options.objects)(path) {
            Some(object) => {
                let object = object?;
                if made_over.is_some_and(|version| version != object.version) {
                    return Err(damaged(
                        "its base has been replaced since it was made: it fits only the version of then",
                    ));
                }
                Box::new(object)
            }
            None if is_url(&path.to_string_lossy()) => {
                return Err(unsupported("a backing file that is not a file"));
            }
            None => Box::new(self.lock(path, false, lock)?),
        };
        Ok(match format.map_or_else(|| Format::of(&*store), Ok)? {
            Format::Raw => Box::new(store),
            Format::Qcow2 => Box::new(self.qcow2(store, path, false, lock)?),
            Format::Vmdk => Box::new(Vmdk::open(Arc::new(store))?),
            Format::Vhdx => Box::new(Vhdx::open(Arc::new(store))?),
        })
    }

    /// The backing file that an image at `path` names, as it is opened.
    fn place(&self, name: &str, is_shortened: bool, path: &Path) -> io::Result<PathBuf> {
        if name.is_empty() || name == "file:" {
            return Err(damaged("the name of its backing file is empty"));
        }
        let named = backing_place(path, name);
        if let Some(url) = named.to_str().filter(|named| is_url(named)) {
            return self.url(url, is_shortened).map(PathBuf::from);
        }
        let name = name.strip_prefix("file:").unwrap_or(name);
        let protocol = name.split_once(':').map_or("", |(protocol, _)| protocol);
        if !protocol.is_empty() && !protocol.contains('/') && !path.with_file_name(name).exists() {
            return Err(unsupported(format!("a backing file by '{protocol}:'")));
        }
        let file = match std::fs::canonicalize(&named) {
            Ok(file) if self.options.backing.allows(&file) => return Ok(file),
            Ok(file) => file,
            // What does not exist and is not allowed is not told apart.
            Err(error) => match self.options.backing.allows_missing(&named) {
                true => return Err(io::Error::new(error.kind(), of_backing(&named, &error))),
                false => named,
            },
        };
        let why = NotAllowed { file };
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }

    /// The URL by which a backing file is opened that has this one. `is_shortened`: it was another one when
    /// the image was made.
    fn url(&self, url: &str, is_shortened: bool) -> io::Result<String> {
        let denied = io::ErrorKind::PermissionDenied;
        let backing = &self.options.backing;
        if let Some(whole) = backing.whole(url) {
            return Ok(whole.to_owned());
        }
        if is_shortened {
            let url = without_secrets(url);
            return Err(io::Error::new(denied, NotWhole { url }));
        }
        match backing.allows_url(url) {
            true => Ok(url.to_owned()),
            false => {
                let file = without_secrets(url).into();
                Err(io::Error::new(denied, NotAllowed { file }))
            }
        }
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
