//! [`Alloc`] tracks which blocks and which inode numbers ([`crate::ialloc`]) of a volume are free, and
//! writes the superblock, which holds the counts of both.
//!
//! It allocates inode numbers; it does not depend on the contents of inodes.
//!
//! Invariants:
//! - The superblock is always written with the allocators' current counts.
//! - Only the primary superblock is written, as in the kernel. The backups stay as `mke2fs` or `e2fsck` left
//!   them.

use std::ops::Deref;
use std::sync::atomic::Ordering;

use throughline_extfmt::Superblock;
use throughline_extfmt::superblock::SUPERBLOCK_BYTES;
use throughline_journal::Tid;
use zerocopy::IntoBytes;

use crate::balloc::Blocks;
use crate::base::Access;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::ialloc::Ialloc;
use crate::sums::{SUPERBLOCK_PART, set_kbytes_written};

/// The allocators of blocks and inode numbers, and the superblock with their counts: the layer above
/// [`Blocks`].
pub struct Alloc {
    blocks: Blocks,
    pub(crate) ialloc: Ialloc,
}

impl Deref for Alloc {
    type Target = Blocks;

    fn deref(&self) -> &Blocks {
        &self.blocks
    }
}

impl Alloc {
    pub(crate) fn new(blocks: Blocks, ialloc: Ialloc) -> Self {
        Self { blocks, ialloc }
    }

    /// A copy of the superblock with the current free counts.
    pub fn superblock(&self) -> Superblock {
        let mut copy = *self.superblock.lock();
        self.put_counts(&mut copy);
        copy
    }

    /// Changes the superblock inside a handle (1 credit), and updates its free counts. Its checksum is
    /// computed when the transaction is sealed.
    ///
    /// # Errors
    /// Errors of the journal.
    pub(crate) fn update_super(
        &self,
        h: &mut Handle<'_>,
        edit: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        // Held while the buffer is changed, so that concurrent updates reach the buffer in the order of their
        // edits.
        let mut sb = self.superblock.lock();
        edit(&mut sb);
        self.put_counts(&mut sb);
        sb.set_wtime(self.now().seconds.max(0).cast_unsigned());
        let (block, at) = self.superblock_place();
        let sum = (SUPERBLOCK_PART, &self.sums.superblock);
        h.modify_part(
            block,
            sum,
            |_| Ok(()),
            |bytes| {
                if let Some(place) = bytes.get_mut(at..at + SUPERBLOCK_BYTES) {
                    place.copy_from_slice(sb.as_bytes());
                }
            },
        )
    }

    /// Updates the fields that change with every write of the superblock, for writing it directly.
    pub(crate) fn stamp(&self, sb: &mut Superblock) {
        self.put_counts(sb);
        sb.set_wtime(self.now().seconds.max(0).cast_unsigned());
        set_kbytes_written(sb, &self.disk, self.life.kbytes_at_open);
    }

    fn put_counts(&self, sb: &mut Superblock) {
        if self.access == Access::Write {
            sb.set_free_blocks_count(self.balloc.free_on_disk() << self.geo.cluster_ratio_log);
            sb.s_free_inodes_count.set(self.ialloc.free_inodes());
        }
    }

    /// Makes durable all metadata changes so far, and all data already written to the device.
    pub(crate) fn sync_metadata(&self) -> Result<()> {
        self.check_up()?;
        if self.is_read_only() {
            return Ok(());
        }
        self.check_mmp()?;
        let done = self
            .put_superblock()
            .and_then(|()| Ok(self.journal.sync()?));
        done.inspect_err(|_| self.note_stop())
    }

    /// Makes durable the changes of transaction `tid` and of all earlier ones, and all data already written
    /// to the device. Without a journal, everything else becomes durable as well.
    pub(crate) fn sync_through(&self, tid: Tid) -> Result<()> {
        self.check_up()?;
        if self.is_read_only() {
            return Ok(());
        }
        if !self.has_log() {
            return self.sync_metadata();
        }
        self.check_mmp()?;
        let done = self.journal.sync_through(tid).map_err(Error::from);
        done.inspect_err(|_| self.note_stop())
    }

    /// Writes the superblock in a transaction if it must reach the disk now: if errors were recorded, or if
    /// there is no journal and the counts changed. (With a journal, the counts are recomputed after a crash.)
    fn put_superblock(&self) -> Result<()> {
        let errors = self.take_pending_errors();
        let counts = !self.has_log() && self.changed.swap(false, Ordering::Relaxed);
        if !errors && !counts {
            return Ok(());
        }
        self.write_super(|_| ()).inspect_err(|_| {
            self.changed.store(true, Ordering::Relaxed);
            if errors {
                self.set_pending_errors();
            }
        })
    }

    /// Writes the superblock in a transaction of its own.
    pub(crate) fn write_super(&self, edit: impl FnOnce(&mut Superblock)) -> Result<()> {
        let mut h = Handle::begin(&self.journal, 1, 0)?;
        self.update_super(&mut h, edit)?;
        h.stop()
    }
}
