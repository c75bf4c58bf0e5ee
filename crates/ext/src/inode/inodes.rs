//! [`Inodes`], the inodes of a volume: loading them by number, storing them in the inode table, and the lists
//! of orphans and of inodes with unsaved times.
//!
//! Invariants:
//! - There is at most one object for an inode number at a time ([`super::table`]).
//! - A freed inode is never stored again.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use throughline_extfmt::features::RoCompat;
use throughline_extfmt::inode::InodeFlags;
use throughline_extfmt::{FsBlock, InodeImage, InodeNumber};
use throughline_journal::{Part, Planted, Tid};

use super::Inode;
use super::table::InodeTable;
use crate::alloc::Alloc;
use crate::changes::Changes;
use crate::error::{Error, Reason, Result};
use crate::handle::Handle;
use crate::orphan::Orphans;
use crate::quota::charge;
use crate::times::Times;

/// Blocks of an inode table that are read at once, aligned: as the kernel does by default.
const AHEAD_BLOCKS: u32 = 32;

/// The inodes of a volume: the layer above [`Alloc`].
pub struct Inodes {
    alloc: Alloc,
    pub(crate) inodes: InodeTable,
    pub(crate) times: Times,
    pub(crate) orphans: Orphans,
}

impl Deref for Inodes {
    type Target = Alloc;

    fn deref(&self) -> &Alloc {
        &self.alloc
    }
}

impl Inodes {
    pub(crate) fn new(alloc: Alloc, times: Times) -> Self {
        Self {
            alloc,
            inodes: InodeTable::default(),
            times,
            orphans: Orphans::default(),
        }
    }

    /// The inode with this number. It is checked, with its checksum, when it is loaded from disk.
    ///
    /// # Errors
    /// `Corrupt` for a number that does not exist or an invalid inode; `NotFound` for a free one.
    pub fn inode(&self, ino: InodeNumber) -> Result<Arc<Inode>> {
        // Inodes in memory are available even after the volume was taken down.
        if let Some(inode) = self.inodes.get(ino) {
            return Ok(inode);
        }
        self.check_up()?;
        let place = self.inode_place(ino)?;
        if !self.journal.has(place.0) {
            self.read_table_ahead(ino)?;
        }
        // This read warms the cache without a lock. The read below, under the table's lock, is the one that
        // counts: in between, another thread may have created, changed and dropped the inode.
        let found = self.load_image(ino, place);
        self.note_damage(found)?;
        let inode = self.inodes.get_or_insert(ino, || {
            Ok(Inode::new(self, ino, self.load_image(ino, place)?, place))
        })?;
        charge::preload(self, &inode.usage);
        Ok(inode)
    }

    /// Inserts a new inode into the table (its number was free until now). The caller stores it in the same
    /// handle, once it has filled it.
    pub(crate) fn insert_inode(
        &self,
        h: &Handle<'_>,
        ino: InodeNumber,
        raw: InodeImage,
    ) -> Result<Arc<Inode>> {
        let place = self.inode_place(ino)?;
        let inode = Arc::new(Inode {
            made_in: Some(h.tid()),
            usage: charge::usage_of_new(self),
            ..Inode::new(self, ino, raw, place)
        });
        self.inodes.replace(&inode);
        Ok(inode)
    }

    /// Copies an inode's image into its block of the inode table (1 credit). Its checksum is computed when
    /// the transaction is sealed.
    ///
    /// # Errors
    /// Errors of the journal; `Corrupt` for an inode that was freed meanwhile.
    pub(crate) fn store(&self, h: &mut Handle<'_>, inode: &Inode) -> Result<()> {
        self.store_image(h, inode, Changes::note)
    }

    /// As [`Inodes::store`], if only times, owner or mode changed: `fdatasync` need not wait for it.
    ///
    /// # Errors
    /// As [`Inodes::store`].
    pub(crate) fn store_attributes(&self, h: &mut Handle<'_>, inode: &Inode) -> Result<()> {
        self.store_image(h, inode, Changes::note_attributes)
    }

    fn store_image(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        note: fn(&Changes, Tid),
    ) -> Result<()> {
        // Held while the buffer is changed, so that images reach it in the order in which they were made, and
        // none after the one that freed the inode: its slot may belong to another inode by then.
        let mut raw = inode.raw.to_store();
        if inode.is_freed() {
            return Err(Error::corrupt("a freed inode is in use").in_inode(inode.ino));
        }
        note(&inode.changes, h.tid());
        inode.flags.note(&raw);
        inode.times.stored();
        let early = self.journal.has_bug(Planted::AttributesFirst);
        let shown = inode.emptied.shown(&raw, early);
        let mut shown = shown.or_else(|| self.unused_value(&raw));
        let image = shown.as_mut().unwrap_or(&mut raw);
        let at = inode.table_offset;
        let part = self.part(inode.ino, at);
        h.modify_part(
            inode.table_block,
            (part, &self.sums.inode),
            |_| Ok(()),
            |block| {
                let bytes = image.as_bytes();
                if let Some(place) = block.get_mut(at..at.saturating_add(bytes.len())) {
                    place.copy_from_slice(bytes);
                }
            },
        )
        .map_err(|e| e.in_inode(inode.ino))?;
        let moved = match self.quotas.is_on() {
            true => inode.usage.store(charge::charge_of(self, inode.ino, image)),
            false => None,
        };
        drop(raw);
        match moved {
            Some(moved) => charge::charge(self, h, &inode.usage, moved),
            None => Ok(()),
        }
    }

