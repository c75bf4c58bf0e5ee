//! The experiments by name.

mod cache_hit;
mod copies;
mod founding1;
mod founding2;
mod founding3;
mod founding4;
mod founding5;
mod hammer;
mod images;
mod mount;
mod open;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::outcome::Outcome;
use crate::record::Record;
use crate::{Error, Result, Settings};

/// A named experiment.
pub struct Experiment {
    /// Its name, such as `founding/1`.
    pub name: &'static str,
    /// What it measures, in one line.
    pub about: &'static str,
    run: fn(&Settings<'_>, &mut Outcome) -> Result<()>,
}

impl Experiment {
    /// Runs it. `started` is the time for the record (RFC 3339), `given` are the settings for the record.
    ///
    /// # Errors
    /// Errors of the measurement, and those of [`Settings::progress`] before the first sample.
    pub fn run(
        &self,
        settings: &Settings<'_>,
        started: &str,
        given: BTreeMap<String, Value>,
    ) -> Result<Record> {
        let mut outcome = Outcome::default();
        (self.run)(settings, &mut outcome)?;
        Ok(outcome.into_record(self.name, started, given))
    }
}

/// Each experiment: its function, its name, what it measures.
macro_rules! experiments {
    ($($run:expr, $name:literal, $about:literal;)*) => {
        &[$(Experiment { name: $name, about: $about, run: $run }),*]
    };
}

/// All experiments, in the order of `lab list`.
pub const EXPERIMENTS: &[Experiment] = experiments! {
    founding1::run, "founding/1",
        "report 1: 4096 KiB direct overwrites behind an indirect block; runs, one bio per page, \
         the kernel's ext3";
    founding2::run, "founding/2",
        "report 2: threads on one shared raw device and file, 4 KiB direct; no count, sharded, \
         one shared counter";
    founding3::run, "founding/3",
        "report 3: streaming buffered writes by 1 and 8 writers; the old way, ours, direct; the kernel, \
         buffered, RWF_DONTCACHE, O_DIRECT";
    founding4::run, "founding/4",
        "report 4: 32 and 64 MiB direct reads and writes; whole-request bio, derived target, the kernel";
    founding5::run, "founding/5",
        "report 5: 32 KiB sequential buffered writes; device handle cached in the open file, \
         looked up per page";
    |s, o| copies::run(&copies::CP_STREAM, s, o), "cp/stream",
        "cp of a 2 GiB file into an ext4 image, cp and cat out of it; dd by O_DIRECT on plain files, cat on \
         the kernel's loop mount";
    |s, o| copies::run(&copies::CP_TREE, s, o), "cp/tree",
        "cp -a of 20,000 small files into an ext4 image, and the kernel's on a loop mount";
    |s, o| copies::run(&copies::PACK_TREES, s, o), "pack/trees",
        "an image from 120,000 small files: pack, mke2fs -d";
    |s, o| copies::run(&copies::PACK_LARGE, s, o), "pack/large",
        "an image from 4 GiB in four files: pack, mke2fs -d, dd by O_DIRECT";
    |s, o| copies::run(&copies::PACK_MILLION, s, o), "pack/million",
        "images from 100,000 and 1,000,000 small files: time and memory of pack";
    open::run, "open/1tib",
        "opening a 1 TiB ext4 image on a sparse file: time and memory";
    images::overlay, "overlay/cost",
        "streams, random writes, small files, rewrites, fsyncs and reads through a new overlay over a raw base; \
         the same on a plain image";
    cache_hit::run, "cache/hit",
        "4 KiB random reads of a cached file over threads: our page cache, pread on the kernel's, \
         a bare copy";
    images::journal, "journal/cost",
        "streams and fsyncs with and without a journal; fsyncs of the kernel's ext4";
    |s, o| mount::run(&mount::STREAM, s, o), "mount/stream",
        "1 GiB written with fsync and read cold through our mount on both transports, the kernel's ext4, \
         fuse2fs; direct";
    |s, o| mount::run(&mount::RANDOM, s, o), "mount/random",
        "random 4 KiB reads of a cached file through our mount on both transports, the kernel's ext4, \
         fuse2fs; 1 and 4 threads";
    |s, o| mount::run(&mount::SMALL, s, o), "mount/small",
        "4,000 files of 2 KiB in one directory through our mount on both transports, the kernel's ext4, \
         fuse2fs, and a server without a volume";
    |s, o| mount::run(&mount::THREADS, s, o), "mount/threads",
        "small files created and read again by 1 to 16 threads through our mount on both transports, the \
         kernel's ext4, fuse2fs";
    |s, o| mount::run(&mount::UNTAR, s, o), "mount/untar",
        "tar x of 10,000 small files, tar c of them, cold, and rm -r, through our mount on both transports, \
         the kernel's ext4, fuse2fs";
    |s, o| mount::run(&mount::PROGRAMS, s, o), "mount/programs",
        "git clone and status of 5,000 files, pip install of wheels, npm ci, through our mount on both \
         transports, the kernel's ext4, fuse2fs";
    |s, o| mount::run(&mount::SYSBENCH, s, o), "mount/sysbench",
        "report 5's sysbench, 4 GiB in sequential writes of 32 KiB, through our mount on both transports, \
         the kernel's ext4, fuse2fs";
};

/// The experiment with this name.
pub fn find(name: &str) -> Result<&'static Experiment> {
    EXPERIMENTS.iter().find(|e| e.name == name).ok_or_else(|| {
        let names: Vec<_> = EXPERIMENTS.iter().map(|e| e.name).collect();
        Error::new(format!(
            "no experiment '{name}'; there are: {}",
            names.join(", ")
        ))
    })
}

/// Runs one variant of an experiment by itself, unmeasured, in this process: the experiment runs it under a
/// profiler.
///
/// # Errors
/// If the experiment has no such variant, and errors of the run.
pub fn alone(name: &str, arguments: &[String]) -> Result<()> {
    if name == founding5::ALONE {
        return founding5::alone(arguments);
    }
    Err(Error::new(format!("'{name}' runs nothing alone")))
}
