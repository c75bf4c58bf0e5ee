//! Mounted file systems compared: our mount, the kernel's ext4 on a loop device (direct-io=on), and
//! `fuse2fs`.
//!
//! All use the same image file on the same disk in turn, because the placement of an image makes more
//! difference than what is compared. For each sample, a new file system is made with the same options. The
//! image is fully written in advance, so that the disk's file system allocates nothing during the
//! measurement. "Cold" means that the file system was unmounted, the image dropped from the host's cache, and
//! the file system mounted again. That also empties a server's own cache, which `drop_caches` would not, and
//! it affects no other process.

pub(crate) mod place;
pub(crate) mod server;
pub(crate) mod tree;
pub(crate) mod work;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Advice, fadvise};
use tempfile::TempDir;
use throughline_device::AlignedBuf;

use crate::interleave::{Sample, Variant};
use crate::kernel::{LoopMount, e2fsck, may_mount, mkfs};
use crate::outcome::{Outcome, ratios};
use crate::streams::targets::write_out;
use crate::streams::writers;
use crate::{Error, Result, Settings};
use place::Place;
use server::Server;

/// Our mount.
pub(crate) const OURS: &str = "ours";
/// Our mount again, as a control: the distance of its ratio from 1 is the noise floor of the others.
pub(crate) const AGAIN: &str = "ours again";
/// The kernel's ext4.
pub(crate) const KERNEL: &str = "kernel ext4";
/// The FUSE server of e2fsprogs.
pub(crate) const FUSE2FS: &str = "fuse2fs";

/// The implementation that serves a mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum System {
    /// The kernel's file system of this type, on a loop device.
    Kernel(String),
    /// `throughline mount`.
    Ours,
    /// The FUSE server of e2fsprogs.
    Fuse2fs,
    /// Our server without a volume: files in memory. It ignores the image.
    Null,
}

impl System {
    /// Why it cannot be used here; `None` if it can.
    pub(crate) fn unavailable(&self) -> Option<String> {
        match self {
            System::Kernel(_) if may_mount() => None,
            System::Kernel(_) => Some("it needs root and loop devices".into()),
            System::Ours | System::Null => server::unavailable(),
            System::Fuse2fs => server::unavailable().or_else(|| server::missing("fuse2fs")),
        }
    }

    /// The type of file system it serves.
    pub(crate) fn fs_type(&self) -> &str {
        match self {
            System::Kernel(fs_type) => fs_type,
            System::Ours | System::Fuse2fs | System::Null => "ext4",
        }
    }

    /// Mounts an image with these options. Directories are created in `scratch`.
    pub(crate) fn mount(
        &self,
        image: &Path,
        scratch: &Path,
        options: Option<&str>,
    ) -> Result<Mounted> {
        Ok(match self {
            System::Kernel(fs_type) => Mounted::Kernel(LoopMount::new(image, fs_type, options)?),
            System::Ours => Mounted::Server(Server::ours(image, scratch, options)?),
            System::Fuse2fs => Mounted::Server(Server::fuse2fs(image, scratch, options)?),
            System::Null => Mounted::Server(Server::null(scratch, options)?),
        })
    }
}

/// One way to mount the image.
#[derive(Clone, Debug)]
pub(crate) struct Contestant {
    /// The name in tables.
    pub(crate) name: String,
    system: System,
    options: Option<String>,
}

impl Contestant {
    /// Our mount with these options.
    pub(crate) fn ours(name: impl Into<String>, options: Option<&str>) -> Contestant {
        Contestant {
            name: name.into(),
            system: System::Ours,
            options: options.map(Into::into),
        }
    }

    /// The null server with these options.
    pub(crate) fn null(name: impl Into<String>, options: Option<&str>) -> Contestant {
        Contestant {
            system: System::Null,
            ..Contestant::ours(name, options)
        }
    }

    /// All contestants that this user can mount on this machine. The others are noted in `outcome`.
    pub(crate) fn all(outcome: &mut Outcome) -> Vec<Contestant> {
        let mut all = Vec::new();
        for (what, names, system) in [
            ("our mount", &[OURS, AGAIN][..], System::Ours),
            (
                "the kernel's ext4 on loop",
                &[KERNEL],
                System::Kernel("ext4".into()),
            ),
            ("fuse2fs", &[FUSE2FS], System::Fuse2fs),
        ] {
            match system.unavailable() {
                None => all.extend(names.iter().map(|name| Contestant {
                    name: (*name).into(),
                    system: system.clone(),
                    options: None,
                })),
                Some(why) => outcome.note(format!("{what}: skipped: {why}")),
            }
        }
        all
    }
}

/// State shared by all samples of an experiment.
pub(crate) struct Bench<'a> {
    pub(crate) settings: &'a Settings<'a>,
    /// The data to write: larger than a processor's cache, and incompressible.
    pub(crate) source: AlignedBuf,
    /// Removed when the bench is dropped.
    scratch: TempDir,
    /// Further arguments of `mke2fs`.
    mke2fs: Vec<String>,
}

impl<'a> Bench<'a> {
    /// A bench with an image of `image_bytes`, or as much as fits on the disk. Its file systems are made with
    /// these further arguments of `mke2fs`.
    pub(crate) fn new(
        settings: &'a Settings<'a>,
        image_bytes: u64,
        mke2fs: &[&str],
    ) -> Result<Bench<'a>> {
        let scratch = settings.scratch()?;
        let disk = rustix::fs::statvfs(scratch.path())?;
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

