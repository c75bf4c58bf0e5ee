//! The block layer: bios, device limits, a builder that splits, a plug that merges, counters and events.
#![forbid(unsafe_code)]

mod batch;
mod bio;
mod builder;
mod counters;
mod disk;
mod error;
mod events;
mod flush;
mod limits;
mod listeners;
mod meter;
mod pipeline;
mod plug;
mod purpose;
mod queues;
mod rounds;
mod stream;
mod target;
mod trace;

pub use counters::Counters;
pub use disk::{Disk, replaced};
pub use error::{CallerFault, Error, Result};
pub use events::{BioInfo, Event, Listener};
pub use limits::SplitReason;
pub use listeners::{Listeners, Subscription};
pub use pipeline::Pipeline;
pub use purpose::Purpose;
pub use rounds::{Lead, Rounds};
pub use stream::{Stream, Written};
