//! The five founding reports, side by side: what was claimed, what the report's old way gives here, what ours does, what the
//! kernel's does.
//!
//! Each report is an experiment (`founding/1` … `founding/5`); [`REPORTS`] says which of its variants are the old way, ours
//! and the kernel's, and [`Finding`] takes their figures from a [`Record`](crate::record::Record), so that a run shows the same
//! from its file as it did when it ended.

mod finding;
mod reports;

pub use finding::{Cell, Finding, Line};
pub use reports::{REPORTS, Report};