    /// A path in the scratch directory, which is removed when the bench is dropped.
    pub(crate) fn scratch(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn image(&self) -> PathBuf {
        self.scratch("image")
    }

    /// Runs `work` for every contestant, each with its own file system, interleaved.
    ///
    /// The image of our mount must pass `e2fsck` after each sample.
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
        let variants: Vec<_> = contestants.iter().map(variant).collect();
        outcome.measure(self.settings, own_rounds, variants)
    }

    fn sample(
        &self,
        contestant: &Contestant,
        work: &dyn Fn(&mut Session<'_>) -> Result<Sample>,
    ) -> Result<Sample> {
        let arguments: Vec<&str> = self.mke2fs.iter().map(String::as_str).collect();
        mkfs("ext4", &self.image(), &arguments)?;
        forget(&self.image())?;
        let mut session = Session {
            bench: self,
            contestant,
            mounted: None,
            peak_memory_kib: 0,
        };
        session.mount(false)?;
        let mut sample = work(&mut session)?;
        session.unmount()?;
        let peak = session.peak_memory_kib;
        if peak > 0 {
            sample.push(("server's peak memory", "MiB", peak as f64 / 1024.0));
        }
        if contestant.system == System::Ours {
            e2fsck(&self.image())?;
        }
        Ok(sample)
    }
}

/// Writes back the dirty data of `path` and drops it from the host's cache.
fn forget(path: &Path) -> Result<()> {
    let file = std::fs::File::open(path)?;
    file.sync_all()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

/// A file system mounted by the kernel or by a server process.
pub(crate) enum Mounted {
    Kernel(LoopMount),
    Server(Server),
}

impl Mounted {
    /// The root of the file system.
    pub(crate) fn root(&self) -> Place<'_> {
        match self {
            Mounted::Kernel(mount) => mount.root(),
            Mounted::Server(server) => server.root(),
        }
    }

    /// Unmounts. Returns once all data is durable and the server has exited. If the server failed, the error
    /// contains its error output.
    pub(crate) fn unmount(self) -> Result<()> {
        match self {
            Mounted::Kernel(_) => Ok(()),
            Mounted::Server(server) => server.unmount(),
        }
    }
}

/// One sample of one contestant: mounted while the work is done.
pub(crate) struct Session<'a> {
    pub(crate) bench: &'a Bench<'a>,
    contestant: &'a Contestant,
    mounted: Option<Mounted>,
    /// The peak of the servers so far; 0 without a server.
    peak_memory_kib: u64,
}

impl Session<'_> {
    fn mount(&mut self, read_only: bool) -> Result<()> {
        let image = self.bench.image();
        let scratch = self.bench.scratch.path();
        let options = self.contestant.options.iter().map(String::as_str);
        let options: Vec<&str> = options.chain(read_only.then_some("ro")).collect();
        let options = (!options.is_empty()).then(|| options.join(","));
        let system = &self.contestant.system;
        let mounted = system.mount(&image, scratch, options.as_deref());
        self.mounted = Some(mounted?);
        Ok(())
    }

    /// The root of the mounted file system.
    ///
    /// # Panics
    /// Never: it is mounted whenever callers have access to the session.
    pub(crate) fn root(&self) -> Place<'_> {
        let mounted = self.mounted.as_ref();
        mounted.expect("mounted while work is done").root()
    }

    /// Unmounts. Returns the time until all data was durable and the server had exited.
    pub(crate) fn unmount(&mut self) -> Result<Duration> {
        let begun = std::time::Instant::now();
        let Some(mounted) = self.mounted.take() else {
            return Ok(Duration::ZERO);
        };
        if let Mounted::Server(server) = &mounted {
            let peak = server.peak_memory_kib();
            self.peak_memory_kib = self.peak_memory_kib.max(peak);
        }
        mounted.unmount()?;
        Ok(begun.elapsed())
    }

    /// Remounts with cold caches. Returns the duration of the unmount.
    pub(crate) fn cold(&mut self) -> Result<Duration> {
        let unmounting = self.unmount()?;
        forget(&self.bench.image())?;
        self.mount(false)?;
        Ok(unmounting)
    }

    /// Remounts read-only, with cold caches.
    pub(crate) fn cold_read_only(&mut self) -> Result<()> {
        self.unmount()?;
        forget(&self.bench.image())?;
        self.mount(true)
    }

    /// Whether there is a volume, which a remount shows again.
    pub(crate) fn has_volume(&self) -> bool {
        self.contestant.system != System::Null
    }
}

/// Computes the ratios of one quantity, of which more is better: ours over the kernel's and over fuse2fs,
/// with their minimums, and the control.
pub(crate) fn bars(
    outcome: &mut Outcome,
    quantity: &str,
    kernel: Option<f64>,
    fuse2fs: Option<f64>,
) {
    for (peer, target) in [(KERNEL, kernel), (FUSE2FS, fuse2fs)] {
        let name = format!("{quantity}: ours / {peer}");
        match target {
            Some(target) => ratios! { outcome; name => quantity, OURS, peer, at_least target; },
            None => ratios! { outcome; name => quantity, OURS, peer; },
        }
    }
    let control = format!("{quantity}: control, ours twice");
    outcome.ratio(&control, quantity, AGAIN, OURS);
}
