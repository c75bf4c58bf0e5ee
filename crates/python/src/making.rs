//! `mkfs` and `pack`.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use throughline::archive::{self, Limits, Merge, Sources, Tree};
use throughline::pack::{PackOptions, PackSize, Packed, PartitionTable};
use throughline::{Made, MkfsConfig, MkfsError, MkfsOptions, VolumeSize};
use throughline_locks::{Mutex, MutexGuard};

use crate::error;
use crate::opening::path;

/// The options of a volume, under the names of the Python functions.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct VolumeArgs {
    fs_type: Option<String>,
    usage: Option<String>,
    block_size: Option<u32>,
    inode_size: Option<u32>,
    bytes_per_inode: Option<u64>,
    inodes: Option<u64>,
    reserved_percent: Option<f64>,
    label: Option<PyBackedBytes>,
    uuid: Option<PyBackedBytes>,
    hash_seed: Option<PyBackedBytes>,
    features: Option<String>,
    journal: Option<String>,
    extended: Option<String>,
    time: Option<u64>,
    overwrite: bool,
}

fn sixteen(bytes: &PyBackedBytes) -> PyResult<[u8; 16]> {
    let array = <[u8; 16]>::try_from(&bytes[..]);
    array.map_err(|_| PyValueError::new_err("16 bytes are needed"))
}

fn at(seconds: u64) -> PyResult<SystemTime> {
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
    time.ok_or_else(|| PyValueError::new_err("a time outside of the system's range"))
}

impl VolumeArgs {
    fn options(&self, image: &[u8]) -> PyResult<MkfsOptions> {
        let mut options = MkfsOptions::new();
        options.overwrite(self.overwrite);
        self.fs_type.as_deref().map(|name| options.fs_type(name));
        self.usage.as_deref().map(|names| options.usage(names));
        self.block_size.map(|bytes| options.block_bytes(bytes));
        self.inode_size.map(|bytes| options.inode_bytes(bytes));
        self.bytes_per_inode
            .map(|bytes| options.bytes_per_inode(bytes));
        self.inodes.map(|count| options.inodes(count));
        self.reserved_percent
            .map(|percent| options.reserved_percent(percent));
        self.label.as_ref().map(|label| options.label(label));
        if let Some(uuid) = &self.uuid {
            options.uuid(sixteen(uuid)?);
        }
        if let Some(seed) = &self.hash_seed {
            options.hash_seed(sixteen(seed)?);
        }
        if let Some(time) = self.time {
            options.time(at(time)?);
        }
        let wrong = |wrong: MkfsError| error::of_making(&wrong, image);
        if let Some(words) = &self.features {
            options.features(words).map_err(wrong)?;
        }
        if let Some(words) = &self.journal {
            options.journal_options(words).map_err(wrong)?;
        }
        if let Some(words) = &self.extended {
            options.extended(words).map_err(wrong)?;
        }
        Ok(options)
    }
}

/// Block size, blocks, inodes, free blocks, blocks of the journal, size of an inode, UUID, label, features.
type MadeTuple<'py> = (
    (u32, u64, u32, u64, u64, u16),
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Vec<String>,
);

fn described<'py>(py: Python<'py>, made: &Made) -> MadeTuple<'py> {
    (
        (
            made.block_bytes,
            made.blocks,
            made.inodes,
            made.free_blocks,
            made.journal_blocks,
            made.inode_bytes,
        ),
        PyBytes::new(py, &made.uuid),
        PyBytes::new(py, &made.label),
        made.features.clone(),
    )
}

/// Makes a volume. `size`: in bytes; `built_in`: the configuration that is built in, instead of the system's.
#[pyfunction]
pub(crate) fn mkfs<'py>(
    py: Python<'py>,
    image: PyBackedBytes,
    size: Option<u64>,
    built_in: bool,
    volume: VolumeArgs,
) -> PyResult<MadeTuple<'py>> {
    let mut options = volume.options(&image)?;
    if let Some(bytes) = size {
        options.size(VolumeSize::Bytes(bytes));
    }
    if built_in {
        options.config(MkfsConfig::built_in());
    }
    let made = py.detach(|| options.make(path(&image)));
    let made = made.map_err(|failed| error::of_making(&failed, &image))?;
    Ok(described(py, &made))
}

