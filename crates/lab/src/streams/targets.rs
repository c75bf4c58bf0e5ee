//! Targets of streams: files in an ext4 image, a plain file, files in the kernel's file systems.
//!
//! All targets are prepared alike: the host file is fully written once, so the host allocates nothing during
//! the measurement. What a sample wrote is removed, or dropped from memory, before the next sample.

use std::cell::RefCell;
use std::fs::File;
use std::ops::Deref;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use throughline::internal::{OpenBlockDevice, RawLayers, VolumeLayers};
use throughline::{Advice, FileOptions, Handle, RawFile, Volume};
use throughline_block::Disk;
use throughline_device::BlockDevice;
use throughline_fileio::throttle::ThrottleState;
use throughline_fileio::{DirtyLimits, PageCache};

use super::writers::Stream;
use crate::kernel::LoopMount;
use crate::mounts::work::NEW;
use crate::{Error, Result, Settings};

/// Creates a file of `len_bytes` with all blocks allocated, filled from `source`, bypassing the host's cache
/// if possible. `check` is called between writes and may abort.
pub(crate) fn write_out(
    path: &Path,
    len_bytes: u64,
    source: &[u8],
    check: &dyn Fn() -> Result<()>,
) -> Result<()> {
    let open = |flags: rustix::fs::OFlags| {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        options.custom_flags(flags.bits().cast_signed()).open(path)
    };
    let file = open(rustix::fs::OFlags::DIRECT).or_else(|_| open(rustix::fs::OFlags::empty()))?;
    let mut at = 0;
    while at < len_bytes {
        check()?;
        let len = (len_bytes - at).min(source.len() as u64);
        file.write_all_at(&source[..len as usize], at)?;
        at += len;
    }
    Ok(file.sync_all()?)
}

/// Our engine on an image or a plain file.
pub(crate) trait Ours {
    /// Handles for this many writers, each with the byte at which its stream of `each_bytes` starts.
    fn handles(&self, writers: u64, each_bytes: u64, direct: bool) -> Result<Vec<(Place, u64)>>;

    /// The underlying device.
    fn disk(&self) -> &Arc<Disk>;

    /// The state of its throttle; `None` before its first buffered write.
    fn throttled(&self) -> Option<ThrottleState> {
        Some(self.cache()?.throttle().state())
    }

    /// Sets a new dirty limit; `None`: the default from the budget.
    fn set_dirty_limit(&self, limit_bytes: Option<u64>) -> Result<()> {
        let unused = || Error::new("no dirty limit can be set before the first buffered write");
        let cache = self.cache().ok_or_else(unused)?;
        cache
            .throttle()
            .set_limits(DirtyLimits::new(limit_bytes, None));
        Ok(())
    }

    /// Its cache, once it has been used.
    fn cache(&self) -> Option<&Arc<PageCache>>;
}

/// An open file of our engine.
pub(crate) enum Place {
    InImage(throughline::File),
    Plain(RawFile),
}

impl Deref for Place {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        match self {
            Place::InImage(file) => file,
            Place::Plain(file) => file,
        }
    }
}

/// An ext4 image and the files in it.
pub(crate) struct Image {
    volume: Volume,
    path: PathBuf,
    /// The files of the last sample.
    made: RefCell<Vec<String>>,
}

