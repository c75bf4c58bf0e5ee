//! Reads, writes and copies whole files.

use std::path::Path;

use throughline_ext::Reason;

use super::Dir;
use crate::error::{Error, Result};
use crate::file::File;
use crate::handle::Handle;
use crate::metadata::Attributes;
use crate::mode::FileOptions;

/// Size of the reads past the size that the file had.
const PROBE_BYTES: usize = 4096;

impl Dir {
    /// The contents of a file.
    ///
    /// # Errors
    /// [`Reason::TooLarge`] if memory does not suffice: a damaged volume may claim any size; as
    /// [`Dir::open_file`] and [`Handle::read_at`].
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        self.open_file(path)?.contents()
    }

    /// As [`Dir::read`], as text.
    ///
    /// # Errors
    /// [`Reason::Invalid`] if the file is not UTF-8; as [`Dir::read`].
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let text = String::from_utf8(self.read(path)?);
        text.map_err(|_| Reason::Invalid("the file is not UTF-8").into())
    }

    /// Writes a whole file: it is created, or truncated and rewritten. After a crash it has either its old or
    /// its new contents, unless [`VolumeOptions::auto_da_alloc`](crate::VolumeOptions::auto_da_alloc) was
    /// switched off. **It is not durable before a
    /// sync** ([`Volume::sync`](crate::Volume::sync)).
    ///
    /// # Errors
    /// As [`Dir::create_file`] and [`Handle::write_at`].
    pub fn write(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Result<()> {
        let file = self.create_file(path)?;
        file.write_all_at(contents.as_ref(), 0)
    }

    /// Copies the contents and the mode of a regular file to another one, which is created or truncated.
    /// Returns the number of bytes copied. Holes are copied as zeros.
    ///
    /// **Until it is synced, a change is lost if the process ends or the machine fails** ([what is
    /// durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::Invalid`] if both are the same file; as [`Dir::open_file`], [`Dir::create_file`] and
    /// [`Handle::copy_range`].
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let from = self.open_file(from)?;
        let attributes = Attributes::new().mode(from.metadata()?.mode());
        let to = FileOptions::of(self.mounted.mode())
            .create(true)
            .attributes(attributes.clone())
            .open(self, to)?;
        if from.is_same_file(&to) {
            return Err(Reason::Invalid("a file is not copied to itself").into());
        }
        to.set_len(0)?;
        to.set_attributes(&attributes)?;
        let size = from.size()?;
        let mut copied = 0;
        while copied < size {
            match from.copy_range(copied, &to, copied, size - copied)? {
                0 => break,
                more => copied += more,
            }
        }
        Ok(copied)
    }

    /// Whether `path` exists; symbolic links are followed.
    ///
    /// # Errors
    /// As [`Dir::metadata`], except [`Reason::NotFound`].
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(Error::Caller(Reason::NotFound)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl File {
    /// Reads the file up to its end at the time that is reached.
    fn contents(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        // One byte more than its size, to detect the end.
        let size = self.size()?.saturating_add(1);
        let mut room = usize::try_from(size).map_err(|_| Reason::TooLarge)?;
        loop {
            let at = bytes.len();
            bytes
                .try_reserve_exact(room)
                .map_err(|_| Reason::TooLarge)?;
            bytes.resize(at + room, 0);
            let read = Handle::read_at(self, &mut bytes[at..], at as u64)?;
            bytes.truncate(at + read);
            if read < room {
                return Ok(bytes);
            }
            // It may have grown in the meantime.
            room = PROBE_BYTES;
        }
    }
}
