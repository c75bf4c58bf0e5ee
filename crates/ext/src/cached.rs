//! The page cache's side of an inode: [`Cached`] in the inode, and [`CachedFile`], the file as the cache sees
//! it.
//!
//! The cache holds a reference to each dirty file, and the file holds one to the volume, so dirty data keeps
//! the volume open. The volume is in a layer above, so its type is not named here.
//!
//! Invariants:
//! - An inode has at most one [`CachedFile`] at a time. It is held by all open files, by readahead in
//!   progress, and by the flusher while the file is dirty. Without one, nothing of the file is dirty and
//!   nothing of it is being brought into the cache.
//! - It is created under the inode's I/O lock, held exclusively. A holder of that lock that finds none has
//!   the only access to the file's blocks.

pub(crate) mod inode;

use std::any::Any;
use std::sync::{Arc, Weak};

use throughline_fileio::{self as fileio, AddressSpace, Backing, Holes, Map, MappedExtent, Mapper};
use throughline_locks::Mutex;

use crate::caller::Caller;
use crate::data::Data;
use crate::emptied::inode::WHOLE_BYTES;
use crate::error::{Error, Result};
use crate::inode::{Inode, Inodes};
use crate::map;
use crate::mapper::{self, FileMapper};
use crate::regular;
use inode::Cached;

/// A regular file as the page cache sees it. Keeps the volume and the inode in memory.
pub(crate) struct CachedFile {
    fs: Arc<Data>,
    /// The volume that `fs` belongs to; closed when the last reference is dropped.
    _volume: Arc<dyn Any + Send + Sync>,
    inode: Arc<Inode>,
    space: Arc<AddressSpace>,
}

impl CachedFile {
    /// The `CachedFile` of an inode, created if there is none.
    ///
    /// # Errors
    /// `IsDir`; `Invalid` for other inodes that are not regular files; `Corrupt` for an invalid size.
    pub(crate) fn of(
        fs: &Arc<Data>,
        volume: Arc<dyn Any + Send + Sync>,
        inode: &Arc<Inode>,
    ) -> Result<Arc<dyn Backing>> {
        regular::check_regular(inode)?;
        if let Some(file) = inode.cached.get().and_then(Cached::file) {
            return Ok(file);
        }
        let _io = inode.io_exclusive();
        let size = map::size(fs, inode)?;
        let cached = inode.cached.get_or_init(|| {
            let cache = Arc::clone(&fs.cache);
            Cached {
                space: Arc::new(AddressSpace::new(cache, size, fs.geo.block_bytes)),
                file: Mutex::default(),
                stored_for: Mutex::default(),
            }
        });
        let mut known = cached.file.lock();
        if let Some(file) = known.as_ref().and_then(Weak::upgrade) {
            return Ok(file);
        }
        let file: Arc<dyn Backing> = Arc::new(Self {
            fs: Arc::clone(fs),
            _volume: volume,
            inode: Arc::clone(inode),
            space: Arc::clone(&cached.space),
        });
        *known = Some(Arc::downgrade(&file));
        Ok(file)
    }

    pub(crate) fn fs(&self) -> &Data {
        &self.fs
    }

    pub(crate) fn inode(&self) -> &Inode {
        &self.inode
    }
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        if self.space.refused.is_any() && !self.fs.is_down() {
            let (kept, lost) = self.space.refused.bytes();
            tracing::error!(
                ino = self.inode.ino.0,
                bytes = kept + lost,
                "what a program stored in a mapping of this file is lost: there was no space for it"
            );
        }
    }
}

impl Map for CachedFile {
    fn block_bytes(&self) -> u32 {
        self.fs.geo.block_bytes
    }

    fn size_bytes(&self) -> u64 {
        committed_size(&self.fs, &self.inode)
    }

    fn map(&self, file_offset: u64, len: u64) -> fileio::Result<MappedExtent> {
        map_of(&self.fs, &self.inode, file_offset, len)
    }
}

