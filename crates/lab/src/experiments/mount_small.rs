//! `mount/small`: 4,000 files of 2 KiB in one directory, by one thread: on our mount over io_uring and
//! through `/dev/fuse`, with and without `-o small_files`, the kernel's ext4, and `fuse2fs`. Our null server,
//! which has no volume, shows the minimum cost of requests.
//!
//! | quantity | what is measured per file |
//! | --- | --- |
//! | create | open with O_CREAT and O_EXCL, write, close |
//! | read | the first open, read, close |
//! | read again | the same, a second time |
//! | look up, missing | the first stat of a missing name |
//! | unlink | unlink of a file that was just created |
//! | list, cold | reading the directory after a remount, and stat of each name |
//! | list again | the same, a second time |
//! | read again, read-only | the second open, read, close on a read-only mount |
//! | remove, cold | reading the directory after a remount, and removing each name (`rm -r`) |
//!
//! The null server cannot be remounted, so only the first five are measured on it. A look-up of a missing
//! name is also compared with a round trip of two threads over a pipe, on one processor: that is what two
//! wake-ups cost.

use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use rustix::fs::OFlags;
use throughline_device::round_trip_on_one_processor_us;

use crate::interleave::{Sample, Variant};
use crate::mounts::contestants::{Aim, Contestant, DEV_FUSE, IO_URING, Transport};
use crate::mounts::place::Place;
use crate::mounts::tree::Tree;
use crate::mounts::work::{NEW, together};
use crate::mounts::{Bench, Session};
use crate::outcome::Outcome;
use crate::stats::Summary;
use crate::{Error, Result, Settings};

const FILE_BYTES: usize = 2048;
/// A round trip of two threads over a pipe, on one processor: a look-up with nothing but its wake-ups.
const PIPE: &str = "a pipe, one processor";
const ROUND_TRIP: &str = "round trip";
const MISSING: &str = "look up, missing";
/// What a look-up over io_uring may cost besides.
const LOOKUP_US: f64 = 10.0;

const AIMS: [Aim; 9] = [
    Aim::new("create").kernel(0.4, 0.25).fuse2fs(6.0).null(0.71),
    Aim::new("read").null(0.83),
    Aim::new("read again")
        .kernel(0.35, 0.2)
        .fuse2fs(4.0)
        .null(0.83),
    Aim::new(MISSING).null(0.83),
    Aim::new("unlink").null(0.83),
    Aim::new("list, cold").kernel(0.5, 0.4).fuse2fs(20.0),
    Aim::new("list again").kernel(0.9, 0.9).fuse2fs(20.0),
    Aim::new("read again, read-only")
        .kernel(0.9, 0.9)
        .fuse2fs(10.0),
    Aim::new("remove, cold").kernel(0.5, 0.4).fuse2fs(5.0),
];

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let files = settings.scaled(4000, 100);
    let contestants = Contestant::all_with_null(outcome);
    let inodes = (2 * files + 1000).to_string();
    let image_bytes = 2 * files * 4096 + (128 << 20);
    let bench = Bench::new(settings, image_bytes, &["-N", &inodes])?;
    let work = |session: &mut Session<'_>| sample(session, files);
    let mut variants: Vec<_> = bench.variants(&contestants, &work).collect();
    variants.push(Variant::new(PIPE, || {
        Ok(vec![(ROUND_TRIP, "us", round_trip_on_one_processor_us()?)])
    }));
    outcome.measure(settings, 9, variants)?;
    outcome.count("files", files as f64);
    for aim in AIMS {
        aim.judge(outcome);
    }
    beside_a_pipe(outcome);
    Ok(())
}

/// What a look-up of a missing name costs above a round trip over a pipe.
fn beside_a_pipe(outcome: &mut Outcome) {
    let pipe_us = Summary::of(&outcome.samples(PIPE, ROUND_TRIP)).median;
    for Transport { ours, null, .. } in [IO_URING, DEV_FUSE] {
        for server in [ours, null] {
            let rates = outcome.samples(server, MISSING);
            if rates.is_empty() {
                continue;
            }
            let above_us = 1e6 / Summary::of(&rates).median - pipe_us;
            let name = format!("{MISSING}: {server} above {PIPE}, us");
            match server == IO_URING.ours {
                true => outcome.at_most(&name, above_us, LOOKUP_US),
                false => outcome.count(name, above_us),
            }
        }
    }
}

