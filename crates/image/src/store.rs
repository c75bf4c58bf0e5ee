//! What holds the bytes of an image that can be written.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, fallocate};

use crate::source::ReadAt;

/// A file that can be written: its end moves with what is written behind it.
///
/// Until [`Store::sync`] returns, what was written may reach the disk in any order, or not at all.
pub trait Store: ReadAt + Send + Sync {
    /// Writes all of `bytes` at byte `at`.
    ///
    /// # Errors
    /// Of the device; a part may have been written.
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Returns when everything that was written before survives a power cut.
    ///
    /// # Errors
    /// Of the device. What was written since the last call may be lost then.
    fn sync(&self) -> io::Result<()>;

    /// The bytes are no longer needed, and may become anything.
    fn free(&self, at: u64, len_bytes: u64);
}

impl Store for File {
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn free(&self, at: u64, len_bytes: u64) {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Not every file system can: the room is then used for what is written next.
        let _ = fallocate(self, hole, at, len_bytes);
    }
}
