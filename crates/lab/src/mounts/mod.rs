//! Mounted file systems compared: our mount, the kernel's ext4 on a loop device (direct-io=on), and
//! `fuse2fs`.
//!
//! All use the same image file on the same disk in turn, because the placement of an image makes more
//! difference than what is compared. For each sample, a new file system is made with the same options. The
//! image is fully written in advance, so that the disk's file system allocates nothing during the
//! measurement. "Cold" means that the file system was unmounted, the image dropped from the host's cache, and
//! the file system mounted again. That also empties a server's own cache, which `drop_caches` would not, and
//! it affects no other process.

pub(crate) mod contestants;
pub(crate) mod mounted;
pub(crate) mod place;
pub(crate) mod source_tree;
pub(crate) mod view;
pub(crate) mod work;

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use throughline_device::AlignedBuf;

use crate::command::drop_cached;
use crate::interleave::{Sample, Variant};
use crate::kernel::{e2fsck, may_mount, mkfs, named};
use crate::outcome::Outcome;
use crate::streams::targets::write_out;
use crate::streams::writers;
use crate::{Error, Result, Settings};
use contestants::Contestant;
use mounted::{At, Mounted};
use place::Place;

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
            System::Kernel(_) => Some(
                "it needs root and loop devices; any user can measure dir:PATH and mount:".into(),
            ),
            System::Ours | System::Null => mounted::unavailable(),
            System::Fuse2fs => mounted::unavailable().or_else(|| mounted::missing("fuse2fs")),
        }
    }

    /// Its name for people.
    pub(crate) fn name(&self) -> &str {
        match self {
            System::Kernel(fs_type) => fs_type,
            System::Ours => "throughline mount",
            System::Fuse2fs => "fuse2fs",
            System::Null => "throughline lab null",
        }
    }

    /// The type of file system it serves.
    pub(crate) fn fs_type(&self) -> &str {
        match self {
            System::Kernel(fs_type) => fs_type,
            System::Ours | System::Fuse2fs | System::Null => "ext4",
        }
    }

    /// Mounts an image with these options.
    pub(crate) fn mount(
        &self,
        image: &Path,
        options: Option<&str>,
        place: At<'_>,
    ) -> Result<Mounted> {
        let mut command = match self {
            System::Kernel(fs_type) => return Mounted::kernel(place, image, fs_type, options),
            System::Ours | System::Null => crate::command::own()?,
            System::Fuse2fs => named("fuse2fs"),
        };
        match self {
            System::Ours => command.args(["mount", "-f"]).arg(image),
            System::Null => command.args(["lab", "null"]),
            _ => command.arg("-f").arg(image),
        };
        Mounted::served(command, options, place)
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
    /// Whether mounts have a path.
    visible: bool,
}

impl<'a> Bench<'a> {
    /// A bench with an image of `image_bytes`, or as much as fits on the disk. Its file systems are made with
    /// these further arguments of `mke2fs`. `visible`: programs can be run in its mounts, which have a path.
    pub(crate) fn new(
        settings: &'a Settings<'a>,
        image_bytes: u64,
        mke2fs: &[&str],
        visible: bool,
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
            visible,
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

    /// Runs `work` for every contestant, each with its own file system, interleaved. The image of our mount
    /// must pass `e2fsck` after each sample.
    pub(crate) fn compare(
        &self,
        outcome: &mut Outcome,
        contestants: &[Contestant],
        own_rounds: usize,
        work: &dyn Fn(&mut Session<'_>) -> Result<Sample>,
    ) -> Result<()> {
        let mut variants = Vec::new();
        for contestant in contestants {
            variants.push(Variant::new(contestant.name, move || {
                self.sample(contestant, work)
                    .map_err(|e| Error::new(format!("{}: {e}", contestant.name)))
            }));
        }
        outcome.measure(self.settings, own_rounds, variants)
    }

    fn sample(
        &self,
        contestant: &Contestant,
        work: &dyn Fn(&mut Session<'_>) -> Result<Sample>,
    ) -> Result<Sample> {
        let arguments: Vec<&str> = self.mke2fs.iter().map(String::as_str).collect();
        mkfs("ext4", &self.image(), &arguments)?;
        drop_cached(&self.image())?;
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
        let place = At {
            scratch: self.bench.scratch.path(),
            visible: self.bench.visible,
        };
        let options = self.contestant.options.into_iter();
        let options: Vec<&str> = options.chain(read_only.then_some("ro")).collect();
        let options = (!options.is_empty()).then(|| options.join(","));
        let system = &self.contestant.system;
        let mounted = system.mount(&image, options.as_deref(), place);
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

    /// A command that runs `program` where it finds the mounted file system, and the path there.
    pub(crate) fn command(&self, program: &str) -> (Command, PathBuf) {
        match self.mounted.as_ref().and_then(Mounted::view) {
            Some(view) => (view.command(program), view.root().into()),
            None => (named(program), self.root().path("").into()),
        }
    }

    /// Unmounts. Returns once all data is durable and the server has exited.
    fn unmount(&mut self) -> Result<()> {
        let Some(mounted) = self.mounted.take() else {
            return Ok(());
        };
        self.peak_memory_kib = self.peak_memory_kib.max(mounted.peak_memory_kib());
        mounted.unmount()
    }

    /// Remounts with cold caches.
    pub(crate) fn cold(&mut self, read_only: bool) -> Result<()> {
        self.unmount()?;
        drop_cached(&self.bench.image())?;
        self.mount(read_only)
    }

    /// Whether it is the server without a volume, which cannot be remounted.
    pub(crate) fn is_null(&self) -> bool {
        self.contestant.system == System::Null
    }
}
