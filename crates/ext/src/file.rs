//! Reading and writing files: the locks around the data path.
//!
//! - A read, and a write within the size that covers whole blocks, share the inode's I/O lock and take no other lock while
//!   all they touch is mapped and known to the thread.
//! - A write that lengthens the file, or that covers a block in part, is alone: it reads, changes and writes back, or
//!   decides by the size.
//! - So is one to a file that is cached, or that somebody has open for buffered I/O ([`crate::coherent`]).
//! - Times are changed at most once in a [`tick`], as the kernel's clock ticks: not a transaction for every write (and
//!   with lazy times for none).

use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::Ordering;

use throughline_extfmt::inode::InodeFlags;
use throughline_fileio::{Mapper, direct};

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
    /// Reads a regular file from byte `offset` on. Answers how many bytes there were: fewer than asked only at the end.
    ///
    /// # Errors
    /// `IsDir`, `Invalid` for what is not a regular file; `Corrupt`; those of the device.
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
            coherent::before_read(self, inode, offset..offset.saturating_add(len))?;
        }
        Ok(direct::read(
            &self.disk,
            &FileMapper::for_read(self, inode),
            offset,
            bufs,
        )?)
    }

    /// Writes a regular file from byte `offset` on, and lengthens it where that ends behind its end. Answers how many bytes
    /// were written: fewer than given only where an error came later, which the next call meets.
    ///
    /// # Errors
    /// `NoSpace`, `TooLarge`, `ReadOnly`, `Permission` for an immutable file; `IsDir`, `Invalid` for what is not a regular
    /// file; `Corrupt`; those of the device.
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
                self.touch_if_due(inode)?;
                return Ok(done);
            }
        }
        let _io = inode.io_exclusive();
        self.write_alone(inode, &mapper, offset, bufs)
    }

    /// Writes at the end of a regular file. Answers where the bytes are, and how many were written.
    ///
    /// # Errors
    /// As [`Data::write_at`].
    pub fn append(&self, inode: &Inode, bufs: &[IoSlice<'_>]) -> Result<(u64, usize)> {
        self.check_may_write(inode)?;
        let written = {
            let _io = inode.io_exclusive();
            let offset = coherent::size(self, inode)?;
            let mapper = FileMapper::for_write(self, inode, offset.saturating_add(total(bufs)));
            (offset, self.write_alone(inode, &mapper, offset, bufs)?)
        };
        self.data_changed(inode)?;
        Ok(written)
    }

    /// With the I/O lock held exclusively.
    fn write_alone(
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
        // Where it fails, some of it may be written, and the file longer.
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
        self.touch_if_due(inode)?;
        Ok(done)
    }

    /// Everything written to the file so far, its size and its blocks, and the name by which it was made, are on the disk
    /// when this returns. Of a directory: its names.
    ///
    /// The transaction of the inode's last change is awaited, or made. Transactions become durable in their order, so what
    /// led to the change is on the disk too: the directory that holds the name, and those above it.
    ///
    /// # Errors
    /// What the device says, again at every call until it can be done.
    pub fn sync_file(&self, inode: &Inode) -> Result<()> {
        self.sync_inode(inode, false)
    }

    /// As [`Data::sync_file`], for programs that need no times.
    ///
    /// # Errors
    /// As there.
    pub fn sync_data(&self, inode: &Inode) -> Result<()> {
        self.sync_inode(inode, true)
    }

    fn sync_inode(&self, inode: &Inode, data_only: bool) -> Result<()> {
        self.check_up()?;
        let flushed = emptied::finish(self, inode);
        if !data_only {
            self.store_times_of(inode)?;
        }
        // Asked for now: writing the data back entered blocks and sizes into transactions. What is not to be written must
        // not keep the rest from being safe.
        self.sync_through(inode.changes.last(data_only))
            .and(flushed)
    }

    /// The largest size in bytes that the file can have.
    pub fn max_file_size(&self, inode: &Inode) -> u64 {
        map::max_size(self, inode)
    }

    /// Refuses writing to what is not a regular file, or must not change. (Whether bytes that are there may be changed was
    /// decided when the file was opened: [`crate::Attrs::check_open`].)
    pub(crate) fn check_may_write(&self, inode: &Inode) -> Result<()> {
        self.check_writable()?;
        check_regular(inode)?;
        map::size(self, inode)?;
        if inode.flags.any(InodeFlags::IMMUTABLE) {
            return Err(Reason::Permission.into());
        }
        Ok(())
    }

    /// Refuses to change bytes that are there in a file that may only be appended to.
    ///
    /// # Errors
    /// `Permission`.
    pub fn check_overwrite(&self, inode: &Inode) -> Result<()> {
        if inode.flags.any(InodeFlags::APPEND) {
            return Err(Reason::Permission.into());
        }
        Ok(())
    }

    /// Whether every file may reach there, whatever its format.
    pub(crate) fn is_within_all_limits(end: u64) -> bool {
        end <= i32::MAX.unsigned_abs().into()
    }

    /// The buffers as far as the file may reach.
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

    /// As [`crate::Base::transact`], for a change of a file's mapping. If it fails, size and mapping root in memory are restored.
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

    /// Sets the times of a write that needed no transaction, if they are older than a tick.
    pub(crate) fn touch_if_due(&self, inode: &Inode) -> Result<()> {
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

/// Makes zero what lies behind the end in the last block, which is done once while the inode is in memory, before a buffered write
/// makes the file longer. It is zero already, unless a crash came between such a write's data in that block and the size that it
/// reached. Were it left, it would show after another crash, between the data of later blocks and those of this one.
///
/// # Errors
/// `Corrupt`; those of the device.
pub(crate) fn settle_tail(fs: &Inodes, inode: &Inode) -> Result<()> {
    if inode.tail_is_zero.load(Ordering::Relaxed) {
        return Ok(());
    }
    let _io = inode.io_exclusive();
    let size = map::size(fs, inode)?;
    if !is_inline(inode) && !size.is_multiple_of(fs.geo.block_bytes.into()) {
        let _frozen = coherent::freeze(inode);
        zero_in_block(fs, inode, size, u64::MAX)?;
    }
    inode.tail_is_zero.store(true, Ordering::Relaxed);
    Ok(())
}
