//! Test support: seeded fault and power-cut devices, a reference file-system model, FUSE and kernel mounts,
//! and the kernel as a reference.
#![forbid(unsafe_code)]

pub mod actor;
pub mod attributes;
mod cuttable;
mod disk_image;
mod held;
pub mod model;
mod mount;
mod mounted;
pub mod pair;
pub mod sectors;
mod serve;
mod simdevice;
pub mod transport;
mod view;

pub use actor::{Actor, Ids};
pub use cuttable::Cuttable;
pub use disk_image::DiskImage;
pub use held::lock_from;
pub use mount::Mount;
pub use mounted::{Mounted, skip_reason};
pub use pair::{Pair, Side};
pub use serve::{in_sandbox, serve};
pub use simdevice::{
    Change, Cut, Event, Fault, FaultDevice, Filter, Image, Keep, Logged, PowerDevice, PowerPart,
    Record, States,
};
pub use throughline_testkit::program;
pub use view::{Entry, View};
