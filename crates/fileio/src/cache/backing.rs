//! The cache's interface to the file that it caches: [`Backing`].

use std::sync::Arc;

use crate::cache::AddressSpace;
use crate::error::Result;
use crate::mapper::{Map, Mapper};

/// An open file as the cache sees it: its cached bytes and the mapping to its blocks. The cache keeps it
/// alive while the file is dirty, so it must own everything that write-back needs.
///
/// [`Map`] answers from the committed state: `size_bytes` is the size on the device, not
/// [`AddressSpace::size`]. The cache calls it while the file's truncation lock is held shared, or from
/// background work on the [`AddressSpace`].
pub trait Backing: Map {
    /// The file's cached bytes.
    fn space(&self) -> &AddressSpace;

    /// Reserves space on the volume for every hole in the range and for the mapping's own blocks, so that
    /// write-back cannot run out of space. The range consists of whole allocation units.
    ///
    /// # Errors
    /// No space; errors of reading the mapping. On error nothing is reserved.
    fn reserve(&self, file_offset: u64, len: u64) -> Result<Holes>;

    /// As [`Backing::reserve`], for bytes that were stored when there was no space for them.
    ///
    /// # Errors
    /// The same.
    fn reserve_kept(&self, file_offset: u64, len: u64) -> Result<Holes> {
        self.reserve(file_offset, len)
    }

    /// Returns reservations for `units` allocation units that are not needed.
    fn unreserve(&self, units: u64);

    /// Number of dirty bytes, from the first dirty block on, that must be written back as one run, because
    /// its commit also removes something (blocks of a held-back truncation). 0 if any split is allowed.
    fn whole_bytes(&self) -> u64 {
        0
    }

    /// Whether the file is open, so that its user may still add to what is to be one run. The flusher then
    /// skips the file unless a writer waits for room.
    fn is_open(&self) -> bool {
        false
    }

    /// A mapper for the write-back of one run in the range; it owns what it needs. Its claims of new blocks
    /// are covered by reservations: `claim` turns a reservation into a claim, `commit` consumes it, `abandon`
    /// (or dropping the mapper) turns it back into a reservation. Several mappers may be in use at once for
    /// ranges that do not overlap.
    ///
    /// # Errors
    /// The volume takes no changes.
    fn writer(self: Arc<Self>, file_offset: u64, len: u64) -> Result<Box<dyn Mapper>>;
}

/// The holes in a range for which space is reserved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holes {
    /// File offset and length in bytes of each hole, ascending, in whole allocation units.
    pub runs: Vec<(u64, u64)>,
}
