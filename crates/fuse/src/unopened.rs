//! [`Unopened`]: the files that are read on a mount whose kernel sends no OPEN.
//!
//! Such a kernel sends no RELEASE either. So a file is opened by its first request, and the number of files
//! kept open is bounded. A file that is closed to make room for another loses only its readahead state.

use std::sync::Arc;

use parking_lot::Mutex;
use throughline::Result;

use crate::files::OpenFile;

const SHARDS: usize = 16;
/// The maximum number of open files of a shard.
const SHARD_FILES: usize = 16;

/// Node ids and their files; the file used last is the last.
type Shard = Vec<(u64, Arc<OpenFile>)>;

/// See the head of this file.
#[derive(Default)]
pub(crate) struct Unopened {
    shards: [Mutex<Shard>; SHARDS],
}

impl Unopened {
    /// The file of a node id; `open` opens it if it is not open.
    ///
    /// # Errors
    /// Those of `open`.
    pub(crate) fn get(
        &self,
        nodeid: u64,
        open: impl FnOnce() -> Result<OpenFile>,
    ) -> Result<Arc<OpenFile>> {
        let mut files = self.shards[nodeid as usize % SHARDS].lock();
        if let Some(at) = files.iter().position(|(of, _)| *of == nodeid) {
            files[at..].rotate_left(1);
        } else {
            // Under the lock, so that parallel requests share one file and its readahead state.
            let file = Arc::new(open()?);
            if files.len() == SHARD_FILES {
                files.remove(0);
            }
            files.push((nodeid, file));
        }
        Ok(Arc::clone(&files[files.len() - 1].1))
    }

    /// Closes all files.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let files = std::mem::take(&mut *shard.lock());
            drop(files);
        }
    }
}
