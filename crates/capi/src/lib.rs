//! The C interface: opaque handles, functions that return 0 or a negative errno, and a message for each
//! thread. `include/throughline.h` is made from these sources by `tests/header.rs`, which compares both.
//!
//! Invariants:
//! - What the header requires of a caller is checked where it can be: null pointers, text, flags and numbers.
//!   What cannot be is said in `pointers`, the only module with operations on pointers.
//! - The types of the arguments say what a pointer means. `Option<&T>` and `Option<&mut T>` are handles and
//!   places that may be null, `Option<Box<T>>` is a handle that is given back, `Option<&mut MaybeUninit<T>>`
//!   the place of a result.
//! - A panic does not leave a function: it becomes `-EIO` (`failure::run`).
//! - A handle may be used by any number of threads at once, but not after the call that closes it. Options
//!   and open directories are for one thread at a time.
#![allow(non_camel_case_types, reason = "the names are C's")]
#![allow(unreachable_pub, reason = "C programs reach what is exported")]

mod pointers;

// The order of the header.
mod failure;

mod options;

mod volume;

mod file;

mod directory;

mod names;

mod stat;

mod attributes;

mod making;
