//! The `throughline` command.
#![forbid(unsafe_code)]
fn main() {}