    /// What is stored for an attribute value without users, which is an orphan: an ordinary unnamed inode.
    /// The kernel (6.4 to 6.18) takes an orphan with the flag of a value for damage. With quotas the flag
    /// stays, since it tells a recovery that the inode was not charged.
    fn unused_value(&self, raw: &InodeImage) -> Option<InodeImage> {
        let flags = raw.flags();
        let is_value = flags.contains(InodeFlags::EA_INODE) && !self.quotas.is_on();
        (is_value && raw.links_count() == 0).then(|| {
            let mut image = raw.clone();
            image.set_flags(flags - InodeFlags::EA_INODE);
            image
        })
    }

    /// An inode at byte `offset` of its block.
    fn part(&self, ino: InodeNumber, offset: usize) -> Part {
        let index = offset / usize::from(self.geo.inode_bytes).max(1);
        Part {
            index: index as u32,
            number: ino.0,
        }
    }

    /// Loads the block of an inode, so that [`Inodes::store`] cannot fail to read it.
    ///
    /// # Errors
    /// Device errors.
    pub(crate) fn load_inode_block(&self, inode: &Inode) -> Result<()> {
        self.read(inode.table_block).map(drop)
    }

    /// Frees the inode: stores its last image, and removes its object from the table.
    pub(crate) fn retire_inode(&self, h: &mut Handle<'_>, inode: &Inode) -> Result<()> {
        inode.usage.end();
        self.store(h, inode)?;
        {
            // Other code checks the flag and stores the image under this lock.
            let _raw = inode.raw.to_store();
            inode.freed.store(true, Ordering::Release);
        }
        self.inodes.remove(inode.ino);
        Ok(())
    }

    /// Reads the blocks of the inode table around an inode, as inodes of a directory are usually near each
    /// other and used together.
    fn read_table_ahead(&self, ino: InodeNumber) -> Result<()> {
        let Some((group, index)) = self.geo.inode_place(ino) else {
            return Ok(());
        };
        let (block, _) = self.geo.inode_in_table(index);
        let table = self.inode_table(group)?;
        let first = block - block % AHEAD_BLOCKS;
        let end = (first + AHEAD_BLOCKS).min(self.geo.inode_table_blocks);
        let blocks = (first..end).map(|block| FsBlock(table.0.saturating_add(block.into())));
        self.journal.readahead(&blocks.collect::<Vec<_>>());
        Ok(())
    }

    /// The inode's block in the inode table, and the offset in it.
    pub(crate) fn inode_place(&self, ino: InodeNumber) -> Result<(FsBlock, usize)> {
        let Some((group, index)) = self.geo.inode_place(ino) else {
            let what = format!(
                "inode {ino} does not exist; the last is {}",
                self.geo.inodes
            );
            return Err(Error::corrupt(what).in_inode(ino));
        };
        let (block, offset) = self.geo.inode_in_table(index);
        let table = self.inode_table(group)?;
        Ok((FsBlock(table.0.saturating_add(block.into())), offset))
    }

    /// Reads and checks an inode's image.
    fn load_image(
        &self,
        ino: InodeNumber,
        (block, offset): (FsBlock, usize),
    ) -> Result<InodeImage> {
        let end = offset.saturating_add(self.geo.inode_bytes.into());
        let image_in = |block: &[u8]| InodeImage::read(block.get(offset..end).unwrap_or_default());
        let bytes = self
            .read_part(block, self.part(ino, offset).index, |bytes| {
                image_in(bytes)?.verify_checksum(&self.geo, ino)
            })
            .map_err(|e| e.in_inode(ino))?;
        let corrupt =
            |what: throughline_extfmt::Corrupt| Error::from(what).in_inode(ino).in_block(block);
        let image = image_in(&bytes).map_err(corrupt)?;
        let reserved = ino < self.geo.first_ino && ino != InodeNumber::ROOT;
        if !reserved {
            // Nothing of a volume can be read without its root, so on a volume that is not written the root
            // is accepted even if it looks freed.
            let may_be_free = ino != InodeNumber::ROOT || !self.is_as_found();
            if may_be_free
                && image.links_count() == 0
                && (image.mode() == 0 || image.dtime() != 0 && !self.may_be_orphan(&image))
            {
                return Err(Reason::NotFound.into());
            }
            image.file_type().map_err(corrupt)?;
        }
        Ok(image)
    }

    /// Whether an inode without names but with a deletion time may be on the orphan list, where that field
    /// holds the number of the next orphan.
    fn may_be_orphan(&self, image: &InodeImage) -> bool {
        image.dtime() <= self.geo.inodes
    }

    /// The project ID of an inode; 0 if the volume does not support projects.
    pub fn project(&self, inode: &Inode) -> u32 {
        if self.geo.ro_compat.contains(RoCompat::PROJECT) {
            inode.raw.read().projid()
        } else {
            0
        }
    }
}
