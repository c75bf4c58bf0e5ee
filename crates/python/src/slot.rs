//! [`Slot`]: what is open until it is closed, and belongs to one process.
//!
//! Invariants:
//! - A call holds the slot shared, and closing takes it exclusively: it waits for the calls. Neither is done
//!   with the interpreter's lock held, so they cannot wait for each other.
//! - After a fork, the child has none of the threads that write back and commit, and shares the lock of the
//!   image with its parent. So it refuses every call on what its parent had opened, and forgets it instead
//!   of dropping it, which would write to the image.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::{PyErr, PyResult, Python, pyfunction};
use throughline_locks::{Rank, RwLock};

/// `EBADF`
const BAD_DESCRIPTOR: i32 = 9;

/// Forks that led to this process, since the module was loaded.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Called in the child after a fork.
#[pyfunction]
pub(crate) fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Why there is nothing in a slot.
enum Gone {
    Closed,
    Forked,
}

/// What is open.
pub(crate) struct Slot<T> {
    value: RwLock<Option<T>>,
    /// What it is called in errors.
    what: &'static str,
    /// [`FORKS`] when it was opened.
    forks: u32,
}

impl<T: Send + Sync> Slot<T> {
    pub(crate) fn new(what: &'static str, value: T) -> Slot<T> {
        Slot {
            value: RwLock::ranked(Rank::PythonValue, Some(value)),
            what,
            forks: FORKS.load(Ordering::Relaxed),
        }
    }

    fn is_of_this_process(&self) -> bool {
        self.forks == FORKS.load(Ordering::Relaxed)
    }

    /// Calls with the value, without the interpreter's lock.
    ///
    /// # Errors
    /// `ValueError` if it is closed, as for Python's own files; `OSError` (`EBADF`) in a forked process.
    pub(crate) fn with<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&T) -> R + Send,
    ) -> PyResult<R> {
        py.detach(|| self.shared(call))
            .map_err(|gone| self.error(gone))
    }

    fn shared<R>(&self, call: impl FnOnce(&T) -> R) -> Result<R, Gone> {
        if !self.is_of_this_process() {
            return Err(Gone::Forked);
        }
        let held = self.value.read();
        held.as_ref().map(call).ok_or(Gone::Closed)
    }

    /// Calls with the value, with the interpreter's lock held; `None` if that needs to wait, and if the
    /// value is gone. The call must not wait for anything.
    pub(crate) fn at_once<R>(&self, call: impl FnOnce(&T) -> Option<R>) -> Option<R> {
        if !self.is_of_this_process() {
            return None;
        }
        let held = self.value.try_read()?;
        held.as_ref().and_then(call)
    }

    /// As [`Slot::with`], with the value to itself.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn with_mut<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut T) -> R + Send,
    ) -> PyResult<R> {
        let exclusive = || {
            if !self.is_of_this_process() {
                return Err(Gone::Forked);
            }
            let mut held = self.value.write();
            held.as_mut().map(call).ok_or(Gone::Closed)
        };
        py.detach(exclusive).map_err(|gone| self.error(gone))
    }

    /// Takes the value out, and calls with it, without the interpreter's lock. `None`: it was closed before,
    /// or it belongs to another process.
    pub(crate) fn close<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(T) -> R + Send,
    ) -> Option<R> {
        py.detach(|| {
            if !self.is_of_this_process() {
                return None;
            }
            let mut held = self.value.write();
            let taken = held.take();
            drop(held);
            taken.map(call)
        })
    }

    /// Whether it is closed; in a forked process, also what its parent had opened.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared(|_| ()).is_err()
    }

    fn error(&self, gone: Gone) -> PyErr {
        match gone {
            Gone::Closed => PyValueError::new_err(format!("the {} is closed", self.what)),
            Gone::Forked => PyOSError::new_err((
                BAD_DESCRIPTOR,
                format!(
                    "the {} was opened before a fork, by the parent of this process",
                    self.what
                ),
            )),
        }
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        if self.forks != FORKS.load(Ordering::Relaxed) {
            let value = self.value.get_mut();
            std::mem::forget(value.take());
        }
    }
}
