//! Names of users and groups, for a command in its sandbox: another process of this program asks the system
//! for them. It knows nothing of the image, and gives no more than names and IDs.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use throughline_forms::owner;

use crate::arguments::this_program;

/// Environment variable: this process answers questions for names.
const ROLE: &str = "THROUGHLINE_NAMES";

/// Starts the process. It ends when this one does.
///
/// # Errors
/// System errors.
pub(crate) fn start() -> io::Result<()> {
    let (ours, theirs) = UnixStream::pair()?;
    let theirs = OwnedFd::from(theirs);
    let mut command = Command::new(this_program());
    command
        .arg0("throughline-names")
        .env(ROLE, "1")
        .env_remove("THROUGHLINE_URLS")
        .stdin(theirs.try_clone()?)
        .stdout(theirs)
        .stderr(Stdio::null())
        .current_dir("/");
    command.spawn()?;
    owner::ask_over(ours);
    Ok(())
}

/// If this process was started to answer for names, does so and returns the exit code.
pub(crate) fn answer() -> Option<ExitCode> {
    std::env::var_os(ROLE)?;
    Some(match owner::answer(io::stdin(), io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}
