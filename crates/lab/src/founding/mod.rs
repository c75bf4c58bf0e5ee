//! The five founding reports side by side: the report's claim, and the results here for its old way, for ours
//! and for the kernel.
//!
//! Each report is an experiment (`founding/1` … `founding/5`). [`REPORTS`] says which of its variants are the
//! old way, ours and the kernel's. [`Finding`] takes their figures from a [`Record`](crate::record::Record),
//! so a stored run gives the same table as at its end.

mod finding;
mod reports;

pub use finding::{Finding, Line};
pub use reports::{REPORTS, Report};
