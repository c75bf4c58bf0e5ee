//! What the I/O path did while a command ran: of our engine from its event stream ([`ours`]), of the kernel's file systems from
//! its tracepoints ([`kernel`]); both as an [`Account`], so that they can stand side by side.
//!
//! ```text
//!   engine: Listener ─► ours ────┐
//!                                ├─► accountant ─► Account, trace ─► table, JSON, record
//!   kernel: tracefs ─► router ───┘
//! ```
//!
//! Watching is not free: what is explained is what happened, not how fast it would have been alone.

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
