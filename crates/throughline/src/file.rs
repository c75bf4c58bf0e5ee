//! [`File`], an open regular file.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use throughline_ext::{Fallocate, Inode, Reason};

use crate::error::Result;
use crate::metadata::{Attributes, FileType, Metadata};
use crate::volume::{Held, Volume};

/// An open regular file. All calls take offsets, so all threads may use it at once.
pub struct File {
    held: Held,
}

impl File {
    pub(crate) fn new(volume: &Volume, inode: Arc<Inode>) -> Result<File> {
        match Metadata::of(volume, &inode)?.file_type() {
            FileType::File => Ok(File {
                held: Held::new(volume, inode)?,
            }),
            FileType::Directory => Err(Reason::IsDir.into()),
            _ => Err(Reason::Invalid("not a regular file").into()),
        }
    }

    pub(crate) fn inode(&self) -> &Inode {
        &self.held.inode
    }

    /// The volume that it is on.
    pub fn volume(&self) -> &Volume {
        &self.held.volume
    }

    /// What the volume says about it.
    ///
    /// # Errors
    /// Damage.
    pub fn metadata(&self) -> Result<Metadata> {
        Metadata::of(&self.held.volume, &self.held.inode)
    }

    /// Sets attributes.
    ///
    /// # Errors
    /// [`Reason::Permission`] for an immutable or append-only file, [`Reason::ReadOnly`]; the device's.
    pub fn set_attributes(&self, attributes: &Attributes) -> Result<()> {
        attributes.set(&self.held.volume, &self.held.inode)
    }

    /// Fills `buf` from byte `offset` on; returns how many bytes there were, fewer only at the end of the file. Fast for
    /// long and aligned buffers, right for all.
    ///
    /// # Errors
    /// Damage; the device's.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read_vectored_at(offset, &mut [IoSliceMut::new(buf)])
    }

    /// As [`File::read_at`], into several buffers one after the other.
    ///
    /// # Errors
    /// As there.
    pub fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<usize> {
        Ok(self.held.fs().read_at(&self.held.inode, offset, bufs)?)
    }

    /// Writes `buf` at byte `offset`; the file grows as needed, and what is between its end and `offset` becomes a hole.
    /// When it returns the data is on the device; names and sizes follow at the next [`Volume::sync`]. Returns how many
    /// bytes were written, fewer than given only where an error came after them, which the next call meets.
    ///
    /// # Errors
    /// [`Reason::NoSpace`], [`Reason::TooLarge`], [`Reason::ReadOnly`], [`Reason::Permission`]; damage; the device's.
    pub fn write_at(&self, offset: u64, buf: &[u8]) -> Result<usize> {
        self.write_vectored_at(offset, &[IoSlice::new(buf)])
    }

    /// As [`File::write_at`], until all of `buf` is written.
    ///
    /// # Errors
    /// As there; a part of `buf` may have been written then.
    pub fn write_all_at(&self, mut offset: u64, mut buf: &[u8]) -> Result<()> {
        while !buf.is_empty() {
            let written = self.write_at(offset, buf)?;
            if written == 0 {
                return Err(Reason::NoSpace.into());
            }
            offset = offset.checked_add(written as u64).ok_or(Reason::TooLarge)?;
            buf = buf.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    /// As [`File::write_at`], from several buffers one after the other.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<usize> {
        Ok(self.held.fs().write_at(&self.held.inode, offset, bufs)?)
    }

    /// Writes at the end of the file; returns where the bytes are, and how many were written.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn append(&self, buf: &[u8]) -> Result<(u64, usize)> {
        Ok(self
            .held
            .fs()
            .append(&self.held.inode, &[IoSlice::new(buf)])?)
    }

    /// Changes how `len` bytes from `offset` on are allocated.
    ///
    /// # Errors
    /// [`Reason::Invalid`] for an empty range, or one that is not whole blocks where it must be; as [`File::write_at`].
    pub fn allocate(&self, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        Ok(self
            .held
            .fs()
            .fallocate(&self.held.inode, mode, offset, len)?)
    }

    /// Makes it `bytes` long: what is behind goes, what is new is a hole.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn set_len(&self, bytes: u64) -> Result<()> {
        Ok(self.held.fs().truncate(&self.held.inode, bytes)?)
    }

    /// The first byte at or behind `offset` that is no hole; `None` if there is none up to the end.
    ///
    /// # Errors
    /// Damage; the device's.
    pub fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        Ok(self.held.fs().seek_data(&self.held.inode, offset)?)
    }

    /// The first byte at or behind `offset` that is in a hole, of which there is one behind the end; `None` where `offset`
    /// is behind the last byte.
    ///
    /// # Errors
    /// Damage; the device's.
    pub fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        Ok(self.held.fs().seek_hole(&self.held.inode, offset)?)
    }

    /// Returns when data, size and name survive a crash.
    ///
    /// # Errors
    /// What the device says, again at every call until it can be done.
    pub fn sync(&self) -> Result<()> {
        Ok(self.held.fs().sync_file(&self.held.inode)?)
    }
}
