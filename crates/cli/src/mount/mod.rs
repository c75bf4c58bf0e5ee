//! Mounting, whatever name the program was called by: `throughline mount`, `fuse2fs`, `mount.fuse.throughline`.
//!
//! ```text
//!  throughline mount │ fuse2fs │ mount.fuse.throughline      arguments → Plan      commands/mount.rs, fuse2fs.rs, helper.rs
//!                    │
//!      start.rs      ├─ foreground ──────────────► serve.rs: check, open, mount, answer, close
//!                    └─ else: this program once more ──┘  │
//!                         waits until it is ready ◄───────┘
//!      end.rs        when the server is asked to end, and when it ends in any case
//!      alone.rs      ends a server in the background whose mount nobody can come to
//!      keeper.rs     with auto_unmount: takes the mount away when that process has ended      remount.rs   changes one that is there
//! ```
//!
//! Nobody forks: the server is this program started anew, with the same arguments and a word in its environment, so that it has
//! one thread when it starts, and inherits what descriptors the caller handed down (`/proc/self/fd/3` as an image).
//!
//! Invariants:
//! - A start that ends with 0 has left a mount that answered.
//! - What goes wrong before that is on the start's standard error, and its exit code is that of mount(8).

mod alone;
mod end;
pub(crate) mod fuse2fs;
pub(crate) mod help;
pub(crate) mod helper;
mod keeper;
pub(crate) mod point;
mod remount;
mod serve;
mod start;
mod trouble;

use std::path::PathBuf;
use std::sync::Arc;

use throughline::OpenOptions;
use throughline_fuse::options::MountOptions;
use throughline_lab::explain::ours::Watched;
use tracing_subscriber::filter::LevelFilter;

use crate::logging;
use crate::problem::Failure;

pub(crate) use keeper::keep;
pub(crate) use remount::remount;
pub(crate) use trouble::{EXIT_FAILED, EXIT_INTERNAL, EXIT_SYSTEM, EXIT_USAGE, Trouble};

/// The type that the list of mounts shows behind `fuse.`, and the name of the helper that mount(8) looks for.
pub(crate) const HELPER_NAME: &str = "mount.fuse.throughline";

/// What is to be mounted, and how.
pub(crate) struct Plan {
    /// The image, as it was named.
    pub(crate) image: PathBuf,
    /// The directory, as it was named.
    pub(crate) dir: PathBuf,
    /// What `-o` says.
    pub(crate) options: MountOptions,
    /// How the image is opened, `-o` taken into account.
    pub(crate) open: OpenOptions,
    /// Where the server lives.
    pub(crate) stay: Stay,
    /// Told of what the engine does, if the mount is explained: then the server lives in this process.
    pub(crate) watched: Option<Arc<Watched>>,
    /// No notes.
    pub(crate) quiet: bool,
}

/// Where the server lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stay {
    /// In this process.
    Foreground,
    /// In another one, which this one waits for; it survives this one's sudden end for as long as it takes to close the image.
    Guarded,
    /// In another one, which goes on without this one.
    Background,
}

/// This process was not started by another one of us to serve.
pub(crate) fn is_start() -> bool {
    start::role().is_none()
}

/// Begins to log as a server does.
pub(crate) fn start_log(options: &MountOptions) -> Result<(), Failure> {
    let usual = if options.debug {
        LevelFilter::DEBUG
    } else {
        logging::SERVER_LEVEL
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
