//! `Volume`: the calls by path. The Python class of the same name wraps it.

use std::os::unix::ffi::OsStrExt;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use throughline::internal::from_epoch;
use throughline::{
    Attributes, Dir, DirBuilder, FileOptions, RenameMode, Result, Volume as Open, XattrMode, Xattrs,
};

use crate::error;
use crate::file::File;
use crate::listing::Listing;
use crate::opening::{OpenArgs, path};
use crate::slot::Slot;
use crate::stat::{self, Stat, Time};

/// An open volume. Paths are bytes, from its root.
#[pyclass(frozen, module = "throughline._throughline")]
pub(crate) struct Volume {
    open: Slot<Open>,
    umask: u32,
}

/// Block size, blocks, free blocks, available blocks, inodes, free inodes, ID, longest name.
type Space = (u32, u64, u64, u64, u32, u32, u64, u32);

/// How a file is opened.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct FileArgs {
    read: bool,
    write: bool,
    create: bool,
    create_new: bool,
    truncate: bool,
    append: bool,
    direct: bool,
    sync: bool,
    permissions: u32,
}

/// What is set; what is `None` stays.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct SetArgs {
    permissions: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    accessed: Option<Time>,
    modified: Option<Time>,
    now: bool,
}

impl Volume {
    /// Calls with the volume. Errors are of `path`.
    fn call<R: Send>(
        &self,
        py: Python<'_>,
        path: &[u8],
        call: impl FnOnce(&Open) -> Result<R> + Send,
    ) -> PyResult<R> {
        self.open
            .with(py, call)?
            .map_err(|failed| error::of(&failed, path))
    }

    /// Attributes of what is created.
    fn new_attributes(&self, permissions: u32) -> Attributes {
        Attributes::new().mode(permissions).umask(self.umask)
    }
}

fn xattrs(volume: &Dir, at: &[u8], follow: bool) -> Result<Xattrs> {
    match follow {
        true => volume.xattrs(path(at)),
        false => Ok(volume.node(path(at))?.xattrs()),
    }
}

#[pymethods]
impl Volume {
    #[new]
    fn new(py: Python<'_>, image: PyBackedBytes, options: OpenArgs) -> PyResult<Volume> {
        let open = options.options()?;
        let opened = py.detach(|| open.open(path(&image)));
        let opened = opened.map_err(|failed| error::of(&failed, &image))?;
        Ok(Volume {
            open: Slot::new("volume", opened),
            umask: options.umask,
        })
    }