/// What is packed, and how.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PackArgs {
    /// Bytes, and whether they are free ones; `None`: as small as it can be.
    size: Option<(u64, bool)>,
    epoch: Option<u64>,
    owner: Option<(u32, u32)>,
    partition: bool,
    /// Called with each path, without a slash at its start: whether it is left out.
    exclude: Option<Py<PyAny>>,
}

/// Calls of Python from the threads that read the sources.
struct Exclude {
    call: Py<PyAny>,
    /// The first error of a call.
    failed: Mutex<Option<PyErr>>,
}

impl Exclude {
    fn is_match(&self, name: &[u8]) -> bool {
        let called = Python::attach(|py| {
            let answer = self.call.bind(py).call1((PyBytes::new(py, name),))?;
            answer.is_truthy()
        });
        called.unwrap_or_else(|failed| {
            self.first().get_or_insert(failed);
            true
        })
    }

    fn first(&self) -> MutexGuard<'_, Option<PyErr>> {
        self.failed.lock()
    }

    fn has_failed(&self) -> bool {
        self.first().is_some()
    }
}

/// Bytes of the image, directories, files, others, hard links, bytes of data.
type PackedTuple<'py> = (MadeTuple<'py>, (u64, u64, u64, u64, u64, u64));

/// Packs directories, archives and container images into a new image; later ones are laid over earlier
/// ones.
#[pyfunction]
pub(crate) fn pack<'py>(
    py: Python<'py>,
    sources: Vec<PyBackedBytes>,
    image: PyBackedBytes,
    volume: VolumeArgs,
    wanted: PackArgs,
) -> PyResult<PackedTuple<'py>> {
    let mut options = PackOptions::new();
    options
        .mkfs(volume.options(&image)?)
        .overwrite(volume.overwrite);
    options.size(match wanted.size {
        None => PackSize::Min,
        Some((bytes, false)) => PackSize::Exact(bytes),
        Some((bytes, true)) => PackSize::Free(bytes),
    });
    if let Some(seconds) = wanted.epoch {
        options.epoch(at(seconds)?);
    }
    let table = PartitionTable::Gpt { bootable: false };
    options.partition(wanted.partition.then_some(table));
    options
        .check_options()
        .map_err(|failed| error::of_making(&failed, &image))?;
    let exclude = wanted.exclude.map(|call| {
        Arc::new(Exclude {
            call,
            failed: Mutex::new(None),
        })
    });
    let packed = py.detach(|| {
        let mut merge = Merge::new(Limits::default());
        if let Ok(before) = path(&image).metadata() {
            merge.leave_out(&before);
        }
        if let Some(exclude) = exclude.clone() {
            merge.set_exclude(move |name| exclude.is_match(name));
        }
        let (mut tree, contents) = merged(merge, &sources)?;
        if exclude.as_ref().is_some_and(|exclude| exclude.has_failed()) {
            return Err(archive::Error::Stopped.into());
        }
        if let Some((uid, gid)) = wanted.owner {
            tree.set_owner(uid, gid);
        }
        options.pack(&tree, &contents, path(&image))
    });
    if let Some(failed) = exclude.and_then(|exclude| exclude.first().take()) {
        return Err(failed);
    }
    let packed = packed.map_err(|failed| error::of_making(&failed, &image))?;
    Ok((described(py, &packed.made), counts(&packed)))
}

fn merged(mut merge: Merge, sources: &[PyBackedBytes]) -> archive::Result<(Tree, Sources)> {
    for source in sources {
        merge.add(path(source))?;
    }
    Ok(merge.finish())
}

fn counts(packed: &Packed) -> (u64, u64, u64, u64, u64, u64) {
    (
        packed.bytes,
        packed.directories,
        packed.files,
        packed.others,
        packed.hard_links,
        packed.data_bytes,
    )
}
