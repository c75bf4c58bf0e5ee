//! `File`: an open file of a volume, with a position. The Python class `RawFile` wraps it.

use std::io::{self, Read, Seek, SeekFrom, Write};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PySlice};
use throughline::File as Open;
use throughline::internal::LendCached;

use crate::slot::Slot;
use crate::stat::{self, Stat};
use crate::{error, scratch};

/// `ENXIO`
const NO_SUCH_ADDRESS: i32 = 6;

/// An open file. Calls with the position run one at a time.
#[pyclass(frozen, module = "throughline._throughline")]
pub(crate) struct File {
    open: Slot<Open>,
}

impl File {
    pub(crate) fn new(open: Open) -> File {
        File {
            open: Slot::new("file", open),
        }
    }

    fn io<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut &Open) -> io::Result<R> + Send,
    ) -> PyResult<R> {
        let done = self.open.with(py, |mut open| call(&mut open))?;
        done.map_err(|failed| error::of_io(&failed))
    }

    fn call<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Open) -> throughline::Result<R> + Send,
    ) -> PyResult<R> {
        self.open
            .with(py, call)?
            .map_err(|failed| error::of(&failed, b""))
    }

    /// Bytes from the position to the end of the file.
    fn room(&self, py: Python<'_>) -> PyResult<usize> {
        let rest = self.io(py, |open| {
            let at = open.stream_position()?;
            Ok(open.size()?.saturating_sub(at))
        })?;
        Ok(usize::try_from(rest).unwrap_or(usize::MAX))
    }

    /// Copies from the volume's cache into a part of a buffer, if all of it is cached: without memory in
    /// between, and with the interpreter's lock held, which the buffer needs. Returns the number of bytes.
    ///
    /// Objects of Python are made before the cache is locked: making one may run any code of Python.
    fn copy_cached(&self, part: &Bound<'_, PyAny>, len: usize) -> PyResult<Option<usize>> {
        let py = part.py();
        let len = len as u64;
        let Some(pieces) = self.open.at_once(|open| open.pieces(len)) else {
            return Ok(None);
        };
        let mut buffers = Vec::with_capacity(pieces.len());
        let mut at = 0;
        for piece in pieces {
            buffers.push((piece, PyBuffer::<u8>::get(&slice(part, at, piece)?)?));
            at += piece;
        }
        let mut buffers = buffers.iter();
        let mut copy = |bytes: &[u8]| match buffers.next() {
            Some((len, buffer)) if *len == bytes.len() => buffer.copy_from_slice(py, bytes).is_ok(),
            _ => false,
        };
        Ok(self.open.at_once(|open| open.lend(len, &mut copy)))
    }

    fn write_bytes(&self, py: Python<'_>, data: &[u8]) -> PyResult<usize> {
        self.io(py, |open| open.write(data))
    }
}

