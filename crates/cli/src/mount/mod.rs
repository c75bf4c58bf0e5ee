//! Mounting under each name of the program: `throughline mount`, `fuse2fs`, `mount.fuse.throughline`.
//!
//! ```text
//!  throughline mount │ fuse2fs │ mount.fuse.throughline   arguments → Plan   commands/mount.rs, fuse2fs.rs,
//!                    │                                                       helper.rs
//!      start.rs      ├─ foreground ─────────────► serve.rs: check, open, mount, answer, close
//!                    └─ else: a second process ──────────┘  │
//!                         waits until it is ready ◄─────────┘
//!      end.rs        ends the server on request, and in any case in bounded time
//!      deserted.rs   ends a background server whose mount cannot be reached any more
//!      sandbox.rs    drops the rights that serving does not need
//!      keeper.rs     a process without the sandbox: unmounts for the server, and with auto_unmount after it
//!      remount.rs    changes an existing mount
//! ```
//!
//! The server is not forked: it is this program started again, with the same arguments and with its role in
//! an environment variable. So it starts with one thread, and inherits the descriptors that the caller passed
//! on (`/proc/self/fd/3` as an image).
//!
//! Invariants:
//! - If a start exits with 0, the mount has answered a request.
//! - A failure before that is reported on the standard error of the start, with an exit code of mount(8).

mod deserted;
mod end;
pub(crate) mod fuse2fs;
pub(crate) mod help;
pub(crate) mod helper;
mod keeper;
pub(crate) mod point;
mod remount;
mod sandbox;
mod serve;
mod start;
mod trouble;

use std::path::PathBuf;
use std::sync::Arc;

use throughline::OpenOptions;
use throughline_explain::ours::Watched;
use throughline_fuse::options::MountOptions;
use tracing_subscriber::filter::LevelFilter;

use crate::logging;
use crate::problem::Failure;

pub(crate) use keeper::keep;
pub(crate) use remount::remount;
pub(crate) use trouble::{EXIT_FAILED, EXIT_SYSTEM, EXIT_USAGE, Trouble};

/// The type in the list of mounts, after `fuse.`, and the helper that mount(8) looks for.
pub(crate) const HELPER_NAME: &str = "mount.fuse.throughline";

/// What to mount and how.
pub(crate) struct Plan {
    /// The image, as named by the caller.
    pub(crate) image: PathBuf,
    /// The directory, as named by the caller.
    pub(crate) dir: PathBuf,
    /// The options of `-o`.
    pub(crate) options: MountOptions,
    /// How to open the image, with `-o` applied.
    pub(crate) open: OpenOptions,
    /// Where the server runs.
    pub(crate) stay: Stay,
    /// Traces the engine if the mount is explained; the server then runs in this process.
    pub(crate) watched: Option<Arc<Watched>>,
    /// Print no notes.
    pub(crate) quiet: bool,
}

/// Where the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stay {
    /// In this process.
    Foreground,
    /// In another process, which this one waits for. If this process is killed, the other one still closes
    /// the image.
    Guarded,
    /// In another process, which this one does not wait for.
    Background,
}

/// Whether this process is not a server that another instance started.
pub(crate) fn is_start() -> bool {
    start::role().is_none()
}

/// Starts the server's log.
pub(crate) fn start_log(options: &MountOptions) -> Result<(), Failure> {
    let usual = if options.debug {
        LevelFilter::DEBUG
    } else {
        LevelFilter::WARN
    };
    logging::start(options.log.unwrap_or(usual), options.log_file.as_deref())
}

/// Mounts.
pub(crate) fn run(plan: &Plan) -> Result<(), Trouble> {
    trouble::look_for_proc()?;
    match (start::role(), plan.stay) {
        (Some(role), _) => serve::serve(plan, role),
        (None, Stay::Foreground) => serve::serve(plan, start::Role::Foreground),
        (None, Stay::Guarded) => start::guard(plan),
        (None, Stay::Background) => start::detach(plan),
    }
}
