//! [`Image`]: the on-disk image of an inode in memory, and the number of its edits.

use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use throughline_extfmt::InodeImage;

/// See the head of this file.
pub(crate) struct Image {
    image: RwLock<InodeImage>,
    /// Increased before each edit of the image, of a directory's names and of extended attributes. Not by I/O
    /// of data: threads that write one file share no counter.
    edits: AtomicU32,
}

impl Image {
    pub(super) fn new(image: InodeImage) -> Self {
        Self {
            image: RwLock::new(image),
            edits: AtomicU32::new(0),
        }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, InodeImage> {
        self.image.read()
    }

    /// For an edit, which is counted.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, InodeImage> {
        self.count_edit();
        self.image.write()
    }

    /// For storing the image. No attribute may be changed.
    pub(super) fn to_store(&self) -> RwLockWriteGuard<'_, InodeImage> {
        self.image.write()
    }

    /// Call before an edit of something that belongs to the inode and is not in its image.
    pub(crate) fn count_edit(&self) {
        self.edits.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of edits so far, modulo 2^32. Exact for the edits of the calling thread.
    pub(super) fn edits(&self) -> u32 {
        self.edits.load(Ordering::Relaxed)
    }
}
