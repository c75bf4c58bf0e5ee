//! [`Cursor`]: bytes that can be read at any place, as parsers of other crates want them.
//!
//! Invariant: an error of the device comes out as it was ([`Failure::explain`]), whatever the parser makes of
//! it on its way.

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use throughline_locks::Mutex;

use crate::source::ReadAt;
use crate::virtual_disk::damaged;

/// An image whose bytes a parser reads.
pub(crate) type Source = Arc<dyn ReadAt + Send + Sync>;

/// See the head of this file.
pub(crate) struct Cursor {
    source: Source,
    len_bytes: u64,
    at: u64,
    failure: Failure,
}

impl Cursor {
    /// # Errors
    /// Of the device.
    pub(crate) fn new(source: &Source, failure: &Failure) -> io::Result<Cursor> {
        Ok(Cursor {
            len_bytes: source.len_bytes()?,
            source: Arc::clone(source),
            at: 0,
            failure: failure.clone(),
        })
    }
}

impl Read for Cursor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(self.len_bytes.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let len = rest.min(buffer.len());
        let part = buffer.split_at_mut(len).0;
        if let Err(error) = self.source.read_exact_at(part, self.at) {
            *self.failure.0.lock() = Some(error);
            return Err(io::Error::other("the image cannot be read"));
        }
        self.at = self.at.saturating_add(u64::try_from(len).unwrap_or(0));
        Ok(len)
    }
}

impl Seek for Cursor {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(ahead) => self.at.checked_add_signed(ahead),
            SeekFrom::End(ahead) => self.len_bytes.checked_add_signed(ahead),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// The last error of the device, of cursors that share it.
#[derive(Clone, Default)]
pub(crate) struct Failure(Arc<Mutex<Option<io::Error>>>);

impl Failure {
    /// What an error of a parser means: that of the device, or that the image is damaged.
    pub(crate) fn explain(&self, format: &str, error: &dyn std::fmt::Display) -> io::Error {
        let of_device = self.0.lock().take();
        of_device.unwrap_or_else(|| damaged(format!("the {format} image is damaged: {error}")))
    }

    /// The same of an error of reading.
    pub(crate) fn explain_read(&self, format: &str, error: &io::Error) -> io::Error {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                self.explain(format, &"it ends before what it refers to")
            }
            _ => self.explain(format, error),
        }
    }
}
