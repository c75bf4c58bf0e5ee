//! `throughline._throughline`: the calls of the library, for the Python package `throughline`, which is in
//! `python/throughline` and makes Python's own kinds of objects of them.
//!
//! ```text
//! throughline (Python)   Volume, Path, files of io, fsspec; names as str, options with defaults
//!      │
//! _throughline           one call, one method: names as bytes, options as a dict
//!      │
//! crate throughline
//! ```
//!
//! Invariants:
//! - Nothing is read from or written to a device while the interpreter's lock (GIL) is held: every call is
//!   made in [`Python::detach`](pyo3::Python::detach). Memory of Python objects is only touched while it is
//!   held. (The exception is what is dropped without having been closed; the package closes everything.)
//! - A volume, file or listing is closed once. Closing waits for the calls that use it (`slot.rs`).
//! - A process that was forked neither uses nor closes what its parent has open (`slot.rs`).
//! - An error of the library is an `OSError` with its `errno` (`error.rs`).
#![forbid(unsafe_code)]

mod error;
mod file;
mod listing;
mod making;
mod opening;
mod scratch;
mod slot;
mod stat;
mod volume;

use pyo3::pymodule;

/// What the Python package is made of. Use the package: this may change in any version.
#[pymodule]
mod _throughline {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::file::File;
    #[pymodule_export]
    use crate::listing::Listing;
    #[pymodule_export]
    use crate::making::{mkfs, pack};
    #[pymodule_export]
    use crate::opening::{partitions, scheme_length};
    #[pymodule_export]
    use crate::slot::forked;
    #[pymodule_export]
    use crate::volume::Volume;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("version", env!("CARGO_PKG_VERSION"))
    }
}
