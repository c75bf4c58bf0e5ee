//! Devices that exist as a timing law and nothing else: the disks of the founding reports, to measure against here.
//!
//! ```text
//!  submit ─► host's cost ─► Timetable: when will it be done? ─► the content's device moves the bytes
//!                                    │                                   │
//!  reap  ◄──── Clock: wait until then ◄──────────────────────────────────┘
//! ```
//!
//! - A [`Model`] is the description: limits, [`Law`], [`Host`], and where each number is from ([`Figure`]). [`find`] has them
//!   by name, [`MODELS`] lists them.
//! - A [`ModelDevice`] is a `BlockDevice` made from one, over a content of one's choice ([`Content`]).
//! - A [`Scaling`] is the law of many cores with and without a cache line that all of them write: founding report 2.
//!
//! Invariants:
//! - A law is arithmetic on nanoseconds ([`Timetable`]): same requests at the same times, same ends, on any machine.
//! - Ends are absolute. A thread that wakes up late sees its completions late, and the device loses no time by it as long as
//!   it has other requests: over a stream, throughput is the law's, whatever the timers of this machine are.
//! - Bytes are moved while the model's device is "busy" with them, so that a content costs no time of its own unless copying
//!   is slower than the device.
//! - What a model prints is a model's figure, never a measurement of a disk.
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
pub use device::{Content, ModelDevice, Options};
pub use model::{Commands, Figure, Host, Law, Model};
pub use scaling::{MANY_CORES, Scaling};
pub use timetable::{CommandStage, Timetable, Work};
