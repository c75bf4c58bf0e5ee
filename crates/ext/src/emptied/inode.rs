//! The on-disk state of an inode that was truncated to 0 in memory only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use throughline_extfmt::{FsBlock, InodeImage};
use throughline_locks::Mutex;

use crate::quota::limit::Hold;

/// Most bytes of a rewritten file that are committed at once. Longer contents are split by write-back.
pub(crate) const WHOLE_BYTES: u64 = 8 << 20;

/// The on-disk state of an inode.
pub(super) struct Emptied {
    /// The inode as it was when it was truncated.
    pub(super) image: InodeImage,
    pub(super) data: Vec<(FsBlock, u32)>,
    pub(super) nodes: Vec<FsBlock>,
    /// Credits for freeing its blocks, and for its attribute block.
    pub(super) credits: u32,
    /// Its attribute block, if that has changed since.
    pub(super) list: Option<List>,
    /// Quota of its new owners, and of its attribute block.
    pub(super) held: [Option<Hold>; 2],
}

/// An attribute block that changed in memory only.
#[derive(Clone, Default)]
pub(crate) struct List {
    /// The block on disk. No other inode refers to it, nor will.
    pub(crate) old: Option<FsBlock>,
    /// The new contents of that block, or of the claimed one; `None` if all attributes of the block are gone.
    pub(crate) new: Option<Arc<[u8]>>,
    /// The run that was claimed because there is no old block.
    pub(crate) claimed: Option<(FsBlock, u32)>,
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

    /// The inode as it must be stored on disk, if that differs from `raw`: all as before the truncation,
    /// except what belongs to its names. The image lock is held. `early`: with a planted bug, attributes are
    /// new.
    pub(crate) fn shown(&self, raw: &InodeImage, early: bool) -> Option<InodeImage> {
        if !self.is_some() {
            return None;
        }
        let what = self.what.lock();
        let mut image = what.as_ref()?.image.clone();
        image.set_links_count(raw.links_count());
        image.set_dtime(raw.dtime());
        if early {
            image.set_mode(raw.mode());
            image.set_uid(raw.uid());
            image.set_gid(raw.gid());
        }
        Some(image)
    }

    /// Credits for carrying out the truncation; `None` if there is nothing to carry out.
    pub(crate) fn credits(&self) -> Option<u32> {
        if !self.is_some() {
            return None;
        }
        self.what.lock().as_ref().map(|old| old.credits)
    }

    /// Its attribute block, if that has changed since the truncation.
    pub(crate) fn list(&self) -> Option<List> {
        if !self.is_some() {
            return None;
        }
        self.what.lock().as_ref()?.list.clone()
    }

    /// Changes its attribute block, with the quota held if there was none. `image` changes the inode on disk.
    /// The mapping lock is held exclusively.
    pub(crate) fn set_list(
        &self,
        list: List,
        held: Option<Hold>,
        image: impl FnOnce(&mut InodeImage),
    ) {
        let mut what = self.what.lock();
        let Some(old) = what.as_mut() else { return };
        image(&mut old.image);
        let mut before = None;
        if held.is_some() || list.new.is_none() {
            before = std::mem::replace(&mut old.held[1], held);
        }
        old.list = Some(list);
        drop(what);
        drop(before);
    }

    /// Keeps the quota of new owners until they are charged.
    pub(crate) fn hold_owners(&self, held: Option<Hold>) {
        let mut what = self.what.lock();
        let before = match what.as_mut() {
            Some(old) => std::mem::replace(&mut old.held[0], held),
            None => held,
        };
        drop(what);
        drop(before);
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
