//! The seam between a file's bytes and the device's: [`Map`] to read, [`Mapper`] to write.
//!
//! A file system implements it for an open file; [`crate::RawFile`] is the mapping of a device onto itself. Everything
//! above (direct I/O, later the page cache and its write-back) knows no other face of the file system.
//!
//! Order, by construction: blocks are *claimed* in memory, the data goes to the device, and only then are the claims
//! *committed* into mapping, bitmap and size. So no crash shows what a block held before.
//!
//! ```text
//!   claim ──► write data ──► commit          (all well)
//!     └───────────┴────────► abandon         (an error: the blocks go back)
//! ```
//!
//! The caller of direct I/O holds the file's lock against truncation (shared); a mapper's own structures are the
//! mapper's to lock, for the time of one call and never across the device's work on the data.

use crate::error::Result;

/// A piece of a file as a reader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedExtent {
    /// First byte of the piece in the file; at most the offset that was asked for.
    pub file_offset: u64,
    /// Bytes; at least one byte behind the offset that was asked for.
    pub len: u64,
    /// Where the bytes are.
    pub target: Target,
}

/// Where the bytes of a [`MappedExtent`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Nowhere: they read as zero.
    Hole,
    /// Allocated but never written: they read as zero.
    Unwritten {
        /// Device byte of the piece's first byte.
        device_offset: u64,
    },
    /// On the device.
    Data {
        /// Device byte of the piece's first byte.
        device_offset: u64,
    },
}

/// A piece of a file that may be written: what [`Mapper::claim`] answers.
///
/// `New` and `Convert` claims cover whole allocation units ([`Map::block_bytes`]), so they may begin before and end
/// behind what was asked; the writer fills the rest of the units with zeroes. An `Overwrite` claim ends on the boundary
/// of a unit or where the asked range ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// First byte of the piece in the file; at most the offset that was asked for.
    pub file_offset: u64,
    /// Bytes; at least one byte behind the offset that was asked for.
    pub len: u64,
    /// Device byte of the piece's first byte.
    pub device_offset: u64,
    /// What the piece was before.
    pub kind: ClaimKind,
    /// The mapper's own, handed back in `commit` or `abandon`.
    pub id: u64,
}

/// What a claimed piece was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimKind {
    /// Mapped and written: the data may be overwritten in place, no commit needed.
    Overwrite,
    /// Freshly allocated in memory: its bytes outside the written range must become zero.
    New,
    /// Mapped but unwritten: as `New`, but committing converts it instead of mapping it.
    Convert,
}

/// Where the bytes of a file are. All offsets and lengths are bytes.
pub trait Map: Send + Sync {
    /// Allocation unit in bytes, a multiple of the device's logical block (one logical block for a raw device). Never 0.
    fn block_bytes(&self) -> u32;

    /// The file's size in bytes, as committed.
    fn size_bytes(&self) -> u64;

    /// The piece of the file that covers `file_offset`, at most `len` bytes behind it (`len` is at least 1). Ranges
    /// behind the last block are holes.
    ///
    /// # Errors
    /// Those of reading the mapping.
    fn map(&self, file_offset: u64, len: u64) -> Result<MappedExtent>;
}

/// The mapping of one open file, for writing.
pub trait Mapper: Map {
    /// Makes the first piece of `file_offset..file_offset + len` writable (`len` is at least 1). New blocks are claimed
    /// in memory only: neither mapping nor bitmap knows them until `commit`, and nobody else gets them until `abandon`.
    /// A claim never reaches past the last allocation unit that the range touches.
    ///
    /// Two writers may ask for the same missing allocation unit at once. The mapper answers one of them and lets the
    /// other wait until that claim is committed or abandoned (it then gets `Overwrite` or a claim of its own). So that
    /// this cannot deadlock, a writer claims in ascending file order.
    ///
    /// # Errors
    /// No space, a file too large, a mapping that cannot be read.
    fn claim(&self, file_offset: u64, len: u64) -> Result<Claim>;

    /// The data of `claims` is on the device: their mapping, bitmap bits and, where given, the larger size go into one
    /// transaction. `Overwrite` claims may be among them and mean nothing. `new_size` never makes a file smaller.
    ///
    /// # Errors
    /// Those of the journal and the mapping; the claims are then given back by the mapper itself.
    fn commit(&self, claims: &[Claim], new_size: Option<u64>) -> Result<()>;

    /// Gives claimed blocks back; their data may or may not have been written.
    fn abandon(&self, claims: &[Claim]);
}
