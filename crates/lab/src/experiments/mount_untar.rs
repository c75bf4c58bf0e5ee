//! `mount/untar`: through a mount, `tar x` of a tree like that of a large source repository
//! ([`source_tree`](crate::mounts::source_tree)), `tar c` of the same tree with cold caches, and `rm -r` of
//! it after that.

use std::fs;
use std::path::Path;

use crate::command::timed;
use crate::kernel::named;
use crate::mounts::Bench;
use crate::mounts::contestants::{Aim, Contestant};
use crate::mounts::source_tree::{self, FILES_PER_FOLDER};
use crate::mounts::work::{drained, have};
use crate::outcome::Outcome;
use crate::{Result, Settings};

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
        let mut untar = named("tar");
        untar.arg("xf").arg(&archive).args(["-C", &target]);
        let (made, _) = timed(&mut untar)?;
        let durable = made.wall + session.cold()?;
        // The remount changed the descriptor of the root.
        let target = session.root().path("");
        let back = drained(named("tar").args(["cf", "-", "-C", &target, "tree"]))?;
        let (removed, _) = timed(named("rm").args(["-r", &format!("{target}tree")]))?;
        let rate = |wall: std::time::Duration| files as f64 / wall.as_secs_f64();
        Ok(vec![
            ("untar", "files/s", rate(made.wall)),
            ("untar, durable", "files/s", rate(durable)),
            ("tar, cold", "files/s", rate(back.wall)),
            ("rm -r", "files/s", rate(removed.wall)),
        ])
    })?;
    outcome.count("files", files as f64);
    outcome.count("bytes per file", bytes as f64 / files as f64);
    for aim in [
        Aim::new("untar").kernel(0.4, 0.25).fuse2fs(6.0),
        Aim::new("untar, durable"),
        Aim::new("tar, cold"),
        Aim::new("rm -r").kernel(0.5, 0.4).fuse2fs(5.0),
    ] {
        aim.judge(outcome);
    }
    Ok(())
}

/// Creates the archive. Returns the total size of its files in bytes.
fn make_archive(bench: &Bench<'_>, archive: &Path, files: u64) -> Result<u64> {
    let top = bench.scratch("tree");
    let bytes = source_tree::make(&top, files, &bench.source)?;
    let parent = bench.scratch("");
    let mut tar = named("tar");
    tar.arg("cf").arg(archive).arg("-C").arg(parent).arg("tree");
    timed(&mut tar)?;
    fs::remove_dir_all(&top)?;
    Ok(bytes)
}
