//! Mounted file systems side by side: our mount, the kernel's ext4 on a loop device (direct-io=on), and `fuse2fs`.
//!
//! All of them have the same file of the same disk, one after the other, and on it a new file system, made alike, for each
//! sample: where an image lies makes more difference than what is compared. The file is written out before, so that the
//! disk's own file system allocates nothing while we measure. Cold means: unmounted, the image dropped from the host's cache, mounted
//! again; that is cold for a server's own cache too, which `drop_caches` would not reach, and disturbs nobody else.

pub(crate) mod place;
pub(crate) mod server;
pub(crate) mod tree;
pub(crate) mod work;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Advice, fadvise};
use tempfile::TempDir;
use throughline_device::AlignedBuf;

use crate::interleave::{Sample, Variant, interleave};
use crate::kernel::{LoopMount, e2fsck, may_mount};
use crate::outcome::Outcome;
use crate::streams::targets::{make_ext4, write_out};
use crate::streams::writers;
use crate::{Error, Result, Settings};
use place::Place;
use server::Server;

/// Our mount.
pub(crate) const OURS: &str = "ours";
/// Our mount a second time: how far this ratio is from 1 is what the others have to be held against.
pub(crate) const AGAIN: &str = "ours again";
/// The kernel's ext4.
pub(crate) const KERNEL: &str = "kernel ext4";
/// e2fsprogs' own FUSE server.
pub(crate) const FUSE2FS: &str = "fuse2fs";

/// Who serves the mount.
#[derive(Clone, Debug)]
enum System {
    /// `throughline mount`, with this as its `-o`.
    Ours(Option<String>),
    Kernel,
    Fuse2fs,
}

/// A way to mount the image.
#[derive(Clone, Debug)]
pub(crate) struct Contestant {
    /// Its name in the tables.
    pub(crate) name: String,
    system: System,
}

impl Contestant {
    /// Our mount with these options.
    pub(crate) fn ours(name: impl Into<String>, options: Option<&str>) -> Contestant {
        Contestant {
            name: name.into(),
            system: System::Ours(options.map(Into::into)),
        }
    }

    /// All that are compared, as far as this machine and user can mount them; `outcome` is told of the others.
    pub(crate) fn all(outcome: &mut Outcome) -> Vec<Contestant> {
        let mut all = Vec::new();
        let contestant = |name: &str, system| Contestant {
            name: name.into(),
            system,
        };
        let without_fuse = server::unavailable();
        match &without_fuse {
            None => all.extend([OURS, AGAIN].map(|name| Contestant::ours(name, None))),
            Some(why) => outcome.notes.push(format!("our mount: skipped: {why}")),
        }
        match may_mount() {
            true => all.push(contestant(KERNEL, System::Kernel)),
            false => outcome
                .notes
                .push("the kernel's ext4 on loop: skipped: it needs root and loop devices".into()),
        }
        match without_fuse.or_else(|| server::missing("fuse2fs")) {
            None => all.push(contestant(FUSE2FS, System::Fuse2fs)),
            Some(why) => outcome.notes.push(format!("fuse2fs: skipped: {why}")),
        }
        all
    }
}

/// What all samples of an experiment share.
pub(crate) struct Bench<'a> {
    pub(crate) settings: &'a Settings<'a>,
    /// What is written: longer than a processor's cache, and incompressible.
    pub(crate) source: AlignedBuf,
    /// Vanishes with the bench.
    scratch: TempDir,
    /// Further arguments of `mke2fs`.
    mke2fs: Vec<String>,
}

