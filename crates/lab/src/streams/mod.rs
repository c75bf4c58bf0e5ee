//! Streams of writes, for the experiments that measure them: targets, and concurrent writers.

pub(crate) mod kernel;
pub(crate) mod targets;
pub(crate) mod writers;
