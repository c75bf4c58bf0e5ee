//! Inodes in memory: the object and its locks. [`inodes`] loads and stores their images.
//!
//! [`Inode::raw`] is the on-disk inode, byte for byte, and the only source of its attributes: they are read
//! from it and written to it, and [`Inodes::store`] copies it into its inode table block inside a handle. So
//! an inode without other holders may be evicted at any time ([`table`]), as long as it was stored.
//! [`crate::times`] holds inodes with times that are not stored yet.

mod hold;
mod image;
pub(crate) mod inodes;
mod make;
mod table;
mod watch;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use throughline_extfmt::inode::FileType;
use throughline_extfmt::{FsBlock, InodeImage, InodeNumber};
use throughline_fileio::{FileExclusive, FileLock, FileShared};
use throughline_journal::Tid;
use throughline_locks::{
    Mutex, MutexGuard, Place, Rank, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

use crate::base::Base;
use crate::cached::inode::Cached;
use crate::changes::Changes;
use crate::delayed::state::Delayed;
use crate::dir::index::Index;
use crate::emptied::inode::OfInode as EmptiedState;
use crate::flags::seen::Seen;
use crate::times::inode::OfInode as TimesState;

use image::Image;
pub(crate) use image::Shown;

pub use inodes::Inodes;
pub use watch::Watch;

/// Credits for storing an inode: its own block, and the superblock when the first large file is created.
pub(crate) const INODE_CREDITS: u32 = 2;

/// Value of the count of open files for an inode that is being freed.
const CLOSED_PERMANENTLY: u32 = u32::MAX;

/// An inode in use. There is at most one object per inode number.
pub struct Inode {
    /// Inode number.
    pub ino: InodeNumber,
    /// File type, which never changes; `None` for reserved inodes without one.
    pub(crate) kind: Option<FileType>,
    /// Held shared by I/O; exclusively by truncate, punch, collapse and insert.
    io: FileLock,
    /// Protects a directory's contents: shared by lookups, exclusive for changes.
    dir: RwLock<()>,
    /// Whether the directory's index was checked, and the result.
    pub(crate) index: Index,
    /// Protects the block mapping (`i_block` and the blocks below it). Taken after the handle is begun.
    map: RwLock<()>,
    /// The on-disk inode. The only lock taken while this one is held is that of its block's buffer, in
    /// [`Inodes::store`].
    pub(crate) raw: Image,
    /// Checksum seed of its blocks, if the volume has checksums. Constant while the inode exists.
    pub(crate) csum_seed: Option<u32>,
    /// Its flags as last stored.
    pub(crate) flags: Seen,
    /// State of its timestamps.
    pub(crate) times: TimesState,
    /// The transaction that created it; `None` if it was on the disk before.
    pub(crate) made_in: Option<Tid>,
    /// The transactions of its last changes.
    pub(crate) changes: Changes,
    /// Count of open files. An inode without names exists as long as this is not 0.
    opens: AtomicU32,
    /// It has no name, and may get one.
    pub(crate) linkable: AtomicBool,
    /// It was freed, and must not be stored any more.
    freed: AtomicBool,
    /// Used since the last sweep of the table.
    touched: AtomicBool,
    /// For a directory: the group in which its last child was allocated.
    pub(crate) last_child_group: AtomicU32,
    /// The mapping's own state.
    pub(crate) mapping: crate::map::state::State,
    /// Its data in the page cache; set once it has been open for buffered I/O.
    pub(crate) cached: OnceLock<Cached>,
    /// Space reserved for data that is only cached.
    pub(crate) delayed: Delayed,
    /// What it counts for its owners.
    pub(crate) usage: crate::quota::inode::OfInode,
    /// What the disk still shows while a truncation to 0 is deferred.
    pub(crate) emptied: EmptiedState,
    /// Serializes buffered writes past the end.
    extend: Mutex<()>,
    /// It has no file capabilities, as its attributes were looked at. Changed with the I/O lock held.
    pub(crate) lacks_capability: AtomicBool,
    /// The part of its last block past the end is known to be zero on disk.
    pub(crate) tail_is_zero: AtomicBool,
    /// Its place in the on-disk orphan list or file.
    pub(crate) orphan: Mutex<crate::orphan::place::Place>,
    /// The block of the inode table that holds it.
    table_block: FsBlock,
    /// Its offset in that block.
    table_offset: usize,
}

impl Inode {
    /// Shared, for I/O: keeps truncation out.
    pub(crate) fn io_shared(&self) -> FileShared<'_> {
        self.io
            .shared(Place::enter(Rank::FileIo, self.ino.0.into()))
    }

    /// Exclusive, for operations that remove or move blocks.
    pub(crate) fn io_exclusive(&self) -> FileExclusive<'_> {
        self.io
            .exclusive(Place::enter(Rank::FileIo, self.ino.0.into()))
    }

    /// As [`Inode::io_exclusive`], for freeing an inode that has no names and is not open. A holder waits for
    /// no other file, so the lock may be taken while holding that of the file whose attribute value this
    /// inode is.
    pub(crate) fn io_unused(&self) -> FileExclusive<'_> {
        self.io
            .exclusive(Place::enter(Rank::Unused, self.ino.0.into()))
    }

    /// For a buffered write that may end past the end of file; taken in addition to [`Inode::io_shared`].
    pub(crate) fn extend(&self) -> MutexGuard<'_, ()> {
        self.extend.lock()
    }

    /// For lookups in this directory.
    pub(crate) fn dir_shared(&self) -> RwLockReadGuard<'_, ()> {
        self.dir.read()
    }

    /// For changes of this directory's names.
    pub(crate) fn dir_exclusive(&self) -> RwLockWriteGuard<'_, ()> {
        self.dir.write()
    }

    /// For reading the block mapping.
    pub(crate) fn map_shared(&self) -> RwLockReadGuard<'_, ()> {
        self.map.read()
    }

    /// For changing the block mapping; inside a handle.
    pub(crate) fn map_exclusive(&self) -> RwLockWriteGuard<'_, ()> {
        self.map.write()
    }

    /// File type; `None` for reserved inodes without one.
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

    /// The number of its names.
    pub fn links_count(&self) -> u16 {
        self.raw.read().links_count()
    }

    /// A copy of the current inode image.
    pub fn image(&self) -> InodeImage {
        self.raw.read().clone()
    }

    /// Counts one more open file; `false` if the inode is being freed.
    #[must_use]
    pub(crate) fn add_open(&self) -> bool {
        let more = |opens: u32| (opens != CLOSED_PERMANENTLY).then(|| opens + 1);
        self.opens
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .is_ok()
    }

    /// Counts one open file less.
    pub(crate) fn drop_open(&self) {
        let less = |opens: u32| (opens != CLOSED_PERMANENTLY).then(|| opens.saturating_sub(1));
        // If the inode is being freed, the count stays unchanged.
        let _ = self
            .opens
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }

    /// Whether the file is open.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.opens.load(Ordering::Acquire), 0 | CLOSED_PERMANENTLY)
    }

    /// Ignores open files from now on: the volume is being closed.
    pub(crate) fn forget_opens(&self) {
        let none = |opens: u32| (opens != CLOSED_PERMANENTLY).then_some(0);
        let _ = self
            .opens
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, none);
    }

    /// If the file is not open, prevents further opens. The caller alone may then free it.
    pub(crate) fn close_permanently(&self) -> bool {
        self.opens
            .compare_exchange(0, CLOSED_PERMANENTLY, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Whether the inode is being freed, or was freed.
    pub(crate) fn is_closed_permanently(&self) -> bool {
        self.opens.load(Ordering::Acquire) == CLOSED_PERMANENTLY
    }

    /// Whether the inode was returned to the inode allocator: remaining holders must not use it.
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
            dir: RwLock::numbered(Rank::Directory, ino.0.into(), ()),
            index: Index::default(),
            map: RwLock::numbered(Rank::Mapping, ino.0.into(), ()),
            csum_seed: base.geo.inode_seed(ino, raw.generation()),
            usage: crate::quota::charge::usage_of_loaded(base, ino, &raw),
            flags: Seen::new(&raw),
            times: TimesState::default(),
            raw: Image::new(ino, raw),
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
            extend: Mutex::numbered(Rank::Extend, ino.0.into(), ()),
            lacks_capability: AtomicBool::new(false),
            tail_is_zero: AtomicBool::new(false),
            orphan: Mutex::numbered(Rank::Orphan, ino.0.into(), Default::default()),
            table_block,
            table_offset,
        }
    }
}
