//! File I/O over a mapping: the [`Mapper`] seam, direct I/O and raw files.
#![forbid(unsafe_code)]

mod error;
mod mapper;

pub use error::{Error, Reason, Result};
pub use mapper::{Claim, ClaimKind, MappedExtent, Mapper, Target};
