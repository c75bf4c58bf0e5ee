//! What holds the bytes of an image that can be written.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;

use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};

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

    /// A hint: what was written to these bytes can go to the disk now; nothing waits for that.
    fn begin_writing_back(&self, _at: u64, _len_bytes: u64) {}
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

    fn begin_writing_back(&self, at: u64, len_bytes: u64) {
        // Linux begins to write dirty pages back, and drops those that are on the disk already.
        let _ = fadvise(self, at, NonZeroU64::new(len_bytes), Advice::DontNeed);
    }
}