impl Image {
    pub(crate) fn open(path: &Path, settings: &Settings<'_>) -> Result<Image> {
        let volume = settings.volume(path)?;
        Ok(Image {
            volume,
            path: path.into(),
            made: RefCell::default(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The names of the last sample's files.
    pub(crate) fn made(&self) -> Vec<String> {
        self.made.borrow().clone()
    }

    pub(crate) fn close(self) -> Result<()> {
        Ok(self.volume.close()?)
    }
}

impl Ours for Image {
    fn handles(&self, writers: u64, _each_bytes: u64, direct: bool) -> Result<Vec<(Place, u64)>> {
        for old in self.made.take() {
            self.volume.remove_file(old)?;
        }
        let names: Vec<String> = (0..writers).map(|n| format!("/stream{n}")).collect();
        let options = FileOptions::new().direct(direct).clone();
        let open = |name: &String| {
            let file = self.volume.create_file(name)?;
            let file = file.reopen(&options)?;
            Ok((Place::InImage(file), 0))
        };
        let files = names.iter().map(open).collect::<Result<Vec<_>>>()?;
        self.made.replace(names);
        self.volume.sync()?;
        Ok(files)
    }

    fn disk(&self) -> &Arc<Disk> {
        self.volume.disk()
    }

    fn cache(&self) -> Option<&Arc<PageCache>> {
        Some(self.volume.cache())
    }
}

/// A plain file, divided into one region per writer.
pub(crate) struct Plain(RawFile);

impl Plain {
    pub(crate) fn open(path: &Path, settings: &Settings<'_>) -> Result<Plain> {
        let file = settings.opening().open_raw(path)?;
        Ok(Plain::heard(file, settings))
    }

    /// On a device instead of a file, with this much memory for the cache.
    pub(crate) fn on_device(
        settings: &Settings<'_>,
        cache_bytes: u64,
        device: Arc<dyn BlockDevice>,
    ) -> Result<Plain> {
        let mut options = settings.opening();
        let file = options
            .cache_bytes(Some(cache_bytes))
            .open_raw_block_device(device)?;
        Ok(Plain::heard(file, settings))
    }

    fn heard(file: RawFile, settings: &Settings<'_>) -> Plain {
        settings.observe_cache_of(&file);
        Plain(file)
    }
}

impl Ours for Plain {
    fn handles(&self, writers: u64, each_bytes: u64, direct: bool) -> Result<Vec<(Place, u64)>> {
        self.0.sync_all()?;
        self.0.advise(Advice::DontNeed, 0, 0)?;
        let options = FileOptions::new().direct(direct).clone();
        let open = |number| {
            let file = self.0.reopen(&options)?;
            Ok((Place::Plain(file), number * each_bytes))
        };
        (0..writers).map(open).collect()
    }

    fn disk(&self) -> &Arc<Disk> {
        self.0.disk()
    }

    fn cache(&self) -> Option<&Arc<PageCache>> {
        self.0.cache()
    }
}

/// A stream into a file of our engine.
pub(crate) struct OurStream {
    pub(crate) file: Place,
    pub(crate) base: u64,
}

impl Stream for OurStream {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.file.write_all_at(bytes, self.base + at)?)
    }

    fn finish(&mut self) -> Result<()> {
        Ok(self.file.sync_all()?)
    }
}

/// A file system of the kernel and the files in it.
pub(crate) struct Kernel {
    mount: LoopMount,
    made: RefCell<Vec<String>>,
}

impl Kernel {
    pub(crate) fn mount(image: &Path, fs_type: &str) -> Result<Kernel> {
        Ok(Kernel {
            mount: LoopMount::new(image, fs_type, None)?,
            made: RefCell::default(),
        })
    }

    /// New files, written through the kernel's page cache.
    pub(crate) fn streams(&self, writers: u64) -> Result<Vec<Box<dyn Stream>>> {
        for old in self.made.take() {
            self.mount.root().remove(&old)?;
        }
        let names: Vec<String> = (0..writers).map(|n| format!("stream{n}")).collect();
        let open = |name: &String| {
            let file = self.mount.root().open(name, NEW)?;
            Ok(Box::new(KernelStream(file)) as Box<dyn Stream>)
        };
        let streams = names.iter().map(open).collect::<Result<Vec<_>>>()?;
        self.made.replace(names);
        self.mount.sync()?;
        Ok(streams)
    }
}

struct KernelStream(File);

impl Stream for KernelStream {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.0.write_all_at(bytes, at)?)
    }

    fn finish(&mut self) -> Result<()> {
        Ok(self.0.sync_all()?)
    }
}
