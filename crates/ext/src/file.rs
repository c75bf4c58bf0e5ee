//! Reading and writing files: the locks around the data path.
//!
//! - Reads, and writes of whole blocks within the size, share the inode's I/O lock. They take no other lock
//!   if all blocks are mapped and the thread has the mapping cached.
//! - A write that extends the file or covers only part of a block holds the lock exclusively: it does a
//!   read-modify-write, or depends on the size.
//! - So does a write to a file that is cached, or open for buffered I/O ([`crate::coherent`]).
//! - Times change at most once per [`tick`], the granularity of the kernel's clock, so not every write
//!   needs a transaction (with lazy times, none needs one).

use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::Ordering;

use throughline_extfmt::inode::InodeFlags;
use throughline_fileio::{Mapper, ReadStream, buffered, direct};

use crate::coherent;
use crate::data::Data;
use crate::emptied;
use crate::error::{Error, Reason, Result};
use crate::handle::Handle;
use crate::inline;
use crate::inode::{INODE_CREDITS, Inode, Inodes};
use crate::map::{self};
use crate::mapper::FileMapper;
use crate::regular::{check_regular, is_inline, tick, total, touch, zero_in_block};

impl Data {
    /// Reads a regular file from byte `offset` on. Returns the number of bytes read: fewer than requested
    /// only at the end of the file.
    ///
    /// # Errors
    /// `IsDir`; `Invalid` for other inodes that are not regular files; `Corrupt`; device errors.
    pub fn read_at(
        &self,
        inode: &Inode,
        offset: u64,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        self.check_up()?;
        check_regular(inode)?;
        let _io = inode.io_shared();
        map::size(self, inode)?;
        if is_inline(inode) {
            return inline::read_vectored(self, inode, offset, bufs);
        }
        if inode.cached.get().is_some() {
            let len = bufs.iter().map(|b| b.len() as u64).sum();
            let ready = coherent::before_read(self, inode, offset..offset.saturating_add(len));
            if let Err(error) = ready {
                let host = coherent::short_of_space(inode, &error).ok_or(error)?;
                return Ok(buffered::read(&host, offset, bufs, &ReadStream::default())?);
            }
        }
        Ok(direct::read(
            &self.disk,
            &FileMapper::for_read(self, inode),
            offset,
            bufs,
        )?)
    }

