//! Errors of reading sources and of writing a tar.

use std::fmt;
use std::io;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a source was not read, or a tar not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked for something that does not exist or is not allowed.
    #[error("{0}")]
    Invalid(String),
    /// The source uses something that this version does not read, by its name.
    #[error("{0}")]
    Unsupported(String),
    /// The source is damaged, incomplete or hostile. The text says what is wrong, and where.
    #[error("{place}: {problem}")]
    Damaged {
        /// The source, and the place in it where one is known.
        place: String,
        /// What is wrong there.
        problem: String,
    },
    /// The source needs more than the caller's [`Limits`](crate::Limits) allow.
    #[error("{place}: {problem}")]
    Limit {
        /// The source, and the place in it where one is known.
        place: String,
        /// The limit, by name and value.
        problem: String,
    },
    /// A file of a source changed while it was read.
    #[error("{0}: changed while it was read; run again when it no longer changes")]
    Changed(String),
    /// Reading or writing failed.
    #[error("{place}: {source}")]
    Io {
        /// What was read or written.
        place: String,
        /// The reason.
        source: io::Error,
    },
    /// The caller asked to stop.
    #[error("stopped")]
    Stopped,
    /// What the caller's own visitor or source returned.
    #[error(transparent)]
    Caller(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    pub(crate) fn damaged(place: impl fmt::Display, problem: impl fmt::Display) -> Error {
        Error::Damaged {
            place: place.to_string(),
            problem: problem.to_string(),
        }
    }

    pub(crate) fn limit(place: impl fmt::Display, problem: impl fmt::Display) -> Error {
        Error::Limit {
            place: place.to_string(),
            problem: problem.to_string(),
        }
    }

    pub(crate) fn io(place: impl fmt::Display, source: impl Into<io::Error>) -> Error {
        Error::Io {
            place: place.to_string(),
            source: source.into(),
        }
    }

    /// The same error, with where it happened in front of its place.
    pub(crate) fn within(self, outer: &str) -> Error {
        match self {
            Error::Damaged { place, problem } => {
                Error::damaged(format_args!("{outer}: {place}"), problem)
            }
            Error::Limit { place, problem } => {
                Error::limit(format_args!("{outer}: {place}"), problem)
            }
            Error::Invalid(text) => Error::Invalid(format!("{outer}: {text}")),
            Error::Unsupported(text) => Error::Unsupported(format!("{outer}: {text}")),
            Error::Io { place, source } => Error::io(format_args!("{outer}: {place}"), source),
            Error::Changed(_) | Error::Stopped | Error::Caller(_) => self,
        }
    }
}

/// A name or path for a message: quoted, escaped and cut.
pub(crate) fn shown(name: &[u8]) -> String {
    const LONGEST: usize = 200;
    if name.len() <= LONGEST {
        format!("\"{}\"", name.escape_ascii())
    } else {
        format!(
            "\"{}...\" ({} bytes)",
            name[..LONGEST].escape_ascii(),
            name.len()
        )
    }
}
