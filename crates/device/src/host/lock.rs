//! Locks on open files, so that an image has at most one writer.
//!
//! Open-file-description locks over the whole file. They conflict with locks of every other open file
//! description of it, also in this process, end with the last descriptor, and also conflict with `fcntl`
//! locks (QEMU).
//!
//! A descriptor passed to us may already hold such a lock, taken by the process that opened it (Apptainer
//! does). We then rely on that lock and leave it in place. It does not exclude another process that got the
//! same descriptor, so we also take a `flock`.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, major, minor};
use rustix::io::Errno;

use super::discover::is_of_this_machine;
use super::given::Locks;
use super::holder::{self, HeldByKernel, KernelHolder};
use super::mounted;

/// The lock to hold on a file or block device while it is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockMode {
    /// None.
    #[default]
    None,
    /// Other processes may not write it.
    Shared,
    /// Other processes may not use it. Needs the file open for writing.
    Exclusive,
}

impl LockMode {
    /// That of a reader or of a writer.
    pub fn of(write: bool) -> LockMode {
        match write {
            true => LockMode::Exclusive,
            false => LockMode::Shared,
        }
    }
}

/// An open file with its lock, which is released when this is dropped.
pub struct LockedFile {
    file: File,
    lock: Lock,
}

impl LockedFile {
    pub(crate) fn new(file: File, lock: Lock) -> LockedFile {
        LockedFile { file, lock }
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for LockedFile {
    /// Unlocks at once, not when the kernel drops its last reference to the open file. A lock that came with
    /// a given descriptor stays.
    fn drop(&mut self) {
        match self.lock {
            Lock::None => {}
            // Neither call can fail on an open file.
            Lock::Own => drop(set(&self.file, libc::F_UNLCK)),
            Lock::Given { .. } => drop(flock(&self.file, FlockOperation::Unlock)),
        }
    }
}

/// The lock that a device holds while it is open.
pub(crate) enum Lock {
    /// None.
    None,
    /// On its own open file.
    Own,
    /// On the given open file, which must stay open to keep it.
    Given { _held: File },
}

/// What to lock.
pub(crate) struct Locking<'a> {
    /// The file used for I/O.
    pub(crate) file: &'a File,
    /// The path by which it was opened.
    pub(crate) path: &'a Path,
    /// The descriptor that the path names, if it does.
    pub(crate) given: Option<File>,
    /// The first byte of the file that is used.
    pub(crate) begin_bytes: u64,
}

/// Takes the lock, or returns an error that names its holder.
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`] if a conflicting lock is held.
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
        with_retries(file, path, ANY, || set(file, kind))?;
        return Ok(Lock::Own);
    };
    if !locks.cover(mode, begin_bytes) {
        with_retries(&given, path, ANY, || set(&given, kind))?;
    }
    // Not on network file systems, where it may be the same lock as the given one, and not on block devices,
    // where udev takes a flock now and then.
    if !locks.flock && file.metadata()?.is_file() && is_of_this_machine(file) {
        let kind = match mode {
            LockMode::Shared => FlockOperation::NonBlockingLockShared,
            _ => FlockOperation::NonBlockingLockExclusive,
        };
        with_retries(file, path, "FLOCK", || Ok(flock(file, kind)?))?;
    }
    Ok(Lock::Given { _held: given })
}

/// A word that occurs in every lock line of `/proc`.
pub(super) const ANY: &str = "lock:";

/// Tries to lock `file` with `take`. On a conflict, returns an error that names the holder: a process with a
/// lock line in `/proc` that contains `word`.
fn with_retries(
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
        if holder.is_none() && waits < RETRIES {
            waits += 1;
            std::thread::sleep(RETRY_INTERVAL);
            continue;
        }
        let holder = holder.unwrap_or_else(|| "another process".into());
        return Err(busy(path, &holder));
    }
}

/// The rings of a process outlive it, and keep the file open, with its lock, until the kernel has torn them
/// down. So a lock without a visible holder is retried for a while: it is released soon. A server over
/// io_uring has some hundred rings, each waits for the kernel's RCU, and after many servers were killed at
/// once they took 6 s.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(20);
pub(super) const RETRIES: u32 = 500;

/// A lock of `kind` on the whole file.
fn whole(kind: libc::c_int) -> libc::flock {
    // SAFETY: `flock` has only integer fields, for which zeros are valid. They mean: from the file's start to
    // its end, and pid 0, as these locks require.
    let mut whole: libc::flock = unsafe { std::mem::zeroed() };
    whole.l_type = kind as libc::c_short;
    whole.l_whence = libc::SEEK_SET as libc::c_short;
    whole
}

/// Sets our lock on the whole file to `kind`, an `F_*LCK`.
fn set(file: &File, kind: libc::c_int) -> io::Result<()> {
    set_lock(file, &whole(kind))
}

fn set_lock(file: &File, lock: &libc::flock) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the kernel only reads `lock`.
    match unsafe {
        libc::fcntl(
            file.as_raw_fd(),
            libc::F_OFD_SETLK,
            std::ptr::from_ref(lock),
        )
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets our lock on these bytes of a file, which need not be there, to `kind`, an `F_*LCK`.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for bytes that no file can have; of the system.
pub(super) fn set_range(file: &File, kind: libc::c_int, bytes: Range<u64>) -> io::Result<()> {
    let number = |value: u64| {
        let value = libc::off_t::try_from(value);
        value.map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
    };
    let mut lock = whole(kind);
    number(bytes.end)?;
    lock.l_start = number(bytes.start)?;
    lock.l_len = number(bytes.end.saturating_sub(bytes.start))?;
    // A length of 0 would mean: to the end of the file.
    match lock.l_len {
        0 => Ok(()),
        _ => set_lock(file, &lock),
    }
}

/// Opens a block device exclusively (`O_EXCL`).
///
/// # Errors
/// System errors; [`io::ErrorKind::ResourceBusy`] if it is in use.
pub(crate) fn open_exclusive(path: &Path, flags: OFlags) -> io::Result<File> {
    // Setting up a loop device claims it briefly, even if the setup fails. So a claim without a visible
    // holder is retried.
    for _ in 0..RETRIES {
        match rustix::fs::open(path, flags | OFlags::EXCL, Mode::empty()) {
            Ok(file) => return Ok(File::from(file)),
            Err(Errno::BUSY) => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(who) = describe_holder(path, flags) {
            return Err(who);
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
    Err(in_kernel(path, KernelHolder::unknown()))
}

/// The error that names the holder of a block device: a process that locked it, or a user in the kernel.
/// `None` if no holder is visible.
fn describe_holder(path: &Path, flags: OFlags) -> Option<io::Error> {
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

/// Refuses to write a file that the kernel uses, a device that a loop device is attached to, and a loop
/// device whose backing file is locked, or in use through another loop device.
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`], with [`HeldByKernel`] inside if the kernel is the holder.
pub(crate) fn refuse_held(file: &File, path: &Path, mode: LockMode) -> io::Result<()> {
    if mode == LockMode::None {
        return Ok(());
    }
    let found = file.metadata()?;
    if found.file_type().is_block_device() {
        refuse_locked_backing_file(file, path, mode)?;
        if mode != LockMode::Exclusive {
            return Ok(());
        }
        // The exclusive open has checked for other users in the kernel.
        let found = holder::of_loop_over(&found).or_else(|| holder::of_other_loop(file));
        return found.map_or(Ok(()), |by| Err(in_kernel(path, by)));
    }
    let mut waits = 0;
    while let Some(by) = holder::of(&found).filter(|_| mode == LockMode::Exclusive) {
        if waits == by.waits() {
            return Err(in_kernel(path, by));
        }
        waits += 1;
        std::thread::sleep(RETRY_INTERVAL);
    }
    Ok(())
}

