//! A tree of files like that of a large source repository, on the host, for programs to copy.
//!
//! There are about twelve files per directory, in directories up to six deep. Their sizes are log-normal,
//! with a median of 1 KiB and σ 1.6 (3.7 KiB on average), and at most 1 MiB, as in the Rust repository with
//! its thousands of short tests. One name in a hundred is a symbolic link.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::stats::normal;

/// Files per directory.
pub(crate) const FILES_PER_FOLDER: u64 = 12;
const MEDIAN_BYTES: f64 = 1024.0;
const SIGMA: f64 = 1.6;
const MAX_BYTES: f64 = 1048576.0;
/// Directories this many levels deep get no subdirectories.
const MAX_DEPTH: u32 = 6;

/// Creates the directory `top` with so many files, of parts of `content`, which must have more than 1 MiB.
/// Each call makes the same tree. Returns the total size of the files in bytes.
pub(crate) fn make(top: &Path, files: u64, content: &[u8]) -> Result<u64> {
    let mut random = fastrand::Rng::with_seed(10_000);
    let mut folders: Vec<(PathBuf, u32)> = vec![(top.to_owned(), 0)];
    let mut bytes = 0;
    fs::create_dir(top)?;
    for number in 0..files {
        if number % FILES_PER_FOLDER == 0 {
            let (parent, depth) = &folders[random.usize(..folders.len())];
            let folder = (parent.join(format!("folder-{number}")), depth + 1);
            fs::create_dir(&folder.0)?;
            if folder.1 < MAX_DEPTH {
                folders.push(folder.clone());
            } else {
                folders.push((top.to_owned(), 0));
            }
        }
        let folder = &folders[folders.len() - 1].0;
        let path = folder.join(format!("file_{number}.rs"));
        if number % 100 == 99 {
            symlink(format!("file_{}.rs", number - 1), path)?;
            continue;
        }
        let size = file_bytes(&mut random);
        bytes += size as u64;
        let from = random.usize(..content.len() - size);
        fs::write(path, &content[from..from + size])?;
    }
    Ok(bytes)
}

/// A log-normal size.
fn file_bytes(random: &mut fastrand::Rng) -> usize {
    (MEDIAN_BYTES * (SIGMA * normal(random)).exp()).min(MAX_BYTES) as usize
}
