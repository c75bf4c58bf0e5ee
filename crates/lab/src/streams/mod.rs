//! Streams of writes, for the experiments that measure them: their targets, and the race of their writers.

pub(crate) mod targets;
pub(crate) mod writers;
