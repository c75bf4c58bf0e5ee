//! Pointers of a C caller as values of Rust: all `unsafe` operations of this crate.
//!
//! What the header requires of a caller, and the functions here rely on:
//! 1. A handle came from a function of this library, and was not closed or freed.
//! 2. Text ends with a NUL byte, and stays as it is during the call.
//! 3. Memory that is given with a length has that length, belongs to the caller, and is not used by anybody
//!    else during the call: not read either, if it is written.
//! 4. A pointer to a result points to memory for that type, aligned for it.
//!
//! The types here have no constructor: their values only come from such a caller. Rules 1 and 4 are those of
//! the references and boxes in the signatures. `tests/c.rs` runs C programs under valgrind.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::failure::Failure;

/// Text. Null is refused when it is used.
#[repr(transparent)]
pub struct Text<'a>(*const c_char, PhantomData<&'a CStr>);

/// Memory to read from.
#[repr(transparent)]
pub struct Memory<'a>(*const c_void, PhantomData<&'a [u8]>);

/// Memory to write to.
#[repr(transparent)]
pub struct MemoryMut<'a>(*mut c_void, PhantomData<&'a mut [u8]>);

impl<'a> Text<'a> {
    pub(crate) fn bytes(&self) -> Result<&'a [u8], Failure> {
        if self.0.is_null() {
            return Err(Failure::invalid("a text is NULL"));
        }
        // SAFETY: rule 2; not null.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }

    pub(crate) fn path(&self) -> Result<&'a Path, Failure> {
        Ok(Path::new(OsStr::from_bytes(self.bytes()?)))
    }

    /// Text in UTF-8.
    pub(crate) fn words(&self) -> Result<&'a str, Failure> {
        let not_utf8 = |_| Failure::invalid("a text is not UTF-8");
        std::str::from_utf8(self.bytes()?).map_err(not_utf8)
    }

    /// `None` for null.
    pub(crate) fn or_null(self) -> Option<Text<'a>> {
        (!self.0.is_null()).then_some(self)
    }
}

impl<'a> Memory<'a> {
    pub(crate) fn bytes(&self, len: usize) -> Result<&'a [u8], Failure> {
        if len == 0 {
            return Ok(&[]);
        }
        check(self.0, len)?;
        // SAFETY: rule 3; not null, and not longer than an object can be.
        Ok(unsafe { std::slice::from_raw_parts(self.0.cast(), len) })
    }
}

impl<'a> MemoryMut<'a> {
    pub(crate) fn bytes(self, len: usize) -> Result<&'a mut [u8], Failure> {
        if len == 0 {
            return Ok(&mut []);
        }
        check(self.0, len)?;
        // SAFETY: rule 3; not null, not longer than an object can be, and used once, as `self` is gone. What
        // C has not set is some bytes here: the memory is from outside of Rust.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0.cast(), len) })
    }
}

fn check(data: *const c_void, len: usize) -> Result<(), Failure> {
    match data.is_null() || isize::try_from(len).is_err() {
        true => Err(Failure::invalid("a buffer is NULL, or longer than memory")),
        false => Ok(()),
    }
}

/// A handle, or a place, that must not be null.
pub(crate) fn given<T>(pointer: Option<T>) -> Result<T, Failure> {
    pointer.ok_or_else(|| Failure::invalid("a handle, or the place of a result, is NULL"))
}

/// Copies to the beginning of memory of `len` bytes, and returns the length; with `len` 0, only that.
///
/// # Errors
/// `ERANGE` if it is longer.
pub(crate) fn copied(found: &[u8], to: MemoryMut<'_>, len: usize) -> Result<i64, Failure> {
    if len > 0 {
        let to = to.bytes(len)?.get_mut(..found.len());
        to.ok_or_else(Failure::too_long)?.copy_from_slice(found);
    }
    i64::try_from(found.len()).map_err(|_| Failure::too_long())
}
