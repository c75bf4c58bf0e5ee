//! What can go wrong on the way between a file range and a device, and whose fault it is.

use std::sync::Arc;

/// The result of a file I/O call.
pub type Result<T> = core::result::Result<T, Error>;

/// An error of file I/O. Cheap to clone.
///
/// A file system's own error travels through this layer inside [`Error::Mapper`] and comes out as it went in: wrap it
/// with [`Error::mapper`], get it back with [`Error::mapper_ref`].
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked for something that cannot be.
    #[error(transparent)]
    Caller(#[from] Reason),
    /// The device failed, or was asked for something that it cannot do.
    #[error(transparent)]
    Device(#[from] throughline_block::Error),
    /// This kind of file or device does not offer the operation.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// A mapping that cannot be true: the volume is damaged.
    #[error("corrupt: {0}")]
    Corrupt(String),
    /// What the mapper said, in its own type.
    #[error("{0}")]
    Mapper(Arc<dyn std::error::Error + Send + Sync + 'static>),
}

/// What is wrong with a caller's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// No free blocks are left.
    #[error("no space left on the device")]
    NoSpace,
    /// The range ends behind what the file could ever hold.
    #[error("file too large")]
    TooLarge,
    /// The file or its device is read-only.
    #[error("read-only")]
    ReadOnly,
    /// It would have to wait, and was told not to.
    #[error("the call would block")]
    WouldBlock,
    /// An argument makes no sense.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
}

impl Error {
    /// Carries a mapper's own error through this layer.
    pub fn mapper<E: std::error::Error + Send + Sync + 'static>(error: E) -> Self {
        Self::Mapper(Arc::new(error))
    }

    /// The mapper's own error, if it is one and of this type.
    pub fn mapper_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        match self {
            Self::Mapper(source) => source.downcast_ref(),
            _ => None,
        }
    }
}
