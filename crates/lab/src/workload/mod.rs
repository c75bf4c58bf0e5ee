//! Work on targets: the jobs of [`fio`] run on directories, files, and file systems made for the run
//! ([`TargetSpec`]), all of them interleaved.
//!
//! Data that existed before is overwritten only if requested. Everything that was created is removed.

pub mod fio;
mod made;
mod spec;

pub use crate::mounts::System;
pub use spec::{MadeSpec, TargetKind, TargetSpec};

use crate::{Error, Result};

/// An error if the user wants to stop.
fn check(interrupted: &dyn Fn() -> bool) -> Result<()> {
    match interrupted() {
        true => Err(Error::new("interrupted")),
        false => Ok(()),
    }
}
