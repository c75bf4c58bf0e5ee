//! Opening a volume, and the partitions of a disk.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use throughline::internal::object_scheme_bytes;
use throughline::{Backing, Error, Format, ImageOptions, OpenOptions, Partition, VolumeOptions};

use crate::error;

pub(crate) fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// How a volume is opened: the options of the Python class.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct OpenArgs {
    write: bool,
    partition: Option<String>,
    offset: u64,
    format: Option<String>,
    backing: Vec<PyBackedBytes>,
    overlay: Option<PyBackedBytes>,
    journal: Option<PyBackedBytes>,
    cache_bytes: Option<u64>,
    replay: bool,
    durable_within: Option<f64>,
    synchronous: bool,
    discard: bool,
    pub(crate) umask: u32,
}

impl OpenArgs {
    /// # Errors
    /// `ValueError` for a value that has no meaning.
    pub(crate) fn options(&self) -> PyResult<OpenOptions> {
        let format = self.format.as_deref().map(str::parse::<Format>).transpose();
        let format = format.map_err(|unknown| PyValueError::new_err(unknown.to_string()))?;
        let mut backing = Backing::none();
        for allowed in &self.backing {
            backing = backing.allow(path(allowed));
        }
        let owned = |bytes: &PyBackedBytes| PathBuf::from(path(bytes));
        let mut image = ImageOptions::new();
        image.format(format).backing(backing);
        image.overlay(self.overlay.as_ref().map(owned));

        let mut volume = VolumeOptions::new();
        volume.journal(self.journal.as_ref().map(owned));
        volume.synchronous(self.synchronous).discard(self.discard);
        if let Some(seconds) = self.durable_within {
            let time = Duration::try_from_secs_f64(seconds);
            volume.durable_within(time.map_err(|wrong| PyValueError::new_err(wrong.to_string()))?);
        }
        let mut options = OpenOptions::new();
        options.write(self.write).image(&image).volume(&volume);
        options
            .partition(self.partition.clone())
            .offset(self.offset);
        options
            .cache_bytes(self.cache_bytes)
            .no_replay(!self.replay);
        Ok(options)
    }
}

/// Number, start, length, name, UUID, type; format, label and UUID of the volume in it.
type Described = (
    u32,
    u64,
    u64,
    String,
    String,
    String,
    Option<(String, String)>,
);

/// The table of partitions of an image: its kind, and the partitions. `None`: it has none.
#[pyfunction]
pub(crate) fn partitions(
    py: Python<'_>,
    image: PyBackedBytes,
) -> PyResult<Option<(&'static str, Vec<Described>)>> {
    let found = py.detach(|| throughline::partitions(path(&image)));
    let found = found.map_err(|failed: Error| error::of(&failed, &image))?;
    Ok(found.map(|table| {
        let partitions = table.partitions.into_iter().map(described);
        (table.kind, partitions.collect())
    }))
}

fn described(of: Partition) -> Described {
    let volume = of.volume.map(|volume| (volume.label, volume.uuid));
    (
        of.number,
        of.start_bytes,
        of.len_bytes,
        of.name,
        of.uuid,
        of.kind,
        volume,
    )
}

/// The length of the beginning of the name of an object in object storage, up to `://`; 0 for a path on the
/// host.
#[pyfunction]
pub(crate) fn scheme_length(image: PyBackedBytes) -> usize {
    object_scheme_bytes(&image).unwrap_or(0)
}
