//! What can go wrong in the block layer, and whose fault it is.

use std::io;
use std::sync::Arc;

use throughline_device::Op;

/// The result of a block-layer call.
pub type Result<T> = core::result::Result<T, Error>;

/// An error of the block layer. Cheap to clone, so that one failed bio can answer several callers.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked for something that no device could do.
    #[error("{op:?} of {len_bytes} bytes at device offset {offset_bytes}: {reason}")]
    Caller {
        /// What was asked.
        op: Op,
        /// First byte on the device.
        offset_bytes: u64,
        /// Bytes asked for.
        len_bytes: u64,
        /// Why it cannot be.
        reason: CallerFault,
    },
    /// The device, or the system below it, failed the operation.
    #[error("device error: {op:?} of {len_bytes} bytes at device offset {offset_bytes}: {source}")]
    Device {
        /// What failed.
        op: Op,
        /// First byte on the device.
        offset_bytes: u64,
        /// Bytes of the failed bio.
        len_bytes: u64,
        /// What the system said.
        source: Arc<io::Error>,
    },
}

/// Why a request was refused before it reached the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallerFault {
    /// Offset or length is no multiple of the logical block.
    #[error("not aligned to the device's logical block")]
    Misaligned,
    /// Memory is no multiple of the device's memory alignment.
    #[error("memory not aligned as the device needs it")]
    MemoryMisaligned,
    /// The range ends behind the end of the device.
    #[error("past the end of the device")]
    OutOfRange,
    /// Two pieces of one batch of writes overlap: no order is defined between them.
    #[error("overlaps another write of the same batch")]
    Overlap,
    /// The device was opened for reading only.
    #[error("the device is read-only")]
    ReadOnly,
}

impl Error {
    /// A device error, from what the system said.
    pub fn device(op: Op, offset_bytes: u64, len_bytes: u64, source: io::Error) -> Self {
        Self::Device {
            op,
            offset_bytes,
            len_bytes,
            source: Arc::new(source),
        }
    }
}
