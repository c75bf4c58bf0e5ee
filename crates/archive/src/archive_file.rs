//! Archives as sources: a file or a layer that is read again, and what was kept of a stream.

use std::io::{BufReader, Read};

use crate::error::{Error, Result};
use crate::host::fingerprint_of;
use crate::limits::Limits;
use crate::source::{Access, Item, Source};
use crate::stream::{Compression, Window, decoder, from_read, spool_place};

/// An archive in a file, or a layer of an image.
pub(crate) struct ArchiveFile {
    pub(crate) name: String,
    pub(crate) window: Window,
    pub(crate) compression: Compression,
    limit_bytes: u64,
    fingerprint: u64,
}

impl ArchiveFile {
    pub(crate) fn new(window: Window, name: &str, limits: &Limits) -> Result<ArchiveFile> {
        let failed = |error: std::io::Error| Error::io(name, error);
        let fingerprint = fingerprint_of(&window.file).map_err(failed)?;
        Ok(ArchiveFile {
            name: name.to_owned(),
            compression: window.compression().map_err(failed)?,
            limit_bytes: limits.stream_bytes,
            fingerprint,
            window,
        })
    }

    pub(crate) fn check(&self) -> Result<()> {
        let now = fingerprint_of(&self.window.file);
        if now.map_err(|error| Error::io(&self.name, error))? == self.fingerprint {
            Ok(())
        } else {
            Err(Error::Changed(self.name.clone()))
        }
    }
}

impl Source for ArchiveFile {
    fn describe(&self) -> String {
        self.name.clone()
    }

    fn access(&self) -> Access {
        if self.compression == Compression::None {
            Access::Random
        } else {
            Access::Sequential
        }
    }

    fn open_item(&self, _item: u32) -> Result<Box<dyn Item + '_>> {
        if self.access() == Access::Sequential {
            return Err(Error::Invalid(format!(
                "{}: compressed, so it is read in order only",
                self.name
            )));
        }
        self.check()?;
        Ok(Box::new(OpenArchive(self)))
    }

    fn open_stream(&self) -> Result<Box<dyn Read + Send + '_>> {
        self.check()?;
        let input = BufReader::with_capacity(128 << 10, self.window.reader());
        decoder(self.compression, input, self.limit_bytes)
            .map_err(|error| from_read(error).within(&self.name))
    }

    fn finish_stream(&self) -> Result<()> {
        self.check()
    }
}

struct OpenArchive<'a>(&'a ArchiveFile);

impl Item for OpenArchive<'_> {
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<()> {
        let read = self.0.window.read_exact_at(at, buffer);
        read.map_err(|error| Error::io(&self.0.name, error))
    }

    fn finish(&self) -> Result<()> {
        self.0.check()
    }
}

/// Contents of a stream, in a temporary file.
pub(crate) struct Spooled {
    pub(crate) name: String,
    pub(crate) window: Window,
}

impl Source for Spooled {
    fn describe(&self) -> String {
        self.name.clone()
    }

    fn open_item(&self, _item: u32) -> Result<Box<dyn Item + '_>> {
        Ok(Box::new(&self.window))
    }
}

impl Item for &Window {
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<()> {
        let read = self.read_exact_at(at, buffer);
        read.map_err(|error| Error::io(spool_place(), error))
    }
}
