//! What the I/O path did while a command ran. Our engine is traced by its events ([`ours`]), the kernel's
//! file systems by tracepoints ([`kernel`]). Both give an [`Account`], so that they can be shown side by
//! side.
//!
//! ```text
//!   engine: Listener ─► ours ────┐
//!                                ├─► accountant ─► Account, trace ─► table, JSON
//!   kernel: tracefs ─► router ───┘
//! ```
//!
//! Tracing costs time: it explains what a command does, not how fast it is without tracing.

#![forbid(unsafe_code)]

mod account;
mod accountant;
mod gather;
pub mod kernel;
pub mod ours;
pub mod record;
mod table;
pub mod text;
mod trace;

use std::fmt;

pub use account::{Account, Cache, Counted, Depth, Sizes, Times};
pub use accountant::Explained;
pub use table::table;
pub use trace::{Latencies, TraceEvent};

/// Why the kernel could not be traced, a record not be read or written, or an experiment not run.
#[derive(Debug)]
pub struct Error(String);

impl Error {
    /// An error with this message.
    pub fn new(message: impl Into<String>) -> Error {
        Error(message.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Converts errors of the lower crates, keeping their messages.
macro_rules! from_below {
    ($($error:ty),*) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Error {
                Error(error.to_string())
            }
        })*
    };
}
from_below!(
    std::io::Error,
    rustix::io::Errno,
    serde_json::Error,
    throughline::Error,
    throughline_fileio::Error
);

/// This crate's result type.
pub type Result<T> = std::result::Result<T, Error>;
