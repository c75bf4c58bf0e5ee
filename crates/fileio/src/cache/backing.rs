//! What the cache asks of the file that it caches: [`Backing`].

use std::sync::Arc;

use crate::cache::AddressSpace;
use crate::error::Result;
use crate::mapper::{Map, Mapper};

/// An open file as the cache sees it: its cached bytes, and the way to its blocks. It is kept alive while the file is
/// dirty, so what it needs to be written back it holds.
///
/// [`Map`] answers what is committed: `size_bytes` is the size on the device, not [`AddressSpace::size`]. It is asked under the
/// file's lock against truncation held shared, or between [`AddressSpace`]'s begin and end of background work.
pub trait Backing: Map {
    /// The file's cached bytes.
    fn space(&self) -> &AddressSpace;

    /// Promises room on the volume for every hole in the range, for the mapping's own blocks too, so that write-back
    /// cannot run out of it. The range is in whole allocation units.
    ///
    /// # Errors
    /// No space, and nothing is promised then; those of reading the mapping.
    fn reserve(&self, file_offset: u64, len: u64) -> Result<Holes>;

    /// Gives back what was promised for `units` allocation units and is not needed.
    fn unreserve(&self, units: u64);

    /// How much of what is dirty is to be written back as one run, from the first dirty block on: what is committed with it
    /// takes something else away. 0 where it does not matter.
    fn whole_bytes(&self) -> u64 {
        0
    }

    /// Whether somebody has it open, and may not be done with what is to be one run: it is not taken by turns then, unless
    /// somebody waits for room.
    fn is_open(&self) -> bool {
        false
    }

    /// A mapper for one run of write-back of the range, that owns what it needs. Its claims of new blocks take from what was
    /// promised: `claim` turns a promise into a claim, `commit` uses it up, `abandon` (or dropping it) turns it back into
    /// a promise. Several may be in use at once for ranges that do not overlap.
    ///
    /// # Errors
    /// When the volume takes no changes.
    fn writer(self: Arc<Self>, file_offset: u64, len: u64) -> Result<Box<dyn Mapper>>;
}

/// The holes in a range for which room is promised.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holes {
    /// File offset and length in bytes of each, ascending, in whole allocation units.
    pub runs: Vec<(u64, u64)>,
}
