//! `mount/small`: 4,000 files of 2 KiB in one directory, by one thread: on our mount over io_uring and
//! through `/dev/fuse`, the kernel's ext4, and `fuse2fs`. Our null server, which has no volume, shows the
//! minimum cost of requests.
//!
//! | quantity | what is measured per file |
//! | --- | --- |
//! | create | open with O_CREAT and O_EXCL, write, close |
//! | read | the first open, read, close |
//! | read again | the same, a second time |
//! | look for nothing | the first stat of a missing name |
//! | unlink | unlink of a file that was just created |
//! | list, cold | reading the directory after a remount, and stat of each name |
//! | list again | the same, a second time |
//! | read again, read-only | the second open, read, close on a read-only mount |
//! | remove, cold | reading the directory after a remount, and removing each name (`rm -r`) |
//!
//! The null server cannot be remounted, so only the first five are measured on it.

use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use rustix::fs::OFlags;

use crate::interleave::Sample;
use crate::mounts::place::Place;
use crate::mounts::tree::Tree;
use crate::mounts::work::{NEW, together};
use crate::mounts::{Bench, Contestant, FUSE2FS, KERNEL, OURS, Session};
use crate::outcome::{Outcome, ratios};
use crate::{Error, Result, Settings};

const FILE_BYTES: usize = 2048;
/// The kernel's switch for FUSE over io_uring.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// The transports: the name, the mount option, the contestants.
const TRANSPORTS: [Transport; 2] = [
    Transport {
        options: "with=io_uring",
        ours: "ours, io_uring",
        null: "null, io_uring",
    },
    Transport {
        options: "without=io_uring",
        ours: "ours, /dev/fuse",
        null: "null, /dev/fuse",
    },
];
/// The first transport once more, as a control.
const CONTROL: &str = "ours, again";

struct Transport {
    options: &'static str,
    ours: &'static str,
    null: &'static str,
}

/// A quantity and its limits: over the kernel's for each transport, over fuse2fs, over the null server.
struct Aim(&'static str, [Option<f64>; 2], Option<f64>, Option<f64>);

const AIMS: [Aim; 9] = [
    Aim("create", [Some(0.4), Some(0.25)], Some(6.0), Some(0.71)),
    Aim("read", [None, None], None, Some(0.83)),
    Aim("read again", [Some(0.35), Some(0.2)], Some(4.0), Some(0.83)),
    Aim("look for nothing", [None, None], None, Some(0.83)),
    Aim("unlink", [None, None], None, Some(0.83)),
    Aim("list, cold", [Some(0.5), Some(0.4)], Some(20.0), None),
    Aim("list again", [Some(0.9), Some(0.9)], Some(20.0), None),
    Aim(
        "read again, read-only",
        [Some(0.9), Some(0.9)],
        Some(10.0),
        None,
    ),
    Aim("remove, cold", [Some(0.5), Some(0.4)], Some(5.0), None),
];

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let files = settings.scaled(4000, 100);
    let contestants = contestants(outcome);
    let inodes = (2 * files + 1000).to_string();
    let image_bytes = 2 * files * 4096 + (128 << 20);
    let bench = Bench::new(settings, image_bytes, &["-N", &inodes])?;
    bench.compare(outcome, &contestants, 9, &|session| sample(session, files))?;
    outcome.count("files", files as f64);
    for Aim(quantity, kernel, fuse2fs, null) in AIMS {
        for (transport, kernel) in TRANSPORTS.iter().zip(kernel) {
            compare(outcome, quantity, (transport.ours, KERNEL), kernel);
            compare(outcome, quantity, (transport.ours, FUSE2FS), fuse2fs);
            compare(outcome, quantity, (transport.ours, transport.null), null);
            compare(outcome, quantity, (transport.null, KERNEL), None);
        }
        compare(outcome, quantity, (CONTROL, TRANSPORTS[0].ours), None);
        compare(outcome, quantity, (CONTROL, TRANSPORTS[1].ours), None);
    }
    Ok(())
}

fn compare(outcome: &mut Outcome, quantity: &str, (over, under): (&str, &str), limit: Option<f64>) {
    let name = format!("{quantity}: {over} / {under}");
    match limit {
        Some(limit) => ratios! { outcome; name => quantity, over, under, at_least limit; },
        None => ratios! { outcome; name => quantity, over, under; },
    }
}

fn contestants(outcome: &mut Outcome) -> Vec<Contestant> {
    let mut all = Contestant::all(outcome);
    if !all.iter().any(|contestant| contestant.name == OURS) {
        return all;
    }
    all.retain(|contestant| [KERNEL, FUSE2FS].contains(&&*contestant.name));
    let has_rings = std::fs::read_to_string(SWITCH).is_ok_and(|text| text.trim() == "Y");
    if !has_rings {
        outcome.note(format!("io_uring: skipped: {SWITCH} is not Y"));
    }
    let transports = &TRANSPORTS[if has_rings { 0 } else { 1 }..];
    for transport in transports {
        let options = Some(transport.options);
        all.push(Contestant::ours(transport.ours, options));
        all.push(Contestant::null(transport.null, options));
    }
    let first = transports.first().map(|transport| transport.options);
    all.push(Contestant::ours(CONTROL, first));
    all
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
    work.each("look for nothing", |name| {
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
