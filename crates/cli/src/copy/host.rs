//! Open files of the host, as sources and targets of a copy.

use std::fs::File;
use std::io::{ErrorKind, IoSliceMut, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{self, Advice, OFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};
use throughline::FileType;
use throughline::archive::host_tree::{Attributes, Status, calls};

use super::extended::{Holder, Refused};
use super::host_meta::{apply_to, meta_of};
use super::pump::ALIGN_BYTES;
use super::side::{Change, Content, Meta};
use super::workers::SMALL_BYTES;
use crate::problem::Result;

/// An open file, device, pipe or standard stream of the host.
///
/// Long reads and writes bypass the host's page cache if its file system allows that: they run at the disk's
/// speed and cause no later write-back that slows the rest of the machine. Bytes outside whole blocks go
/// through the cache; the two never touch the same bytes.
pub(crate) struct HostContent {
    file: File,
    /// A stream or a block device; `None` for a regular file.
    special: Option<Special>,
    /// Set when the file system has refused direct I/O.
    only_buffered: AtomicBool,
    /// A long read found bytes that the host's page cache does not hold.
    not_cached: AtomicBool,
}

/// The kinds of files that have no holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Special {
    /// Reads and writes have no offset.
    Stream,
    /// It has offsets, a fixed length, and the bytes of earlier writes.
    BlockDevice,
}

/// Reads and writes of at least this size are direct.
const DIRECT_BYTES: usize = 1 << 20;

impl HostContent {
    /// An open file, and its status.
    pub(super) fn new(file: File, status: &Status) -> Result<HostContent> {
        let meta = meta_of(status)?;
        let special = match meta.kind {
            FileType::File => None,
            FileType::BlockDevice => Some(Special::BlockDevice),
            _ => Some(Special::Stream),
        };
        if special.is_none() && meta.len_bytes > SMALL_BYTES {
            // Enlarges the readahead. It is only a hint, so a failure is ignored.
            let _ = fs::fadvise(&file, 0, None, Advice::Sequential);
        }
        Ok(HostContent::plain(file, special))
    }

    fn plain(file: File, special: Option<Special>) -> HostContent {
        HostContent {
            file,
            special,
            only_buffered: AtomicBool::new(false),
            not_cached: AtomicBool::new(false),
        }
    }

    /// Runs `io` with O_DIRECT on the longest aligned prefix of `bytes_len` bytes and returns its result, the
    /// number of bytes done. Returns 0 if the memory at `address`, the offset or the file system does not
    /// permit direct I/O, or if the prefix is shorter than [`DIRECT_BYTES`].
    fn direct(
        &self,
        offset_bytes: u64,
        (address, bytes_len): (usize, usize),
        io: impl FnOnce(usize) -> std::io::Result<usize>,
    ) -> Result<usize> {
        let aligned =
            offset_bytes.is_multiple_of(ALIGN_BYTES as u64) && address.is_multiple_of(ALIGN_BYTES);
        let whole = bytes_len - bytes_len % ALIGN_BYTES;
        if !aligned || whole < DIRECT_BYTES || self.only_buffered.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let flags = fs::fcntl_getfl(&self.file)?;
        let done = match fs::fcntl_setfl(&self.file, flags | OFlags::DIRECT) {
            Ok(()) => io(whole),
            Err(errno) => Err(errno.into()),
        };
        fs::fcntl_setfl(&self.file, flags - OFlags::DIRECT)?;
        match done {
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                self.only_buffered.store(true, Ordering::Relaxed);
                Ok(0)
            }
            other => Ok(other?),
        }
    }

    /// Writes the longest possible prefix with direct I/O. Returns its length.
    fn write_direct(&self, offset_bytes: u64, bytes: &[u8]) -> Result<usize> {
        let memory = (bytes.as_ptr().addr(), bytes.len());
        self.direct(offset_bytes, memory, |whole| {
            let written = self.file.write_all_at(&bytes[..whole], offset_bytes);
            written.map(|()| whole)
        })
    }

    /// Reads as much as possible with direct I/O. Returns 0 if that is not possible, and at the end of the
    /// file.
    fn read_direct(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<usize> {
        let memory = (buffer.as_ptr().addr(), buffer.len());
        self.direct(offset_bytes, memory, |whole| {
            match self.file.read_at(&mut buffer[..whole], offset_bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
                other => other,
            }
        })
    }

    /// Reads as many bytes from the start as the host's page cache holds: copying them costs less than
    /// reading them from the disk, and dirty ones need no write-back first. After the first miss, the rest of
    /// the file is taken as not cached, because each miss makes the kernel read ahead into its cache.
    fn read_cached(&self, offset_bytes: u64, buffer: &mut [u8]) -> usize {
        if buffer.len() < DIRECT_BYTES || self.not_cached.load(Ordering::Relaxed) {
            return 0;
        }
        let len = buffer.len();
        let mut whole = [IoSliceMut::new(buffer)];
        // An error, of whatever kind, is left to the read that follows.
        let got = rustix::io::preadv2(&self.file, &mut whole, offset_bytes, ReadWriteFlags::NOWAIT)
            .unwrap_or(0);
        if got < len {
            self.not_cached.store(true, Ordering::Relaxed);
        }
        got
    }

    /// Standard input.
    pub(crate) fn stdin() -> Result<HostContent> {
        let fd = std::io::stdin().as_fd().try_clone_to_owned()?;
        Ok(HostContent::plain(File::from(fd), Some(Special::Stream)))
    }

    /// Standard output.
    pub(crate) fn stdout() -> Result<HostContent> {
        let fd = std::io::stdout().as_fd().try_clone_to_owned()?;
        Ok(HostContent::plain(File::from(fd), Some(Special::Stream)))
    }
}

