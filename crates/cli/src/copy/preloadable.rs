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

pub(super) fn fstat(fd: impl AsFd) -> Result<FileStat> {
    stat::fstat(fd).map_err(kernels)
}

pub(super) fn statat(dir: impl AsFd, name: &OsStr, at: AtFlags) -> Result<FileStat> {
    stat::fstatat(dir, name, flags(at)).map_err(kernels)
}

pub(super) fn fchown(fd: impl AsFd, uid: Option<Uid>, gid: Option<Gid>) -> Result<()> {
    unistd::fchown(fd, user(uid), group(gid)).map_err(kernels)
}

pub(super) fn chownat(
    dir: impl AsFd,
    name: &OsStr,
    uid: Option<Uid>,
    gid: Option<Gid>,
    at: AtFlags,
) -> Result<()> {
    unistd::fchownat(dir, name, user(uid), group(gid), flags(at)).map_err(kernels)
}

pub(super) fn fchmod(fd: impl AsFd, mode: Mode) -> Result<()> {
    stat::fchmod(fd, bits(mode)).map_err(kernels)
}

/// Follows links.
pub(super) fn chmodat(dir: impl AsFd, name: &OsStr, mode: Mode) -> Result<()> {
    stat::fchmodat(dir, name, bits(mode), FchmodatFlags::FollowSymlink).map_err(kernels)
}

pub(super) fn mkdirat(dir: impl AsFd, name: &OsStr, mode: Mode) -> Result<()> {
    stat::mkdirat(dir, name, bits(mode)).map_err(kernels)
}

pub(super) fn mknodat(
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
pub(super) fn unlinkat(dir: impl AsFd, name: &OsStr) -> Result<()> {
    unistd::unlinkat(dir, name, UnlinkatFlags::NoRemoveDir).map_err(kernels)
}
