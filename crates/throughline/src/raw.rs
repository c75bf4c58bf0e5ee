//! [`RawFile`]: a plain file or a block device of the host, without a volume.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use throughline_block::Disk;
use throughline_fileio::PageCache;

use crate::cache::CacheState;
use crate::error::Result;
use crate::handle::Handle;
use crate::mode::{FileOptions, Mode};

/// An open plain file or block device; [`Handle`] has the I/O calls. A write past the end extends a plain
/// file, but not a device. No other program may change the file's length while it is open.
///
/// [`RawFile::reopen`] gives further handles on the same file; the file is closed with the last of them.
///
/// **Accepted data that was not synced is in this process's memory.** Dropping the last handle writes it to
/// the file, also while a panic unwinds. It is lost if the process ends without that drop (killed, aborted,
/// `std::process::exit`).
pub struct RawFile {
    file: Arc<throughline_fileio::RawFile>,
    handle: Handle,
}

impl fmt::Debug for RawFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawFile")
            .field("device", &self.disk().info().name)
            .field("direct", &self.is_direct())
            .finish_non_exhaustive()
    }
}

impl RawFile {
    pub(crate) fn new(file: throughline_fileio::RawFile, mode: Mode) -> RawFile {
        RawFile::on(Arc::new(file), mode)
    }

    fn on(file: Arc<throughline_fileio::RawFile>, mode: Mode) -> RawFile {
        RawFile {
            handle: Handle::new(Arc::clone(&file) as _, file.disk(), mode),
            file,
        }
    }

    /// Another handle on the same file with the same options. Both share one position for `Read`, `Write` and
    /// `Seek`, as with `std::fs::File`.
    ///
    /// # Errors
    /// None at present.
    pub fn try_clone(&self) -> Result<RawFile> {
        Ok(RawFile {
            file: Arc::clone(&self.file),
            handle: self.handle.share(),
        })
    }

    /// Another handle on the same file, for example a direct one beside a buffered one. Options for creating
    /// or truncating the file are ignored.
    ///
    /// # Errors
    /// None at present.
    pub fn reopen(&self, options: &FileOptions) -> Result<RawFile> {
        Ok(RawFile::on(Arc::clone(&self.file), options.mode()))
    }

    pub(crate) fn disk(&self) -> &Arc<Disk> {
        self.file.disk()
    }

    pub(crate) fn cache(&self) -> Option<&Arc<PageCache>> {
        self.file.cache()
    }

    /// The state of the page cache; `None` if none was created yet.
    pub fn cache_state(&self) -> Option<CacheState> {
        self.cache().map(|cache| CacheState::of(cache))
    }

    /// Creates the page cache if there is none yet, and returns its state.
    pub fn prepare_cache(&self) -> CacheState {
        CacheState::of(self.file.cached().space().cache())
    }

    /// Closes this handle. The last handle writes back dirty data and closes the file. **Unlike
    /// after [`Handle::sync_all`], the data may not survive a power loss.** Dropping a handle does the same,
    /// but only logs errors.
    ///
    /// # Errors
    /// Write-back errors. The data that could not be written is then lost; call [`Handle::sync_all`] first to
    /// keep it.
    pub fn close(self) -> Result<()> {
        drop(self.handle);
        match Arc::try_unwrap(self.file) {
            Ok(file) => Ok(file.close()?),
            Err(shared) => Ok(shared.flush_range(0..u64::MAX)?),
        }
    }
}

impl Deref for RawFile {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}
