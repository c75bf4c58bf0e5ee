//! Calls that read or set owners, modes and types of host files, through symbols of the C library.
//!
//! fakeroot(1) interposes on these symbols to record pretended owners. A direct system call, as rustix makes
//! it, would bypass it.

use std::ffi::OsStr;
use std::os::fd::AsFd;

use nix::sys::stat::{self, FchmodatFlags, FileStat, SFlag};
use nix::unistd::{self, UnlinkatFlags};
use rustix::fs::{AtFlags, FileType, Gid, Mode, Uid};
use rustix::io::{Errno, Result};

/// Device and inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The device's number.
    pub device: u64,
    /// The inode's number.
    pub inode: u64,
}

/// A time: seconds since 1970, and nanoseconds after these.
pub type Moment = (i64, u32);

/// The status of an inode, as `stat(2)` shows it.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// Which inode it is.
    pub identity: Identity,
    /// `st_mode`: type and permissions.
    pub mode: u32,
    /// The number of its names.
    pub links: u64,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The number of the device that it is a node of.
    pub device_number: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Allocated space, in 512 bytes.
    pub blocks: u64,
    /// The last access.
    pub accessed: Moment,
    /// The last change of the content.
    pub modified: Moment,
    /// The last change of the inode.
    pub changed: Moment,
}

impl Status {
    /// The type.
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }
}

#[allow(
    clippy::unnecessary_cast,
    reason = "the fields have other types on some architectures"
)]
fn status(of: &FileStat) -> Status {
    let unsigned = |number: i64| u64::try_from(number).unwrap_or(0);
    Status {
        identity: Identity {
            device: of.st_dev as u64,
            inode: of.st_ino as u64,
        },
        mode: of.st_mode as u32,
        links: of.st_nlink as u64,
        uid: of.st_uid,
        gid: of.st_gid,
        device_number: of.st_rdev as u64,
        size: unsigned(of.st_size as i64),
        blocks: unsigned(of.st_blocks as i64),
        accessed: (of.st_atime as i64, of.st_atime_nsec as u32),
        modified: (of.st_mtime as i64, of.st_mtime_nsec as u32),
        changed: (of.st_ctime as i64, of.st_ctime_nsec as u32),
    }
}

fn kernels(errno: nix::errno::Errno) -> Errno {
    Errno::from_raw_os_error(errno as i32)
}

fn bits(mode: Mode) -> stat::Mode {
    stat::Mode::from_bits_truncate(mode.as_raw_mode())
}

fn flags(flags: AtFlags) -> nix::fcntl::AtFlags {
    nix::fcntl::AtFlags::from_bits_truncate(flags.bits().cast_signed())
}

fn user(uid: Option<Uid>) -> Option<unistd::Uid> {
    uid.map(|uid| unistd::Uid::from_raw(uid.as_raw()))
}

fn group(gid: Option<Gid>) -> Option<unistd::Gid> {
    gid.map(|gid| unistd::Gid::from_raw(gid.as_raw()))
}

/// The status of an open file, or of one opened with O_PATH.
///
/// # Errors
/// The system's.
pub fn fstat(fd: impl AsFd) -> Result<Status> {
    stat::fstat(fd).map(|found| status(&found)).map_err(kernels)
}

/// The status of a name in a directory.
///
/// # Errors
/// The system's.
pub fn statat(dir: impl AsFd, name: &OsStr, at: AtFlags) -> Result<Status> {
    stat::fstatat(dir, name, flags(at))
        .map(|found| status(&found))
        .map_err(kernels)
}

/// Sets the owner and the group of an open file, where they are given.
///
/// # Errors
/// The system's.
pub fn fchown(fd: impl AsFd, uid: Option<Uid>, gid: Option<Gid>) -> Result<()> {
    unistd::fchown(fd, user(uid), group(gid)).map_err(kernels)
}

/// The same of what a descriptor holds that is only a path (O_PATH).
pub(super) fn chown_held(fd: impl AsFd, uid: Option<Uid>, gid: Option<Gid>) -> Result<()> {
    let at = flags(AtFlags::EMPTY_PATH);
    unistd::fchownat(fd, "", user(uid), group(gid), at).map_err(kernels)
}

/// Sets the permissions of an open file.
///
/// # Errors
/// The system's.
pub fn fchmod(fd: impl AsFd, mode: Mode) -> Result<()> {
    stat::fchmod(fd, bits(mode)).map_err(kernels)
}

/// Sets the permissions of what a path leads to: for paths below `/proc/self/fd`.
pub(super) fn chmod(path: &str, mode: Mode) -> Result<()> {
    let follow = FchmodatFlags::FollowSymlink;
    stat::fchmodat(nix::fcntl::AT_FDCWD, path, bits(mode), follow).map_err(kernels)
}

/// Makes a directory.
///
/// # Errors
/// The system's.
pub fn mkdirat(dir: impl AsFd, name: &OsStr, mode: Mode) -> Result<()> {
    stat::mkdirat(dir, name, bits(mode)).map_err(kernels)
}

/// Makes a device, a fifo or a socket.
///
/// # Errors
/// The system's.
pub fn mknodat(
    dir: impl AsFd,
    name: &OsStr,
    kind: FileType,
    mode: Mode,
    device: u64,
) -> Result<()> {
    let kind = SFlag::from_bits_truncate(kind.as_raw_mode());
    stat::mknodat(dir, name, kind, bits(mode), device).map_err(kernels)
}

/// Removes anything but a directory.
///
/// # Errors
/// The system's.
pub fn unlinkat(dir: impl AsFd, name: &OsStr) -> Result<()> {
    unistd::unlinkat(dir, name, UnlinkatFlags::NoRemoveDir).map_err(kernels)
}
