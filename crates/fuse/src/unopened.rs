//! [`Unopened`]: the files that are used on a mount whose kernel sends no OPEN.
//!
//! Such a kernel sends no RELEASE either. So a file is opened by its first request, or when it is created,
//! and the number of files kept open is bounded. A file that is closed to make room for another loses its
//! readahead state. It also loses what was known of its pages in the kernel's cache; a file that is opened
//! again is assumed to have some.
//!
//! A file is closed when the kernel forgets its inode, so that a removed file is freed then.

use std::sync::Arc;

use throughline::Result;
use throughline_locks::{Mutex, Rank};

use crate::files::OpenFile;

const SHARDS: usize = 16;
/// The maximum number of open files of a shard.
const SHARD_FILES: usize = 16;

/// A node id, and whether reads leave the access time alone: open flags come with each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) nodeid: u64,
    pub(crate) no_access_time: bool,
}

/// The files; the one used last is the last.
type Shard = Vec<(Key, Arc<OpenFile>)>;

/// See the head of this file.
pub(crate) struct Unopened {
    shards: [Mutex<Shard>; SHARDS],
}

impl Default for Unopened {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::ranked(Rank::UnopenedFiles, Vec::new())),
        }
    }
}

impl Unopened {
    fn shard(&self, nodeid: u64) -> &Mutex<Shard> {
        &self.shards[nodeid as usize % SHARDS]
    }

    /// The file of a key; `open` opens it if it is not open.
    ///
    /// # Errors
    /// Those of `open`.
    pub(crate) fn get(
        &self,
        key: Key,
        open: impl FnOnce() -> Result<OpenFile>,
    ) -> Result<Arc<OpenFile>> {
        let mut files = self.shard(key.nodeid).lock();
        if let Some(at) = files.iter().position(|(of, _)| *of == key) {
            files[at..].rotate_left(1);
        } else {
            // Under the lock, so that parallel requests share one file and its readahead state.
            let file = Arc::new(open()?);
            let closed = (files.len() == SHARD_FILES).then(|| files.remove(0));
            files.push((key, Arc::clone(&file)));
            // Closing a file may free its inode, which does I/O.
            drop(files);
            drop(closed);
            return Ok(file);
        }
        Ok(Arc::clone(&files[files.len() - 1].1))
    }

    /// Closes the files of a node id.
    pub(crate) fn close(&self, nodeid: u64) {
        let mut files = self.shard(nodeid).lock();
        let (closed, kept) = files.drain(..).partition(|(key, _)| key.nodeid == nodeid);
        *files = kept;
        drop(files);
        drop::<Shard>(closed);
    }

    /// Closes all files.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let files = std::mem::take(&mut *shard.lock());
            drop(files);
        }
    }
}
