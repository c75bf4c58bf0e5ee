//! Seeded fault device and reference file-system model, for tests only.
#![forbid(unsafe_code)]

pub mod model;
mod simdevice;

pub use simdevice::{Fault, FaultDevice, Logged};