fn sample(session: &mut Session<'_>, files: u64) -> Result<Sample> {
    let mut work = Work {
        files,
        sample: Sample::new(),
    };
    warm(session, &mut work)?;
    if !session.has_volume() {
        return Ok(work.sample);
    }
    session.cold()?;
    work.list(session, "list, cold")?;
    work.list(session, "list again")?;
    session.cold_read_only()?;
    work.read_again(session)?;
    session.cold()?;
    work.remove(session)?;
    Ok(work.sample)
}

/// The directory of the files.
const DIR: &str = "dir";

/// Measures the quantities that need no remount.
fn warm(session: &Session<'_>, work: &mut Work) -> Result<()> {
    let content = &session.bench.source[..FILE_BYTES];
    let root = session.root();
    let (dir, other) = (root.make_dir(DIR)?, root.make_dir("other")?);
    let (dir, other) = (Place::new(dir.as_fd()), Place::new(other.as_fd()));
    let create = |dir: Place<'_>, name: &str| {
        let file = dir.open(name, NEW | OFlags::EXCL)?;
        Ok(file.write_all_at(content, 0)?)
    };
    work.each("create", |name| create(dir, name))?;
    work.each("read", |name| read(dir, name))?;
    work.each("read again", |name| read(dir, name))?;
    work.each(MISSING, |name| {
        match dir.stat(&name.replace("file", "none")) {
            Ok(_) => Err(Error::new("a name that was never created exists")),
            Err(_) => Ok(()),
        }
    })?;
    work.names(|name| create(other, name))?;
    work.each("unlink", |name| other.remove(name))
}

fn read(dir: Place<'_>, name: &str) -> Result<()> {
    let mut buffer = [0; FILE_BYTES];
    let file = dir.open(name, OFlags::RDONLY)?;
    Ok(file.read_exact_at(&mut buffer, 0)?)
}

/// The measurements of one sample.
struct Work {
    files: u64,
    sample: Sample,
}

impl Work {
    /// Calls `each` for every name.
    fn names(&self, each: impl Fn(&str) -> Result<()>) -> Result<()> {
        (0..self.files).try_for_each(|number| each(&Tree::file_name(number)))
    }

    /// Measures `work` on all files.
    fn once(&mut self, quantity: &'static str, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
        let spent = together(1, |_| work())?;
        let rate = self.files as f64 / spent.wall.as_secs_f64();
        self.sample.push((quantity, "files/s", rate));
        Ok(())
    }

    /// Measures `each` for every name.
    fn each(
        &mut self,
        quantity: &'static str,
        each: impl Fn(&str) -> Result<()> + Sync,
    ) -> Result<()> {
        let files = self.files;
        self.once(quantity, || {
            (0..files).try_for_each(|number| each(&Tree::file_name(number)))
        })
    }

    /// Reads all files twice; measures the second time.
    fn read_again(&mut self, session: &Session<'_>) -> Result<()> {
        let dir = session.root().dir(DIR)?;
        let dir = Place::new(dir.as_fd());
        self.names(|name| read(dir, name))?;
        self.each("read again, read-only", |name| read(dir, name))
    }

    /// Removes the directory with what is in it.
    fn remove(&mut self, session: &Session<'_>) -> Result<()> {
        let root = session.root();
        self.once("remove, cold", || {
            let dir = root.dir(DIR)?;
            let dir = Place::new(dir.as_fd());
            for name in dir.names()? {
                dir.remove(&name)?;
            }
            root.remove_dir(DIR)
        })
    }

    /// Reads the directory and the attributes of each name.
    fn list(&mut self, session: &Session<'_>, quantity: &'static str) -> Result<()> {
        let root = session.root();
        self.once(quantity, || {
            let dir = root.dir(DIR)?;
            let dir = Place::new(dir.as_fd());
            let names = dir.names()?;
            names.iter().try_for_each(|name| dir.stat(name).map(drop))
        })
    }
}
