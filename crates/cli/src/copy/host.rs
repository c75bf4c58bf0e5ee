//! The host side of a copy. It uses directory descriptors, so no name can lead out of a directory.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, IoSliceMut, Write};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{self, Advice, AtFlags, CWD, Mode, OFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};
use throughline::{DeviceNumber, FileType};

use super::extended::{Holder, Refused};
use super::host_meta::{apply, apply_to, meta_of};
use super::preloadable;
use super::pump::ALIGN_BYTES;
use super::side::{Change, Content, Create, Folder, Landed, Meta};
use super::workers::SMALL_BYTES;
use crate::problem::{Problem, Result};

/// A directory of the host.
pub(crate) struct HostFolder {
    fd: OwnedFd,
    path: PathBuf,
}

impl HostFolder {
    /// Opens a directory by its path; follows links.
    pub(crate) fn open(path: &Path) -> Result<HostFolder> {
        let fd = fs::openat(
            CWD,
            path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(HostFolder {
            fd,
            path: path.to_owned(),
        })
    }
}

fn no_follow(follow: bool) -> OFlags {
    if follow {
        OFlags::empty()
    } else {
        OFlags::NOFOLLOW
    }
}

impl Folder for HostFolder {
    fn names(&self) -> Result<Box<dyn Iterator<Item = Result<OsString>> + '_>> {
        let dir = fs::Dir::read_from(&self.fd)?;
        Ok(Box::new(dir.filter_map(|entry| match entry {
            Ok(entry) => match entry.file_name().to_bytes() {
                b"." | b".." => None,
                name => Some(Ok(OsString::from_vec(name.to_vec()))),
            },
            Err(errno) => Some(Err(errno.into())),
        })))
    }

    fn own(&self) -> Result<Meta> {
        meta_of(&preloadable::fstat(&self.fd)?)
    }

    fn meta(&self, name: &OsStr, follow: bool) -> Result<Meta> {
        let flags = if follow {
            AtFlags::empty()
        } else {
            AtFlags::SYMLINK_NOFOLLOW
        };
        meta_of(&preloadable::statat(&self.fd, name, flags)?)
    }

    fn folder(&self, name: &OsStr, follow: bool) -> Result<Box<dyn Folder>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | no_follow(follow);
        let fd = fs::openat(&self.fd, name, flags, Mode::empty())?;
        Ok(Box::new(HostFolder {
            fd,
            path: self.path.join(name),
        }))
    }

    fn open(&self, name: &OsStr, follow: bool) -> Result<Box<dyn Content>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | no_follow(follow);
        let file = File::from(fs::openat(&self.fd, name, flags, Mode::empty())?);
        Ok(Box::new(HostContent::new(file)?))
    }

    fn link_target(&self, name: &OsStr) -> Result<PathBuf> {
        let target = fs::readlinkat(&self.fd, name, Vec::new())?;
        Ok(OsStr::from_bytes(target.as_bytes()).into())
    }

    fn create(&self, name: &OsStr, mode: u32, how: Create) -> Result<Box<dyn Content>> {
        let flags = match how {
            Create::New => OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW,
            Create::Existing => OFlags::TRUNC | OFlags::NOFOLLOW,
            Create::Through => OFlags::TRUNC,
        };
        let fd = fs::openat(
            &self.fd,
            name,
            OFlags::WRONLY | OFlags::CLOEXEC | flags,
            Mode::from_raw_mode(mode),
        )?;
        Ok(Box::new(HostContent::new(File::from(fd))?))
    }

    fn make_folder(&self, name: &OsStr, mode: u32) -> Result<()> {
        Ok(preloadable::mkdirat(
            &self.fd,
            name,
            Mode::from_raw_mode(mode),
        )?)
    }

    fn make_symlink(&self, name: &OsStr, target: &Path) -> Result<()> {
        Ok(fs::symlinkat(target, &self.fd, name)?)
    }

    fn make_node(
        &self,
        name: &OsStr,
        kind: FileType,
        device: Option<DeviceNumber>,
        mode: u32,
    ) -> Result<()> {
        let kind = match kind {
            FileType::Fifo => fs::FileType::Fifo,
            FileType::Socket => fs::FileType::Socket,
            FileType::CharDevice => fs::FileType::CharacterDevice,
            FileType::BlockDevice => fs::FileType::BlockDevice,
            FileType::File | FileType::Directory | FileType::Symlink => {
                return Err(Problem::new("not a special file"));
            }
        };
        let device = device.map_or(0, |device| fs::makedev(device.major, device.minor));
        preloadable::mknodat(&self.fd, name, kind, Mode::from_raw_mode(mode), device).map_err(
            |errno| {
                let problem = Problem::from(errno);
                if errno == Errno::PERM {
                    problem.with_next("only root can make device nodes on the host")
                } else {
                    problem
                }
            },
        )
    }

    fn make_link(&self, name: &OsStr, first: &Landed) -> Result<()> {
        match first {
            Landed::Host(path) => Ok(fs::linkat(CWD, path, &self.fd, name, AtFlags::empty())?),
            Landed::Image(_) => Err(Problem::new("Invalid cross-device link")),
        }
    }

    fn landed(&self, name: &OsStr) -> Result<Landed> {
        Ok(Landed::Host(self.path.join(name)))
    }

    fn remove(&self, name: &OsStr) -> Result<()> {
        Ok(preloadable::unlinkat(&self.fd, name)?)
    }

    fn holder(&self, name: &OsStr) -> Result<Holder<'_>> {
        // There are no system calls for attributes of a name in an open directory. A final symbolic link is
        // not followed.
        let dir = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        Ok(Holder::Named(Path::new(&dir).join(name)))
    }

    fn own_holder(&self) -> Result<Holder<'_>> {
        Ok(Holder::Open(self.fd.as_fd()))
    }

    fn set(&self, name: &OsStr, change: &Change) -> Result<Vec<Refused>> {
        let is_link = self.meta(name, false)?.kind == FileType::Symlink;
        apply(
            change,
            &self.holder(name)?,
            |uid, gid| preloadable::chownat(&self.fd, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW),
            // The mode of a link is meaningless and cannot be set.
            |mode| {
                if is_link {
                    Ok(())
                } else {
                    preloadable::chmodat(&self.fd, name, mode)
                }
            },
            |times| fs::utimensat(&self.fd, name, times, AtFlags::SYMLINK_NOFOLLOW),
        )
    }

    fn set_own(&self, change: &Change) -> Result<Vec<Refused>> {
        apply_to(&self.fd, change)
    }
}

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
    fn new(file: File) -> Result<HostContent> {
        let meta = meta_of(&preloadable::fstat(&file)?)?;
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
        meta_of(&preloadable::fstat(&self.file)?)
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
        Holder::Open(self.file.as_fd())
    }

    fn set(&self, change: &Change) -> Result<Vec<Refused>> {
        apply_to(&self.file, change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_below_the_target_is_not_written_through() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("outside"), b"dear").unwrap();
        std::os::unix::fs::symlink("outside", dir.path().join("link")).unwrap();
        let folder = HostFolder::open(dir.path()).unwrap();
        for how in [Create::New, Create::Existing] {
            assert!(
                folder.create(OsStr::new("link"), 0o644, how).is_err(),
                "{how:?}"
            );
        }
        assert_eq!(std::fs::read(dir.path().join("outside")).unwrap(), b"dear");
    }
}
