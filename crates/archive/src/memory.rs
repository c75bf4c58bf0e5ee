//! A source of bytes given by the program.

use crate::content::{FileContent, SourceId};
use crate::error::{Error, Result};
use crate::source::{Item, Source};

/// Contents in memory, for a tree built by code. Add all of them, then add this to the
/// [`Sources`](crate::Sources); its number makes the contents those of files.
#[derive(Debug, Default)]
pub struct Memory {
    bytes: Vec<u8>,
}

/// A content of a [`Memory`].
#[derive(Clone, Copy, Debug)]
pub struct InMemory {
    at: u64,
    size: u64,
}

impl Memory {
    /// Nothing.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Adds a content.
    pub fn add(&mut self, bytes: &[u8]) -> InMemory {
        let at = self.bytes.len() as u64;
        self.bytes.extend_from_slice(bytes);
        InMemory {
            at,
            size: bytes.len() as u64,
        }
    }
}

impl InMemory {
    /// The content, of the memory added under that number.
    pub fn of(self, source: SourceId) -> FileContent {
        FileContent::dense(source, 0, self.size, self.at)
    }
}

impl Source for Memory {
    fn describe(&self) -> String {
        "memory".to_owned()
    }

    fn open_item(&self, _item: u32) -> Result<Box<dyn Item + '_>> {
        Ok(Box::new(&self.bytes[..]))
    }
}

impl Item for &[u8] {
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<()> {
        let start = usize::try_from(at).unwrap_or(usize::MAX);
        let bytes = self.get(start..).and_then(|rest| rest.get(..buffer.len()));
        let bytes =
            bytes.ok_or_else(|| Error::Invalid("a content is beyond its memory".to_owned()))?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }
}
