//! Seeded fault device and reference file-system model, for tests only.
#![forbid(unsafe_code)]
