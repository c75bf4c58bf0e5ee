//! Errors: a negative errno, and the text of the last one of each thread.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::io::Errno;
use throughline::internal::{errno_of, errno_of_making};
use throughline::{Error, MkfsError};

/// Why a call failed.
pub(crate) struct Failure {
    errno: i32,
    text: String,
}

impl Failure {
    pub(crate) fn new(errno: Errno, text: impl Into<String>) -> Failure {
        Failure {
            errno: errno.raw_os_error(),
            text: text.into(),
        }
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Failure {
        Failure::new(Errno::INVAL, text)
    }

    pub(crate) fn too_long() -> Failure {
        Failure::new(Errno::RANGE, "the memory for the result is too small")
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure {
            errno: errno_of(&error),
            text: error.to_string(),
        }
    }
}

impl From<MkfsError> for Failure {
    fn from(error: MkfsError) -> Failure {
        Failure {
            errno: errno_of_making(&error),
            text: error.to_string(),
        }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the body of a function: 0 or more on success, else a negative errno. A panic is `-EIO`.
pub(crate) fn run(body: impl FnOnce() -> Result<i64, Failure>) -> i64 {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::new(
            Errno::IO,
            format!("a defect of throughline: {}", said(&*panic)),
        ),
    };
    let text: Vec<u8> = failure.text.into_bytes();
    let text: Vec<u8> = text.into_iter().filter(|byte| *byte != 0).collect();
    // At the end of a thread, there may be nobody left to ask for it.
    let _ = LAST.try_with(|last| last.replace(CString::new(text).unwrap_or_default()));
    -i64::from(failure.errno.max(1))
}

/// As [`run`], for a function that returns nothing but success.
pub(crate) fn done(body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    let result = run(|| body().map(|()| 0));
    c_int::try_from(result).unwrap_or(-Errno::IO.raw_os_error())
}

/// Drops the object of a handle. A defect there does not reach the caller either.
pub(crate) fn freed<T>(object: Option<Box<T>>) {
    let _ = run(|| {
        drop(object);
        Ok(0)
    });
}

fn said(panic: &dyn std::any::Any) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    let owned = || panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(owned).unwrap_or("a panic")
}

/// What went wrong in the last call of this thread that returned a negative number. Never NULL. It is valid
/// until the next such call of this thread, or the thread's end.
#[unsafe(no_mangle)]
pub extern "C" fn tl_message() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn tl_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    CStr::from_bytes_with_nul(VERSION.as_bytes())
        .unwrap_or_default()
        .as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> String {
        LAST.with(|last| last.borrow().to_string_lossy().into_owned())
    }

    #[test]
    fn a_panic_is_an_error_of_the_call() {
        assert_eq!(done(|| panic!("nothing left")), -5);
        assert_eq!(message(), "a defect of throughline: nothing left");
    }

    #[test]
    fn a_message_is_of_its_thread_and_has_no_nul_inside() {
        assert_eq!(done(|| Err(Failure::invalid("a\0b"))), -22);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(message(), ""));
        });
        assert_eq!(message(), "ab");
        assert_eq!(done(|| Ok(())), 0);
        assert_eq!(message(), "ab", "success leaves it");
    }
}
