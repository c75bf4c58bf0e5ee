//! [`RawFile`]: a whole device, or a plain file, as a file: its mapping is the device onto itself.
//!
//! Nothing is shared between the I/Os of different threads but what they only read: no count per inode, no lock that
//! another thread's I/O writes (founding report 2). A block device cannot shrink, so reading takes no lock at all.
//! Writing takes the [`Gate`], because a write of a part of a block must be alone.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use throughline_block::Disk;
use throughline_device::DeviceKind;

use crate::direct;
use crate::error::{Error, Reason, Result};
use crate::gate::Gate;
use crate::mapper::{Claim, ClaimKind, Map, MappedExtent, Mapper, Target};

/// A block device or a plain file, with direct I/O of any offset, length and memory. A plain file grows with what is
/// written behind its end; a device does not. Nobody else may change the file's length meanwhile.
pub struct RawFile {
    disk: Arc<Disk>,
    gate: Gate,
    /// In bytes; written only when a plain file changes its length.
    len: AtomicU64,
}

impl RawFile {
    /// The file that is all of `disk`.
    pub fn new(disk: Arc<Disk>) -> Self {
        Self {
            len: AtomicU64::new(disk.len_bytes()),
            gate: Gate::default(),
            disk,
        }
    }

    /// The disk below.
    pub fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` from byte `offset` on; returns how many bytes there were, fewer only at the end.
    ///
    /// # Errors
    /// What the device says; `buf` is then undefined.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read_vectored_at(offset, &mut [IoSliceMut::new(buf)])
    }

    /// As [`RawFile::read_at`], into several pieces of memory one after the other.
    ///
    /// # Errors
    /// As [`RawFile::read_at`].
    pub fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<usize> {
        direct::read(&self.disk, &self.identity(), offset, bufs)
    }

    /// Writes `buf` at byte `offset`; returns how many bytes are written, fewer only where an error or the device's end
    /// came after them.
    ///
    /// # Errors
    /// [`Reason::NoSpace`] at the end of a device, [`Reason::ReadOnly`], what the device says.
    pub fn write_at(&self, offset: u64, buf: &[u8]) -> Result<usize> {
        self.write_vectored_at(offset, &[IoSlice::new(buf)])
    }

    /// As [`RawFile::write_at`], from several pieces of memory one after the other.
    ///
    /// # Errors
    /// As [`RawFile::write_at`].
    pub fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<usize> {
        self.check_writable()?;
        let len = bufs
            .iter()
            .fold(0_u64, |sum, buf| sum.saturating_add(buf.len() as u64));
        let end = offset.checked_add(len).ok_or(Reason::TooLarge)?;
        if len == 0 {
            return Ok(0);
        }
        if !direct::needs_exclusive(&self.identity(), offset, len) {
            let _beside_others = self.gate.shared();
            if !self.grows(end) {
                return direct::write(&self.disk, &self.identity(), offset, bufs);
            }
        }
        self.gate.exclusive(|| match self.grows(end) {
            true => self.write_growing(bufs, offset, end),
            false => direct::write(&self.disk, &self.identity(), offset, bufs),
        })
    }

    /// Writes at the end; returns where the bytes are, and how many were written. Appends never overlap.
    ///
    /// # Errors
    /// As [`RawFile::write_at`].
    pub fn append(&self, bufs: &[IoSlice<'_>]) -> Result<(u64, usize)> {
        self.check_writable()?;
        let len = bufs
            .iter()
            .fold(0_u64, |sum, buf| sum.saturating_add(buf.len() as u64));
        self.gate.exclusive(|| {
            let offset = self.len();
            if len == 0 {
                return Ok((offset, 0));
            }
            let end = offset.checked_add(len).ok_or(Reason::TooLarge)?;
            if !self.can_grow() {
                return Err(Reason::NoSpace.into());
            }
            Ok((offset, self.write_growing(bufs, offset, end)?))
        })
    }

    /// Whether a write up to `end` reaches into the last block of a plain file, where that is not whole, or behind it.
    /// Steady while the gate is held.
    fn grows(&self, end: u64) -> bool {
        let block = u64::from(self.identity().block_bytes());
        self.can_grow()
            && end
                .checked_next_multiple_of(block)
                .is_none_or(|end| end > self.len())
    }

    /// Writes up to `end`, alone. The device writes whole blocks and would make the file as long, so the length is set
    /// to the byte afterwards; readers see the new length only then.
    fn write_growing(&self, bufs: &[IoSlice<'_>], offset: u64, end: u64) -> Result<usize> {
        let before = self.len();
        if end > before {
            self.disk.set_len(end)?;
        }
        let written = direct::write(&self.disk, &self.identity(), offset, bufs);
        let len = match &written {
            Ok(bytes) => before.max(offset.saturating_add(*bytes as u64)),
            Err(_) => before,
        };
        let trimmed = self.set_len_alone(len);
        let written = written?;
        trimmed?;
        Ok(written)
    }

    fn set_len_alone(&self, len: u64) -> Result<()> {
        self.disk.set_len(len)?;
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    /// Returns when everything written before, and the length, survives a power loss.
    ///
    /// # Errors
    /// What the device says.
    pub fn sync_all(&self) -> Result<()> {
        Ok(self.disk.flush()?)
    }

    /// As [`RawFile::sync_all`]: there is no other metadata that could be left out.
    ///
    /// # Errors
    /// What the device says.
    pub fn sync_data(&self) -> Result<()> {
        self.sync_all()
    }

    /// Makes a plain file `len` bytes long; new bytes read as zero.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a device, unless that is its length; what the system says.
    pub fn set_len(&self, len: u64) -> Result<()> {
        self.check_writable()?;
        if self.can_grow() {
            return self.gate.exclusive(|| self.set_len_alone(len));
        }
        if len == self.len() {
            return Ok(());
        }
        Err(Error::Unsupported(
            "a device cannot change its length".into(),
        ))
    }

    /// Reserves space for `len` bytes from `offset` on, so that writing them cannot run out of it; lengthens a plain
    /// file to their end. A device has all its space.
    ///
    /// # Errors
    /// [`Reason::NoSpace`] past the end of a device; what the system says, as that its file system cannot.
    pub fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.check_writable()?;
        let end = offset.checked_add(len).ok_or(Reason::TooLarge)?;
        if len == 0 {
            return Ok(());
        }
        if !self.can_grow() {
            return if end <= self.len() {
                Ok(())
            } else {
                Err(Reason::NoSpace.into())
            };
        }
        self.gate.exclusive(|| {
            self.disk.allocate(offset, len)?;
            self.len.fetch_max(end, Ordering::Release);
            Ok(())
        })
    }

    fn check_writable(&self) -> Result<()> {
        if self.disk.info().read_only {
            return Err(Reason::ReadOnly.into());
        }
        Ok(())
    }

    fn identity(&self) -> Identity<'_> {
        Identity {
            disk: &self.disk,
            len: self.len(),
        }
    }

    fn can_grow(&self) -> bool {
        self.disk.info().kind == DeviceKind::RegularFile
    }
}

/// The mapping of a device onto itself.
struct Identity<'a> {
    disk: &'a Disk,
    /// The file's length when the call began.
    len: u64,
}

impl Identity<'_> {
    /// What can be written from `at` on: to the end of the device's last block.
    fn room(&self, at: u64) -> u64 {
        let len = self.disk.len_bytes();
        let end = len
            .checked_next_multiple_of(u64::from(self.block_bytes()))
            .unwrap_or(len);
        end.saturating_sub(at)
    }
}

impl Map for Identity<'_> {
    fn block_bytes(&self) -> u32 {
        self.disk.limits().logical_block_bytes.max(1)
    }

    fn size_bytes(&self) -> u64 {
        self.len
    }

    fn map(&self, file_offset: u64, len: u64) -> Result<MappedExtent> {
        Ok(MappedExtent {
            file_offset,
            len,
            target: Target::Data {
                device_offset: file_offset,
            },
        })
    }
}

impl Mapper for Identity<'_> {
    fn claim(&self, file_offset: u64, len: u64) -> Result<Claim> {
        let len = len.min(self.room(file_offset));
        if len == 0 {
            return Err(Reason::NoSpace.into());
        }
        Ok(Claim {
            file_offset,
            len,
            device_offset: file_offset,
            kind: ClaimKind::Overwrite,
            id: 0,
        })
    }

    fn commit(&self, _claims: &[Claim], _new_size: Option<u64>) -> Result<()> {
        Ok(())
    }

    fn abandon(&self, _claims: &[Claim]) {}
}
