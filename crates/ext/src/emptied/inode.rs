//! What the disk still shows of one inode that was emptied in memory.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use throughline_extfmt::{FsBlock, Geometry, InodeImage};

/// So much of a file that is written anew is committed at once; a longer one is cut where it is written back.
pub(crate) const WHOLE_BYTES: u64 = 8 << 20;

/// What the disk still shows of an inode.
pub(super) struct Emptied {
    /// `i_block`.
    pub(super) root: [u8; 60],
    pub(super) size: u64,
    /// What of its blocks the mapping had, in units of 512 bytes.
    pub(super) sectors: u64,
    pub(super) data: Vec<(FsBlock, u32)>,
    pub(super) nodes: Vec<FsBlock>,
    /// What freeing it touches.
    pub(super) credits: u32,
}

/// The place for it in an inode in memory.
#[derive(Default)]
pub(crate) struct OfInode {
    /// Whether there is one; looked at without the lock.
    is: AtomicBool,
    what: Mutex<Option<Box<Emptied>>>,
}

impl OfInode {
    /// Whether the disk shows what the file held before it was emptied.
    pub(crate) fn is_some(&self) -> bool {
        self.is.load(Ordering::Acquire)
    }

    /// The inode as the disk has to show it, if that is not `raw`. The lock of the image is held.
    pub(crate) fn shown(&self, geo: &Geometry, raw: &InodeImage) -> Option<InodeImage> {
        if !self.is_some() {
            return None;
        }
        let what = self.what.lock();
        let old = what.as_ref()?;
        let mut image = raw.clone();
        *image.i_block_mut() = old.root;
        image.set_size_bytes(old.size);
        let sectors = raw.blocks_512(geo).saturating_add(old.sectors);
        let is_counted = image.set_blocks_512(geo, sectors);
        debug_assert!(is_counted, "as many blocks as before can be counted");
        Some(image)
    }

    /// Credits to free it; `None` where there is nothing.
    pub(crate) fn credits(&self) -> Option<u32> {
        if !self.is_some() {
            return None;
        }
        self.what.lock().as_ref().map(|old| old.credits)
    }

    pub(super) fn set(&self, old: Emptied) {
        *self.what.lock() = Some(Box::new(old));
        self.is.store(true, Ordering::Release);
    }

    pub(super) fn take(&self) -> Option<Box<Emptied>> {
        let taken = self.what.lock().take();
        self.is.store(false, Ordering::Release);
        taken
    }
}
