//! Errors of fetching an image.

use std::fmt;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What kind of error it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The name of the image is none.
    Reference,
    /// A file of credentials, or a program that keeps them, is not in order.
    Credentials,
    /// The registry does not allow this with these credentials, or without any.
    Unauthorized,
    /// The registry has no such image.
    NotFound,
    /// The registry cannot be reached, or the connection broke too often.
    Unreachable,
    /// The certificate of the registry is not trusted.
    Certificate,
    /// The registry has no TLS, or redirects to a place without it.
    Plain,
    /// The registry asks to come back later.
    Busy,
    /// The registry answered with something that it should not.
    Damaged,
    /// What is sent is larger than it may be.
    Limit,
    /// The registry has something that this version does not read.
    Unsupported,
    /// This machine failed: the temporary file.
    Local,
    /// The caller asked to stop.
    Stopped,
}

/// Why an image was not fetched.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    kind: Kind,
    text: String,
}

impl Error {
    pub(crate) fn new(kind: Kind, text: impl fmt::Display) -> Error {
        let text = text.to_string();
        Error { kind, text }
    }

    /// What kind it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl From<Error> for throughline_archive::Error {
    fn from(error: Error) -> throughline_archive::Error {
        match error.kind {
            Kind::Stopped => throughline_archive::Error::Stopped,
            _ => throughline_archive::Error::Caller(Box::new(error)),
        }
    }
}

/// Text of a registry for a message: on one line, without control characters, and cut.
pub(crate) fn shown(text: &str) -> String {
    const LONGEST: usize = 200;
    let clean = text.chars().map(|letter| match letter.is_control() {
        true => ' ',
        false => letter,
    });
    clean.take(LONGEST).collect::<String>().trim().to_owned()
}