#[pymethods]
impl File {
    /// Reads at the position into a buffer of bytes; less than its length only at the end of the file, or
    /// before an error, which the next call returns.
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyMemoryView>) -> PyResult<usize> {
        if PyBuffer::<u8>::get(buffer)?.readonly() {
            return Err(PyTypeError::new_err("the buffer is read-only"));
        }
        in_parts(buffer, |part, memory| {
            if let Some(read) = self.copy_cached(part, memory.len())? {
                return Ok(read);
            }
            let read = self.io(py, |open| open.read(memory))?;
            let into = match read == memory.len() {
                true => part.clone(),
                false => slice(part, 0, read)?,
            };
            PyBuffer::<u8>::get(&into)?.copy_from_slice(py, &memory[..read])?;
            Ok(read)
        })
    }

    /// Reads at most so many bytes at the position.
    fn read<'py>(&self, py: Python<'py>, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let wanted = self.room(py)?.min(size);
        if wanted <= scratch::MAX_BYTES {
            return scratch::with(wanted, |memory| {
                let read = self.io(py, |open| open.read(memory))?;
                Ok(PyBytes::new(py, &memory[..read]))
            });
        }
        let mut read = 0;
        // Nobody else has the new object, so it may be written without the interpreter's lock.
        let bytes = PyBytes::new_with(py, wanted, |memory| {
            read = self.io(py, |open| open.read(memory))?;
            Ok(())
        })?;
        match read == wanted {
            true => Ok(bytes),
            // It was truncated meanwhile.
            false => Ok(PyBytes::new(py, &bytes.as_bytes()[..read])),
        }
    }

    /// Writes at the position, or at the end of a file that is open for appending. Returns the number of
    /// bytes written, which is less than given only before an error, which the next call returns.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        if let Ok(bytes) = data.cast::<PyBytes>() {
            return self.write_bytes(py, bytes.as_bytes());
        }
        in_parts(data.cast::<PyMemoryView>()?, |part, memory| {
            PyBuffer::<u8>::get(part)?.copy_to_slice(py, memory)?;
            self.write_bytes(py, memory)
        })
    }

    /// Moves the position; `whence` as in `os`, `SEEK_DATA` and `SEEK_HOLE` among them.
    fn seek(&self, py: Python<'_>, offset: i64, whence: u32) -> PyResult<u64> {
        let from_start = u64::try_from(offset);
        let to = match (whence, from_start) {
            (0, Ok(offset)) => SeekFrom::Start(offset),
            (0, Err(_)) => {
                return Err(PyValueError::new_err(format!(
                    "negative seek position {offset}"
                )));
            }
            (1, _) => SeekFrom::Current(offset),
            (2, _) => SeekFrom::End(offset),
            (3 | 4, Ok(offset)) => {
                let found = self.call(py, |open| match whence {
                    3 => open.seek_data(offset),
                    _ => open.seek_hole(offset),
                })?;
                let none =
                    || PyOSError::new_err((NO_SUCH_ADDRESS, "no data, or no hole, from there on"));
                SeekFrom::Start(found.ok_or_else(none)?)
            }
            _ => return Err(PyValueError::new_err(format!("invalid whence: {whence}"))),
        };
        self.io(py, |open| open.seek(to))
    }

    /// The position.
    fn tell(&self, py: Python<'_>) -> PyResult<u64> {
        self.io(py, |open| open.stream_position())
    }

    /// Sets the length.
    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        self.call(py, |open| open.set_len(size))
    }

    /// Returns when data and size survive a crash; times too, unless `data_only`.
    fn fsync(&self, py: Python<'_>, data_only: bool) -> PyResult<()> {
        self.call(py, |open| match data_only {
            true => open.sync_data(),
            false => open.sync_all(),
        })
    }

    /// The length.
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, |open| open.size())
    }

    /// The metadata.
    fn stat(&self, py: Python<'_>) -> PyResult<Stat> {
        self.call(py, |open| Ok(stat::of(&open.metadata()?)))
    }

    /// Closes it, after the calls that use it. What was written stays in the volume's memory until it is
    /// written back.
    fn close(&self, py: Python<'_>) {
        self.open.close(py, drop);
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.open.is_closed()
    }
}

/// Calls with the parts of a view of bytes, each with memory of its length, until one is not done as a whole.
/// Returns how many bytes were done. An error after the first part is left to the next call.
fn in_parts(
    view: &Bound<'_, PyMemoryView>,
    mut call: impl FnMut(&Bound<'_, PyAny>, &mut [u8]) -> PyResult<usize>,
) -> PyResult<usize> {
    let len = view.len()?;
    let mut done = 0;
    while done < len {
        let wanted = scratch::MAX_BYTES.min(len - done);
        let part = match wanted == len {
            true => view.clone().into_any(),
            false => slice(view, done, wanted)?,
        };
        match scratch::with(wanted, |memory| call(&part, memory)) {
            Err(failed) if done == 0 => return Err(failed),
            Err(_) => break,
            Ok(some) => {
                done += some;
                if some < wanted {
                    break;
                }
            }
        }
    }
    Ok(done)
}

fn slice<'py>(view: &Bound<'py, PyAny>, begin: usize, len: usize) -> PyResult<Bound<'py, PyAny>> {
    let [begin, end] = [begin, begin + len].map(|at| isize::try_from(at).unwrap_or(isize::MAX));
    view.get_item(PySlice::new(view.py(), begin, end, 1))
}
