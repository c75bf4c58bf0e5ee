//! [`RawFile`]: a plain file or a block device of the host, with no volume in sight.

use std::ops::Deref;
use std::sync::Arc;

use throughline_block::Disk;

use crate::error::Result;
use crate::handle::Handle;
use crate::mode::{FileOptions, Mode};

/// An open plain file or block device; see [`Handle`] for what it can do. A plain file grows with what is written behind its
/// end, a device does not. Nobody else may change the file's length meanwhile.
///
/// [`RawFile::reopen`] gives further handles on the same file; the file is closed with the last of them.
pub struct RawFile {
    file: Arc<throughline_fileio::RawFile>,
    handle: Handle,
}

impl RawFile {
    pub(crate) fn new(file: throughline_fileio::RawFile, mode: Mode) -> RawFile {
        RawFile::on(Arc::new(file), mode)
    }

    fn on(file: Arc<throughline_fileio::RawFile>, mode: Mode) -> RawFile {
        RawFile {
            handle: Handle::new(Arc::clone(&file) as _, mode),
            file,
        }
    }

    /// Another handle on the same file: direct beside a buffered one, for one. What `options` say of making or
    /// emptying the file is not done.
    ///
    /// # Errors
    /// None so far.
    pub fn reopen(&self, options: &FileOptions) -> Result<RawFile> {
        Ok(RawFile::on(Arc::clone(&self.file), options.mode()))
    }

    /// The block layer below: its counters, its event stream, the size its bios aim at.
    pub fn disk(&self) -> &Arc<Disk> {
        self.file.disk()
    }

    /// Writes back what is dirty and closes this handle; the file closes with its last one.
    ///
    /// # Errors
    /// What write-back met; the data that could not be written is then lost with the last handle. Call
    /// [`Handle::sync`] before, where that is not to happen.
    pub fn close(self) -> Result<()> {
        self.sync_data()
    }
}

impl Deref for RawFile {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}