    /// Makes all durable and closes it, after the calls that use it. Its files and listings must be closed
    /// before.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.open.close(py, Open::close) {
            Some(Err(failed)) => Err(error::of(&failed, b"")),
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.open.is_closed()
    }

    /// Whether it is read-only, and why if it was to be written to.
    fn read_only(&self, py: Python<'_>) -> PyResult<(bool, Option<String>)> {
        self.call(py, b"", |volume| {
            let is = volume.is_read_only();
            let why = match is {
                true => volume.info()?.read_only_reason,
                false => None,
            };
            Ok((is, why))
        })
    }

    /// Format, label, UUID, features.
    fn describe(&self, py: Python<'_>) -> PyResult<(&'static str, String, String, Vec<String>)> {
        self.call(py, b"", |volume| {
            let info = volume.info()?;
            Ok((info.format, info.label, info.uuid, info.features))
        })
    }

    /// Returns when all changes so far survive a crash.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, b"", |volume| volume.sync())
    }

    /// Returns when the names of a directory survive a crash.
    fn sync_directory(&self, py: Python<'_>, at: PyBackedBytes) -> PyResult<()> {
        self.call(py, &at, |volume| volume.open_dir(path(&at))?.sync())
    }

    /// The space.
    fn statvfs(&self, py: Python<'_>) -> PyResult<Space> {
        self.call(py, b"", |volume| {
            let space = volume.stat_fs()?;
            Ok((
                space.block_bytes,
                space.blocks,
                space.free_blocks,
                space.available_blocks,
                space.inodes,
                space.free_inodes,
                space.fsid,
                space.name_max,
            ))
        })
    }

    /// The metadata of what is at a path.
    fn stat(&self, py: Python<'_>, at: PyBackedBytes, follow: bool) -> PyResult<Stat> {
        self.call(py, &at, |volume| {
            let meta = match follow {
                true => volume.metadata(path(&at)),
                false => volume.symlink_metadata(path(&at)),
            };
            Ok(stat::of(&meta?))
        })
    }

    /// The names of a directory.
    fn scandir(&self, py: Python<'_>, at: PyBackedBytes) -> PyResult<Listing> {
        let names = self.call(py, &at, |volume| volume.read_dir(path(&at)))?;
        Ok(Listing::new(names, &at))
    }

    /// Opens a regular file.
    fn open(&self, py: Python<'_>, at: PyBackedBytes, options: FileArgs) -> PyResult<File> {
        let mut open = FileOptions::new();
        open.read(options.read)
            .write(options.write)
            .create(options.create)
            .create_new(options.create_new)
            .truncate(options.truncate)
            .append(options.append)
            .direct(options.direct)
            .sync(options.sync)
            .attributes(self.new_attributes(options.permissions));
        let opened = self.call(py, &at, |volume| open.open(volume, path(&at)))?;
        Ok(File::new(opened))
    }

    /// Makes a directory.
    fn mkdir(&self, py: Python<'_>, at: PyBackedBytes, permissions: u32) -> PyResult<()> {
        let mut builder = DirBuilder::new();
        builder.attributes(self.new_attributes(permissions));
        self.call(py, &at, |volume| {
            builder.create(volume, path(&at)).map(drop)
        })
    }

    /// Makes a symbolic link.
    fn symlink(&self, py: Python<'_>, target: PyBackedBytes, at: PyBackedBytes) -> PyResult<()> {
        self.call(py, &at, |volume| volume.symlink(path(&target), path(&at)))
    }

    /// The target of a symbolic link.
    fn readlink<'py>(&self, py: Python<'py>, at: PyBackedBytes) -> PyResult<Bound<'py, PyBytes>> {
        let target = self.call(py, &at, |volume| volume.read_link(path(&at)))?;
        Ok(PyBytes::new(py, target.as_os_str().as_bytes()))
    }

    /// Makes a hard link; a symbolic link is linked itself.
    fn link(&self, py: Python<'_>, from: PyBackedBytes, to: PyBackedBytes) -> PyResult<()> {
        self.call(py, &from, |volume| volume.hard_link(path(&from), path(&to)))
    }

    /// Removes the name of anything but a directory.
    fn unlink(&self, py: Python<'_>, at: PyBackedBytes) -> PyResult<()> {
        self.call(py, &at, |volume| volume.remove_file(path(&at)))
    }

    /// Removes an empty directory.
    fn rmdir(&self, py: Python<'_>, at: PyBackedBytes) -> PyResult<()> {
        self.call(py, &at, |volume| volume.remove_dir(path(&at)))
    }

    /// Removes a directory and all below it.
    fn rmtree(&self, py: Python<'_>, at: PyBackedBytes) -> PyResult<()> {
        self.call(py, &at, |volume| volume.remove_dir_all(path(&at)))
    }

    /// Renames, at once; what is at the new name is replaced, unless `keep`.
    fn rename(
        &self,
        py: Python<'_>,
        from: PyBackedBytes,
        to: PyBackedBytes,
        keep: bool,
    ) -> PyResult<()> {
        let mode = match keep {
            true => RenameMode::NoReplace,
            false => RenameMode::Replace,
        };
        self.call(py, &from, |volume| {
            volume.rename_with(path(&from), path(&to), mode)
        })
    }

    /// Copies contents and permissions of a regular file.
    fn copy(&self, py: Python<'_>, from: PyBackedBytes, to: PyBackedBytes) -> PyResult<u64> {
        self.call(py, &from, |volume| volume.copy(path(&from), path(&to)))
    }

    /// Sets permissions, owner or times.
    fn set(
        &self,
        py: Python<'_>,
        at: PyBackedBytes,
        follow: bool,
        wanted: SetArgs,
    ) -> PyResult<()> {
        let mut set = Attributes::new();
        if let Some(permissions) = wanted.permissions {
            set = set.mode(permissions);
        }
        if let Some(uid) = wanted.uid {
            set = set.uid(uid);
        }
        if let Some(gid) = wanted.gid {
            set = set.gid(gid);
        }
        let time = |(seconds, nanoseconds)| {
            let outside = || PyValueError::new_err("a time outside of the system's range");
            from_epoch(seconds, nanoseconds).ok_or_else(outside)
        };
        if let Some(accessed) = wanted.accessed {
            set = set.accessed(time(accessed)?);
        }
        if let Some(modified) = wanted.modified {
            set = set.modified(time(modified)?);
        }
        if wanted.now {
            set = set.accessed_now().modified_now();
        }
        self.call(py, &at, |volume| match follow {
            true => volume.set_attributes(path(&at), &set),
            false => volume.set_symlink_attributes(path(&at), &set),
        })
    }

    /// The value of an extended attribute; `None` if there is none.
    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        at: PyBackedBytes,
        name: PyBackedBytes,
        follow: bool,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let value = self.call(py, &at, |volume| xattrs(volume, &at, follow)?.get(&name))?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    /// The names of all extended attributes.
    fn listxattr<'py>(
        &self,
        py: Python<'py>,
        at: PyBackedBytes,
        follow: bool,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let names = self.call(py, &at, |volume| xattrs(volume, &at, follow)?.names())?;
        Ok(names.iter().map(|name| PyBytes::new(py, name)).collect())
    }

    /// Sets an extended attribute; `flags` as of setxattr(2).
    fn setxattr(
        &self,
        py: Python<'_>,
        at: PyBackedBytes,
        name: PyBackedBytes,
        value: PyBackedBytes,
        flags: u32,
        follow: bool,
    ) -> PyResult<()> {
        let mode = match flags {
            0 => XattrMode::Either,
            1 => XattrMode::Create,
            2 => XattrMode::Replace,
            _ => return Err(PyValueError::new_err(format!("invalid flags: {flags}"))),
        };
        self.call(py, &at, |volume| {
            xattrs(volume, &at, follow)?.set_with(&name, &value, mode)
        })
    }

    /// Removes an extended attribute.
    fn removexattr(
        &self,
        py: Python<'_>,
        at: PyBackedBytes,
        name: PyBackedBytes,
        follow: bool,
    ) -> PyResult<()> {
        self.call(py, &at, |volume| xattrs(volume, &at, follow)?.remove(&name))
    }
}
