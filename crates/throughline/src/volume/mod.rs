//! [`Volume`], an open image.

mod paths;

use std::ffi::OsString;
use std::fmt;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use throughline_block::{Listener, Subscription};
use throughline_device::Op;
use throughline_ext::{
    Fs, Inode, InodeNumber, JournalCounts, OpenFile, Reason, Recovery, StatFs, TakeDown,
};
use throughline_fileio::{DirtyLimits, PageCache};

use crate::cache::CacheState;
use crate::call::told;
use crate::error::{Error, Result};
use crate::file::File;
use crate::info::{self, IoCounts, JournalState, VolumeInfo};
use crate::mode::Mode;
use crate::open::OpenOptions;
use crate::own::Memory;
use crate::status::VolumeStatus;

/// An open ext2, ext3 or ext4 volume. Clones are handles on the same one; all threads may use it at once.
///
/// [`Volume::close`] ends it and says what went wrong; dropping the last handle, file and directory of it closes it too,
/// and writes what went wrong to the log.
///
/// **What was accepted and not synced is in the memory of this process.** Dropping the last handle writes it back, also while a
/// panic unwinds; it is lost where the process ends without that (killed, aborted, `std::process::exit`) or the power does. See
/// [what is durable](crate#what-is-durable).
#[derive(Clone)]
pub struct Volume {
    mounted: Arc<Mounted>,
}

/// The volume as long as anybody uses it. Write-back keeps [`Fs`] in memory too, while files are dirty.
struct Mounted {
    fs: Arc<Fs>,
    /// Of files that are opened without options.
    mode: Mode,
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume")
            .field("device", &self.disk().info().name)
            .field("read_only", &self.is_read_only())
            .finish_non_exhaustive()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.save();
            self.fs.cache().close();
        } else if let Err(error) = self.fs.shut_down() {
            tracing::error!(%error, "closing the volume");
        }
    }
}

impl Mounted {
    /// While a panic unwinds: makes durable what calls have accepted. A call that the panic cut short half-way has stopped the
    /// volume, and nothing is written then. The volume stays marked as in use, so that what opens it next looks it through.
    fn save(&self) {
        if self.fs.is_read_only() || self.fs.stopped().is_some() || self.fs.is_down() {
            return;
        }
        match catch_unwind(AssertUnwindSafe(|| self.fs.sync())) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "saving the volume while a panic unwinds"),
            Err(_) => tracing::error!("a second panic while the volume was saved in a first one"),
        }
    }
}

/// An inode that stays as long as this does, whatever happens to its names.
pub(crate) struct Held {
    pub(crate) volume: Volume,
    pub(crate) inode: Arc<Inode>,
    /// Its regular file, from the first buffered access on.
    buffered: OnceLock<OpenFile>,
}

impl Held {
    pub(crate) fn new(volume: &Volume, inode: Arc<Inode>) -> Result<Held> {
        volume.fs().open_inode(&inode)?;
        Ok(Held::opened(volume, inode))
    }

    /// Of an inode that is open already.
    pub(crate) fn opened(volume: &Volume, inode: Arc<Inode>) -> Held {
        Held {
            volume: volume.clone(),
            inode,
            buffered: OnceLock::new(),
        }
    }

    pub(crate) fn fs(&self) -> &Fs {
        self.volume.fs()
    }

    /// The file for buffered I/O.
    pub(crate) fn buffered(&self) -> Result<&OpenFile> {
        if let Some(open) = self.buffered.get() {
            return Ok(open);
        }
        let open = self.volume.fs().open_file(&self.inode)?;
        Ok(self.buffered.get_or_init(|| open))
    }

    /// The file for buffered I/O, if there was any.
    pub(crate) fn was_buffered(&self) -> Option<&OpenFile> {
        self.buffered.get()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.buffered.take());
        if let Err(error) = self.volume.fs().close_inode(&self.inode) {
            // It stays on the volume's list of orphans, which the next one to open the volume works off.
            tracing::warn!(%error, "freeing a file that lost its last name");
        }
    }
}

