//! System calls as the target: `pread`, `pwrite` and `fsync` on a file in a mounted file system, a plain file
//! or a block device.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    Advice, AtFlags, CWD, FlockOperation, Mode, OFlags, StatxFlags, fadvise, openat, statx,
};
use serde_json::Value;

use super::{Access, Needs, Target, file_name, room, too_short};
use crate::mounts::place::Place;
use crate::{Error, Result};

use super::super::{SyncPolicy, Workload};

/// A file that is used by system calls.
pub(super) struct KernelFile {
    file: File,
    direct: bool,
    resizable: bool,
}

impl KernelFile {
    fn failed(&self, what: &str, error: &io::Error) -> Error {
        let invalid = error.kind() == io::ErrorKind::InvalidInput;
        let next = match invalid && self.direct {
            true => {
                ": direct I/O needs block and offset in multiples of the device's block size, often 4k"
            }
            false => "",
        };
        Error::new(format!("cannot {what}: {error}{next}"))
    }
}

impl Access for KernelFile {
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let read = self.file.read_exact_at(buf, at);
        read.map_err(|e| self.failed("read", &e))
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all_at(bytes, at);
        written.map_err(|e| self.failed("write", &e))
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(|e| self.failed("sync", &e))
    }

    fn empty(&self) -> Result<()> {
        match self.resizable {
            true => self.file.set_len(0).map_err(|e| self.failed("empty", &e)),
            false => Ok(()),
        }
    }

    fn write_back(&self, forget: bool) -> Result<()> {
        self.sync()?;
        if forget {
            // This is only advice. A file system without such a cache may ignore it.
            let _ = fadvise(&self.file, 0, None, Advice::DontNeed);
        }
        Ok(())
    }
}

/// The flags for opening files, according to the workload.
pub(super) fn flags(workload: &Workload) -> OFlags {
    let mut flags = OFlags::RDWR | OFlags::CLOEXEC;
    flags.set(OFlags::DIRECT, workload.direct);
    flags.set(OFlags::DSYNC, workload.sync == SyncPolicy::Dsync);
    flags
}

/// Opens `name` in `place`.
pub(super) fn open_in(place: Place<'_>, name: &str, flags: OFlags) -> Result<Arc<dyn Access>> {
    let direct = flags.contains(OFlags::DIRECT);
    let file = place.open(name, flags | OFlags::CREATE).map_err(|error| {
        let next = match direct {
            true => " (if the file system does not support direct I/O, use cache = \"buffered\")",
            false => "",
        };
        Error::new(format!("{error}{next}"))
    })?;
    Ok(Arc::new(KernelFile {
        file,
        direct,
        resizable: true,
    }))
}

/// New files in a directory.
pub(super) struct Dir {
    root: File,
    flags: OFlags,
    /// Names of files to remove.
    made: RefCell<BTreeSet<String>>,
}

impl Dir {
    pub(super) fn open(path: &Path, needs: &Needs<'_>) -> Result<Dir> {
        let flags_dir = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let root = openat(CWD, path, flags_dir, Mode::empty()).map_err(|e| {
            Error::new(format!("cannot open the directory {}: {e}", path.display()))
        })?;
        let w = needs.workload;
        room(&root, w.file_bytes().saturating_mul(u64::from(w.files())))?;
        Ok(Dir {
            root: root.into(),
            flags: flags(w),
            made: RefCell::default(),
        })
    }
}

impl Target for Dir {
    fn open(&self, number: u32) -> Result<Arc<dyn Access>> {
        let name = file_name(number);
        let access = open_in(Place::new(self.root.as_fd()), &name, self.flags)?;
        self.made.borrow_mut().insert(name);
        Ok(access)
    }

    fn has_many(&self) -> bool {
        true
    }

    fn facts(&self) -> BTreeMap<String, Value> {
        mounted(&self.root)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        for name in self.made.take() {
            // It may have been removed already.
            let _ = Place::new(self.root.as_fd()).remove(&name);
        }
    }
}

