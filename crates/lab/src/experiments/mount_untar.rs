//! `mount/untar`: through a mount, `tar x` of a tree like that of a large source repository, and `tar c` of
//! the same tree with cold caches.
//!
//! The tree has 10,000 files, about twelve per directory, in directories up to six deep. Their sizes are
//! log-normal, with a median of 1 KiB and σ 1.6 (3.7 KiB on average), and at most 1 MiB, as in the Rust
//! repository with its thousands of short tests. One name in a hundred is a symbolic link.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::timed;
use crate::mounts::work::{drained, have};
use crate::mounts::{Bench, Contestant, bars};
use crate::outcome::Outcome;
use crate::stats::normal;
use crate::{Result, Settings};

const FILES_PER_FOLDER: u64 = 12;
const MEDIAN_BYTES: f64 = 1024.0;
const SIGMA: f64 = 1.6;
const MAX_BYTES: f64 = 1048576.0;

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    if !have(outcome, "tar", "everything") {
        return Ok(());
    }
    let files = settings.scaled(10_000, 500);
    let contestants = Contestant::all(outcome);
    let inodes = (files + files / FILES_PER_FOLDER + 1000).to_string();
    let bench = Bench::new(settings, files * 12 * 1024 + (512 << 20), &["-N", &inodes])?;
    let archive = bench.scratch("tree.tar");
    let bytes = make_archive(&bench, &archive, files)?;
    bench.compare(outcome, &contestants, 7, &|session| {
        let target = session.root().path("");
        let mut untar = Command::new("tar");
        untar.arg("xf").arg(&archive).args(["-C", &target]);
        let (made, _) = timed(&mut untar)?;
        let durable = made.wall + session.cold()?;
        // The remount changed the descriptor of the root.
        let target = session.root().path("");
        let back = drained(Command::new("tar").args(["cf", "-", "-C", &target, "tree"]))?;
        let rate = |wall: std::time::Duration| files as f64 / wall.as_secs_f64();
        Ok(vec![
            ("untar", "files/s", rate(made.wall)),
            ("untar, durable", "files/s", rate(durable)),
            ("tar, cold", "files/s", rate(back.wall)),
        ])
    })?;
    outcome.count("files", files as f64);
    outcome.count("bytes per file", bytes as f64 / files as f64);
    bars(outcome, "untar", Some(0.5), Some(4.0));
    bars(outcome, "untar, durable", None, None);
    bars(outcome, "tar, cold", None, None);
    Ok(())
}

/// Creates the archive; each call creates the same one. Returns the total size of its files in bytes.
fn make_archive(bench: &Bench<'_>, archive: &Path, files: u64) -> Result<u64> {
    let (top, content) = (bench.scratch("tree"), &bench.source);
    let mut random = fastrand::Rng::with_seed(10_000);
    let mut folders: Vec<(PathBuf, u32)> = vec![(top.clone(), 0)];
    let mut bytes = 0;
    fs::create_dir(&top)?;
    for number in 0..files {
        if number % FILES_PER_FOLDER == 0 {
            let (parent, depth) = &folders[random.usize(..folders.len())];
            let folder = (parent.join(format!("folder-{number}")), depth + 1);
            fs::create_dir(&folder.0)?;
            // Directories six levels deep get no subdirectories.
            if folder.1 < 6 {
                folders.push(folder.clone());
            } else {
                folders.push((top.clone(), 0));
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
    let top = top.to_string_lossy();
    let parent = top.trim_end_matches("tree");
    let mut tar = Command::new("tar");
    tar.arg("cf").arg(archive).args(["-C", parent, "tree"]);
    timed(&mut tar)?;
    fs::remove_dir_all(&*top)?;
    Ok(bytes)
}

/// A log-normal size.
fn file_bytes(random: &mut fastrand::Rng) -> usize {
    (MEDIAN_BYTES * (SIGMA * normal(random)).exp()).min(MAX_BYTES) as usize
}
