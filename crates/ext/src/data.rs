//! [`Data`], the contents of files: the page cache, the blocks on the device, and the transfer between them.
//!
//! It does not depend on names, attributes, or the freeing of inodes.
//!
//! Invariants:
//! - Blocks for data are claimed in memory, then written, and only then mapped.
//! - Space for data that is only in the page cache is reserved ([`crate::delayed`]).
//! - While a truncation to 0 is deferred, the disk keeps the complete old contents ([`crate::emptied`]).

use std::ops::Deref;
use std::sync::Arc;

use throughline_fileio::PageCache;

use crate::emptied::volume::OfVolume;
use crate::inode::Inodes;
use crate::options::OpenOptions;

/// The data of files: the layer above [`Inodes`].
pub struct Data {
    /// Cached data of files.
    pub(crate) cache: Arc<PageCache>,
    /// Files truncated to 0.
    pub(crate) emptied: OfVolume,
    pub(crate) synchronous: Synchronous,
    inodes: Inodes,
}

impl Deref for Data {
    type Target = Inodes;

    fn deref(&self) -> &Inodes {
        &self.inodes
    }
}

/// Which changes must be durable before the call returns ([`crate::synchronous`]).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Synchronous {
    pub(crate) everything: bool,
    pub(crate) names: bool,
}

impl Synchronous {
    pub(crate) fn new(options: &OpenOptions) -> Self {
        Self {
            everything: options.synchronous,
            names: options.synchronous || options.synchronous_names,
        }
    }
}

impl Data {
    pub(crate) fn new(inodes: Inodes, cache: Arc<PageCache>, options: &OpenOptions) -> Self {
        Self {
            cache,
            emptied: OfVolume::new(options.auto_da_alloc),
            synchronous: Synchronous::new(options),
            inodes,
        }
    }

    /// The page cache of the volume's files.
    pub fn cache(&self) -> &Arc<PageCache> {
        &self.cache
    }
}
