//! `mount/metadata`: small files through a mount, by 1 thread and by 4 with folders of their own: made (create, write,
//! close), looked at with cold caches and again, listed cold by `ls -lR`, removed.

use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::process::Command;

use super::Experiment;
use crate::interleave::Sample;
use crate::meter::Spent;
use crate::mounts::place::Place;
use crate::mounts::work::{NEW, drained, together};
use crate::mounts::{Bench, Contestant, Session, bars};
use crate::outcome::Outcome;
use crate::{Result, Settings};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "mount/metadata",
    about: "small files made, looked at, listed and removed through our mount, the kernel's ext4, fuse2fs; 1 and 4 threads",
    run,
};

const FILES_PER_FOLDER: u64 = 100;
const FILE_BYTES: std::ops::RangeInclusive<usize> = 1024..=4096;
const THREADS: [usize; 2] = [1, 4];

fn run(settings: &Settings<'_>) -> Result<Outcome> {
    let mut outcome = Outcome::new(EXPERIMENT.name);
    let folders = settings.scaled(200, 8) / 4 * 4;
    let contestants = Contestant::all(&mut outcome);
    let inodes = (folders * (FILES_PER_FOLDER + 1) * 2 + 1000).to_string();
    let image_bytes = folders * FILES_PER_FOLDER * 8192 * 2 + (512 << 20);
    let bench = Bench::new(settings, image_bytes, &["-N", &inodes])?;
    bench.compare(&mut outcome, &contestants, 7, &|session| {
        sample(session, folders)
    })?;
    let files = (folders * FILES_PER_FOLDER) as f64;
    outcome.counters.insert("files".into(), files);
    outcome.notes.push(
        "durable: until it is unmounted; all others as the calls return, so as much as a system defers is not in them"
            .into(),
    );
    for threads in THREADS {
        let [create, durable, stat, again, list, remove] = quantities(threads);
        bars(&mut outcome, create, Some(0.5), Some(4.0));
        for quantity in [durable, stat, again, list, remove] {
            bars(&mut outcome, quantity, None, None);
        }
    }
    Ok(outcome)
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
        let work = Work {
            threads,
            folders,
            top: &top,
        };
        let made = work.create(session)?;
        let durable = made.wall + session.cold()?;
        let cold = work.each_file(session, |folder, name| folder.stat(name).map(drop))?;
        let again = work.each_file(session, |folder, name| folder.stat(name).map(drop))?;
        session.cold()?;
        let path = session.root().path(&top);
        let listed = drained(Command::new("ls").args(["-lR", &path]))?;
        let removed = work.each_file(session, |folder, name| folder.remove(name))?;
        let walls = [
            made.wall,
            durable,
            cold.wall,
            again.wall,
            listed.wall,
            removed.wall,
        ];
        let files = (folders * FILES_PER_FOLDER) as f64;
        for (quantity, wall) in quantities(threads).into_iter().zip(walls) {
            sample.push((quantity, "files/s", files / wall.as_secs_f64()));
        }
    }
    Ok(sample)
}

/// The files of so many threads.
struct Work<'a> {
    threads: usize,
    /// Of all threads.
    folders: u64,
    /// The folder that all others are in.
    top: &'a str,
}

impl Work<'_> {
    fn create(&self, session: &Session<'_>) -> Result<Spent> {
        let source = &session.bench.source;
        let top = session.root().make_dir(self.top)?;
        together(self.threads, |thread| {
            let mut random = fastrand::Rng::with_seed(thread as u64);
            for number in self.folders_of(thread) {
                let folder = Place::new(top.as_fd()).make_dir(&folder_name(number))?;
                for file in 0..FILES_PER_FOLDER {
                    let content = &source[..random.usize(FILE_BYTES)];
                    let file = Place::new(folder.as_fd()).open(&file_name(file), NEW)?;
                    file.write_all_at(content, 0)?;
                }
            }
            Ok(())
        })
    }

    /// Calls `each` with every file, each thread with its own.
    fn each_file(
        &self,
        session: &Session<'_>,
        each: impl Fn(Place<'_>, &str) -> Result<()> + Sync,
    ) -> Result<Spent> {
        let top = session.root().dir(self.top)?;
        together(self.threads, |thread| {
            for number in self.folders_of(thread) {
                let folder = Place::new(top.as_fd()).dir(&folder_name(number))?;
                for file in 0..FILES_PER_FOLDER {
                    each(Place::new(folder.as_fd()), &file_name(file))?;
                }
            }
            Ok(())
        })
    }

    fn folders_of(&self, thread: usize) -> std::ops::Range<u64> {
        let each = self.folders / self.threads as u64;
        let first = thread as u64 * each;
        first..first + each
    }
}

fn folder_name(number: u64) -> String {
    format!("d{number:04}")
}

fn file_name(number: u64) -> String {
    format!("file-{number:06}")
}
