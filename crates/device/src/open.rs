//! Opening a file or block device.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{self, Mode, OFlags};

use crate::BlockDevice;
use crate::host::{self, HostDevice, LockMode, LockedFile, Locking};

/// The I/O engine for a file or block device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// io_uring if the system allows it, else threads.
    #[default]
    Auto,
    /// io_uring. Opening fails if it is forbidden or too old.
    Uring,
    /// `preadv2` and `pwritev2` on the caller's thread, and on more threads when several requests are in
    /// flight.
    Threads,
}

/// As the command line accepts it: `auto`, `uring`, `threads`.
impl fmt::Display for EngineChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EngineChoice::Auto => "auto",
            EngineChoice::Uring => "uring",
            EngineChoice::Threads => "threads",
        })
    }
}

/// Options to open a regular file or a block device as a [`BlockDevice`].
#[derive(Clone, Debug)]
pub struct OpenOptions {
    engine: EngineChoice,
    write: bool,
    direct: bool,
    create: bool,
    create_new: bool,
    truncate: bool,
    len_bytes: Option<u64>,
    lock: LockMode,
    claim: bool,
    begin_bytes: u64,
}

/// An opened file.
struct Opened {
    file: File,
    direct: bool,
    /// The descriptor that its path names, if it does.
    given: Option<File>,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Read-only, direct, any engine, no lock.
    pub fn new() -> OpenOptions {
        OpenOptions {
            engine: EngineChoice::Auto,
            write: false,
            direct: true,
            create: false,
            create_new: false,
            truncate: false,
            len_bytes: None,
            lock: LockMode::None,
            begin_bytes: 0,
            claim: true,
        }
    }

    /// The engine. Default: [`EngineChoice::Auto`].
    pub fn engine(mut self, engine: EngineChoice) -> OpenOptions {
        self.engine = engine;
        self
    }

    /// Whether to open for writing too.
    pub fn write(mut self, write: bool) -> OpenOptions {
        self.write = write;
        self
    }

    /// Whether to bypass the kernel's page cache if the file allows it. Default: true.
    /// [`DeviceInfo::direct`](crate::DeviceInfo::direct) has the result.
    pub fn direct(mut self, direct: bool) -> OpenOptions {
        self.direct = direct;
        self
    }

    /// Whether to create a regular file if `path` does not exist. Needs `write`.
    pub fn create(mut self, create: bool) -> OpenOptions {
        self.create = create;
        self
    }

    /// As [`create`](OpenOptions::create), but fails if `path` exists.
    pub fn create_new(mut self, create_new: bool) -> OpenOptions {
        self.create_new = create_new;
        self
    }

    /// Whether to truncate a regular file to 0 bytes, after it has been locked. Needs `write`.
    pub fn truncate(mut self, truncate: bool) -> OpenOptions {
        self.truncate = truncate;
        self
    }

    /// The length in bytes to set on a regular file after it has been locked. Needs `write`.
    pub fn len_bytes(mut self, len_bytes: u64) -> OpenOptions {
        self.len_bytes = Some(len_bytes);
        self
    }

    /// The lock to take. It is held until the device is dropped.
    pub fn lock(mut self, lock: LockMode) -> OpenOptions {
        self.lock = lock;
        self
    }

    /// The first byte of the file that is used. Default: 0. If `path` names a descriptor of this process, an
    /// existing lock on it needs to cover only this byte.
    pub fn begin_bytes(mut self, begin_bytes: u64) -> OpenOptions {
        self.begin_bytes = begin_bytes;
        self
    }

    /// Whether an exclusive lock on a block device also claims it from the kernel (`O_EXCL`), so that it
    /// cannot be mounted meanwhile. Default: true. With false, the caller must ensure that.
    pub fn claim(mut self, claim: bool) -> OpenOptions {
        self.claim = claim;
        self
    }

