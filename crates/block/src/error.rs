//! Errors of the block layer, and whether the caller or the device caused them.

use std::io;
use std::sync::Arc;

use throughline_device::{NoRoom, Op, is_no_room};

/// The result of a block-layer call.
pub type Result<T> = core::result::Result<T, Error>;

/// An error of the block layer. Cheap to clone, so that one failed bio can be reported to several callers.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller's request is invalid on any device.
    #[error("{op:?} of {len_bytes} bytes at device offset {offset_bytes}: {reason}")]
    Caller {
        /// The operation.
        op: Op,
        /// First byte on the device.
        offset_bytes: u64,
        /// Length of the request, in bytes.
        len_bytes: u64,
        /// What is wrong with it.
        reason: CallerFault,
    },
    /// The device or the system below it failed the operation.
    #[error("device error: {op:?} of {len_bytes} bytes at device offset {offset_bytes}: {source}")]
    Device {
        /// The operation.
        op: Op,
        /// First byte on the device.
        offset_bytes: u64,
        /// Length of the failed bio, in bytes.
        len_bytes: u64,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// The system refused what a request needs: a queue, a thread.
    #[error("{what}: {source}")]
    System {
        /// What was refused.
        what: &'static str,
        /// The system's error.
        source: Arc<io::Error>,
    },
}

/// Why a request was refused before it reached the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallerFault {
    /// Offset or length is not a multiple of the logical block size.
    #[error("not aligned to the device's logical block")]
    Misaligned,
    /// The memory's address is not a multiple of the device's memory alignment.
    #[error("memory not aligned as the device requires")]
    MemoryMisaligned,
    /// The range ends past the end of the device.
    #[error("past the end of the device")]
    OutOfRange,
    /// Two pieces of one batch of writes overlap, and their order is undefined.
    #[error("overlaps another write of the same batch")]
    Overlap,
    /// The device was opened for reading only.
    #[error("the device is read-only")]
    ReadOnly,
}

impl Error {
    /// The system refused something, which `what` names.
    pub fn system(what: &'static str, source: io::Error) -> Self {
        let source = Arc::new(source);
        Self::System { what, source }
    }

    /// Whether the device has no room for what was written: the file system that holds the image is full, or
    /// a limit is reached. Nothing was lost, and the operation can be repeated once there is room.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Device {
                op: Op::Flush,
                source,
                ..
            } => NoRoom::is_source_of(source),
            Self::Device { source, .. } => is_no_room(source),
            _ => false,
        }
    }

    /// A device error with the system's error as its source.
    pub fn device(op: Op, offset_bytes: u64, len_bytes: u64, source: io::Error) -> Self {
        Self::Device {
            op,
            offset_bytes,
            len_bytes,
            source: Arc::new(source),
        }
    }
}
