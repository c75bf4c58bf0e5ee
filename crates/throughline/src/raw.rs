//! [`RawFile`]: a plain file or a block device of the host, with no volume in sight.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use throughline_block::Disk;
use throughline_fileio::PageCache;

use crate::cache::CacheState;
use crate::error::Result;
use crate::handle::Handle;
use crate::mode::{FileOptions, Mode};

/// An open plain file or block device; see [`Handle`] for what it can do. A plain file grows with what is written behind its
/// end, a device does not. Nobody else may change the file's length meanwhile.
///
/// [`RawFile::reopen`] gives further handles on the same file; the file is closed with the last of them.
///
/// **What was accepted and not synced is in the memory of this process.** Dropping the last handle writes it to the file, also
/// while a panic unwinds; it is lost where the process ends without that (killed, aborted, `std::process::exit`).
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

    /// Another handle on the same file: direct beside a buffered one, for one. What `options` say of making or
    /// emptying the file is not done.
    ///
    /// # Errors
    /// None so far.
    pub fn reopen(&self, options: &FileOptions) -> Result<RawFile> {
        Ok(RawFile::on(Arc::clone(&self.file), options.mode()))
    }

    /// The block layer below: of use to this workspace's own crates.
    #[doc(hidden)]
    pub fn disk(&self) -> &Arc<Disk> {
        self.file.disk()
    }

    /// Its page cache, once it has come to use one: of use to this workspace's own crates.
    #[doc(hidden)]
    pub fn cache(&self) -> Option<&Arc<PageCache>> {
        self.file.cache()
    }

    /// The state of its page cache, once it has come to use one.
    pub fn cache_state(&self) -> Option<CacheState> {
        self.cache().map(|cache| CacheState::of(cache))
    }

    /// Makes the page cache if there is none yet, and says what it is like.
    pub fn prepare_cache(&self) -> CacheState {
        CacheState::of(self.file.cached().space().cache())
    }

    /// Closes this handle; with the last one, writes back what is dirty and closes the file. Unlike [`Handle::sync`], this
    /// promises nothing about a power loss. A handle that is dropped does the same and writes errors to the log.
    ///
    /// # Errors
    /// What write-back met: the data that could not be written is lost then, so sync before, where that must not be.
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
