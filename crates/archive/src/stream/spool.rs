//! A temporary file without a name, for contents of a stream that cannot be read again.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::Window;
use crate::error::{Error, Result};

/// See the module's head. The system frees it when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Spool {
    file: Arc<File>,
    length: u64,
    limit_bytes: u64,
}

impl Spool {
    pub(crate) fn new(limit_bytes: u64) -> Result<Spool> {
        let file = tempfile::tempfile().map_err(|error| Error::io(place(), error))?;
        Ok(Spool {
            file: Arc::new(file),
            length: 0,
            limit_bytes,
        })
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let end = self.length + bytes.len() as u64;
        if end > self.limit_bytes {
            let limit = self.limit_bytes;
            let problem = format!("what is kept of the stream needs more than {limit} bytes");
            return Err(Error::limit(place(), problem));
        }
        let written = self.file.write_all_at(bytes, self.length);
        written.map_err(|error| Error::io(place(), error))?;
        self.length = end;
        Ok(())
    }

    pub(crate) fn into_window(self) -> Window {
        Window {
            file: self.file,
            start: 0,
            length: self.length,
        }
    }
}

/// What a temporary file without a name is called in messages.
pub(crate) fn place() -> String {
    let directory = std::env::temp_dir();
    format!("temporary file in {} (TMPDIR)", directory.display())
}
