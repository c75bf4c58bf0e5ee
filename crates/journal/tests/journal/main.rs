//! The log: written, cut off and recovered.

mod cache;
mod log;
mod recovery;
