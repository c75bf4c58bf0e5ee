//! Bounds the cache on disk: the chunks that were not used for the longest time are removed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock, statvfs};

/// The beginning of the names of files that are not complete.
pub(crate) const NEW: &str = ".new-";
/// After this time, nobody completes such a file.
const ABANDONED: Duration = Duration::from_secs(3600);

struct Old {
    used: SystemTime,
    len_bytes: u64,
    path: PathBuf,
}

/// Removes files below `root` until they have at most `max_bytes`, and a sixteenth of the file system is
/// free. One process does so at a time.
pub(crate) fn bound(root: &Path, max_bytes: u64) -> io::Result<()> {
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(root.join(".evicting"))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    }
    let (mut files, mut total) = (Vec::new(), 0_u64);
    for dir in fs::read_dir(root)?.flatten() {
        let Ok(chunks) = fs::read_dir(dir.path()) else {
            continue;
        };
        let found = chunks.flatten().filter_map(|entry| old(&entry));
        let before = files.len();
        files.extend(found);
        if files.len() == before {
            // Of an object that is no longer in use: fails if a chunk was added just now.
            let _ = fs::remove_dir(dir.path());
        }
    }
    for file in &files {
        total = total.saturating_add(file.len_bytes);
    }
    let max = max_bytes.min(room(root, total)?);
    if total <= max {
        return Ok(());
    }
    files.sort_by_key(|file| file.used);
    // With a margin, so that this is not repeated at once.
    let aim = max.saturating_sub(max / 8);
    for file in files {
        if total <= aim {
            break;
        }
        if fs::remove_file(&file.path).is_ok() {
            total = total.saturating_sub(file.len_bytes);
        }
    }
    Ok(())
}

fn old(entry: &fs::DirEntry) -> Option<Old> {
    let meta = entry.metadata().ok()?;
    let used = meta.modified().ok()?;
    let is_new = entry.file_name().to_string_lossy().starts_with(NEW);
    let age = SystemTime::now().duration_since(used).unwrap_or_default();
    if is_new && age > ABANDONED {
        let _ = fs::remove_file(entry.path());
        return None;
    }
    Some(Old {
        used,
        len_bytes: meta.len(),
        path: entry.path(),
    })
}

/// How much the cache may hold so that a part of the file system stays free, if it holds `total` bytes.
fn room(root: &Path, total: u64) -> io::Result<u64> {
    let disk = statvfs(root)?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let reserve = disk.f_blocks.saturating_mul(disk.f_frsize) / 16;
    Ok(total.saturating_add(free).saturating_sub(reserve))
}
