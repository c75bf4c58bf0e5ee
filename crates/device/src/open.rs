//! How a file or block device is opened.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{self, Mode, OFlags};

use crate::BlockDevice;
use crate::host::{self, HostDevice, LockMode, Locking};

/// Which engine carries requests to a file or block device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// io_uring where the system lets us have it, else threads.
    #[default]
    Auto,
    /// io_uring; opening fails where it is forbidden or too old.
    Uring,
    /// `preadv2`/`pwritev2` on the caller's thread, and on more threads when several are in flight.
    Threads,
}

/// As the command line takes it: `auto`, `uring`, `threads`.
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

/// A file that was opened, and how.
struct Opened {
    file: File,
    direct: bool,
    /// The descriptor that its path is a name of.
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

    /// Which engine; [`EngineChoice::Auto`] if not said.
    pub fn engine(mut self, engine: EngineChoice) -> OpenOptions {
        self.engine = engine;
        self
    }

    /// Whether to write too.
    pub fn write(mut self, write: bool) -> OpenOptions {
        self.write = write;
        self
    }

    /// Whether to bypass the kernel's page cache where the file allows it; true if not said.
    /// [`DeviceInfo::direct`](crate::DeviceInfo::direct) says what came of it.
    pub fn direct(mut self, direct: bool) -> OpenOptions {
        self.direct = direct;
        self
    }

    /// Whether to make a regular file where there is nothing. Needs `write`.
    pub fn create(mut self, create: bool) -> OpenOptions {
        self.create = create;
        self
    }

    /// As [`create`](OpenOptions::create), and fail where there is something already.
    pub fn create_new(mut self, create_new: bool) -> OpenOptions {
        self.create_new = create_new;
        self
    }

    /// Whether to empty a regular file. Needs `write`. Happens after the lock is had.
    pub fn truncate(mut self, truncate: bool) -> OpenOptions {
        self.truncate = truncate;
        self
    }

    /// The length to give a regular file once it is open. Needs `write`.
    pub fn len_bytes(mut self, len_bytes: u64) -> OpenOptions {
        self.len_bytes = Some(len_bytes);
        self
    }

    /// Which lock to take on it; it is held until the device is dropped.
    pub fn lock(mut self, lock: LockMode) -> OpenOptions {
        self.lock = lock;
        self
    }

    /// The first byte of the file that is used; 0 by default. Where we were given a descriptor, a lock on it that covers this byte
    /// is enough.
    pub fn begin_bytes(mut self, begin_bytes: u64) -> OpenOptions {
        self.begin_bytes = begin_bytes;
        self
    }

    /// Whether an exclusive lock on a block device also claims it from the kernel, so that nobody mounts it meanwhile (the
    /// default). Without, whoever asks has seen to that.
    pub fn claim(mut self, claim: bool) -> OpenOptions {
        self.claim = claim;
        self
    }

    /// Opens `path`. Where it is a name of a descriptor of this process (`/proc/self/fd/3`), a lock on that descriptor is taken
    /// for ours, and the descriptor itself is used where its file cannot be opened anew.
    ///
    /// # Errors
    /// What the system says, and
    /// - [`io::ErrorKind::ResourceBusy`] if another holds a lock that excludes ours, naming it where the
    ///   system tells; with [`HeldByKernel`](crate::HeldByKernel) inside if an exclusive lock was asked for and the
    ///   kernel has the file or device: it is mounted, behind a loop device, a part of another device, or swap;
    /// - [`io::ErrorKind::InvalidInput`] if it is neither a regular file nor a block device, or if an option
    ///   needs `write`;
    /// - [`io::ErrorKind::ReadOnlyFilesystem`] if it is a block device that takes no writes, and `write` was asked for;
    /// - [`io::ErrorKind::Unsupported`] if [`EngineChoice::Uring`] was asked for and cannot be had.
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<Arc<dyn BlockDevice>> {
        let path = path.as_ref();
        let changes_length =
            self.create || self.create_new || self.truncate || self.len_bytes.is_some();
        if !self.write && (changes_length || self.lock == LockMode::Exclusive) {
            let why =
                "to create a file, change its length or lock it exclusively, open it for writing";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let Opened {
            file,
            direct,
            given,
        } = self.open_file(path)?;
        // Before it is locked: a refusal leaves no lock behind, also not with a child that is being started just now.
        host::refuse_held(&file, path, self.lock)?;
        let locking = Locking {
            file: &file,
            path,
            given,
            begin_bytes: self.begin_bytes,
        };
        let lock = host::lock(locking, self.lock)?;
        if file.metadata()?.is_file() {
            if self.truncate {
                file.set_len(0)?;
            }
            if let Some(len_bytes) = self.len_bytes {
                file.set_len(len_bytes)?;
            }
        }
        Ok(Arc::new(HostDevice::new(
            file,
            lock,
            path,
            self.write,
            direct,
            self.engine,
        )?))
    }

    fn open_file(&self, path: &Path) -> io::Result<Opened> {
        // A fifo or a terminal must not hold us up: NONBLOCK, until we know that it is neither.
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
        // Not while the device is mounted, part of a RAID, and so on.
        let alone = exclusive && std::fs::metadata(path).is_ok_and(|m| host::is_block_device(&m));
        let opened = if alone {
            host::open_alone(path, flags)
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
        // Set on the open file rather than at open: where it is refused, the file is there all the same.
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

/// A descriptor that was given, with the flags that it has: whoever gave it has the same ones.
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
