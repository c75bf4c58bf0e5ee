//! `auto_unmount`: a separate process that removes the mount when the server has ended for any reason.
//!
//! `fusermount3` has the same option, but in effect refuses it if root may not access the mount. This process
//! needs only the right to unmount, which the mount's owner has.
//!
//! Invariant: it removes only the mount that it was started for, not a later one at the same directory.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::process::{Child, ExitCode};

use throughline_fuse::{Ending, UnmountError};

use super::EXIT_SYSTEM;
use super::start;

/// Environment variable that names the mount to remove.
const MOUNT: &str = "THROUGHLINE_MOUNT_KEPT";

/// Starts the process. It waits as long as the returned child's standard input is open.
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
    // A new session, so that a terminal's signals do not end this process. Fails only if it already leads a
    // session.
    let _ = rustix::process::setsid();
    let _ = std::fs::write("/proc/self/comm", "throughline-kee");
    let mut bytes = [0; 64];
    // Nothing is written to this pipe: reading ends when it is closed. An error counts as the end.
    while matches!(io::stdin().lock().read(&mut bytes), Ok(len) if len > 0) {}
    // If the server unmounted before it exited, no mount has this name any more.
    Ending::named(name).map_or(Ok(()), |ending| ending.clean_up())
}
