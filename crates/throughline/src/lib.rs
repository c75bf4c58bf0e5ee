//! The path file data takes between a program and a disk, as a user-space library.
#![forbid(unsafe_code)]