/// Refuses a loop device whose backing file is locked.
fn refuse_locked_backing_file(device: &File, path: &Path, mode: LockMode) -> io::Result<()> {
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
    let what = format!("{who}, through its backing file {}", name.display());
    Err(busy(path, &what))
}

/// Whether a lock of `kind` could be taken.
fn is_free(file: &File, kind: libc::c_int) -> io::Result<bool> {
    let mut found = whole(kind);
    // SAFETY: the descriptor is open, and the kernel writes only `found`.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut found) } {
        0 => Ok(found.l_type == libc::F_UNLCK as libc::c_short),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The process that holds a lock on this file, as far as `/proc` shows it. Called only after a conflict.
///
/// Only lists of the kernel are read: a look at the files of others may wait for a server that does not
/// answer.
pub(super) fn holder_of_lock(file: impl AsFd, word: &str) -> Option<String> {
    let own = std::process::id();
    let named = name_in_locks(file.as_fd())?;
    let (pid, process) = processes(own)?.find(|(_, process)| holds_lock(process, &named, word))?;
    if pid == own {
        return Some(format!("this process ({pid}) already"));
    }
    let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
    Some(format!("process {pid} ({})", name.trim_end()))
}

/// All processes, by number and directory, `own` first: until a process that it starts has called `exec`,
/// that one has the same descriptors, and its number may be the smaller one.
fn processes(own: u32) -> Option<impl Iterator<Item = (u32, PathBuf)>> {
    let listed = fs::read_dir("/proc").ok()?.flatten().filter_map(|process| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        Some((pid, process.path()))
    });
    let first = (own, format!("/proc/{own}").into());
    Some(std::iter::once(first).chain(listed))
}

/// A file in the kernel's lists of locks: device and inode, as ` fe:00:1234 `. The device is that of the
/// mount; on btrfs, `stat` has another one.
fn name_in_locks(file: BorrowedFd<'_>) -> Option<String> {
    let found = rustix::fs::fstat(file).ok()?;
    let info = format!("/proc/self/fdinfo/{}", file.as_raw_fd());
    let info = fs::read_to_string(info).unwrap_or_default();
    let mount = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    let device = mount.and_then(|mount| mounted::device_of(mount.trim()));
    let device = device.unwrap_or(found.st_dev);
    Some(format!(
        " {:02x}:{:02x}:{} ",
        major(device),
        minor(device),
        found.st_ino
    ))
}

/// Whether one of the process's descriptors has a lock on a file that is `named` so.
fn holds_lock(process: &Path, named: &str, word: &str) -> bool {
    let descriptors = fs::read_dir(process.join("fdinfo")).into_iter().flatten();
    descriptors.flatten().any(|descriptor| {
        fs::read_to_string(descriptor.path()).is_ok_and(|text| {
            let mut locks = text.lines().filter(|line| line.starts_with(ANY));
            locks.any(|line| line.contains(word) && line.contains(named))
        })
    })
}

#[cfg(test)]
mod tests {
    /// A child that has not called `exec` yet is not named in place of its parent. This was seen where the
    /// numbers of processes had wrapped.
    #[test]
    fn this_process_is_asked_first() {
        let own = std::process::id();
        let first = super::processes(own).and_then(|mut all| all.next());
        assert_eq!(first.map(|(pid, _)| pid), Some(own));
    }
}
