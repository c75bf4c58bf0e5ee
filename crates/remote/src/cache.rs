//! [`Cache`]: chunks on disk, shared by the processes of a user. One file for each chunk.
//!
//! ```text
//!  DIR/objects/                         mode 0700, and ours; else there is no cache
//!    .evicting                          locked by the process that removes old chunks
//!    .fetching                          locked by processes that fetch chunks: see `claims.rs`
//!    SHA-256 of place, pin and sizes/
//!      000000000000002a                 chunk 42, mode 0600
//!        bytes of the chunk │ magic, 8 bytes │ CRC-32C of index and bytes │ length, 4 bytes each
//! ```
//!
//! A file gets its name when it is complete, by a rename. It is not synced: what a power cut leaves of it is
//! recognized by the checksum, removed and fetched again.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use crate::claims::Claims;
use crate::evict;

const MAGIC: [u8; 8] = *b"TLCHUNK1";
const TRAILER_BYTES: usize = 16;
/// How old the time of a file may be before a use of it is noted.
const FRESH: Duration = Duration::from_secs(600);

pub(crate) struct Cache {
    /// Of all objects.
    root: PathBuf,
    /// Of this one.
    dir: PathBuf,
    max_bytes: u64,
    /// By which other processes see what this one fetches; `None` if the cache has no file for that.
    pub(crate) claims: Option<Claims>,
    /// Written since old chunks were last looked for.
    written_bytes: AtomicU64,
    warned: AtomicBool,
}

