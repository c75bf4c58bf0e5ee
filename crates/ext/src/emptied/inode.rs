//! The on-disk state of an inode that was truncated to 0 in memory only.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use throughline_extfmt::{FsBlock, Geometry, InodeImage};

/// Most bytes of a rewritten file that are committed at once. Longer contents are split by write-back.
pub(crate) const WHOLE_BYTES: u64 = 8 << 20;

/// The on-disk state of an inode.
pub(super) struct Emptied {
    /// `i_block`.
    pub(super) root: [u8; 60],
    pub(super) size: u64,
    /// The part of its block count that the mapping accounts for, in units of 512 bytes.
    pub(super) sectors: u64,
    pub(super) data: Vec<(FsBlock, u32)>,
    pub(super) nodes: Vec<FsBlock>,
    /// Credits for freeing its blocks.
    pub(super) credits: u32,
}

/// The slot for an [`Emptied`] in an inode in memory.
#[derive(Default)]
pub(crate) struct OfInode {
    /// Whether the slot is set; read without the lock.
    is: AtomicBool,
    what: Mutex<Option<Box<Emptied>>>,
}

impl OfInode {
    /// Whether the disk still shows the contents from before the truncation.
    pub(crate) fn is_some(&self) -> bool {
        self.is.load(Ordering::Acquire)
    }

    /// The inode as it must be stored on disk, if that differs from `raw`. The image lock is held.
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
        debug_assert!(
            is_counted,
            "the block count from before the truncation fits its field"
        );
        Some(image)
    }

    /// Credits for freeing the old blocks; `None` if there are none.
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
