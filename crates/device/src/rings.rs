//! Rings that are made ahead, for a process that may make none later.
//!
//! io_uring can open files and make sockets without the system calls that a seccomp filter sees. A process
//! that gives such rights up must therefore give up new rings, and what its own rings could do.
//!
//! Invariants:
//! - A ring of this crate is restricted, before it is enabled, to the operations that its owner uses
//!   (`IORING_REGISTER_RESTRICTIONS`, Linux 5.10). On older kernels, [`keep_rings`] fails.
//! - After [`keep_rings`], no ring is made. Owners take those that were made ahead, and give back those that
//!   others can use. Who gets none uses the thread engine, or goes on without.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use io_uring::{IoUring, cqueue, squeue};
use rustix::process::{Resource, getrlimit, setrlimit};
use throughline_locks::Mutex;

use crate::host::new_engine_ring;

/// A ring of [`crate::FuseEntry`], disabled: the thread that enables it is the only one that may use it.
pub(crate) type FuseRing = IoUring<squeue::Entry128, cqueue::Entry>;

/// Rings of the engine, enabled.
pub(crate) static ENGINE: Kept<IoUring> = Kept::new();

/// Descriptors of a thread that serves a mount: a connection, and over io_uring a ring.
const FILES_OF_THREAD: usize = 2;
/// Descriptors for everything else: the engine's rings, and files.
const OTHER_FILES: usize = 256;

/// A ring was made that the kernel could not restrict.
static UNRESTRICTED: AtomicBool = AtomicBool::new(false);

/// Rings of one kind; `None`: they are made when they are needed.
pub(crate) struct Kept<R> {
    rings: Mutex<Option<Vec<R>>>,
}

impl<R> Kept<R> {
    const fn new() -> Kept<R> {
        Kept {
            rings: Mutex::new(None),
        }
    }

    /// A ring: one that was made ahead, or else what `make` makes.
    pub(crate) fn take(&self, make: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        match self.rings.lock().as_mut() {
            None => make(),
            Some(rings) => rings.pop().ok_or_else(|| {
                io::Error::new(io::ErrorKind::Unsupported, "no ring is left in the sandbox")
            }),
        }
    }

    /// Takes back a ring that another owner can use. It is closed if rings are not kept.
    pub(crate) fn give_back(&self, ring: R) {
        if let Some(rings) = self.rings.lock().as_mut() {
            rings.push(ring);
        }
    }

    /// Whether rings are only those that were made ahead.
    pub(crate) fn is_fixed(&self) -> bool {
        self.rings.lock().is_some()
    }

    fn set(&self, rings: Vec<R>) {
        *self.rings.lock() = Some(rings);
    }
}

/// Notes that a ring could not be restricted.
pub(crate) fn note_unrestricted() {
    UNRESTRICTED.store(true, Ordering::Relaxed);
}

/// Makes `engine` rings for queues of devices, or as many as the system allows: other queues work without
/// io_uring. From now on, none is made.
///
/// # Errors
/// The system cannot restrict them. Rings are then made as before.
pub fn keep_rings(engine: usize) -> io::Result<()> {
    let rings: Vec<IoUring> = (0..engine).map_while(|_| new_engine_ring().ok()).collect();
    if UNRESTRICTED.load(Ordering::Relaxed) {
        let why = "this kernel cannot restrict rings of io_uring";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    ENGINE.set(rings);
    Ok(())
}

/// Raises this process's limit of open files, so that `count` threads can serve a mount.
///
/// # Errors
/// The system does not allow that many; the limit is as high as it may be.
pub fn allow_fuse_threads(count: usize) -> io::Result<()> {
    allow_files(FILES_OF_THREAD * count + OTHER_FILES)
}

/// Raises this process's limit of open files to `count` if it is lower, or as far as it may.
fn allow_files(count: usize) -> io::Result<()> {
    let count = count as u64;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= count) {
        return Ok(());
    }
    let allowed = limit.maximum.unwrap_or(u64::MAX).min(count);
    limit.current = Some(allowed);
    setrlimit(Resource::Nofile, limit)?;
    match allowed < count {
        true => Err(io::Error::other(format!(
            "too few open files are allowed: it takes {count}"
        ))),
        false => Ok(()),
    }
}
