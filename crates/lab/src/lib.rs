//! Experiments that measure and explain the I/O path.
#![forbid(unsafe_code)]
