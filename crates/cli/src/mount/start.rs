//! Starts this program again as a server, and waits until it is ready, or until it has ended.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use throughline_fuse::mounts;

use super::end::{Requests, signals};
use super::trouble::{EXIT_INTERNAL, Trouble, system};
use super::{Plan, point};
use crate::arguments::{self, this_program};
use crate::logging;
use crate::problem::Failure;

/// Environment variable: the role of a process that another instance started.
const ROLE: &str = "THROUGHLINE_MOUNT_ROLE";
const BACKGROUND: &str = "background";
const GUARDED: &str = "guarded";
const KEEPER: &str = "keeper";
/// Environment variable: the path by which the server finds an image that is a standard stream of its parent.
const IMAGE: &str = "THROUGHLINE_MOUNT_IMAGE";
/// File descriptors of the standard streams.
const STREAMS: std::ops::RangeInclusive<i32> = 0..=2;
/// Written by a server to its standard output once it has mounted.
const READY: &[u8] = b"ready\n";

/// How a serving process relates to the process that started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// No other process started it.
    Foreground,
    /// Its standard output is a socket of a process that waits until the mount answers.
    Background,
    /// Its standard input is a pipe that closes when the waiting parent ends.
    Guarded,
}

/// Whether this process was started to remove a mount after its server has ended.
pub(super) fn is_keeper() -> bool {
    std::env::var_os(ROLE).is_some_and(|role| role == KEEPER)
}

/// Starts the process that removes a mount. The end of this process closes the standard input of the other.
/// The environment variables say what it is to do.
pub(super) fn start_keeper(variables: &[(&str, &OsStr)]) -> io::Result<Child> {
    let mut command = Command::new(this_program());
    command
        .arg0("throughline-keeper")
        .env(ROLE, KEEPER)
        .envs(variables.iter().copied())
        // It opens no object, and its memory is not kept from cores.
        .env_remove("THROUGHLINE_URLS")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .current_dir("/");
    command.spawn()
}

/// Keeps an image that this process was given as a descriptor, and the lock on it, from processes that it
/// starts.
pub(super) fn keep_from_children(image: &Path) {
    if let Some(file) = throughline::internal::given_file(image) {
        // An error leaves it open there until this process has ended, and a moment longer.
        let _ = rustix::io::fcntl_setfd(file, rustix::io::FdFlags::CLOEXEC);
    }
}

/// The role of this process if another instance started it.
pub(super) fn role() -> Option<Role> {
    match std::env::var_os(ROLE)?.to_str()? {
        BACKGROUND => Some(Role::Background),
        GUARDED => Some(Role::Guarded),
        _ => None,
    }
}

/// The path of the image in this process.
pub(super) fn image(plan: &Plan) -> PathBuf {
    match role().and_then(|_| std::env::var_os(IMAGE)) {
        Some(name) => name.into(),
        None => plan.image.clone(),
    }
}

/// Starts a server and returns once its mount answers.
///
/// The mount is asked by this process, because the server must not ask its own (`keeper.rs`).
pub(super) fn detach(plan: &Plan) -> Result<(), Trouble> {
    // Once it is mounted, this would ask the server already. Why it cannot be resolved, the server says.
    let dir = mounts::resolve(&plan.dir);
    let (mut ours, theirs) = UnixStream::pair().map_err(cannot_start)?;
    let theirs = Stdio::from(OwnedFd::from(theirs));
    let mut server = spawn(plan, BACKGROUND, Stdio::null(), theirs)?;
    let mut answer = [0; READY.len()];
    let is_mounted = ours.read_exact(&mut answer).is_ok() && answer == READY;
    if is_mounted && dir.is_ok_and(|dir| !point::is_dead(&dir)) {
        // The server leaves the terminal now.
        ours.shutdown(Shutdown::Write).map_err(cannot_start)?;
        let _ = ours.read_to_end(&mut Vec::new());
        return Ok(());
    }
    drop(ours);
    ended(server.wait().map_err(cannot_start)?)
}

