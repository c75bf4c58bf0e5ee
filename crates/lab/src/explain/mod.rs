//! What the I/O path did while a command ran: our engine from its event stream ([`ours`]), the kernel's file
//! systems from its tracepoints ([`kernel`]); both as an [`Account`], so that they can be shown side by side.
//!
//! ```text
//!   engine: Listener ─► ours ────┐
//!                                ├─► accountant ─► Account, trace ─► table, JSON, record
//!   kernel: tracefs ─► router ───┘
//! ```
//!
//! Tracing is not free: it explains what happened, not how fast it would have been without it.

mod account;
mod accountant;
mod gather;
mod keep;
pub mod kernel;
pub mod ours;
mod rows;
mod table;
mod variants;

pub use account::{Account, Cache, Counted, Depth, Sizes, Times};
pub use accountant::Explained;
pub use keep::{accounts_in, record_of};
pub(crate) use rows::{Section, sections};
pub use table::table;
