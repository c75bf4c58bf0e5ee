//! The only error of this crate: bytes that the format does not allow.

use std::fmt;

/// Result of a parser.
pub type Result<T> = core::result::Result<T, Corrupt>;

/// Bytes that violate the format. Opaque; the text names the rule and the value found.
///
/// It does not contain the inode or block: the caller, who read the bytes, adds them.
#[derive(Clone, PartialEq, Eq)]
pub struct Corrupt(Box<str>);

impl Corrupt {
    /// An error saying `what` (no capital letter, no full stop).
    #[cold]
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into().into_boxed_str())
    }

    /// The description of the error.
    pub fn what(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Corrupt({:?})", self.0)
    }
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Corrupt {}

/// Returns early with a [`Corrupt`] unless a condition holds.
macro_rules! ensure {
    ($cond:expr, $($arg:tt)+) => {
        if !$cond {
            return Err($crate::Corrupt::new(format!($($arg)+)));
        }
    };
}
pub(crate) use ensure;
