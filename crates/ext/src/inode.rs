//! Inodes in memory: the object, its locks, and the table of those in use.
//!
//! [`InodeImage`] is the on-disk inode, byte for byte, and the only truth about an inode: attributes are read from it and
//! written to it, and [`Fs::store`] puts it into the inode table's block inside a handle. An inode that nobody holds may
//! leave the table at any time, since nothing of it is in memory alone.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use crossbeam_utils::sync::{ShardedLock, ShardedLockReadGuard, ShardedLockWriteGuard};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use throughline_extfmt::{FsBlock, InodeImage, InodeNumber};

use crate::error::Result;
use crate::fs::Fs;
use crate::handle::Handle;
use crate::lock_order::{Held, Rank, locked};

/// An inode in use. There is at most one object of a number at a time.
pub struct Inode {
    /// Its number.
    pub ino: InodeNumber,
    /// I/O holds it shared; truncate, punch, collapse and insert hold it exclusively. Its readers share no line.
    io: ShardedLock<()>,
    /// A directory's contents: lookups share it, changes are alone.
    dir: RwLock<()>,
    /// The block mapping (`i_block` and the blocks below it). Taken after the handle is begun.
    map: RwLock<()>,
    /// The on-disk inode. A leaf lock: nothing is locked and no I/O done while it is held.
    pub(crate) raw: RwLock<InodeImage>,
    /// Open files of it, and the orphan's claim on it; an inode without names lives as long as this is not 0.
    pub(crate) opens: AtomicU32,
    /// The mapping's own state: claims in flight, the last block mapped.
    pub(crate) mapping: crate::map::State,
    /// The directory code's own state.
    pub(crate) names: crate::dir::State,
    /// The block of the inode table that holds it, and where in it.
    pub(crate) table_block: FsBlock,
    pub(crate) table_offset: usize,
}

impl Inode {
    /// Shared against truncation: for I/O.
    pub(crate) fn io_shared(&self) -> Held<ShardedLockReadGuard<'_, ()>> {
        locked(Rank::FileIo, self.ino.0.into(), || self.io.read().unwrap_or_else(|e| e.into_inner()))
    }

    /// Alone: for whatever takes blocks away or moves them.
    pub(crate) fn io_exclusive(&self) -> Held<ShardedLockWriteGuard<'_, ()>> {
        locked(Rank::FileIo, self.ino.0.into(), || self.io.write().unwrap_or_else(|e| e.into_inner()))
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
}

impl Fs {
    /// The inode of that number, from the table or the disk. Its checksum and its sanity are checked when it is loaded.
    ///
    /// # Errors
    /// `Corrupt` for a number that does not exist or an inode that cannot be; `NotFound` for one that is free
    /// (no names and a deletion time, or all zero) and not held open.
    pub fn inode(&self, ino: InodeNumber) -> Result<Arc<Inode>>;

    /// Puts an inode's image, with its checksum, into its block of the inode table.
    ///
    /// # Errors
    /// Those of the journal.
    pub(crate) fn store(&self, h: &mut Handle<'_>, inode: &Inode) -> Result<()>;
}