/// Starts a server, forwards signals to it, and returns when it has ended.
///
/// The caller may kill this process as soon as the mount is gone (Apptainer does so after half a second). The
/// server detects that and still closes the image.
///
/// Signals are forwarded through a pipe, not as signals: the server may also receive a signal directly, as a
/// process of the same service, and the forwarded one would then count as a second request.
pub(super) fn guard(plan: &Plan) -> Result<(), Trouble> {
    let mut signals = signals().map_err(cannot_start)?;
    let (input, mut requests_to) = io::pipe().map_err(cannot_start)?;
    // While this is open, this process is there.
    let guard = requests_to.try_clone().map_err(cannot_start)?;
    let forward = move || {
        let mut requests = Requests::default();
        for signal in signals.forever() {
            // The server may have exited.
            let _ = requests_to.write_all(&[requests.next(signal) as u8]);
        }
    };
    let thread = std::thread::Builder::new().name("guard".to_owned());
    thread.spawn(forward).map_err(cannot_start)?;
    let mut server = spawn(plan, GUARDED, input.into(), Stdio::inherit())?;
    let status = server.wait().map_err(cannot_start)?;
    drop(guard);
    ended(status)
}

fn spawn(plan: &Plan, role: &str, stdin: Stdio, stdout: Stdio) -> Result<Child, Trouble> {
    let mut command = Command::new(this_program());
    // The server gets other standard streams, so it needs the image under another number. The duplicate stays
    // open until the server has started.
    let image = throughline::internal::given_descriptor(&plan.image)
        .filter(|number| STREAMS.contains(number))
        .and_then(|_| throughline::internal::given_file(&plan.image))
        .map(rustix::io::dup)
        .transpose()
        .map_err(|errno| cannot_start(errno.into()))?;
    if let Some(image) = &image {
        command.env(IMAGE, format!("/proc/self/fd/{}", image.as_raw_fd()));
    }
    let _memory = arguments::give(&mut command, arguments::all()).map_err(cannot_start)?;
    command
        .env(ROLE, role)
        .stdin(stdin)
        .stdout(stdout)
        .spawn()
        .map_err(cannot_start)
}

/// Converts the exit status of a server to the result of its parent. The server has already reported the
/// reason.
fn ended(status: ExitStatus) -> Result<(), Trouble> {
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(Trouble::Reported(
            u8::try_from(code).unwrap_or(EXIT_INTERNAL),
        )),
        (None, signal) => Err(Trouble::Failed(
            EXIT_INTERNAL,
            Failure::plain(match signal {
                Some(signal) => format!("the server was ended by signal {signal}"),
                None => "the server has ended".to_owned(),
            }),
        )),
    }
}

fn cannot_start(error: io::Error) -> Trouble {
    system("cannot start the server")(error)
}

/// First step of a server: starts a session of its own, so that a terminal's signals do not end it.
pub(super) fn start_session(role: Role) {
    if role != Role::Foreground {
        // Fails only if this process already leads a session.
        let _ = rustix::process::setsid();
    }
}

/// In the foreground: puts `/dev/null` in the place of the standard input, which may be the user's terminal.
/// Not if the image was given as a descriptor: it may be that one.
pub(super) fn leave_input(role: Role, image: &Path) -> Result<(), Trouble> {
    if role != Role::Foreground || throughline::internal::given_file(image).is_some() {
        return Ok(());
    }
    let null = std::fs::File::open("/dev/null");
    let replaced = null.and_then(|null| Ok(rustix::stdio::dup2_stdin(null)?));
    replaced.map_err(system("cannot replace the standard input by /dev/null"))
}

/// Last step of a server's start: reports that it has mounted, waits until the parent has asked the mount,
/// and releases the descriptors and the directory inherited from the parent.
pub(super) fn report_mounted() -> io::Result<()> {
    let stdout = rustix::stdio::stdout();
    // If the parent no longer waits, the mount stays.
    let _ = io::stdout()
        .write_all(READY)
        .and_then(|()| io::stdout().flush());
    while let Err(rustix::io::Errno::INTR) = rustix::io::read(stdout, &mut [0; 1]) {}
    logging::leave_terminal();
    rustix::process::chdir("/")?;
    let null = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}
