//! Volumes through the library, beside the reference model, the host's file system and e2fsprogs.

mod attributes;
mod buffered_faults;
mod buffered_full;
mod buffered_memory;
mod concurrent;
mod fault_countdown;
mod matrix;
mod mixed_threads;
#[path = "../oracle/mod.rs"]
mod oracle;
mod qcow2_random;
mod random_mixed;
mod random_ops;
mod resize;
mod simdevice;
mod small_journals;
mod xattrs;
