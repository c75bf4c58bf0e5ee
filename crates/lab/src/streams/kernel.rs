//! The kernel as the target of streams: files in its file systems on a loop device, or parts of a plain file;
//! through its page cache, through it without keeping the data, and past it.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, OFlags, fadvise};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};

use super::targets::stream_name;
use super::writers::Stream;
use crate::mounts::mounted::Mounted;
use crate::mounts::work::NEW;
use crate::{Error, Result};

/// `RWF_DONTCACHE` of `linux/fs.h`, which rustix does not name: the data is written back at once, and its
/// pages are released when that is done. Linux 6.14; a file system must support it.
const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// How the kernel is asked to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KernelWay {
    Buffered,
    /// See [`DONTCACHE`].
    DontCache,
    Direct,
}

impl KernelWay {
    pub(crate) const ALL: [KernelWay; 3] =
        [KernelWay::Buffered, KernelWay::DontCache, KernelWay::Direct];

    fn open_flags(self) -> OFlags {
        match self {
            KernelWay::Direct => OFlags::DIRECT,
            _ => OFlags::empty(),
        }
    }

    fn write_flags(self) -> ReadWriteFlags {
        match self {
            KernelWay::DontCache => DONTCACHE,
            _ => ReadWriteFlags::empty(),
        }
    }
}

/// A file system of the kernel, or a plain file.
pub(crate) enum Kernel {
    Mounted {
        mount: Mounted,
        /// The number of files of the last sample.
        made: Cell<u64>,
    },
    Plain(PathBuf),
}

impl Kernel {
    pub(crate) fn mount(image: &Path, fs_type: &str) -> Result<Kernel> {
        Ok(Kernel::Mounted {
            mount: Mounted::hidden(image, fs_type)?,
            made: Cell::default(),
        })
    }

    /// One stream of `each_bytes` for each writer. The data of the last sample is removed or dropped from
    /// memory first.
    pub(crate) fn streams(
        &self,
        writers: u64,
        each_bytes: u64,
        way: KernelWay,
    ) -> Result<Vec<Box<dyn Stream>>> {
        let streams = match self {
            Kernel::Mounted { mount, made } => {
                let root = mount.root();
                for old in 0..made.replace(writers) {
                    root.remove(&stream_name(old))?;
                }
                let open = |writer| {
                    let file = root.open(&stream_name(writer), NEW | way.open_flags())?;
                    Ok((file, 0))
                };
                let files: Vec<_> = (0..writers).map(open).collect::<Result<_>>()?;
                mount.sync()?;
                files
            }
            Kernel::Plain(path) => {
                let open = |flags: OFlags| {
                    let mut options = std::fs::OpenOptions::new();
                    options.custom_flags(flags.bits().cast_signed());
                    options.write(true).open(path)
                };
                let file = open(OFlags::empty())?;
                file.sync_all()?;
                fadvise(&file, 0, None, Advice::DontNeed)?;
                let part = |writer| Ok((open(way.open_flags())?, writer * each_bytes));
                (0..writers).map(part).collect::<Result<_>>()?
            }
        };
        let stream = |(file, base)| Box::new(KernelStream { file, base, way }) as Box<dyn Stream>;
        Ok(streams.into_iter().map(stream).collect())
    }

    /// Why the kernel cannot write this way here; `None` if it can.
    pub(crate) fn lacks(&self, way: KernelWay, block: &[u8]) -> Result<Option<Error>> {
        let mut streams = self.streams(1, 0, way)?;
        let tried = streams.iter_mut().try_for_each(|s| s.write(0, block));
        Ok(tried.err())
    }
}

struct KernelStream {
    file: File,
    base: u64,
    way: KernelWay,
}

impl Stream for KernelStream {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let at = self.base + at;
        let flags = self.way.write_flags();
        if flags.is_empty() {
            return Ok(self.file.write_all_at(bytes, at)?);
        }
        let mut done = 0;
        while done < bytes.len() {
            let rest = [IoSlice::new(&bytes[done..])];
            match pwritev2(&self.file, &rest, at + done as u64, flags) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(len) => done += len,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(self.file.sync_all()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_writes_each_stream_where_it_belongs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plain");
        let source = super::super::writers::source();
        for (round, way) in KernelWay::ALL.into_iter().enumerate() {
            std::fs::write(&path, vec![0; 4 << 12]).unwrap();
            let kernel = Kernel::Plain(path.clone());
            if let Some(why) = kernel.lacks(way, &source[..4096]).unwrap() {
                throughline_testkit::left_out!("{way:?}: {why}");
                continue;
            }
            for (writer, stream) in kernel.streams(2, 8192, way).unwrap().iter_mut().enumerate() {
                let from = (round * 2 + writer) << 13;
                stream.write(0, &source[from..from + 4096]).unwrap();
                stream
                    .write(4096, &source[from + 4096..from + 8192])
                    .unwrap();
                stream.finish().unwrap();
            }
            let from = round << 14;
            let written = std::fs::read(&path).unwrap();
            assert!(written == source[from..from + (4 << 12)], "{way:?}");
        }
    }
}
