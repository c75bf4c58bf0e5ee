//! Our engine as the target of streams: files in an ext4 image, and a plain file.
//!
//! All targets are prepared alike: the file on the host is fully written once, so the host allocates nothing
//! during the measurement. Before each sample, the data of the previous one is removed or dropped from
//! memory.

use std::cell::Cell;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use throughline::internal::{OpenBlockDevice, RawLayers, VolumeLayers};
use throughline::{Advice, FileOptions, Handle, RawFile, Volume};
use throughline_block::Disk;
use throughline_device::BlockDevice;
use throughline_fileio::throttle::ThrottleState;
use throughline_fileio::{DirtyLimits, PageCache};

use super::writers::Stream;
use crate::{Error, Result, Settings};

/// Creates a file of `len_bytes` with all blocks allocated, filled from `source`. Bypasses the host's cache
/// if possible. `check` is called between writes, and its error ends the writing.
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

/// Our engine, with an open image, plain file or device.
pub(crate) enum Opened {
    Volume(Volume),
    Raw(RawFile),
}

impl Opened {
    /// The underlying device.
    pub(crate) fn disk(&self) -> &Arc<Disk> {
        match self {
            Opened::Volume(volume) => volume.disk(),
            Opened::Raw(file) => file.disk(),
        }
    }

    /// The cache; of a plain file or device, only if it has been used.
    pub(crate) fn cache(&self) -> Option<&Arc<PageCache>> {
        match self {
            Opened::Volume(volume) => Some(volume.cache()),
            Opened::Raw(file) => file.cache(),
        }
    }

    pub(crate) fn close(self) -> Result<()> {
        match self {
            Opened::Volume(volume) => Ok(volume.close()?),
            Opened::Raw(file) => Ok(file.close()?),
        }
    }
}

/// An open file of our engine.
pub(crate) enum Place {
    InImage(throughline::File),
    Plain(RawFile),
}

impl Place {
    /// The file, in either place.
    pub(crate) fn handle(&self) -> &Handle {
        match self {
            Place::InImage(file) => file,
            Place::Plain(file) => file,
        }
    }
}

/// The name of a writer's file.
pub(crate) fn stream_name(writer: u64) -> String {
    format!("stream{writer}")
}

/// Our engine as the target of streams: files in an ext4 image, or parts of a plain file or device.
pub(crate) struct Ours {
    opened: Opened,
    /// The number of files of the last sample.
    made: Cell<u64>,
}

impl Ours {
    pub(crate) fn image(path: &Path, settings: &Settings<'_>) -> Result<Ours> {
        Ok(Ours::new(Opened::Volume(settings.volume(path)?)))
    }

    pub(crate) fn plain(path: &Path, settings: &Settings<'_>) -> Result<Ours> {
        let file = settings.opening().open_raw(path)?;
        Ok(Ours::new(Opened::Raw(file)))
    }

    /// Opens a device instead of a file, with this much memory for the cache.
    pub(crate) fn on_device(
        settings: &Settings<'_>,
        cache_bytes: u64,
        device: Arc<dyn BlockDevice>,
    ) -> Result<Ours> {
        let mut options = settings.opening();
        let file = options
            .cache_bytes(Some(cache_bytes))
            .open_raw_block_device(device)?;
        Ok(Ours::new(Opened::Raw(file)))
    }

    fn new(opened: Opened) -> Ours {
        let made = Cell::default();
        Ours { opened, made }
    }

    /// One stream of `each_bytes` for each writer. The data of the last sample is removed first.
    pub(crate) fn streams(
        &self,
        writers: u64,
        each_bytes: u64,
        direct: bool,
    ) -> Result<Vec<OurStream>> {
        let options = FileOptions::new().direct(direct).clone();
        let streams = match &self.opened {
            Opened::Volume(volume) => {
                for old in 0..self.made.replace(writers) {
                    volume.remove_file(format!("/{}", stream_name(old)))?;
                }
                let open = |writer| {
                    let file = volume.create_file(format!("/{}", stream_name(writer)))?;
                    let file = Place::InImage(file.reopen(&options)?);
                    Ok(OurStream { file, base: 0 })
                };
                let streams = (0..writers).map(open).collect::<Result<_>>()?;
                volume.sync()?;
                streams
            }
            Opened::Raw(file) => {
                file.sync_all()?;
                file.advise(Advice::DontNeed, 0, 0)?;
                let open = |writer| {
                    let file = Place::Plain(file.reopen(&options)?);
                    let base = writer * each_bytes;
                    Ok(OurStream { file, base })
                };
                (0..writers).map(open).collect::<Result<_>>()?
            }
        };
        Ok(streams)
    }

    pub(crate) fn opened(&self) -> &Opened {
        &self.opened
    }

    /// The state of its throttle; `None` before the first buffered write.
    pub(crate) fn throttled(&self) -> Option<ThrottleState> {
        Some(self.opened.cache()?.throttle().state())
    }

    /// Sets a new dirty limit; `None` sets the default, which depends on the cache's memory.
    pub(crate) fn set_dirty_limit(&self, limit_bytes: Option<u64>) -> Result<()> {
        let unused = || Error::new("no dirty limit can be set before the first buffered write");
        let cache = self.opened.cache().ok_or_else(unused)?;
        cache
            .throttle()
            .set_limits(DirtyLimits::new(limit_bytes, None));
        Ok(())
    }

    pub(crate) fn close(self) -> Result<()> {
        self.opened.close()
    }
}

/// A stream to a file of our engine.
pub(crate) struct OurStream {
    pub(crate) file: Place,
    pub(crate) base: u64,
}

impl Stream for OurStream {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.file.handle().write_all_at(bytes, self.base + at)?)
    }

    fn finish(&mut self) -> Result<()> {
        Ok(self.file.handle().sync_all()?)
    }
}
