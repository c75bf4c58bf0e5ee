//! [`Source`]: the object behind a [`Handle`](crate::Handle): a file of a volume, or a raw file.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use throughline_ext::{Fallocate, Reason};
use throughline_fileio::readahead::{self, Advice};
use throughline_fileio::{RawFile, ReadStream};

use crate::error::{Error, Result};
use crate::hints::SyncRange;
use crate::volume::Held;

/// The target of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// This byte of the file; checks that its flags allow overwriting.
    Offset(u64),
    /// This byte of the file; permission was checked when it was opened.
    Granted(u64),
    /// The end of the file at the moment of the write.
    End,
}

/// See the module. Any thread may call it.
pub(crate) trait Source: Send + Sync {
    /// Whether both are the same file.
    fn is_same(&self, other: &dyn Source) -> bool {
        std::ptr::eq(self.address(), other.address())
    }

    /// An address that is unique among the open files.
    fn address(&self) -> *const ();

    fn size(&self) -> Result<u64>;

    fn read(
        &self,
        direct: bool,
        stream: &ReadStream,
        offset: u64,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<usize>;

    /// The lengths of the pieces of the cache's memory that hold a range, if it is cached as a whole.
    fn cached_pieces(&self, offset: u64, len: u64) -> Option<Vec<usize>>;

    /// As `read` of a buffered handle, if the whole range is cached, but calls with the pieces of the cache's
    /// memory, which is locked meanwhile.
    fn lend_cached(
        &self,
        offset: u64,
        len: u64,
        lend: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Option<usize>;

    /// Records a read for the access time.
    fn accessed(&self) {}

    /// Returns the offset written to and the number of bytes written.
    fn write(&self, direct: bool, at: At, bufs: &[IoSlice<'_>]) -> Result<(u64, usize)>;

    fn sync(&self, data_only: bool) -> Result<()>;

    fn sync_range(&self, range: Range<u64>, how: SyncRange) -> Result<()>;

    fn advise(&self, stream: &ReadStream, advice: Advice, range: Range<u64>) -> Result<()>;

    fn set_len(&self, bytes: u64) -> Result<()>;

    fn allocate(&self, mode: Fallocate, offset: u64, len: u64) -> Result<()>;

    fn seek_data(&self, offset: u64) -> Result<Option<u64>>;

    fn seek_hole(&self, offset: u64) -> Result<Option<u64>>;
}

impl Source for Held {
    fn address(&self) -> *const () {
        Arc::as_ptr(&self.inode).cast()
    }

    fn size(&self) -> Result<u64> {
        match self.was_buffered() {
            Some(open) => Ok(open.size()),
            None => Ok(self.fs().data_size(&self.inode)?),
        }
    }

    fn read(
        &self,
        direct: bool,
        stream: &ReadStream,
        offset: u64,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        if direct {
            return Ok(self.fs().read_at(&self.inode, offset, bufs)?);
        }
        Ok(self.buffered()?.read(true, offset, bufs, stream)?)
    }

    fn cached_pieces(&self, offset: u64, len: u64) -> Option<Vec<usize>> {
        self.was_buffered()?.cached_pieces(offset, len)
    }

    fn lend_cached(
        &self,
        offset: u64,
        len: u64,
        lend: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Option<usize> {
        self.was_buffered()?.lend_cached(offset, len, lend)
    }

    fn accessed(&self) {
        self.fs().note_access(&self.inode);
    }

    fn write(&self, direct: bool, at: At, bufs: &[IoSlice<'_>]) -> Result<(u64, usize)> {
        if let At::Offset(_) = at {
            self.fs().check_overwrite(&self.inode)?;
        }
        Ok(match at {
            At::Offset(offset) | At::Granted(offset) if direct => {
                (offset, self.fs().write_at(&self.inode, offset, bufs)?)
            }
            At::End if direct => self.fs().append(&self.inode, bufs)?,
            At::Offset(offset) | At::Granted(offset) => {
                self.buffered()?.write(true, Some(offset), bufs)?
            }
            At::End => self.buffered()?.write(true, None, bufs)?,
        })
    }

    fn sync(&self, data_only: bool) -> Result<()> {
        if data_only {
            self.fs().sync_data(&self.inode)?;
        } else {
            self.fs().sync_file(&self.inode)?;
        }
        Ok(())
    }

    fn sync_range(&self, range: Range<u64>, how: SyncRange) -> Result<()> {
        // Another handle may have written through the cache.
        let open = self.buffered()?;
        match how {
            SyncRange::Start => open.start_flush(range),
            SyncRange::Wait => open.flush_range(range)?,
        }
        Ok(())
    }

    fn advise(&self, stream: &ReadStream, advice: Advice, range: Range<u64>) -> Result<()> {
        readahead::advise(self.buffered()?.host(), stream, advice, range);
        Ok(())
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        Ok(self.fs().truncate(&self.inode, bytes)?)
    }

    fn allocate(&self, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        Ok(self.fs().fallocate(&self.inode, mode, offset, len)?)
    }

    fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        Ok(self.fs().seek_data(&self.inode, offset)?)
    }

    fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        Ok(self.fs().seek_hole(&self.inode, offset)?)
    }
}

impl Source for RawFile {
    fn address(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    fn size(&self) -> Result<u64> {
        Ok(self.len())
    }

    fn read(
        &self,
        direct: bool,
        stream: &ReadStream,
        offset: u64,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Result<usize> {
        Ok(if direct {
            self.read_vectored_at(offset, bufs)?
        } else {
            self.read_buffered(offset, bufs, stream)?
        })
    }

    fn cached_pieces(&self, offset: u64, len: u64) -> Option<Vec<usize>> {
        self.cache()?;
        throughline_fileio::cached_pieces(self.cached().space(), offset, len)
    }

    fn lend_cached(
        &self,
        offset: u64,
        len: u64,
        lend: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Option<usize> {
        self.cache()?;
        throughline_fileio::lend_cached(self.cached().space(), offset, len, lend)
    }

    fn write(&self, direct: bool, at: At, bufs: &[IoSlice<'_>]) -> Result<(u64, usize)> {
        Ok(match at {
            At::Offset(offset) | At::Granted(offset) if direct => {
                (offset, self.write_vectored_at(offset, bufs)?)
            }
            At::End if direct => self.append(bufs)?,
            At::Offset(offset) | At::Granted(offset) => self.write_buffered(Some(offset), bufs)?,
            At::End => self.write_buffered(None, bufs)?,
        })
    }

    fn sync(&self, data_only: bool) -> Result<()> {
        if data_only {
            self.sync_data()?;
        } else {
            self.sync_all()?;
        }
        Ok(())
    }

    fn sync_range(&self, range: Range<u64>, how: SyncRange) -> Result<()> {
        match how {
            SyncRange::Start => self.start_flush(range),
            SyncRange::Wait => self.flush_range(range)?,
        }
        Ok(())
    }

    fn advise(&self, stream: &ReadStream, advice: Advice, range: Range<u64>) -> Result<()> {
        readahead::advise(&self.cached(), stream, advice, range);
        Ok(())
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        Ok(RawFile::set_len(self, bytes)?)
    }

    fn allocate(&self, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Err(Reason::Invalid("an empty range").into());
        }
        let refused = |what: &str| Err(Error::Unsupported(what.to_owned()));
        match mode {
            Fallocate::Allocate => RawFile::allocate(self, offset, len, false)?,
            Fallocate::KeepSize => RawFile::allocate(self, offset, len, true)?,
            Fallocate::PunchHole => self.punch_hole(offset, len)?,
            Fallocate::ZeroRangeKeepSize => self.zero_range(offset, len)?,
            Fallocate::ZeroRange => {
                let end = offset.checked_add(len).ok_or(Reason::TooLarge)?;
                if end > self.len() {
                    RawFile::allocate(self, offset, len, false)?;
                }
                self.zero_range(offset, len)?;
            }
            Fallocate::Collapse => return refused("removing a range of a raw file"),
            Fallocate::Insert => return refused("inserting a range into a raw file"),
        }
        Ok(())
    }

    fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        Ok(RawFile::seek_data(self, offset)?)
    }

    fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        Ok(RawFile::seek_hole(self, offset)?)
    }
}
