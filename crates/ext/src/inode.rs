//! Inodes in memory: the object, its locks, and how its image goes to and from the inode table.
//!
//! [`Inode::raw`] is the on-disk inode, byte for byte, and the only truth about an inode: attributes are read from it and
//! written to it, and [`Fs::store`] puts it into its block of the inode table inside a handle. So an inode that nobody
//! holds may leave memory at any time ([`InodeTable`]), as long as it was stored; where times are not, [`crate::times`]
//! holds it.

mod make;
mod table;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use throughline_extfmt::inode::FileType;
use throughline_extfmt::{FsBlock, InodeImage, InodeNumber};
use throughline_fileio::{FileAlone, FileLock, FileShared};
use throughline_journal::Tid;

use crate::cached::Cached;
use crate::changes::Changes;
use crate::delayed::Delayed;
use crate::dir;
use crate::emptied;
use crate::error::{Error, Reason, Result};
use crate::flags::Seen;
use crate::fs::Fs;
use crate::handle::Handle;
use crate::lock_order::{Held, Rank, locked};
use crate::times;

pub(crate) use table::InodeTable;

/// In the count of open files: it is being freed.
const CLOSED_FOR_GOOD: u32 = u32::MAX;

/// An inode in use. There is at most one object of a number at a time.
pub struct Inode {
    /// Its number.
    pub ino: InodeNumber,
    /// Its type, which never changes; `None` for the reserved inodes that have none.
    pub(crate) kind: Option<FileType>,
    /// I/O holds it shared; truncate, punch, collapse and insert hold it exclusively.
    io: FileLock,
    /// A directory's contents: lookups share it, changes are alone.
    dir: RwLock<()>,
    /// What is known of a directory's index.
    pub(crate) index: dir::Index,
    /// The block mapping (`i_block` and the blocks below it). Taken after the handle is begun.
    map: RwLock<()>,
    /// The on-disk inode. Nothing is locked below it but the buffer of its block, in [`Fs::store`].
    pub(crate) raw: RwLock<InodeImage>,
    /// The checksum seed of its blocks, where the volume has checksums. It does not change while the inode lives.
    pub(crate) csum_seed: Option<u32>,
    /// Its flags, as they were stored last.
    pub(crate) flags: Seen,
    /// What is known of its times.
    pub(crate) times: times::OfInode,
    /// The transaction in which it was made; `None` for one that was on the disk before.
    pub(crate) made_in: Option<Tid>,
    /// The transactions of its last changes.
    pub(crate) changes: Changes,
    /// Open files of it. An inode without names lives as long as this is not 0.
    opens: AtomicU32,
    /// It has no name, and may get one.
    pub(crate) linkable: AtomicBool,
    /// It was freed: nobody may store it any more.
    freed: AtomicBool,
    /// Used since the table last looked for inodes to drop.
    touched: AtomicBool,
    /// For a directory: the group where the last inode in it was found.
    pub(crate) last_child_group: AtomicU32,
    /// The mapping's own state.
    pub(crate) mapping: crate::map::State,
    /// Its bytes in the page cache, once somebody had it open for buffered I/O.
    pub(crate) cached: OnceLock<Cached>,
    /// Room put by for what is cached only.
    pub(crate) delayed: Delayed,
    /// What the disk still shows, where it was emptied.
    pub(crate) emptied: emptied::OfInode,
    /// Buffered writes behind its end, one at a time.
    extend: Mutex<()>,
    /// What lies behind its end in its last block is known to be zero on the disk.
    pub(crate) tail_is_zero: AtomicBool,
    /// Where the disk has it among the orphans.
    pub(crate) orphan: Mutex<crate::orphan::Place>,
    /// The block of the inode table that holds it.
    table_block: FsBlock,
    /// First byte of it in that block.
    table_offset: usize,
}

