//! Devices defined only by a timing law: the disks of the founding reports, to measure against on any
//! machine.
//!
//! ```text
//!  submit ─► cost on the host ─► Timetable: completion time ─► the content's device moves the bytes
//!                                     │                                │
//!  reap  ◄──── Clock: wait until then ◄────────────────────────────────┘
//! ```
//!
//! - A [`Model`] describes a device: limits, [`Law`], [`Host`]. `catalogue.rs` says where each number is
//!   from. [`find`] looks one up by name, [`MODELS`] lists all.
//! - A [`ModelDevice`] is a `BlockDevice` made from a model, over any content.
//! - A [`Scaling`] is the law of many cores with and without a cache line that all of them write: founding
//!   report 2.
//!
//! Invariants:
//! - A law is arithmetic on nanoseconds ([`Timetable`]): the same requests at the same times complete at the
//!   same times on any machine.
//! - Completion times are absolute. A thread that wakes up late sees its completions late, but the device
//!   loses no time while it has other requests: over a stream, throughput is that of the law, whatever this
//!   machine's timers do.
//! - Bytes are moved while the model's device is busy with them, so the content adds no time unless copying
//!   is slower than the device.
//! - Figures printed for a model are the model's, never measurements of a disk.
#![forbid(unsafe_code)]

mod catalogue;
mod clock;
mod device;
mod model;
mod queue;
mod scaling;
mod timetable;

pub use catalogue::{MODELS, find};
pub use clock::Clock;
pub use device::ModelDevice;
pub use model::{Host, Law, Model};
pub use scaling::{MANY_CORES, Scaling};
pub use timetable::{Timetable, Work};
