//! Seeded fault device and reference file-system model, for tests only.
#![forbid(unsafe_code)]

mod fault;

pub use fault::{Fault, FaultDevice};