    /// Opens `path`. If it names a descriptor of this process (`/proc/self/fd/3`), a lock already held by
    /// that descriptor counts as ours, and the descriptor itself is used if its file cannot be reopened.
    ///
    /// # Errors
    /// System errors, and
    /// - [`io::ErrorKind::ResourceBusy`] if a conflicting lock is held, naming the holder if the system
    ///   reports it; with [`HeldByKernel`](crate::HeldByKernel) inside if an exclusive lock was requested and
    ///   the kernel uses the file or device: it is mounted, attached to a loop device, part of another
    ///   device, or swap;
    /// - [`io::ErrorKind::InvalidInput`] if it is neither a regular file nor a block device, or if an option
    ///   needs `write`;
    /// - [`io::ErrorKind::ReadOnlyFilesystem`] if `write` was requested for a write-protected block device;
    /// - [`io::ErrorKind::Unsupported`] if [`EngineChoice::Uring`] was requested and is not available.
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<Arc<dyn BlockDevice>> {
        let path = path.as_ref();
        let changes_length =
            self.create || self.create_new || self.truncate || self.len_bytes.is_some();
        if !self.write && (changes_length || self.lock == LockMode::Exclusive) {
            let why =
                "to create a file, change its length or lock it exclusively, open it for writing";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let (locked, direct) = self.lock_file(path)?;
        let file = locked.file();
        if file.metadata()?.is_file() {
            if self.truncate {
                file.set_len(0)?;
            }
            if let Some(len_bytes) = self.len_bytes {
                file.set_len(len_bytes)?;
            }
        }
        Ok(Arc::new(HostDevice::new(
            locked,
            path,
            self.write,
            direct,
            self.engine,
        )?))
    }

    /// Opens `path` and locks it, for a format that does the I/O itself. The options that change its length
    /// do not apply.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open_locked(&self, path: impl AsRef<Path>) -> io::Result<LockedFile> {
        Ok(self.lock_file(path.as_ref())?.0)
    }

    /// The locked file, and whether it bypasses the kernel's page cache.
    fn lock_file(&self, path: &Path) -> io::Result<(LockedFile, bool)> {
        let Opened {
            file,
            direct,
            given,
        } = self.open_file(path)?;
        // Before locking, so that a refusal leaves no lock behind, not even in a child process that is just
        // being forked.
        host::refuse_held(&file, path, self.lock)?;
        let locking = Locking {
            file: &file,
            path,
            given,
            begin_bytes: self.begin_bytes,
        };
        let lock = host::lock(locking, self.lock)?;
        Ok((LockedFile::new(file, lock), direct))
    }

    fn open_file(&self, path: &Path) -> io::Result<Opened> {
        // NONBLOCK, so that opening a FIFO or a terminal does not block. Cleared once the kind is known.
        let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        flags |= if self.write {
            OFlags::RDWR
        } else {
            OFlags::RDONLY
        };
        if self.create_new {
            flags |= OFlags::CREATE | OFlags::EXCL;
        } else if self.create {
            flags |= OFlags::CREATE;
        }
        let exclusive = self.lock == LockMode::Exclusive && self.claim;
        // An exclusive open fails while the device is mounted, part of a RAID, and so on.
        let claims = exclusive && std::fs::metadata(path).is_ok_and(|m| host::is_block_device(&m));
        let opened = if claims {
            host::open_exclusive(path, flags)
        } else {
            let file = fs::open(path, flags, Mode::from_raw_mode(0o666));
            file.map(File::from).map_err(io::Error::from)
        };
        let given = host::given_file(path);
        let file = match (opened, given.as_ref()) {
            (Ok(file), _) => file,
            (Err(error), Some(given))
                if error.kind() != ErrorKind::ResourceBusy
                    && host::is_usable(given, self.write) =>
            {
                return as_given(given.try_clone()?);
            }
            (Err(error), _) => return Err(error),
        };
        let metadata = kind_checked(&file)?;
        if self.write && host::is_write_protected(&file, &metadata) {
            let why = "the device is write-protected";
            return Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, why));
        }
        // Set after opening: if O_DIRECT is refused, the file is still open.
        let status = fs::fcntl_getfl(&file)? - OFlags::NONBLOCK;
        let direct = self.direct
            && host::may_be_direct(&file, &metadata)
            && fs::fcntl_setfl(&file, status | OFlags::DIRECT).is_ok();
        if !direct {
            fs::fcntl_setfl(&file, status)?;
        }
        Ok(Opened {
            file,
            direct,
            given,
        })
    }
}

/// Uses a given descriptor itself. Its flags are not changed, because they are shared with the process that
/// passed it.
fn as_given(given: File) -> io::Result<Opened> {
    kind_checked(&given)?;
    Ok(Opened {
        direct: fs::fcntl_getfl(&given)?.contains(OFlags::DIRECT),
        file: given.try_clone()?,
        given: Some(given),
    })
}

/// Refuses what is neither a regular file nor a block device.
fn kind_checked(file: &File) -> io::Result<Metadata> {
    let metadata = file.metadata()?;
    if metadata.is_file() || host::is_block_device(&metadata) {
        return Ok(metadata);
    }
    let why = "neither a regular file nor a block device";
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}