/// Type, source and options of the file system that contains `file`, from `/proc/self/mountinfo`.
fn mounted(file: &File) -> BTreeMap<String, Value> {
    // Found by mount ID, because files in btrfs and overlayfs have device numbers that no mount has.
    let Ok(stat) = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID) else {
        return BTreeMap::new();
    };
    let number = stat.stx_mnt_id.to_string();
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let of_ours = |line: &&str| line.split_whitespace().next() == Some(&number);
    // After the dash: type, source and options of the file system.
    let fields = table
        .lines()
        .find(of_ours)
        .and_then(|line| line.split_once(" - "));
    let Some((before, behind)) = fields else {
        return BTreeMap::new();
    };
    let mut words = behind.split_whitespace();
    let options = before.split_whitespace().nth(5).unwrap_or_default();
    let mut facts = BTreeMap::new();
    for name in ["file system", "source", "file system's options"] {
        facts.insert(name.to_owned(), words.next().unwrap_or_default().into());
    }
    facts.insert("mount options".to_owned(), options.into());
    facts
}

/// One plain file or block device.
pub(super) struct OneFile {
    path: PathBuf,
    flags: OFlags,
    as_it_is: bool,
    resizable: bool,
    made: bool,
    /// Keeps other programs out, by a lock and, for a device, by opening it exclusively.
    held: File,
}

impl OneFile {
    pub(super) fn open(path: &Path, needs: &Needs<'_>) -> Result<OneFile> {
        let of_path = |e: rustix::io::Errno| Error::new(format!("{}: {e}", path.display()));
        let metadata = std::fs::metadata(path).ok();
        let device = metadata
            .as_ref()
            .is_some_and(|m| m.file_type().is_block_device());
        if metadata.as_ref().is_some_and(|m| !m.is_file() && !device) {
            return Err(Error::new(format!(
                "{} is neither a plain file nor a block device",
                path.display()
            )));
        }
        let as_it_is = metadata.is_some() && needs.existing(&path.display().to_string())?;
        let mut held_flags = OFlags::CLOEXEC
            | if as_it_is {
                OFlags::RDONLY
            } else {
                OFlags::RDWR
            };
        held_flags.set(OFlags::CREATE, metadata.is_none());
        // Opening a device exclusively gives EBUSY if it is mounted, part of a RAID, and so on.
        held_flags.set(OFlags::EXCL, metadata.is_none() || (device && !as_it_is));
        let held =
            openat(CWD, path, held_flags, Mode::from_raw_mode(0o644)).map_err(|e| match e {
                rustix::io::Errno::BUSY => Error::new(format!(
                    "{} is in use (mounted, or part of another device): it is not overwritten",
                    path.display()
                )),
                e => of_path(e),
            })?;
        let mut flags = flags(needs.workload);
        if as_it_is {
            flags = (flags - OFlags::RDWR) | OFlags::RDONLY;
        }
        let one = OneFile {
            path: path.to_owned(),
            flags,
            as_it_is,
            resizable: !device,
            made: metadata.is_none(),
            held: held.into(),
        };
        let how = match as_it_is {
            true => FlockOperation::NonBlockingLockShared,
            false => FlockOperation::NonBlockingLockExclusive,
        };
        rustix::fs::flock(&one.held, how)
            .map_err(|_| Error::new(format!("{} is locked by another process", path.display())))?;
        let len = io::Seek::seek(&mut &one.held, io::SeekFrom::End(0))?;
        let end = needs.workload.file_end();
        if len < end && (as_it_is || device) {
            return Err(too_short(len, end));
        }
        if !as_it_is && !device {
            room(&one.held, end.saturating_sub(len))?;
        }
        Ok(one)
    }
}

impl Target for OneFile {
    fn open(&self, _number: u32) -> Result<Arc<dyn Access>> {
        let file = openat(CWD, &self.path, self.flags, Mode::empty())
            .map_err(|e| Error::new(format!("{}: {e}", self.path.display())))?;
        Ok(Arc::new(KernelFile {
            file: file.into(),
            direct: self.flags.contains(OFlags::DIRECT),
            resizable: self.resizable,
        }))
    }

    fn has_many(&self) -> bool {
        false
    }

    fn as_it_is(&self) -> bool {
        self.as_it_is
    }

    fn facts(&self) -> BTreeMap<String, Value> {
        match self.resizable {
            true => mounted(&self.held),
            false => {
                BTreeMap::from([("device".to_owned(), self.path.display().to_string().into())])
            }
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl Drop for OneFile {
    fn drop(&mut self) {
        if self.made {
            // It may have been removed already.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