impl Cache {
    /// The cache of the object with this key, below a directory.
    ///
    /// # Errors
    /// If the directory is of another user or open to others, or cannot be made.
    pub(crate) fn open(below: &Path, key: &str, max_bytes: u64) -> io::Result<Cache> {
        let root = below.join("objects");
        private_dir(&root)?;
        let found = fs::symlink_metadata(&root)?;
        if !found.is_dir()
            || found.uid() != rustix::process::geteuid().as_raw()
            || found.mode() & 0o77 != 0
        {
            let why = "it is not a directory that only you can use";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let hash: [u8; 32] = Sha256::digest(key.as_bytes()).into();
        let name: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let dir = root.join(name);
        private_dir(&dir)?;
        Ok(Cache {
            claims: Claims::open(&root, &hash).ok(),
            root,
            dir,
            max_bytes,
            // Looked for after the first chunk of a process: many short ones also fill it.
            written_bytes: AtomicU64::new(max_bytes),
            warned: AtomicBool::new(false),
        })
    }

    fn path(&self, index: u64) -> PathBuf {
        self.dir.join(format!("{index:016x}"))
    }

    /// Whether there is a file for a chunk. It may be damaged.
    pub(crate) fn has(&self, index: u64) -> bool {
        self.path(index).exists()
    }

    /// A chunk of `len` bytes, if it is there and intact.
    pub(crate) fn get(&self, index: u64, len: usize) -> Option<Vec<u8>> {
        let path = self.path(index);
        let mut file = File::open(&path).ok()?;
        let meta = file.metadata().ok()?;
        let whole = len.checked_add(TRAILER_BYTES)?;
        let mut bytes = Vec::new();
        let read = match meta.len() == whole as u64 {
            true => {
                bytes.reserve_exact(whole);
                (&mut file).take(whole as u64).read_to_end(&mut bytes)
            }
            false => Ok(0),
        };
        let trailer = bytes.split_off(len.min(bytes.len()));
        if !matches!(read, Ok(read) if read == whole) || trailer != trailer_of(index, &bytes) {
            // Another process may have replaced it by an intact one: that costs one more request.
            let _ = fs::remove_file(&path);
            return None;
        }
        let now = SystemTime::now();
        let age = meta
            .modified()
            .ok()
            .and_then(|time| now.duration_since(time).ok());
        if age.is_none_or(|age| age > FRESH) {
            let _ = file.set_modified(now);
        }
        Some(bytes)
    }

    /// Keeps a chunk. If that fails, it is only not cached.
    pub(crate) fn put(&self, index: u64, bytes: &[u8]) {
        let stored = self.store(index, bytes).or_else(|_| {
            // The directory may have been removed when it was empty.
            private_dir(&self.dir)?;
            self.store(index, bytes)
        });
        if let Err(error) = stored {
            if !self.warned.swap(true, Ordering::Relaxed) {
                let dir = self.root.display();
                tracing::warn!("chunks of objects are not cached in {dir}: {error}");
            }
            return;
        }
        let len = bytes.len() as u64;
        let written = self
            .written_bytes
            .fetch_add(len, Ordering::Relaxed)
            .saturating_add(len);
        if written > self.max_bytes / 16 {
            self.written_bytes.store(0, Ordering::Relaxed);
            if let Err(error) = evict::bound(&self.root, self.max_bytes) {
                tracing::debug!("cannot look for old chunks: {error}");
            }
        }
    }

    fn store(&self, index: u64, bytes: &[u8]) -> io::Result<()> {
        let mut file = tempfile::Builder::new()
            .prefix(evict::NEW)
            .tempfile_in(&self.dir)?;
        file.write_all(bytes)?;
        file.write_all(&trailer_of(index, bytes))?;
        file.persist(self.path(index))
            .map_err(|error| error.error)?;
        Ok(())
    }
}

fn trailer_of(index: u64, bytes: &[u8]) -> [u8; TRAILER_BYTES] {
    let sum = crc32c::crc32c_append(crc32c::crc32c(&index.to_le_bytes()), bytes);
    let mut trailer = [0; TRAILER_BYTES];
    let (magic, rest) = trailer.split_at_mut(MAGIC.len());
    magic.copy_from_slice(&MAGIC);
    let (first, second) = rest.split_at_mut(4);
    first.copy_from_slice(&sum.to_le_bytes());
    second.copy_from_slice(&(bytes.len() as u32).to_le_bytes());
    trailer
}

fn private_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_intact_chunks_are_returned() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path(), "key", 1 << 30).unwrap();
        let bytes: Vec<u8> = (0..1000_u32).map(|at| at as u8).collect();
        cache.put(7, &bytes);
        assert_eq!(cache.get(7, 1000).as_deref(), Some(&bytes[..]));
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&cache.dir), mode(&cache.path(7))), (0o700, 0o600));

        // Torn, cut, longer, and of another place.
        let whole = fs::read(cache.path(7)).unwrap();
        let mut torn = whole.clone();
        torn[512..700].fill(0);
        let mut longer = whole.clone();
        longer.push(0);
        for bad in [torn, whole[..600].to_vec(), Vec::new(), longer] {
            fs::write(cache.path(7), bad).unwrap();
            assert_eq!(cache.get(7, 1000), None);
            assert!(!cache.has(7), "it is removed");
        }
        fs::write(cache.path(8), &whole).unwrap();
        assert_eq!(cache.get(8, 1000), None);
        assert_eq!(
            Cache::open(dir.path(), "other", 1 << 30)
                .unwrap()
                .get(7, 1000),
            None
        );
    }

    #[test]
    fn a_directory_that_others_can_use_is_refused() {
        use std::os::unix::fs::PermissionsExt;

        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("objects");
        fs::create_dir(&root).unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(Cache::open(dir.path(), "key", 1 << 30).is_err());
    }

    #[test]
    fn old_chunks_go_first() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::open(dir.path(), "key", 10_000).unwrap();
        for index in 0..30 {
            cache.put(index, &[0; 1000]);
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + index);
            let file = File::options().write(true).open(cache.path(index));
            if let Ok(file) = file {
                file.set_modified(time).unwrap();
            }
        }
        let left: Vec<u64> = (0..30).filter(|index| cache.has(*index)).collect();
        assert!(
            left.len() <= 10 && left.contains(&29) && !left.contains(&0),
            "{left:?}"
        );
    }
}
