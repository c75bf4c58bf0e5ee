//! `mount/threads`: small files through a mount by 1 to 16 threads, each in directories of its own: created
//! (create, write, close), and opened, read and closed once more after a first time. For machines with many
//! processors.

use std::os::unix::fs::FileExt;

use rustix::fs::OFlags;

use crate::interleave::Sample;
use crate::mounts::contestants::{Aim, Contestant};
use crate::mounts::place::Place;
use crate::mounts::tree::{FILES_PER_FOLDER, Tree};
use crate::mounts::{Bench, Session};
use crate::outcome::Outcome;
use crate::{Result, Settings};

/// How many threads, and the names of the quantities: creating, reading again.
const RUNS: [(usize, &str, &str); 5] = [
    (1, "create, 1 thread", "read again, 1 thread"),
    (2, "create, 2 threads", "read again, 2 threads"),
    (4, "create, 4 threads", "read again, 4 threads"),
    (8, "create, 8 threads", "read again, 8 threads"),
    (16, "create, 16 threads", "read again, 16 threads"),
];
const MOST_THREADS: u64 = 16;
/// At least as long as the longest file.
const BUFFER_BYTES: usize = 4096;

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let folders = settings.scaled(64, MOST_THREADS) / MOST_THREADS * MOST_THREADS;
    let contestants = Contestant::all(outcome);
    let trees = RUNS.len() as u64;
    let inodes = (folders * (FILES_PER_FOLDER + 1) * trees + 1000).to_string();
    let image_bytes = folders * FILES_PER_FOLDER * 8192 * trees + (256 << 20);
    let bench = Bench::new(settings, image_bytes, &["-N", &inodes])?;
    bench.compare(outcome, &contestants, 7, &|session| {
        sample(session, folders)
    })?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    outcome.count("processors", processors as f64);
    outcome.count("files", (folders * FILES_PER_FOLDER) as f64);
    for (_, create, read) in RUNS {
        Aim::new(create).judge(outcome);
        Aim::new(read).judge(outcome);
    }
    Ok(())
}

fn sample(session: &mut Session<'_>, folders: u64) -> Result<Sample> {
    let mut sample = Sample::new();
    for (threads, create, again) in RUNS {
        let tree = Tree {
            threads,
            folders,
            top: &format!("by{threads}"),
        };
        let created = tree.create(session)?;
        tree.each_file(session, read)?;
        let read = tree.each_file(session, read)?;
        let rate = |wall: std::time::Duration| tree.files() as f64 / wall.as_secs_f64();
        sample.push((create, "files/s", rate(created.wall)));
        sample.push((again, "files/s", rate(read.wall)));
    }
    Ok(sample)
}

fn read(folder: Place<'_>, name: &str) -> Result<()> {
    let file = folder.open(name, OFlags::RDONLY)?;
    let mut buffer = [0; BUFFER_BYTES];
    file.read_at(&mut buffer, 0)?;
    Ok(())
}
