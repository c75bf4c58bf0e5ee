//! Locks on open file descriptions (OFD), which are kept when a descriptor is passed on.

use std::fs::File;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

/// Takes an exclusive lock from `byte` to the end of the file, wherever that moves. Returns `false` if the
/// range is locked by another holder.
pub fn lock_from(file: &File, byte: i64) -> bool {
    let range = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&range)).is_ok()
}
