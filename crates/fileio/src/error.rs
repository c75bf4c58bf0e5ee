//! Errors between a file range and a device, classified by cause.

use std::sync::Arc;

/// The result of a file I/O call.
pub type Result<T> = core::result::Result<T, Error>;

/// An error of file I/O. Cheap to clone.
///
/// A file system's own error passes through this layer unchanged in [`Error::Mapper`]: wrap it with
/// [`Error::mapper`], get it back with [`Error::mapper_ref`].
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request cannot be carried out for the given reason.
    #[error(transparent)]
    Caller(#[from] Reason),
    /// The device failed, or does not support the request.
    #[error(transparent)]
    Device(#[from] throughline_block::Error),
    /// This kind of file or device does not support the operation.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// An impossible mapping: the volume is damaged.
    #[error("corrupt: {0}")]
    Corrupt(String),
    /// The mapper's error, in its own type.
    #[error("{0}")]
    Mapper(Arc<dyn std::error::Error + Send + Sync + 'static>),
}

/// Why a request cannot be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// No free blocks.
    #[error("no space left on the device")]
    NoSpace,
    /// The owner's limit of space is reached.
    #[error("disk quota exceeded")]
    Quota,
    /// The range ends past the maximum file size.
    #[error("file too large")]
    TooLarge,
    /// The file or its device is read-only.
    #[error("read-only")]
    ReadOnly,
    /// An argument is invalid.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
}

impl Error {
    /// Wraps a mapper's own error.
    pub fn mapper<E: std::error::Error + Send + Sync + 'static>(error: E) -> Self {
        Self::Mapper(Arc::new(error))
    }

    /// The mapper's own error, if it is of type `E`.
    pub fn mapper_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        match self {
            Self::Mapper(source) => source.downcast_ref(),
            _ => None,
        }
    }
}
