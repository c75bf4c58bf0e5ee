//! Write-back by the kernel: bytes that their program has stored already, through a mapping or in the
//! kernel's cache.
//!
//! Invariant: a call either takes all bytes or fails, and then the ranges that it did not take are recorded
//! as lost: each later sync of the file fails until they are written again or removed.

use std::io::IoSlice;

use throughline_fileio::{self as fileio, Stored, buffered};

use super::OpenFile;
use crate::caller::Caller;
use crate::error::Result;
use crate::file;

impl OpenFile {
    /// Takes bytes that their program has stored, to be written back from byte `offset` on. If there is no
    /// space for them, they are kept in memory, as long as that is little of it. A sync of the file, and of
    /// the volume, tries again, and fails until there is space.
    ///
    /// # Errors
    /// `NoSpace`, `Quota` if too much is kept already; as [`OpenFile::write`]. Reported again by each sync of
    /// the file and of the volume, until the bytes that were not taken are written again or removed.
    pub fn write_back(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let len = bytes.len() as u64;
        let range = offset..offset.saturating_add(len);
        let bufs = [IoSlice::new(bytes)];
        let put = |at: u64, bufs: &[IoSlice<'_>]| buffered::write_back(&self.host, at, bufs);
        // Noted before the bytes are stored, because a sync on another thread may ask for their space at
        // once; and noted again after it, because another caller may have been noted meanwhile.
        self.note_caller();
        let stored = file::check_may_store(&self.fs, &self.inode)
            .and_then(|()| self.write_once(Some(offset), &bufs, put));
        let lost = match stored {
            Err(error) => {
                let error = fileio::Error::from(error);
                buffered::lose(&self.host, range, error.clone());
                Some(error)
            }
            Ok((_, Stored { accepted, lost })) => {
                if self.space().refused.is_any() {
                    self.note_caller();
                }
                buffered::pause(&self.host, accepted);
                // An error is returned by each later sync too.
                let _ = self.fs.data_changed(&self.inode);
                let taken = accepted.bytes as u64;
                if taken < len {
                    // Past the maximum size of a file.
                    let rest = range.start + taken..range.end;
                    let why = fileio::Error::from(fileio::Reason::TooLarge);
                    buffered::lose(&self.host, rest, why.clone());
                    Some(why)
                } else {
                    lost
                }
            }
        };
        lost.map_or(Ok(()), |why| Err(why.into()))
    }

    /// Notes for whom bytes are stored.
    fn note_caller(&self) {
        if let Some(cached) = self.inode.cached.get() {
            let caller = Caller::current().lasting(&self.fs);
            cached.note_stored_for(caller, |known| known.is_privileged(&self.fs));
        }
    }
}
