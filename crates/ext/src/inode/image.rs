//! [`Image`]: the on-disk image of an inode in memory, and the number of its edits.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

use throughline_extfmt::{InodeImage, InodeNumber};
use throughline_locks::{Rank, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// See the head of this file.
pub(crate) struct Image {
    image: RwLock<InodeImage>,
    /// Increased by each edit of the image, of a directory's names and of extended attributes. Not by I/O of
    /// data: threads that write one file share no counter.
    edits: AtomicU32,
}

/// The image, locked shared.
pub(crate) type Shown<'a> = RwLockReadGuard<'a, InodeImage>;

/// The image, locked for an edit. The first mutable access counts the edit.
pub(crate) struct Edit<'a> {
    image: RwLockWriteGuard<'a, InodeImage>,
    of: &'a Image,
    is_counted: bool,
}

impl Image {
    pub(super) fn new(ino: InodeNumber, image: InodeImage) -> Self {
        Self {
            image: RwLock::numbered(Rank::Image, ino.0.into(), image),
            edits: AtomicU32::new(0),
        }
    }

    /// Not while this thread holds it: a thread that waits for an edit would stop both.
    pub(crate) fn read(&self) -> Shown<'_> {
        self.image.read()
    }

    pub(crate) fn write(&self) -> Edit<'_> {
        Edit {
            image: self.to_store(),
            of: self,
            is_counted: false,
        }
    }

    /// For storing the image: no attribute may be changed.
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

impl Deref for Edit<'_> {
    type Target = InodeImage;

    fn deref(&self) -> &InodeImage {
        &self.image
    }
}

impl DerefMut for Edit<'_> {
    fn deref_mut(&mut self) -> &mut InodeImage {
        if !self.is_counted {
            self.is_counted = true;
            self.of.count_edit();
        }
        &mut self.image
    }
}
