//! [`Failure`]: why an object cannot be opened or read, and whether it helps to try again.

use std::error::Error;
use std::io;
use std::time::Duration;

use crate::answers::{Refusal, Whole};
use crate::name::without_secrets;

/// The codes of stores for temporary credentials that do not hold any more.
const EXPIRED: [&str; 3] = ["ExpiredToken", "ExpiredTokenException", "InvalidToken"];

/// Why an object cannot be opened or read. No text holds credentials.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// It is another object than the one that was opened.
    #[error("the object was replaced since it was opened ({0}); open it again to read the new one")]
    Replaced(String),
    /// There is none.
    #[error("there is no such object")]
    NotFound,
    /// There is one, and it is not to be replaced.
    #[error("there is an object of that name")]
    Exists,
    /// The server does not accept the credentials, or there are none.
    #[error("the server denies access: credentials are missing, wrong or expired ({0})")]
    Denied(String),
    /// Nothing by which a changed object could be told from this one.
    #[error(
        "the server sends neither ETag nor Last-Modified: a change of the object would not be noticed"
    )]
    Unpinned,
    /// Only whole objects can be fetched from this server.
    #[error("the server does not serve parts of the object: copy it to a file first")]
    NoRanges,
    /// The server or the settings refuse the request.
    #[error("{0}")]
    Refused(String),
    /// No good answer in time.
    #[error("no good answer within {} s, in {attempts} attempts: {last}", patience.as_secs_f32())]
    Exhausted {
        /// The time.
        patience: Duration,
        /// How often it was tried.
        attempts: u32,
        /// Why the last attempt failed.
        last: String,
    },
}

impl Failure {
    /// For a caller that opens the object: with the kind that a file of the host would have.
    pub(crate) fn opening(self) -> io::Error {
        let kind = match &self {
            Failure::NotFound => io::ErrorKind::NotFound,
            Failure::Exists => io::ErrorKind::AlreadyExists,
            Failure::Denied(_) => io::ErrorKind::PermissionDenied,
            Failure::Unpinned | Failure::NoRanges => io::ErrorKind::Unsupported,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, self)
    }

    /// For a caller that reads an open object: an error of the device.
    pub(crate) fn reading(self) -> io::Error {
        io::Error::other(self)
    }
}

/// Why one attempt failed.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// It may succeed the next time.
    Again(String),
    Final(Failure),
}

impl From<object_store::Error> for Attempt {
    fn from(error: object_store::Error) -> Attempt {
        use object_store::Error as Kind;

        let text = chain(&error);
        if let Some(refusal) = cause::<Refusal>(&error) {
            return refused(refusal, text);
        }
        if cause::<Whole>(&error).is_some() {
            return Attempt::Final(Failure::NoRanges);
        }
        match error {
            Kind::NotFound { .. } => Attempt::Final(Failure::NotFound),
            Kind::AlreadyExists { .. } => Attempt::Final(Failure::Exists),
            Kind::Precondition { .. } | Kind::NotModified { .. } => {
                let why = "the server has another version".to_owned();
                Attempt::Final(Failure::Replaced(why))
            }
            Kind::PermissionDenied { .. } => Attempt::Final(Failure::Denied("status 403".into())),
            Kind::Unauthenticated { .. } => Attempt::Final(Failure::Denied("status 401".into())),
            // Of a server of HTTP that sent the whole object.
            Kind::NotSupported { .. } => Attempt::Final(Failure::NoRanges),
            Kind::InvalidPath { .. }
            | Kind::NotImplemented { .. }
            | Kind::UnknownConfigurationKey { .. } => Attempt::Final(Failure::Refused(text)),
            _ => Attempt::Again(text),
        }
    }
}

/// What an answer means that `object_store` has no error for.
fn refused(refusal: &Refusal, text: String) -> Attempt {
    let is_expired = |code: &str| EXPIRED.contains(&code);
    if refusal.code.as_deref().is_some_and(is_expired) {
        return Attempt::Final(Failure::Denied("the token is expired or invalid".into()));
    }
    let status = refusal.status;
    match status {
        408 | 425 | 429 | 500.. => Attempt::Again(text),
        412 => Attempt::Final(Failure::Replaced("status 412".into())),
        401 | 403 if refusal.is_of_object => {
            Attempt::Final(Failure::Denied(format!("status {status}")))
        }
        404 if refusal.is_of_object => Attempt::Final(Failure::NotFound),
        409 if refusal.is_of_object => Attempt::Final(Failure::Exists),
        _ => Attempt::Final(Failure::Refused(text)),
    }
}

/// The first cause of this type.
fn cause<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// An error with its causes, in one line of bounded length.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    let text = without_secrets(&text).replace(['\n', '\r'], " ");
    text.chars().take(300).collect()
}
