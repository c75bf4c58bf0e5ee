//! `auto_unmount`: a process beside the server that takes the mount away when the server has ended, however it did.
//!
//! `fusermount3` has the same and refuses it in effect where root may not look into the mount. This one needs nothing but the
//! right to unmount, which is the mount's owner's.
//!
//! Invariant: it takes away the mount that it was started for, and no other that is at the same place later.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::process::{Child, ExitCode};

use throughline_fuse::{Ending, UnmountError};

use super::EXIT_SYSTEM;
use super::start;

/// Which mount, in the environment of the process.
const MOUNT: &str = "THROUGHLINE_MOUNT_KEPT";

/// Starts it. It waits for as long as the child's standard input is held.
pub(super) fn start(ending: &Ending) -> io::Result<Child> {
    start::start_keeper(MOUNT, &ending.name())
}

/// What this process is for, where it was started to be that one; its exit code.
pub(crate) fn keep() -> Option<ExitCode> {
    if !start::is_keeper() {
        return None;
    }
    let done = std::env::var_os(MOUNT).is_some_and(|name| wait_and_clean_up(&name).is_ok());
    Some(match done {
        true => ExitCode::SUCCESS,
        false => EXIT_SYSTEM.into(),
    })
}

fn wait_and_clean_up(name: &OsStr) -> Result<(), UnmountError> {
    // No terminal ends it: it fails only for who leads a session already.
    let _ = rustix::process::setsid();
    let _ = std::fs::write("/proc/self/comm", "throughline-kee");
    let mut bytes = [0; 64];
    // Nobody writes to it. An error ends it as the end does.
    while matches!(io::stdin().lock().read(&mut bytes), Ok(len) if len > 0) {}
    // A server that ended in order has unmounted already, and then nothing has this name.
    Ending::named(name).map_or(Ok(()), |ending| ending.clean_up())
}