impl<'a> Bench<'a> {
    /// An image of `image_bytes`, or as much as the disk has room for; its file systems are made with these further
    /// arguments of `mke2fs`.
    pub(crate) fn new(
        settings: &'a Settings<'a>,
        image_bytes: u64,
        mke2fs: &[&str],
    ) -> Result<Bench<'a>> {
        let scratch = settings.scratch()?;
        let disk = rustix::fs::statvfs(scratch.path()).map_err(std::io::Error::from)?;
        if disk.f_bavail * disk.f_frsize < image_bytes + image_bytes / 8 {
            return Err(Error::new(format!(
                "{} has no room for an image of {} MiB; a smaller --scale needs less",
                settings.dir.display(),
                image_bytes >> 20
            )));
        }
        let bench = Bench {
            settings,
            source: writers::source(),
            scratch,
            mke2fs: mke2fs.iter().map(|argument| (*argument).into()).collect(),
        };
        write_out(&bench.image(), image_bytes, &bench.source, &|| Ok(()))?;
        Ok(bench)
    }

    /// A name in the folder that vanishes with the bench.
    pub(crate) fn scratch(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn image(&self) -> PathBuf {
        self.scratch("image")
    }

    /// Has every contestant do `work` on a file system of its own, interleaved.
    ///
    /// Our mount's image must please `e2fsck` after each sample.
    pub(crate) fn compare(
        &self,
        outcome: &mut Outcome,
        contestants: &[Contestant],
        own_rounds: usize,
        work: &dyn Fn(&mut Session<'_>) -> Result<Sample>,
    ) -> Result<()> {
        let variant = |contestant: &'_ Contestant| {
            let contestant = contestant.clone();
            Variant::new(contestant.name.clone(), move || {
                self.sample(&contestant, work)
                    .map_err(|e| Error::new(format!("{}: {e}", contestant.name)))
            })
        };
        let mut variants: Vec<_> = contestants.iter().map(variant).collect();
        let rounds = self.settings.rounds.unwrap_or(own_rounds);
        interleave(outcome, &mut variants, rounds, self.settings)
    }

    fn sample(
        &self,
        contestant: &Contestant,
        work: &dyn Fn(&mut Session<'_>) -> Result<Sample>,
    ) -> Result<Sample> {
        let arguments: Vec<&str> = self.mke2fs.iter().map(String::as_str).collect();
        make_ext4(&self.image(), &arguments)?;
        forget(&self.image())?;
        let mut session = Session {
            bench: self,
            contestant,
            mounted: None,
            peak_memory_kib: 0,
        };
        session.mount()?;
        let mut sample = work(&mut session)?;
        session.unmount()?;
        let peak = session.peak_memory_kib;
        if peak > 0 {
            sample.push(("server's peak memory", "MiB", peak as f64 / 1024.0));
        }
        if matches!(contestant.system, System::Ours(_)) {
            e2fsck(&self.image())?;
        }
        Ok(sample)
    }
}

/// Writes what is dirty of `path` and drops it from the host's cache.
fn forget(path: &Path) -> Result<()> {
    let file = std::fs::File::open(path)?;
    file.sync_all()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed).map_err(std::io::Error::from)?)
}

/// A mounted contestant.
enum Mounted {
    Kernel(LoopMount),
    Server(Server),
}

/// One sample of one contestant: it is mounted while the work is done.
pub(crate) struct Session<'a> {
    pub(crate) bench: &'a Bench<'a>,
    contestant: &'a Contestant,
    mounted: Option<Mounted>,
    /// Of the servers so far; 0 where there is none.
    peak_memory_kib: u64,
}

impl Session<'_> {
    fn mount(&mut self) -> Result<()> {
        let image = self.bench.image();
        let scratch = self.bench.scratch.path();
        self.mounted = Some(match &self.contestant.system {
            System::Kernel => Mounted::Kernel(LoopMount::new(&image, "ext4")?),
            System::Ours(options) => {
                Mounted::Server(Server::ours(&image, scratch, options.as_deref())?)
            }
            System::Fuse2fs => Mounted::Server(Server::fuse2fs(&image, scratch)?),
        });
        Ok(())
    }

    /// The root of the mounted file system.
    ///
    /// # Panics
    /// Never: it is mounted whenever others have the session.
    pub(crate) fn root(&self) -> Place<'_> {
        match self.mounted.as_ref().expect("mounted while work is done") {
            Mounted::Kernel(mount) => Place::new(mount.root()),
            Mounted::Server(server) => Place::new(server.root()),
        }
    }

    /// Unmounts; how long it took until all was durable and the server gone.
    pub(crate) fn unmount(&mut self) -> Result<Duration> {
        let begun = std::time::Instant::now();
        match self.mounted.take() {
            None => return Ok(Duration::ZERO),
            Some(Mounted::Kernel(mount)) => drop(mount),
            Some(Mounted::Server(server)) => {
                let peak = server.peak_memory_kib();
                self.peak_memory_kib = self.peak_memory_kib.max(peak);
                server.unmount()?;
            }
        }
        Ok(begun.elapsed())
    }

    /// Mounted again with cold caches; how long unmounting took.
    pub(crate) fn cold(&mut self) -> Result<Duration> {
        let unmounting = self.unmount()?;
        forget(&self.bench.image())?;
        self.mount()?;
        Ok(unmounting)
    }
}

/// Ratios of one quantity, larger is better: ours over the kernel's and over fuse2fs, with what they should be at least,
/// and the control.
pub(crate) fn bars(
    outcome: &mut Outcome,
    quantity: &str,
    kernel: Option<f64>,
    fuse2fs: Option<f64>,
) {
    for (peer, target) in [(KERNEL, kernel), (FUSE2FS, fuse2fs)] {
        let name = format!("{quantity}: ours / {peer}");
        match target {
            Some(target) => outcome.ratio_at_least(&name, quantity, OURS, peer, target),
            None => drop(outcome.ratio(&name, quantity, OURS, peer)),
        }
    }
    let control = format!("{quantity}: control, ours twice");
    outcome.ratio(&control, quantity, AGAIN, OURS);
}
