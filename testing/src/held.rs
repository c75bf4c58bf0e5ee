//! Locks of open files, as programs take them that hand a file on: `fcntl` of the kind that goes with the descriptor.

use std::fs::File;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

/// Takes an exclusive lock from a byte to the file's end, wherever that comes to be; `false` where somebody else has one.
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
