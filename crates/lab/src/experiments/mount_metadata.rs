//! `mount/metadata`: small files through a mount, by 1 thread and by 4 threads with their own directories.
//! They are created (create, write, close), queried by `stat` with cold caches and again with warm ones,
//! listed by `ls -lR` with cold caches, and removed.

use crate::interleave::Sample;
use crate::kernel::named;
use crate::mounts::contestants::{Aim, Contestant};
use crate::mounts::tree::{FILES_PER_FOLDER, Tree};
use crate::mounts::work::drained;
use crate::mounts::{Bench, Session};
use crate::outcome::Outcome;
use crate::{Result, Settings};

const THREADS: [usize; 2] = [1, 4];

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let folders = settings.scaled(200, 8) / 4 * 4;
    let contestants = Contestant::all(outcome);
    let inodes = (folders * (FILES_PER_FOLDER + 1) * 2 + 1000).to_string();
    let image_bytes = folders * FILES_PER_FOLDER * 8192 * 2 + (512 << 20);
    let bench = Bench::new(settings, image_bytes, &["-N", &inodes])?;
    bench.compare(outcome, &contestants, 7, &|session| {
        sample(session, folders)
    })?;
    let files = (folders * FILES_PER_FOLDER) as f64;
    outcome.count("files", files);
    outcome.note(
        "durable: the time until the unmount has ended; the others: the time until the calls have returned, \
         without work that a system defers",
    );
    for threads in THREADS {
        let [create, durable, stat, again, list, remove] = quantities(threads);
        let aim = Aim::new(create).kernel(0.5, 0.5).fuse2fs(4.0);
        aim.judge(outcome);
        for quantity in [durable, stat, again, list, remove] {
            Aim::new(quantity).judge(outcome);
        }
    }
    Ok(())
}

fn quantities(threads: usize) -> [&'static str; 6] {
    match threads {
        1 => [
            "create",
            "create, durable",
            "stat, cold",
            "stat again",
            "ls -lR, cold",
            "unlink",
        ],
        _ => [
            "create, 4 threads",
            "create, durable, 4 threads",
            "stat, cold, 4 threads",
            "stat again, 4 threads",
            "ls -lR, cold, 4 threads' files",
            "unlink, 4 threads",
        ],
    }
}

fn sample(session: &mut Session<'_>, folders: u64) -> Result<Sample> {
    let mut sample = Sample::new();
    for threads in THREADS {
        let top = format!("by{threads}");
        let tree = Tree {
            threads,
            folders,
            top: &top,
        };
        let made = tree.create(session)?;
        let durable = made.wall + session.cold()?;
        let cold = tree.each_file(session, |folder, name| folder.stat(name).map(drop))?;
        let again = tree.each_file(session, |folder, name| folder.stat(name).map(drop))?;
        session.cold()?;
        let path = session.root().path(&top);
        let listed = drained(named("ls").args(["-lR", &path]))?;
        let removed = tree.each_file(session, |folder, name| folder.remove(name))?;
        let [made, cold, again, listed, removed] =
            [made, cold, again, listed, removed].map(|spent| spent.wall);
        let walls = [made, durable, cold, again, listed, removed];
        let files = tree.files() as f64;
        for (quantity, wall) in quantities(threads).into_iter().zip(walls) {
            sample.push((quantity, "files/s", files / wall.as_secs_f64()));
        }
    }
    Ok(sample)
}