impl Volume {
    /// Opens an image for reading, as `std::fs::File::open` does; [`OpenOptions`] opens for writing too.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Volume> {
        OpenOptions::new().open(path)
    }

    /// Opens an image that is in memory, for reading and writing. What is changed goes with the last handle; [`Memory`] keeps
    /// it.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let volume = throughline::Volume::in_memory(std::fs::read("disk.img")?)?;
    /// println!("{}", volume.read_to_string("/etc/hostname")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn in_memory(image: Vec<u8>) -> Result<Volume> {
        OpenOptions::new()
            .write(true)
            .open_device(Memory::from(image))
    }

    pub(crate) fn new(fs: Fs, mode: Mode) -> Volume {
        let fs = Arc::new(fs);
        fs.hold_back();
        Volume {
            mounted: Arc::new(Mounted { fs, mode }),
        }
    }

    pub(crate) fn fs(&self) -> &Arc<Fs> {
        &self.mounted.fs
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mounted.mode
    }

    /// What the volume is, and how its device is driven.
    ///
    /// # Errors
    /// Those of reading the volume's own structures.
    pub fn info(&self) -> Result<VolumeInfo> {
        info::of(self.fs())
    }

    /// The state of the journal, as in [`Volume::info`], but without I/O: it does not wait for a device that
    /// hangs.
    pub fn journal_state(&self) -> JournalState {
        info::journal_of(self.fs(), &self.fs().superblock())
    }

    /// The block layer below: of use to this workspace's own crates.
    #[doc(hidden)]
    pub fn disk(&self) -> &Arc<throughline_block::Disk> {
        self.fs().disk()
    }

    /// The page cache itself: of use to this workspace's own crates.
    #[doc(hidden)]
    pub fn cache(&self) -> &Arc<PageCache> {
        self.fs().cache()
    }

    /// The page cache at this moment.
    pub fn cache_state(&self) -> CacheState {
        CacheState::of(self.cache())
    }

    /// How it does at this moment.
    pub fn status(&self) -> VolumeStatus {
        VolumeStatus::of(self)
    }

    /// Changes the memory for the page cache, in bytes; what is too much is given back as it becomes clean. `None`: a
    /// quarter of what the process may use.
    pub fn set_cache_bytes(&self, bytes: Option<u64>) {
        let bytes = bytes.unwrap_or_else(throughline_fileio::memory::default_budget_bytes);
        self.cache().set_budget_bytes(bytes);
    }

    /// Changes how much memory may be dirty, from now on.
    pub fn set_dirty_limits(&self, limits: DirtyLimits) {
        self.cache().throttle().set_limits(limits);
    }

    /// Changes how long file data may be dirty before it is written without another reason.
    pub fn set_dirty_age(&self, age: Duration) {
        self.cache().writeback().set_age(age);
    }

    /// Changes the longest that is read ahead, in bytes (0: nothing); `None` derives it from the device.
    pub fn set_readahead_max(&self, bytes: Option<u64>) {
        self.cache().readahead().set_max_bytes(bytes);
    }

    /// Changes the size that data I/Os are built up to, in bytes; `None` derives it from the device.
    pub fn set_bio_target(&self, bytes: Option<u32>) {
        self.disk().set_bio_target_bytes(bytes);
    }

    /// The device's I/Os since the volume was opened.
    pub fn io_counts(&self) -> IoCounts {
        info::io_counts(self.fs())
    }

    /// Commits, and what they wrote to the journal, since the volume was opened.
    pub fn journal_counts(&self) -> JournalCounts {
        self.fs().journal_counts()
    }

    /// Tells `listener` of every I/O of the volume's device from now on, until what comes back is dropped.
    pub fn subscribe(&self, listener: Arc<dyn Listener>) -> Subscription {
        self.disk().subscribe(listener)
    }

    /// Gives each of some files of this volume its whole contents, as [`Handle::write_all_at`](crate::Handle::write_all_at) from byte 0 on would. Files
    /// that are empty, as new ones are, are written together: their data in few long I/Os, with one wait for all. One
    /// result for each, in order: with a file of another volume among them, [`Reason::CrossDevice`] for all. A copy of
    /// the data is in memory meanwhile.
    pub fn write_new(&self, files: &[(&File, &[u8])]) -> Vec<Result<()>> {
        if !files.iter().all(|(file, _)| self.is_same(file.volume())) {
            return files
                .iter()
                .map(|_| Err(Reason::CrossDevice.into()))
                .collect();
        }
        let inodes: Vec<_> = files
            .iter()
            .map(|(file, data)| (file.inode(), *data))
            .collect();
        let bytes = files.iter().map(|(_, data)| data.len()).sum();
        let write = || Ok(self.fs().write_new(&inodes));
        let done = told(self.disk(), Op::Write, |_| bytes, write).unwrap_or_default();
        done.into_iter().map(|done| Ok(done?)).collect()
    }

    /// Space and inodes, used and free.
    ///
    /// # Errors
    /// Those of reading the volume's own structures.
    pub fn stat_fs(&self) -> Result<StatFs> {
        Ok(self.fs().statfs()?)
    }

    /// Bytes of a block: 1024 to 65536.
    pub fn block_bytes(&self) -> u32 {
        self.fs().geometry().block_bytes
    }

    /// Whether nothing can be changed.
    pub fn is_read_only(&self) -> bool {
        self.fs().is_read_only()
    }

    /// Returns when everything done before survives a crash.
    ///
    /// # Errors
    /// What the device says, again at every call until it can be done.
    pub fn sync(&self) -> Result<()> {
        told(self.disk(), Op::Flush, |()| 0, || Ok(self.fs().sync()?))
    }

    /// Tells the device of the free blocks between two bytes of the volume, in runs of at least `least_bytes`, that their
    /// content is no longer needed (`FITRIM`): an image file gets holes there. Answers how many bytes it was told of.
    /// Blocks whose freeing no commit has made durable yet are left out.
    ///
    /// # Errors
    /// [`Reason::Invalid`] for a range that begins behind the volume or has not a block in it, or runs longer than a group;
    /// [`Error::Unsupported`] where the device cannot use it; [`Reason::ReadOnly`]; damage; the device's.
    pub fn trim(&self, range: Range<u64>, least_bytes: u64) -> Result<u64> {
        Ok(self.fs().trim(range, least_bytes)?)
    }

    /// Takes the volume down while it is in use, as `FS_IOC_SHUTDOWN` does: from then on nothing is written, and every call
    /// fails with [`Error::Down`]. What is on the disk is what a crash at that moment leaves, but for what `mode` still
    /// brings there. Closing it then marks nothing.
    ///
    /// # Errors
    /// With [`TakeDown::Flush`] those of [`Volume::sync`]; the volume is not taken down then. With [`TakeDown::FlushLog`]
    /// those of the commit; it is.
    pub fn take_down(&self, mode: TakeDown) -> Result<()> {
        Ok(self.fs().take_down(mode)?)
    }

    /// Counts a damaged place that a call of ours was refused for, and says so in the log, unless it is known. What is read around is
    /// counted without.
    pub fn count_damage(&self, damage: &throughline_ext::Corrupt) {
        self.fs().count_damage(damage);
    }

    /// Whether it was taken down.
    pub fn is_down(&self) -> bool {
        self.fs().is_down()
    }

    /// Closes the volume for writing, and keeps it open for reading: everything is on the device then, and it is marked as
    /// cleanly closed. Nobody may be changing it; changes that come later are refused with [`Reason::ReadOnly`].
    ///
    /// # Errors
    /// What the device says; the volume then stays marked as not cleanly closed.
    pub fn end_writing(&self) -> Result<()> {
        Ok(self.fs().end_writing()?)
    }

    /// Puts everything on the device and marks the volume as cleanly closed.
    ///
    /// # Errors
    /// [`Reason::Busy`] while other handles, files or directories of it are in use: everything is on the device then, but
    /// the volume stays open until the last of them goes. Else what the device says; the volume then stays marked as not
    /// cleanly closed.
    pub fn close(self) -> Result<()> {
        match Arc::try_unwrap(self.mounted) {
            Ok(mounted) => Ok(mounted.fs.shut_down()?),
            Err(mounted) => {
                mounted.fs.sync()?;
                Err(
                    Reason::Busy("files or directories of the volume are still in use".into())
                        .into(),
                )
            }
        }
    }

    /// What opening it for writing had to mend, because it was not closed the last time.
    pub fn recovery(&self) -> &Recovery {
        self.fs().recovery()
    }

    /// Why the volume takes no more changes, after a failure; `None` while it does.
    pub fn stopped(&self) -> Option<Error> {
        self.fs().stopped().map(Error::Stopped)
    }

    /// The file system below: of use to this workspace's own tests.
    #[doc(hidden)]
    pub fn engine(&self) -> &Fs {
        self.fs()
    }

    /// The inode of a number that somebody gave us: none of the volume's own.
    pub(crate) fn inode(&self, ino: u64) -> Result<Arc<Inode>> {
        let ino = u32::try_from(ino).map_err(|_| Error::from(Reason::NotFound))?;
        Ok(self.fs().inode_for_caller(InodeNumber(ino))?)
    }

    /// Whether both are handles of one open volume.
    pub(crate) fn is_same(&self, other: &Volume) -> bool {
        Arc::ptr_eq(&self.mounted, &other.mounted)
    }
}

/// A path from the volume's bytes.
pub(crate) fn path_from(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}