impl Inode {
    /// Shared against truncation: for I/O.
    pub(crate) fn io_shared(&self) -> Held<FileShared<'_>> {
        locked(Rank::FileIo, self.ino.0.into(), || self.io.shared())
    }

    /// Alone: for whatever takes blocks away or moves them.
    pub(crate) fn io_exclusive(&self) -> Held<FileAlone<'_>> {
        locked(Rank::FileIo, self.ino.0.into(), || self.io.alone())
    }

    /// As [`Inode::io_exclusive`], to free it: it has no names and is open nowhere. Who holds this waits for no other file, so
    /// it may be taken under the lock of one whose attribute's value this is.
    pub(crate) fn io_unused(&self) -> Held<FileAlone<'_>> {
        locked(Rank::Unused, self.ino.0.into(), || self.io.alone())
    }

    /// For a buffered write that may end behind the file's end; beside [`Inode::io_shared`].
    pub(crate) fn extend(&self) -> Held<MutexGuard<'_, ()>> {
        locked(Rank::Extend, self.ino.0.into(), || self.extend.lock())
    }

    /// For lookups in this directory.
    pub(crate) fn dir_shared(&self) -> Held<RwLockReadGuard<'_, ()>> {
        locked(Rank::Directory, self.ino.0.into(), || self.dir.read())
    }

    /// For changes of this directory's names.
    pub(crate) fn dir_exclusive(&self) -> Held<RwLockWriteGuard<'_, ()>> {
        locked(Rank::Directory, self.ino.0.into(), || self.dir.write())
    }

    /// For reading the block mapping.
    pub(crate) fn map_shared(&self) -> Held<RwLockReadGuard<'_, ()>> {
        locked(Rank::Mapping, self.ino.0.into(), || self.map.read())
    }

    /// For changing the block mapping; inside a handle.
    pub(crate) fn map_exclusive(&self) -> Held<RwLockWriteGuard<'_, ()>> {
        locked(Rank::Mapping, self.ino.0.into(), || self.map.write())
    }

    /// Its type; `None` for the reserved inodes that have none.
    pub fn file_type(&self) -> Option<FileType> {
        self.kind
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == Some(FileType::Directory)
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.kind == Some(FileType::Symlink)
    }

    /// A copy of the inode as it is now.
    pub fn image(&self) -> InodeImage {
        self.raw.read().clone()
    }

    /// One more open file of it; `false` if it is being freed.
    #[must_use]
    pub(crate) fn add_open(&self) -> bool {
        let more = |opens: u32| (opens != CLOSED_FOR_GOOD).then(|| opens + 1);
        self.opens
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .is_ok()
    }

    /// One open file less.
    pub(crate) fn drop_open(&self) {
        let less = |opens: u32| (opens != CLOSED_FOR_GOOD).then(|| opens.saturating_sub(1));
        // Where it was closed for good meanwhile, it stays so.
        let _ = self
            .opens
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }

    /// Whether it has open files.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.opens.load(Ordering::Acquire), 0 | CLOSED_FOR_GOOD)
    }

    /// The open files do not count any more: the volume is being closed.
    pub(crate) fn forget_opens(&self) {
        let none = |opens: u32| (opens != CLOSED_FOR_GOOD).then_some(0);
        let _ = self
            .opens
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, none);
    }

    /// If it has no open files, it gets none any more: it is the caller's to free, and nobody else's.
    pub(crate) fn close_for_good(&self) -> bool {
        self.opens
            .compare_exchange(0, CLOSED_FOR_GOOD, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Whether it is being freed, or was.
    pub(crate) fn is_closed_for_good(&self) -> bool {
        self.opens.load(Ordering::Acquire) == CLOSED_FOR_GOOD
    }

    /// Whether it was given back to the inode allocator: whoever still holds it must not use it.
    pub(crate) fn is_freed(&self) -> bool {
        self.freed.load(Ordering::Acquire)
    }

    fn new(
        fs: &Fs,
        ino: InodeNumber,
        raw: InodeImage,
        (table_block, table_offset): (FsBlock, usize),
    ) -> Self {
        Self {
            ino,
            kind: FileType::from_mode(raw.mode()),
            io: FileLock::default(),
            dir: RwLock::new(()),
            index: dir::Index::default(),
            map: RwLock::new(()),
            csum_seed: fs.geo.inode_seed(ino, raw.generation()),
            flags: Seen::new(&raw),
            times: times::OfInode::default(),
            raw: RwLock::new(raw),
            made_in: None,
            changes: Changes::unknown(fs.journal.running()),
            opens: AtomicU32::new(0),
            linkable: AtomicBool::new(false),
            freed: AtomicBool::new(false),
            touched: AtomicBool::new(true),
            last_child_group: AtomicU32::new(u32::MAX),
            mapping: crate::map::State::default(),
            cached: OnceLock::new(),
            delayed: Delayed::default(),
            emptied: emptied::OfInode::default(),
            extend: Mutex::new(()),
            tail_is_zero: AtomicBool::new(false),
            orphan: Mutex::default(),
            table_block,
            table_offset,
        }
    }
}

impl Fs {
    /// The inode of that number. Its checksum and its sanity are checked when it comes from the disk.
    ///
    /// # Errors
    /// `Corrupt` for a number that does not exist or an inode that cannot be; `NotFound` for one that is free.
    pub fn inode(&self, ino: InodeNumber) -> Result<Arc<Inode>> {
        // What is in memory can be asked for even where the volume was taken down.
        if let Some(inode) = self.inodes.get(ino) {
            return Ok(inode);
        }
        self.check_up()?;
        let place = self.inode_place(ino)?;
        // The read warms the cache with no lock held; what counts is the one below, under the table's lock: between the
        // two, others may have made the inode, changed and dropped it.
        let found = self.load_image(ino, place);
        self.note_damage(found)?;
        self.inodes.get_or_insert(ino, || {
            Ok(Inode::new(self, ino, self.load_image(ino, place)?, place))
        })
    }

    /// Puts a fresh inode's object into the table (its number was free until now) and its image into its block.
    pub(crate) fn insert_inode(
        &self,
        h: &mut Handle<'_>,
        ino: InodeNumber,
        raw: InodeImage,
    ) -> Result<Arc<Inode>> {
        let place = self.inode_place(ino)?;
        let inode = Arc::new(Inode {
            made_in: Some(h.tid()),
            ..Inode::new(self, ino, raw, place)
        });
        self.store(h, &inode)?;
        self.inodes.replace(&inode);
        Ok(inode)
    }

    /// Puts an inode's image, with its checksum, into its block of the inode table (1 credit).
    ///
    /// # Errors
    /// Those of the journal; `Corrupt` for an inode that was freed meanwhile.
    pub(crate) fn store(&self, h: &mut Handle<'_>, inode: &Inode) -> Result<()> {
        self.store_image(h, inode, Changes::note)
    }

    /// As [`Fs::store`], where nothing but times, owner or mode changed: `fdatasync` need not wait for it.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn store_attributes(&self, h: &mut Handle<'_>, inode: &Inode) -> Result<()> {
        self.store_image(h, inode, Changes::note_attributes)
    }

    fn store_image(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        note: fn(&Changes, Tid),
    ) -> Result<()> {
        // Held over the buffer's change, so that images arrive in the order in which they came to be, and none after the one
        // with which the inode was freed: its place may be another's by then.
        let mut raw = inode.raw.write();
        if inode.is_freed() {
            return Err(Error::corrupt("a freed inode is in use").in_inode(inode.ino));
        }
        note(&inode.changes, h.tid());
        inode.flags.note(&raw);
        inode.times.stored();
        let mut shown = inode.emptied.shown(self, &raw);
        let image = shown.as_mut().unwrap_or(&mut raw);
        image.update_checksum(&self.geo, inode.ino);
        let at = inode.table_offset;
        h.modify(inode.table_block, |block| {
            let bytes = image.as_bytes();
            if let Some(place) = block.get_mut(at..at.saturating_add(bytes.len())) {
                place.copy_from_slice(bytes);
            }
        })
        .map_err(|e| e.in_inode(inode.ino))
    }

    /// Brings the block of an inode into memory, so that [`Fs::store`] will not meet what it cannot read.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn look_at_place(&self, inode: &Inode) -> Result<()> {
        self.read(inode.table_block).map(drop)
    }

    /// The inode is free from now on: its last image is stored, and its object leaves the table.
    pub(crate) fn retire_inode(&self, h: &mut Handle<'_>, inode: &Inode) -> Result<()> {
        self.store(h, inode)?;
        {
            // Whoever looks before it stores does both under this lock.
            let _raw = inode.raw.write();
            inode.freed.store(true, Ordering::Release);
        }
        self.inodes.remove(inode.ino);
        Ok(())
    }

    /// The inode's block in the inode table, and where in it.
    fn inode_place(&self, ino: InodeNumber) -> Result<(FsBlock, usize)> {
        let Some((group, index)) = self.geo.inode_place(ino) else {
            let what = format!(
                "inode {ino} does not exist, the last is {}",
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
        let bytes = self.read(block).map_err(|e| e.in_inode(ino))?;
        let end = offset.saturating_add(self.geo.inode_bytes.into());
        let corrupt =
            |what: throughline_extfmt::Corrupt| Error::from(what).in_inode(ino).in_block(block);
        let bytes = bytes.get(offset..end).unwrap_or_default();
        let image = InodeImage::read(bytes).map_err(corrupt)?;
        image.verify_checksum(&self.geo, ino).map_err(corrupt)?;
        let reserved = ino < self.geo.first_ino && ino != InodeNumber::ROOT;
        if !reserved {
            // Without its root nothing of a volume can be read: it is taken for one as long as it looks like one.
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

    /// Whether an inode without names and with a deletion time may be on the orphan list, where that field is the number
    /// of the next orphan.
    fn may_be_orphan(&self, image: &InodeImage) -> bool {
        image.dtime() <= self.geo.inodes
    }
}
