//! Inodes in memory: the object and its locks. How its image goes to and from the inode table: [`inodes`].
//!
//! [`Inode::raw`] is the on-disk inode, byte for byte, and the only truth about an inode: attributes are read from it and
//! written to it, and [`Inodes::store`] puts it into its block of the inode table inside a handle. So an inode that nobody
//! holds may leave memory at any time ([`table`]), as long as it was stored; where times are not, [`crate::times`]
//! holds it.

pub(crate) mod inodes;
mod make;
mod table;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use throughline_extfmt::inode::FileType;
use throughline_extfmt::{FsBlock, InodeImage, InodeNumber};
use throughline_fileio::{FileAlone, FileLock, FileShared};
use throughline_journal::Tid;

use crate::base::Base;
use crate::cached::inode::Cached;
use crate::changes::Changes;
use crate::delayed::state::Delayed;
use crate::dir::index::Index;
use crate::emptied::inode::OfInode as EmptiedState;
use crate::flags::seen::Seen;
use crate::lock_order::{Held, Rank, locked};
use crate::times::inode::OfInode as TimesState;

pub use inodes::Inodes;

/// Blocks that storing an inode touches: its own, and the superblock when the first large file comes into being.
pub(crate) const INODE_CREDITS: u32 = 2;

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
    pub(crate) index: Index,
    /// The block mapping (`i_block` and the blocks below it). Taken after the handle is begun.
    map: RwLock<()>,
    /// The on-disk inode. Nothing is locked below it but the buffer of its block, in [`Inodes::store`].
    pub(crate) raw: RwLock<InodeImage>,
    /// The checksum seed of its blocks, where the volume has checksums. It does not change while the inode lives.
    pub(crate) csum_seed: Option<u32>,
    /// Its flags, as they were stored last.
    pub(crate) flags: Seen,
    /// What is known of its times.
    pub(crate) times: TimesState,
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
    pub(crate) mapping: crate::map::state::State,
    /// Its bytes in the page cache, once somebody had it open for buffered I/O.
    pub(crate) cached: OnceLock<Cached>,
    /// Room put by for what is cached only.
    pub(crate) delayed: Delayed,
    /// What the disk still shows, where it was emptied.
    pub(crate) emptied: EmptiedState,
    /// Buffered writes behind its end, one at a time.
    extend: Mutex<()>,
    /// What lies behind its end in its last block is known to be zero on the disk.
    pub(crate) tail_is_zero: AtomicBool,
    /// Where the disk has it among the orphans.
    pub(crate) orphan: Mutex<crate::orphan::place::Place>,
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
        base: &Base,
        ino: InodeNumber,
        raw: InodeImage,
        (table_block, table_offset): (FsBlock, usize),
    ) -> Self {
        Self {
            ino,
            kind: FileType::from_mode(raw.mode()),
            io: FileLock::default(),
            dir: RwLock::new(()),
            index: Index::default(),
            map: RwLock::new(()),
            csum_seed: base.geo.inode_seed(ino, raw.generation()),
            flags: Seen::new(&raw),
            times: TimesState::default(),
            raw: RwLock::new(raw),
            made_in: None,
            changes: Changes::unknown(base.journal.running()),
            opens: AtomicU32::new(0),
            linkable: AtomicBool::new(false),
            freed: AtomicBool::new(false),
            touched: AtomicBool::new(true),
            last_child_group: AtomicU32::new(u32::MAX),
            mapping: crate::map::state::State::default(),
            cached: OnceLock::new(),
            delayed: Delayed::default(),
            emptied: EmptiedState::default(),
            extend: Mutex::new(()),
            tail_is_zero: AtomicBool::new(false),
            orphan: Mutex::default(),
            table_block,
            table_offset,
        }
    }
}
