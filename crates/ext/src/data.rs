//! [`Data`], the bytes of files: the page cache that they are in, the blocks where they are, and how the one comes to the
//! other.
//!
//! It takes inodes as they are, and knows of no name, no attribute, and no end of an inode.
//!
//! Invariants:
//! - Blocks of data are claimed in memory, written, and only then mapped.
//! - What is in the page cache and not on the device has its room put by ([`crate::delayed`]).
//! - While a file is emptied in memory only, the disk shows all of what it held before ([`crate::emptied`]).

use std::ops::Deref;
use std::sync::Arc;

use throughline_fileio::PageCache;

use crate::emptied::volume::OfVolume;
use crate::inode::Inodes;
use crate::options::OpenOptions;

/// The bytes of files: the layer above [`Inodes`].
pub struct Data {
    /// Cached data of files.
    pub(crate) cache: Arc<PageCache>,
    /// Files that were emptied.
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

/// What the volume's options demand of changes before their calls return ([`crate::synchronous`]).
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

    /// The page cache of its files.
    pub fn cache(&self) -> &Arc<PageCache> {
        &self.cache
    }
}