    /// Writes a regular file from byte `offset` on, and extends it if the write ends past its end. Returns
    /// the number of bytes written: fewer than given only if an error occurred after them, which the next
    /// call returns.
    ///
    /// # Errors
    /// `NoSpace`, `TooLarge`, `ReadOnly`, `Permission` for an immutable file; `IsDir`, `Invalid` for other
    /// inodes that are not regular files; `Corrupt`; device errors.
    pub fn write_at(&self, inode: &Inode, offset: u64, bufs: &[IoSlice<'_>]) -> Result<usize> {
        self.check_may_write(inode)?;
        let done = self.write_directly(inode, offset, bufs)?;
        self.data_changed(inode)?;
        Ok(done)
    }

    fn write_directly(&self, inode: &Inode, offset: u64, bufs: &[IoSlice<'_>]) -> Result<usize> {
        let len = total(bufs);
        if len == 0 {
            return Ok(0);
        }
        let end = offset.checked_add(len).ok_or(Reason::TooLarge)?;
        let mapper = FileMapper::for_write(self, inode, end);
        if !direct::needs_exclusive(&mapper, offset, len) {
            let _io = inode.io_shared();
            let plain = end <= map::size(self, inode)? && !is_inline(inode);
            if plain && coherent::may_share(inode) {
                let done = direct::write(&self.disk, &mapper, offset, bufs)?;
                self.touch_written(inode);
                return Ok(done);
            }
        }
        let _io = inode.io_exclusive();
        self.write_exclusive(inode, &mapper, offset, bufs)
    }

    /// Appends to a regular file. Returns the offset of the data, and the number of bytes written.
    ///
    /// # Errors
    /// As [`Data::write_at`].
    pub fn append(&self, inode: &Inode, bufs: &[IoSlice<'_>]) -> Result<(u64, usize)> {
        self.check_may_write(inode)?;
        let written = {
            let _io = inode.io_exclusive();
            let offset = coherent::size(self, inode)?;
            let mapper = FileMapper::for_write(self, inode, offset.saturating_add(total(bufs)));
            (offset, self.write_exclusive(inode, &mapper, offset, bufs)?)
        };
        self.data_changed(inode)?;
        Ok(written)
    }

    /// Writes with the I/O lock held exclusively.
    fn write_exclusive(
        &self,
        inode: &Inode,
        mapper: &dyn Mapper,
        offset: u64,
        bufs: &[IoSlice<'_>],
    ) -> Result<usize> {
        let bufs = self.within_limit(inode, offset, bufs)?;
        let len = total(&bufs);
        if len == 0 {
            return Ok(0);
        }
        let _frozen = coherent::make_way(self, inode, offset..offset.saturating_add(len))?;
        let done = self.write_to_device(inode, mapper, offset, &bufs);
        // A failed write may have written part of the data and extended the file.
        coherent::resized(inode, map::size(self, inode)?);
        done
    }

    fn write_to_device(
        &self,
        inode: &Inode,
        mapper: &dyn Mapper,
        offset: u64,
        bufs: &[IoSlice<'_>],
    ) -> Result<usize> {
        if is_inline(inode) {
            if let Some(done) = inline::write(self, inode, offset, bufs)? {
                return Ok(done);
            }
            inline::spill(self, inode)?;
        }
        let size = map::size(self, inode)?;
        if offset > size {
            zero_in_block(self, inode, size, offset)?;
        }
        let done = direct::write(&self.disk, mapper, offset, bufs)?;
        coherent::rewritten(inode, &(offset..offset.saturating_add(done as u64)));
        self.touch_written(inode);
        Ok(done)
    }

    /// Makes durable everything written to the file so far, its size and its blocks, and the name under which
    /// it was created. For a directory: its names.
    ///
    /// Waits for the transaction of the inode's last change, committing it if necessary. Transactions become
    /// durable in order, so everything that led to the change is on the disk too: the directory that holds
    /// the name, and those above it.
    ///
    /// # Errors
    /// Device errors, returned by every call until the sync succeeds. `NoSpace` or `Quota`, also until then,
    /// if a program stored bytes through a mapping for which there is no space.
    pub fn sync_file(&self, inode: &Inode) -> Result<()> {
        self.sync_inode(inode, false, self.check_syncable())
    }

    /// As [`Data::sync_file`], for programs that do not need the times.
    ///
    /// # Errors
    /// As [`Data::sync_file`].
    pub fn sync_data(&self, inode: &Inode) -> Result<()> {
        self.sync_inode(inode, true, self.check_syncable())
    }

    /// Fails if changes were stopped before; for the beginning of a sync. A failure after that is one of the
    /// sync itself.
    fn check_syncable(&self) -> Result<()> {
        match self.is_read_only() {
            true => Ok(()),
            false => self.check_going_on(),
        }
    }

    /// `going_on`: an error if changes had been stopped before the call began. Data that needs no commit is
    /// then written back all the same.
    pub(crate) fn sync_inode(
        &self,
        inode: &Inode,
        data_only: bool,
        going_on: Result<()>,
    ) -> Result<()> {
        self.check_up()?;
        let flushed = flush_stored(self, inode);
        if !data_only {
            self.store_times_of(inode)?;
        }
        // Read only now: write-back added blocks and sizes to transactions. A write-back error must not keep
        // the rest from becoming durable.
        let committed = going_on.and_then(|()| self.sync_through(inode.changes.last(data_only)));
        // The device's error says more than that of the journal which it stopped.
        flushed.and(committed)
    }

    /// The maximum size of the file in bytes.
    pub fn max_file_size(&self, inode: &Inode) -> u64 {
        map::max_size(self, inode)
    }

    /// Fails if the inode is not a regular file, or must not change. (Whether existing bytes may be changed
    /// was decided at open: [`crate::Attrs::check_open`].)
    pub(crate) fn check_may_write(&self, inode: &Inode) -> Result<()> {
        check_may_store(self, inode)?;
        if inode.flags.any(InodeFlags::IMMUTABLE) {
            return Err(Reason::Permission.into());
        }
        Ok(())
    }

    /// Fails if the file is append-only, so that existing bytes must not change.
    ///
    /// # Errors
    /// `Permission`.
    pub fn check_overwrite(&self, inode: &Inode) -> Result<()> {
        if inode.flags.any(InodeFlags::APPEND) {
            return Err(Reason::Permission.into());
        }
        Ok(())
    }

    /// Whether `end` is within the size limit of every file format.
    pub(crate) fn is_within_all_limits(end: u64) -> bool {
        end <= i32::MAX.unsigned_abs().into()
    }

    /// The buffers, cut at the maximum size of the file.
    pub(crate) fn within_limit<'b>(
        &self,
        inode: &Inode,
        offset: u64,
        bufs: &'b [IoSlice<'_>],
    ) -> Result<Vec<IoSlice<'b>>> {
        let mut left = map::max_size(self, inode).saturating_sub(offset);
        if left == 0 && bufs.iter().any(|b| !b.is_empty()) {
            return Err(Reason::TooLarge.into());
        }
        let mut within = Vec::with_capacity(bufs.len());
        for buf in bufs {
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
            within.push(IoSlice::new(&buf[..len]));
            left -= len as u64;
        }
        Ok(within)
    }

    /// As [`crate::Base::transact`], for a change of a file's mapping. On failure, the size and mapping root
    /// in memory are restored.
    pub(crate) fn transact_on<R>(
        &self,
        inode: &Inode,
        credits: u32,
        change: impl FnOnce(&mut Handle<'_>) -> Result<R>,
    ) -> Result<R> {
        let before = inode.image();
        let result = self.transact(credits, change);
        if !matches!(
            result,
            Ok(_) | Err(Error::Caller(_) | Error::Unsupported(_))
        ) {
            map::put_back(self, inode, &before);
        }
        result
    }

    /// As [`Data::touch_if_due`], once bytes are written or accepted. An error would hide them: the times are
    /// kept in memory instead, and the next sync stores them or fails.
    pub(crate) fn touch_written(&self, inode: &Inode) {
        if let Err(error) = self.touch_if_due(inode) {
            tracing::debug!(ino = inode.ino.0, %error, "storing the times of a write");
            self.keep_times(inode);
        }
    }

    /// Updates the times after a write that needed no transaction, if they are older than a tick.
    fn touch_if_due(&self, inode: &Inode) -> Result<()> {
        if inode.mapping.touched.load(Ordering::Relaxed) == tick(self) {
            return Ok(());
        }
        if self.times.lazy {
            touch(self, inode);
            self.keep_times(inode);
            return Ok(());
        }
        self.transact(INODE_CREDITS, |h| {
            touch(self, inode);
            self.store_attributes(h, inode)
        })
    }
}

/// Writes back all data of a file. Fails if bytes are lost that a program has stored.
fn flush_stored(fs: &Data, inode: &Inode) -> Result<()> {
    let mut flushed = emptied::finish(fs, inode);
    let short = inode.cached.get().map(|cached| &cached.space.refused);
    let Some(refused) = short.filter(|refused| refused.is_any()) else {
        return flushed;
    };
    if flushed.is_err() && fs.cache.throttle().promised_bytes() > 0 {
        // Reservations may exceed the need, which is known once the data of all files is written back.
        let _ = fs.cache.flush_all();
        flushed = emptied::finish(fs, inode);
    }
    flushed.and(refused.lost().map_or(Ok(()), |why| Err(why.into())))
}

/// As [`Data::check_may_write`], for bytes that were stored before the file became immutable.
pub(crate) fn check_may_store(fs: &Data, inode: &Inode) -> Result<()> {
    fs.check_writable()?;
    check_regular(inode)?;
    map::size(fs, inode)?;
    fs.check_unprotected(inode)
}

/// Zeroes the part of the last block past the end of the file, once while the inode is in memory, before a
/// buffered write extends the file. It is zero already unless a crash came between writing data there and
/// committing the size that covers it. Otherwise the stale bytes could show after another crash, if data of
/// later blocks was written and that of this block was not.
///
/// # Errors
/// `Corrupt`; device errors.
pub(crate) fn zero_tail_once(fs: &Inodes, inode: &Inode) -> Result<()> {
    if inode.tail_is_zero.load(Ordering::Relaxed) {
        return Ok(());
    }
    let _io = inode.io_exclusive();
    if inode.tail_is_zero.load(Ordering::Relaxed) {
        // Another thread did it, and may have written data past the committed size since.
        return Ok(());
    }
    let size = map::size(fs, inode)?;
    if !is_inline(inode) && !size.is_multiple_of(fs.geo.block_bytes.into()) {
        let _frozen = coherent::freeze(inode);
        zero_in_block(fs, inode, size, u64::MAX)?;
    }
    inode.tail_is_zero.store(true, Ordering::Relaxed);
    Ok(())
}
