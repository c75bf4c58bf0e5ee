//! `Listing`: the names of a directory, read in batches.

use std::os::unix::ffi::OsStrExt;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use throughline::{DirEntry, Error, ReadDir};

use crate::error;
use crate::slot::Slot;

/// The names of a directory.
#[pyclass(frozen, module = "throughline._throughline")]
pub(crate) struct Listing {
    open: Slot<Reading>,
    path: Vec<u8>,
}

struct Reading {
    names: ReadDir,
    /// What ended the batch before, after its names.
    failed: Option<Error>,
}

/// A name, the number of its inode, and the bits of its type.
type Entry<'py> = (Bound<'py, PyBytes>, u64, u32);

impl Listing {
    pub(crate) fn new(names: ReadDir, path: &[u8]) -> Listing {
        let failed = None;
        Listing {
            open: Slot::new("directory", Reading { names, failed }),
            path: path.to_owned(),
        }
    }
}

impl Reading {
    /// The next names; none at the end.
    ///
    /// # Errors
    /// Damage and device errors, each after the names that come before it. After damage, more names may
    /// follow.
    fn batch(&mut self, most: usize) -> Result<Vec<(DirEntry, u32)>, Error> {
        if let Some(failed) = self.failed.take() {
            return Err(failed);
        }
        let mut batch = Vec::new();
        while batch.len() < most {
            let entry = match self.names.next() {
                None => break,
                Some(entry) => entry.and_then(|entry| {
                    let file_type = entry.file_type()?;
                    Ok((entry, file_type.mode_bits()))
                }),
            };
            match entry {
                Ok(entry) => batch.push(entry),
                Err(failed) if batch.is_empty() => return Err(failed),
                Err(failed) => {
                    self.failed = Some(failed);
                    break;
                }
            }
        }
        Ok(batch)
    }
}

#[pymethods]
impl Listing {
    /// The next names, at most so many, without `.` and `..`; none at the end.
    fn batch<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Vec<Entry<'py>>> {
        let batch = self.open.with_mut(py, |reading| reading.batch(most))?;
        let batch = batch.map_err(|failed| error::of(&failed, &self.path))?;
        let entry = |(entry, bits): (DirEntry, u32)| {
            let name = PyBytes::new(py, entry.file_name().as_bytes());
            (name, entry.ino(), bits)
        };
        Ok(batch.into_iter().map(entry).collect())
    }

    /// Closes it.
    fn close(&self, py: Python<'_>) {
        self.open.close(py, drop);
    }
}
