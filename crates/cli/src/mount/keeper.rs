//! `auto_unmount`: a process beside the server that removes the mount when the server has ended, by whatever
//! cause.
//!
//! `fusermount3` has the same option, but in effect refuses it if root may not look into the mount. This
//! process needs only the right to unmount, which the mount's owner has.
//!
//! Invariant: it removes only the mount that it was started for, not a later one at the same place.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::process::{Child, ExitCode};

use throughline_fuse::{Ending, UnmountError};

use super::EXIT_SYSTEM;
use super::start;

/// Environment variable: the mount to remove.
const MOUNT: &str = "THROUGHLINE_MOUNT_KEPT";

/// Starts the process. It waits as long as the child's standard input is open.
pub(super) fn start(ending: &Ending) -> io::Result<Child> {
    start::start_keeper(MOUNT, &ending.name())
}

/// If this process was started as a keeper, runs as one and returns the exit code.
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
    // No terminal ends this process. Fails only if it already leads a session.
    let _ = rustix::process::setsid();
    let _ = std::fs::write("/proc/self/comm", "throughline-kee");
    let mut bytes = [0; 64];
    // Nothing is written to this pipe. An error counts as its end.
    while matches!(io::stdin().lock().read(&mut bytes), Ok(len) if len > 0) {}
    // A server that ended in order has already unmounted, and no mount has this name.
    Ending::named(name).map_or(Ok(()), |ending| ending.clean_up())
}
