//! Seeded fault and power-cut devices, reference file-system model and the kernel as a judge, for tests only.
#![forbid(unsafe_code)]

pub mod model;
mod mount;
pub mod sectors;
mod simdevice;

pub use mount::Mount;
pub use simdevice::{
    Change, Cut, Event, Fault, FaultDevice, Filter, Image, Keep, Logged, PowerDevice, Record,
    States,
};
