//! One image, one writer: locks on open files.
//!
//! Open-file-description locks over the whole file. They hold against every other open of it, in this
//! process too, go with the last descriptor, and also exclude those who lock as `fcntl` locks do (QEMU).

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

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

/// Takes the lock, or says who has it.
///
/// # Errors
/// [`io::ErrorKind::ResourceBusy`] if another holds a lock that excludes it.
pub(crate) fn lock(file: &File, path: &Path, mode: LockMode) -> io::Result<()> {
    let kind = match mode {
        LockMode::None => return Ok(()),
        LockMode::Shared => libc::F_RDLCK,
        LockMode::Exclusive => libc::F_WRLCK,
    };
    let mut waits = 0;
    loop {
        let Err(error) = set(file, kind) else {
            return Ok(());
        };
        if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) {
            return Err(error);
        }
        let holder = holder(file);
        if holder.is_none() && waits < GHOST_WAITS {
            waits += 1;
            std::thread::sleep(GHOST_WAIT);
            continue;
        }
        let holder = holder.unwrap_or_else(|| "another process".into());
        return Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!("{} is in use by {holder}", path.display()),
        ));
    }
}

/// A process that was killed with I/O in flight is gone before its ring, and the ring holds the file, with its lock, until
/// the kernel has taken it down. A lock that nobody seems to hold is such a ghost's: it goes within moments.
const GHOST_WAIT: Duration = Duration::from_millis(20);
const GHOST_WAITS: u32 = 100;

/// Gives back what [`lock`] took, if anything.
pub(super) fn unlock(file: &File) {
    let _ = set(file, libc::F_UNLCK); // it cannot fail on an open file
}

/// Sets our lock on the whole file to `kind`, an `F_*LCK`.
fn set(file: &File, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: `flock` is plain numbers, for which zeros are valid: from the file's start to its end, pid 0
    // as these locks demand.
    let mut whole: libc::flock = unsafe { std::mem::zeroed() };
    whole.l_type = kind as libc::c_short;
    whole.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is open, and the kernel only reads `whole`.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const whole) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Why a block device could not be had alone: one who locked it, or the place where it is mounted.
pub(crate) fn who_is_busy(path: &Path, flags: OFlags) -> io::Error {
    let busy = |by: &str| {
        let text = format!("{} is in use{by}", path.display());
        io::Error::new(io::ErrorKind::ResourceBusy, text)
    };
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()).map(File::from) else {
        return busy("");
    };
    if let Some(holder) = holder(&file) {
        return busy(&format!(" by {holder}"));
    }
    match file
        .metadata()
        .ok()
        .and_then(|meta| mounted_at(meta.rdev()))
    {
        Some(place) => busy(&format!(": it is mounted at {place}")),
        None => busy(" by the system (mounted, or a part of another device)"),
    }
}

/// Where the block device is mounted, as far as this process sees.
fn mounted_at(device: u64) -> Option<String> {
    let wanted = format!(
        "{}:{}",
        rustix::fs::major(device),
        rustix::fs::minor(device)
    );
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts
        .lines()
        .map(|line| line.split(' ').skip(2).take(3).collect::<Vec<_>>())
        .find(|fields| fields.first() == Some(&wanted.as_str()))?;
    mount.get(2).map(|place| (*place).to_owned())
}

/// Who has a lock on the file, as far as `/proc` lets us see. Only asked when one stood in our way.
fn holder(file: &File) -> Option<String> {
    let wanted = file.metadata().ok()?;
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        if holds_lock(&process.path(), &wanted) {
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
fn holds_lock(process: &Path, wanted: &fs::Metadata) -> bool {
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else {
        return false;
    };
    descriptors.flatten().any(|descriptor| {
        let same = fs::metadata(descriptor.path())
            .is_ok_and(|found| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()));
        let info = process.join("fdinfo").join(descriptor.file_name());
        same && fs::read_to_string(info)
            .is_ok_and(|text| text.lines().any(|line| line.starts_with("lock:")))
    })
}
