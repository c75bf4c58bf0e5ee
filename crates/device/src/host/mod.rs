//! Regular files and block devices of the host system.
//!
//! ```text
//!  HostDevice ── open_queue ──► UringQueue   one ring, one registered file
//!      │                        ThreadsQueue the caller's thread, workers when several are in flight
//!      ▼                             │
//!  HostFile: the open file, its      └─ Transfer: progress of one request, used by both engines:
//!  limits and length                              results, short transfers, the end of the file
//! ```

mod calls;
mod discover;
mod file;
mod given;
mod holder;
mod lock;
mod mounted;
mod ranges;
mod transfer;
mod uring;

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::SeekFrom;
use throughline_locks::Mutex;

pub(crate) use discover::{is_block_device, is_of_this_machine, is_write_protected, may_be_direct};
pub(crate) use given::is_usable;
pub use given::{given_descriptor, given_file};
pub use holder::{HeldByKernel, KernelHolder, kernel_holder};
pub use lock::{LockMode, LockedFile};
pub(crate) use lock::{Locking, lock, open_exclusive, refuse_held};
pub use mounted::{other_namespaces, unescaped};
pub use ranges::RangeLocks;
pub(crate) use uring::new_ring as new_engine_ring;

use crate::rings::ENGINE;
use crate::{BlockDevice, DeviceInfo, DeviceKind, EngineChoice, Queue, ThreadsQueue};
use file::HostFile;
use uring::UringQueue;

/// A regular file or block device with its engine.
pub(crate) struct HostDevice {
    file: Arc<HostFile>,
    engine: EngineChoice,
    /// The ring made to probe io_uring, for the first queue.
    spare: Mutex<Option<UringQueue>>,
}

impl HostDevice {
    /// Creates the device of an open and locked file.
    ///
    /// # Errors
    /// If its properties cannot be read, or io_uring was requested and is not available.
    pub(crate) fn new(
        locked: LockedFile,
        path: &Path,
        write: bool,
        direct: bool,
        engine: EngineChoice,
    ) -> io::Result<HostDevice> {
        let found = discover::discover(locked.file(), direct)?;
        let info = DeviceInfo {
            name: path.display().to_string(),
            kind: found.kind,
            engine: "threads",
            direct,
            read_only: !write,
            limits: found.limits,
        };
        let mut file = HostFile::new(locked, info, found.len_bytes);
        let probe = match engine {
            EngineChoice::Threads => None,
            EngineChoice::Uring => Some(uring::probe()?),
            EngineChoice::Auto => uring::probe().ok(),
        };
        if probe.is_some() {
            file.info.engine = "uring";
        }
        let file = Arc::new(file);
        let spare = probe.map(|ring| UringQueue::new(ring, Arc::clone(&file)));
        Ok(HostDevice {
            file,
            engine,
            spare: Mutex::new(spare),
        })
    }
}

impl BlockDevice for HostDevice {
    fn info(&self) -> &DeviceInfo {
        &self.file.info
    }

    fn len_bytes(&self) -> u64 {
        self.file.len_bytes()
    }

    fn open_queue(&self) -> io::Result<Box<dyn Queue>> {
        let threads = || Box::new(ThreadsQueue::new(Arc::clone(&self.file)));
        if self.file.info.engine == "threads" {
            return Ok(threads());
        }
        if let Some(queue) = self.spare.lock().take() {
            return Ok(Box::new(queue));
        }
        match uring::probe() {
            Ok(ring) => Ok(Box::new(UringQueue::new(ring, Arc::clone(&self.file)))),
            // A system may allow few rings (RLIMIT_MEMLOCK on old kernels). In a sandbox, their number is
            // fixed.
            Err(_) if self.engine == EngineChoice::Auto || ENGINE.is_fixed() => Ok(threads()),
            Err(error) => Err(error),
        }
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        if self.file.info.kind != DeviceKind::RegularFile {
            let why = "only a regular file can change its length";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        self.file.set_len(bytes)
    }

    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        if self.file.info.kind != DeviceKind::RegularFile {
            let why = "only a regular file can have space reserved";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        self.file.allocate(offset_bytes, len_bytes)
    }

    fn reserve(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        if self.file.info.kind != DeviceKind::RegularFile {
            let why = "only a regular file can have space reserved";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        self.file.reserve(offset_bytes, len_bytes)
    }

    fn is_resizable(&self) -> bool {
        self.file.info.kind == DeviceKind::RegularFile
    }

    fn seek_data(&self, offset_bytes: u64) -> io::Result<Option<u64>> {
        match self.file.info.kind {
            DeviceKind::RegularFile => self.file.seek(SeekFrom::Data(offset_bytes)),
            _ => Ok((offset_bytes < self.len_bytes()).then_some(offset_bytes)),
        }
    }

    fn seek_hole(&self, offset_bytes: u64) -> io::Result<Option<u64>> {
        match self.file.info.kind {
            DeviceKind::RegularFile => self.file.seek(SeekFrom::Hole(offset_bytes)),
            _ => Ok((offset_bytes < self.len_bytes()).then(|| self.len_bytes())),
        }
    }
}
