//! File I/O over a mapping: the [`Mapper`] seam, direct I/O and raw files.
#![forbid(unsafe_code)]

pub mod direct;
mod error;
mod gate;
mod mapper;
mod raw;

pub use error::{Error, Reason, Result};
pub use mapper::{Claim, ClaimKind, MappedExtent, Mapper, Target};
pub use raw::RawFile;