impl Backing for CachedFile {
    fn space(&self) -> &AddressSpace {
        &self.space
    }

    fn reserve(&self, file_offset: u64, len: u64) -> fileio::Result<Holes> {
        reserve(&self.fs, &self.inode, &self.space, file_offset, len)
    }

    fn reserve_kept(&self, file_offset: u64, len: u64) -> fileio::Result<Holes> {
        let cached = self.inode.cached.get();
        let stored_for = cached.and_then(|cached| *cached.stored_for.lock());
        let _acts = stored_for.map(Caller::act);
        self.reserve(file_offset, len)
    }

    fn unreserve(&self, units: u64) {
        self.inode.delayed.unreserve(&self.fs, &self.inode, units);
    }

    fn whole_bytes(&self) -> u64 {
        match self.inode.emptied.is_some() {
            true => WHOLE_BYTES,
            false => 0,
        }
    }

    fn is_open(&self) -> bool {
        self.inode.is_open()
    }

    fn writer(self: Arc<Self>, file_offset: u64, len: u64) -> fileio::Result<Box<dyn Mapper>> {
        self.fs.check_writable()?;
        let end = file_offset.saturating_add(len);
        Ok(Box::new(FileMapper::for_write_back(self, end)))
    }
}

/// A file as the cache sees it without a [`CachedFile`], to drop cached data. It cannot write back, and need
/// not: nothing is dirty.
pub(crate) struct Bare<'a> {
    pub(crate) fs: &'a Data,
    pub(crate) inode: &'a Inode,
    pub(crate) space: &'a AddressSpace,
}

impl Map for Bare<'_> {
    fn block_bytes(&self) -> u32 {
        self.fs.geo.block_bytes
    }

    fn size_bytes(&self) -> u64 {
        committed_size(self.fs, self.inode)
    }

    fn map(&self, file_offset: u64, len: u64) -> fileio::Result<MappedExtent> {
        map_of(self.fs, self.inode, file_offset, len)
    }
}

impl Backing for Bare<'_> {
    fn space(&self) -> &AddressSpace {
        self.space
    }

    fn reserve(&self, file_offset: u64, len: u64) -> fileio::Result<Holes> {
        reserve(self.fs, self.inode, self.space, file_offset, len)
    }

    fn unreserve(&self, units: u64) {
        self.inode.delayed.unreserve(self.fs, self.inode, units);
    }

    fn writer(self: Arc<Self>, _file_offset: u64, _len: u64) -> fileio::Result<Box<dyn Mapper>> {
        Err(fileio::Error::Unsupported(
            "write-back of a file that is not open".into(),
        ))
    }
}

fn committed_size(fs: &Data, inode: &Inode) -> u64 {
    // The size was read when the address space was created, so it is known.
    map::size(fs, inode).unwrap_or(0)
}

fn map_of(fs: &Inodes, inode: &Inode, offset: u64, len: u64) -> fileio::Result<MappedExtent> {
    if regular::is_inline(inode) {
        // Inline data is in the inode, never in the cache.
        return Err(Error::Unsupported("caching a file whose data is in its inode".into()).into());
    }
    Ok(mapper::mapped(fs, inode, offset, len)?)
}

fn reserve(
    fs: &Data,
    inode: &Inode,
    space: &AddressSpace,
    offset: u64,
    len: u64,
) -> fileio::Result<Holes> {
    let log = fs.geo.block_log;
    let end = offset
        .saturating_add(len)
        .div_ceil(fs.geo.block_bytes.into());
    let dirty_blocks = space.dirty_bytes() >> log;
    // Checked before the mapping is read: a write-back that has ended by now shows in the mapping.
    let again = space.is_being_written(&(offset..offset.saturating_add(len)));
    let range = (offset >> log, end);
    let before = (dirty_blocks, again);
    Ok(fs.with_room(|| inode.delayed.reserve(fs, inode, range, before))?)
}
