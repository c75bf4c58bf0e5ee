//! One image, one writer: locks on open files.
//!
//! Open-file-description locks over the whole file. They hold against every other open of it, in this
//! process too, go with the last descriptor, and also exclude those who lock as `fcntl` locks do (QEMU).
//!
//! A descriptor that we were given may have such a lock already, taken by whoever opened it (Apptainer does). Then that lock is
//! ours too, and is left as it is. As it does not keep two of us apart who were given the same descriptor, a `flock` does.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

use super::discover::is_of_this_machine;
use super::given::Locks;
use super::holder::{self, HeldByKernel, KernelHolder};

/// Which lock to hold on a file or block device while it is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockMode {
    /// None.
    #[default]
    None,
    /// No one else may write it.
    Shared,
    /// No one else may use it. Needs the file open for writing.
    Exclusive,
}

/// A lock that a device has while it is open.
pub(crate) enum Lock {
    /// None.
    None,
    /// Of its own open file.
    Own,
    /// Of the open file that we were given, which has to stay open for it.
    Given { _held: File },
}

/// What is to be locked.
pub(crate) struct Locking<'a> {
    /// The file that I/O goes to.
    pub(crate) file: &'a File,
    /// By what name it was opened.
    pub(crate) path: &'a Path,
    /// The descriptor that this is a name of.
    pub(crate) given: Option<File>,
    /// Where in the file that begins which we use.
    pub(crate) begin_bytes: u64,
}

/// Takes the lock, or says who has it.
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`] if another holds a lock that excludes it.
pub(crate) fn lock(what: Locking<'_>, mode: LockMode) -> io::Result<Lock> {
    let Locking {
        file,
        path,
        given,
        begin_bytes,
    } = what;
    let kind = match mode {
        LockMode::None => return Ok(Lock::None),
        LockMode::Shared => libc::F_RDLCK,
        LockMode::Exclusive => libc::F_WRLCK,
    };
    let given = given.map(|given| (Locks::of(&given), given));
    let Some((locks, given)) = given.filter(|(locks, _)| locks.any()) else {
        patiently(file, path, ANY, || set(file, kind))?;
        return Ok(Lock::Own);
    };
    if !locks.serve(mode, begin_bytes) {
        patiently(&given, path, ANY, || set(&given, kind))?;
    }
    // Over a network it would be the same lock as the given one; on a block device udev takes it now and then.
    if !locks.flock && file.metadata()?.is_file() && is_of_this_machine(file) {
        let kind = match mode {
            LockMode::Shared => FlockOperation::NonBlockingLockShared,
            _ => FlockOperation::NonBlockingLockExclusive,
        };
        patiently(file, path, "FLOCK", || Ok(flock(file, kind)?))?;
    }
    Ok(Lock::Given { _held: given })
}

/// A word of what `/proc` tells of every lock.
const ANY: &str = "lock:";

/// Tries to have a lock on `file`, or says who has it, with that word in what `/proc` tells of the lock.
fn patiently(
    file: &File,
    path: &Path,
    word: &str,
    take: impl Fn() -> io::Result<()>,
) -> io::Result<()> {
    let mut waits = 0;
    loop {
        let Err(error) = take() else {
            return Ok(());
        };
        if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) {
            return Err(error);
        }
        let holder = holder_of_lock(file, word);
        if holder.is_none() && waits < GHOST_WAITS {
            waits += 1;
            std::thread::sleep(GHOST_WAIT);
            continue;
        }
        let holder = holder.unwrap_or_else(|| "another process".into());
        return Err(busy(path, &holder));
    }
}

/// A process that was killed with I/O in flight is gone before its ring, and the ring holds the file, with its lock, until
/// the kernel has taken it down. A lock that nobody seems to hold is such a ghost's: it goes within moments.
const GHOST_WAIT: Duration = Duration::from_millis(20);
pub(super) const GHOST_WAITS: u32 = 100;

/// Gives back what [`lock`] took of `file`, and leaves what it was given.
pub(super) fn unlock(file: &File, lock: &Lock) {
    match lock {
        Lock::None => {}
        // Neither can fail on an open file.
        Lock::Own => drop(set(file, libc::F_UNLCK)),
        Lock::Given { .. } => drop(flock(file, FlockOperation::Unlock)),
    }
}

/// A lock of that kind on the whole file.
fn whole(kind: libc::c_int) -> libc::flock {
    // SAFETY: `flock` is plain numbers, for which zeros are valid: from the file's start to its end, pid 0
    // as these locks demand.
    let mut whole: libc::flock = unsafe { std::mem::zeroed() };
    whole.l_type = kind as libc::c_short;
    whole.l_whence = libc::SEEK_SET as libc::c_short;
    whole
}

/// Sets our lock on the whole file to `kind`, an `F_*LCK`.
fn set(file: &File, kind: libc::c_int) -> io::Result<()> {
    let whole = whole(kind);
    // SAFETY: the descriptor is open, and the kernel only reads `whole`.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const whole) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Opens a block device alone.
///
/// # Errors
/// What the system says; [`io::ErrorKind::ResourceBusy`] where somebody has it.
pub(crate) fn open_alone(path: &Path, flags: OFlags) -> io::Result<File> {
    // Whoever sets a loop device up claims it for a moment, also in vain. A claim that nobody seems to have is such a one.
    for _ in 0..GHOST_WAITS {
        match rustix::fs::open(path, flags | OFlags::EXCL, Mode::empty()) {
            Ok(file) => return Ok(File::from(file)),
            Err(Errno::BUSY) => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(who) = who_is_busy(path, flags) {
            return Err(who);
        }
        std::thread::sleep(GHOST_WAIT);
    }
    Err(in_kernel(path, KernelHolder::unknown()))
}

/// Who has a block device: one who locked it, or what in the kernel has it; `None` where nobody is seen to.
fn who_is_busy(path: &Path, flags: OFlags) -> Option<io::Error> {
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    if let Some(process) = holder_of_lock(&file, ANY) {
        return Some(busy(path, &process));
    }
    let found = holder::of(&file.metadata().ok()?)?;
    Some(in_kernel(path, found))
}

fn busy(path: &Path, process: &str) -> io::Error {
    let text = format!("{} is in use by {process}", path.display());
    io::Error::new(io::ErrorKind::ResourceBusy, text)
}

fn in_kernel(path: &Path, by: KernelHolder) -> io::Error {
    let held = HeldByKernel {
        path: path.to_owned(),
        by,
    };
    io::Error::new(io::ErrorKind::ResourceBusy, held)
}

/// Refuses to write what the kernel has; for a loop device, also what one of us has behind it.
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`], with [`HeldByKernel`] inside where it is the kernel.
pub(crate) fn refuse_held(file: &File, path: &Path, mode: LockMode) -> io::Result<()> {
    if mode == LockMode::None {
        return Ok(());
    }
    let found = file.metadata()?;
    if found.file_type().is_block_device() {
        return refuse_lent(file, path, mode); // it is open alone: nothing else in the kernel has it
    }
    let mut waits = 0;
    while let Some(by) = holder::of(&found).filter(|_| mode == LockMode::Exclusive) {
        if waits == by.waits() {
            return Err(in_kernel(path, by));
        }
        waits += 1;
        std::thread::sleep(GHOST_WAIT);
    }
    Ok(())
}

