//! The interface between the bytes of a file and those of the device: [`Map`] for reading, [`Mapper`] for
//! writing.
//!
//! A file system implements it for an open file; [`crate::RawFile`] maps a device onto itself. Direct I/O,
//! the page cache and write-back access the file system only through these traits and [`crate::Backing`].
//!
//! By construction, blocks are first *claimed* in memory, then the data is written to the device, and only
//! then are the claims *committed* to mapping, bitmap and size. So no crash exposes the previous contents of
//! a block.
//!
//! ```text
//!   claim ──► write data ──► commit          (success)
//!     └───────────┴────────► abandon         (error: the blocks are returned)
//! ```
//!
//! For direct I/O the caller holds the file's truncation lock (shared). A mapper locks its own structures
//! itself, only for the duration of one call, never across I/O of data.

use crate::error::Result;

/// A piece of a file as a reader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedExtent {
    /// Offset of the piece in the file; at most the requested offset.
    pub file_offset: u64,
    /// Length in bytes; covers at least one byte from the requested offset on.
    pub len: u64,
    /// Where the bytes are.
    pub target: Target,
}

/// Where the bytes of a [`MappedExtent`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Not allocated: the bytes read as zero.
    Hole,
    /// Allocated but never written: the bytes read as zero.
    Unwritten {
        /// Device offset of the piece.
        device_offset: u64,
    },
    /// Allocated and written.
    Data {
        /// Device offset of the piece.
        device_offset: u64,
    },
}

/// A piece of a file that may be written: the result of [`Mapper::claim`].
///
/// `New` and `Convert` claims cover whole allocation units ([`Map::block_bytes`]), so they may begin before
/// and end after the requested range; the writer fills the rest of the units with zeros. An `Overwrite` claim
/// ends on a unit boundary or at the end of the requested range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Offset of the piece in the file; at most the requested offset.
    pub file_offset: u64,
    /// Length in bytes; covers at least one byte from the requested offset on.
    pub len: u64,
    /// Device offset of the piece.
    pub device_offset: u64,
    /// State of the piece before the claim.
    pub kind: ClaimKind,
    /// For the mapper's use; passed back to `commit` or `abandon`.
    pub id: u64,
}

/// State of a piece before it was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimKind {
    /// Mapped and written: may be overwritten in place; needs no commit.
    Overwrite,
    /// Newly allocated in memory: bytes outside the written range must be zeroed.
    New,
    /// Mapped but unwritten: as `New`, but the commit converts the mapping instead of adding it.
    Convert,
}

/// The mapping of a file's bytes to the device. All offsets and lengths are in bytes.
pub trait Map: Send + Sync {
    /// Allocation unit in bytes: a multiple of the device's logical block (one logical block for a raw
    /// device), never 0.
    fn block_bytes(&self) -> u32;

    /// The file's size in bytes, as committed.
    fn size_bytes(&self) -> u64;

    /// The piece of the file that contains `file_offset` and extends at most `len` bytes (at least 1) past
    /// it. Ranges past the last block are holes.
    ///
    /// # Errors
    /// Those of reading the mapping.
    fn map(&self, file_offset: u64, len: u64) -> Result<MappedExtent>;
}

/// The mapping of one open file, for writing.
pub trait Mapper: Map {
    /// Makes the first piece of `file_offset..file_offset + len` writable (`len` is at least 1). New blocks
    /// are claimed in memory only: neither mapping nor bitmap contains them until `commit`, and no other
    /// caller gets them until `abandon`. A claim never extends past the last allocation unit that the range
    /// touches.
    ///
    /// Two writers may claim the same unallocated unit at once. The mapper grants it to one; the other waits
    /// until that claim is committed or abandoned, and then gets `Overwrite` or its own claim. To avoid
    /// deadlock, a writer claims in ascending file order.
    ///
    /// # Errors
    /// No space; file too large; the mapping cannot be read.
    fn claim(&self, file_offset: u64, len: u64) -> Result<Claim>;

    /// Commits claims whose data is on the device: their mapping, bitmap bits and, if given, the larger size
    /// enter one transaction. `Overwrite` claims among them are ignored. `new_size` never shrinks the file.
    ///
    /// # Errors
    /// Those of the journal and the mapping. On error the mapper itself returns the claims.
    fn commit(&self, claims: &[Claim], new_size: Option<u64>) -> Result<()>;

    /// Returns claimed blocks. Their data may or may not have been written.
    fn abandon(&self, claims: &[Claim]);
}
