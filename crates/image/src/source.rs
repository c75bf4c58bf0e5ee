//! What tables are read from, and numbers in little-endian bytes.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::sync::Arc;

/// Bytes that can be read at any place: a file, a block device, or what behaves like one.
pub trait ReadAt {
    /// Fills `buffer` from byte `at` on.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if there are fewer bytes; of the device.
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()>;

    /// The number of bytes.
    ///
    /// # Errors
    /// Of the device.
    fn len_bytes(&self) -> io::Result<u64>;

    /// The bytes of a sector, the unit of a partition table: 512, unless a block device has others.
    ///
    /// # Errors
    /// Of the device.
    fn sector_bytes(&self) -> io::Result<u64> {
        Ok(512)
    }
}

impl<T: ReadAt + ?Sized> ReadAt for Arc<T> {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        (**self).read_exact_at(buffer, at)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        (**self).len_bytes()
    }

    fn sector_bytes(&self) -> io::Result<u64> {
        (**self).sector_bytes()
    }
}

impl<T: ReadAt + ?Sized> ReadAt for Box<T> {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        (**self).read_exact_at(buffer, at)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        (**self).len_bytes()
    }

    fn sector_bytes(&self) -> io::Result<u64> {
        (**self).sector_bytes()
    }
}

impl ReadAt for File {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buffer, at)
    }

    fn len_bytes(&self) -> io::Result<u64> {
        // Also of a block device. No other user of this file description depends on its position.
        io::Seek::seek(&mut &*self, io::SeekFrom::End(0))
    }

    fn sector_bytes(&self) -> io::Result<u64> {
        match self.metadata()?.file_type().is_block_device() {
            true => Ok(rustix::fs::ioctl_blksszget(self)?.into()),
            false => Ok(512),
        }
    }
}

/// Reads `LEN` bytes at byte `at`; `None` if the disk ends before.
pub(crate) fn read<const LEN: usize>(
    disk: &(impl ReadAt + ?Sized),
    at: u64,
) -> io::Result<Option<[u8; LEN]>> {
    let mut bytes = [0; LEN];
    match disk.read_exact_at(&mut bytes, at) {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        // Past the largest offset of a file.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
        Err(error) => Err(error),
    }
}

fn bytes<const LEN: usize>(from: &[u8], at: usize) -> [u8; LEN] {
    from.get(at..)
        .and_then(|rest| rest.first_chunk())
        .copied()
        .unwrap_or([0; LEN])
}

/// The number at byte `at`; 0 past the end.
pub(crate) fn short(from: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes(from, at))
}

/// The number at byte `at`; 0 past the end.
pub(crate) fn word(from: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes(from, at))
}

/// The number at byte `at`; 0 past the end.
pub(crate) fn long(from: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes(from, at))
}