/// Refuses a loop device whose file somebody has locked.
fn refuse_lent(device: &File, path: &Path, mode: LockMode) -> io::Result<()> {
    let Some((name, file)) = holder::backing_file(device) else {
        return Ok(());
    };
    let kind = match mode {
        LockMode::Exclusive => libc::F_WRLCK,
        _ => libc::F_RDLCK,
    };
    if is_free(&file, kind)? {
        return Ok(());
    }
    let who = holder_of_lock(&file, ANY).unwrap_or_else(|| "another process".into());
    let what = format!("{who}, as {}", name.display());
    Err(busy(path, &what))
}

/// Whether the lock of that kind could be had.
fn is_free(file: &File, kind: libc::c_int) -> io::Result<bool> {
    let mut found = whole(kind);
    // SAFETY: the descriptor is open, and the kernel writes `found` alone.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut found) } {
        0 => Ok(found.l_type == libc::F_UNLCK as libc::c_short),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Who has a lock on the file, as far as `/proc` lets us see. Only asked when one stood in our way.
fn holder_of_lock(file: &File, word: &str) -> Option<String> {
    let wanted = file.metadata().ok()?;
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        if holds_lock(&process.path(), &wanted, word) {
            if pid == std::process::id() {
                return Some(format!("this process ({pid}) already"));
            }
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(format!("process {pid} ({})", name.trim_end()));
        }
    }
    None
}

/// Whether one of the process's descriptors is of the file and has a lock.
fn holds_lock(process: &Path, wanted: &fs::Metadata, word: &str) -> bool {
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else {
        return false;
    };
    descriptors.flatten().any(|descriptor| {
        let same = fs::metadata(descriptor.path())
            .is_ok_and(|found| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()));
        let info = process.join("fdinfo").join(descriptor.file_name());
        same && fs::read_to_string(info).is_ok_and(|text| {
            text.lines()
                .any(|line| line.starts_with(ANY) && line.contains(word))
        })
    })
}
