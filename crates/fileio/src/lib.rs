//! File I/O over a mapping: direct I/O and the Mapper seam.
#![forbid(unsafe_code)]