impl Content for HostContent {
    fn meta(&self) -> Result<Meta> {
        meta_of(&calls::fstat(&self.file)?)
    }

    fn is_stream(&self) -> bool {
        self.special == Some(Special::Stream)
    }

    fn has_holes(&self) -> bool {
        self.special.is_none()
    }

    fn stream(&self) -> Option<BorrowedFd<'_>> {
        self.is_stream().then(|| self.file.as_fd())
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<usize> {
        if self.is_stream() {
            return Ok(rustix::io::retry_on_intr(|| {
                rustix::io::read(&self.file, &mut *buffer)
            })?);
        }
        let mut filled = self.read_cached(offset_bytes, buffer);
        filled += self.read_direct(offset_bytes + filled as u64, &mut buffer[filled..])?;
        while filled < buffer.len() {
            let rest = &mut buffer[filled..];
            match self.file.read_at(rest, offset_bytes + filled as u64) {
                Ok(0) => break,
                Ok(got) => filled += got,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> Result<()> {
        if self.is_stream() {
            return Ok((&self.file).write_all(bytes)?);
        }
        let direct = self.write_direct(offset_bytes, bytes)?;
        let (_, rest) = bytes.split_at(direct);
        Ok(self
            .file
            .write_all_at(rest, offset_bytes.saturating_add(direct as u64))?)
    }

    fn next_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>> {
        let start = match fs::seek(&self.file, SeekFrom::Data(offset_bytes)) {
            Ok(start) => start,
            // The length of a file below /proc/sys is 0, whatever can be read from it. The kernel refuses
            // to read 4 MiB of it at once.
            Err(Errno::NXIO) if self.meta()?.len_bytes == 0 => {
                return Ok(Some(offset_bytes..offset_bytes.saturating_add(SMALL_BYTES)));
            }
            Err(Errno::NXIO) => return Ok(None),
            // The file system does not report holes: everything counts as data.
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::SPIPE) => {
                return Ok(Some(offset_bytes..u64::MAX));
            }
            Err(errno) => return Err(errno.into()),
        };
        match fs::seek(&self.file, SeekFrom::Hole(start)) {
            Ok(end) => Ok(Some(start..end)),
            // Truncated in the meantime.
            Err(Errno::NXIO) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        Ok(self.file.set_len(len_bytes)?)
    }

    /// NFS and FUSE file systems may report a full disk or quota only at close(2).
    fn close(self: Box<Self>) -> Result<()> {
        Ok(nix::unistd::close(self.file).map_err(std::io::Error::from)?)
    }

    fn holder(&self) -> Holder<'_> {
        Holder::Host(Attributes::Open(self.file.as_fd()))
    }

    fn set(&self, change: &Change) -> Result<Vec<Refused>> {
        apply_to(&self.file, change)
    }
}
