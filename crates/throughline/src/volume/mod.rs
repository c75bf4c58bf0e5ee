//! [`Volume`], an open image.

mod tuning;

use std::ffi::OsString;
use std::fmt;
use std::ops::{Deref, Range};
use std::os::unix::ffi::OsStringExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use throughline_block::{Listener, Subscription};
use throughline_device::Op;
use throughline_ext::{
    Fs, Inode, InodeNumber, JournalCounts, OpenFile, Reason, Recovery, StatFs, TakeDown,
};
use throughline_fileio::PageCache;
use throughline_make::{Error as MkfsError, FoundHashTree, Made, MkfsOptions};

pub use tuning::Tuning;

use crate::cache::CacheState;
use crate::call::traced;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::file::File;
use crate::info::{self, JournalState, VolumeInfo};
use crate::mode::Mode;
use crate::node::Node;
use crate::open::OpenOptions;
use crate::ops;
use crate::own::{Device, Memory, Own};
use crate::status::VolumeStatus;

/// An open ext2, ext3 or ext4 volume. Clones share the same volume; any number of threads may use it.
///
/// **The calls by path are those of [`Dir`]**, to which a volume dereferences: its root directory. They are
/// listed below, under "Methods from `Deref`", and have the names that they have in `std::fs`:
///
/// ```no_run
/// # fn main() -> throughline::Result<()> {
/// let volume = throughline::OpenOptions::new().write(true).open("disk.img")?;
/// volume.create_dir_all("/var/log")?;
/// volume.write("/var/log/boot", "it works\n")?;
/// println!("{}", volume.metadata("/var/log/boot")?.len());
/// volume.close()
/// # }
/// ```
///
/// [`Volume::close`] closes it and returns errors. The volume is also closed when the last of its handles,
/// files and directories is dropped, but then errors are only logged.
///
/// **Accepted data that was not synced is in this process's memory.** Dropping the last handle writes it
/// back, also while a panic unwinds. It is lost if the process ends without that drop (killed, aborted,
/// `std::process::exit`) or the power fails. See [what is durable](crate#what-is-durable).
#[derive(Clone)]
pub struct Volume {
    root: Dir,
}

/// The volume while it has handles. Write-back also keeps [`Fs`] alive, while files are dirty.
pub(crate) struct Mounted {
    fs: Arc<Fs>,
    /// Mode of files opened without options.
    mode: Mode,
}

impl Deref for Volume {
    type Target = Dir;

    /// The root directory. It is read by the calls that need it, so a volume with a damaged root opens too.
    fn deref(&self) -> &Dir {
        &self.root
    }
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
    pub(crate) fn fs(&self) -> &Arc<Fs> {
        &self.fs
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// While a panic unwinds: makes accepted changes durable. A change that the panic interrupted has stopped
    /// the volume, and then nothing is written. The volume stays marked as in use, so that it is checked when
    /// opened next.
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

/// An inode kept alive as long as this exists, whatever happens to its names.
pub(crate) struct Held {
    pub(crate) volume: Volume,
    pub(crate) inode: Arc<Inode>,
    /// Its regular file, from the first buffered access.
    buffered: OnceLock<OpenFile>,
}

impl Held {
    pub(crate) fn new(volume: &Volume, inode: Arc<Inode>) -> Result<Held> {
        volume.fs().open_inode(&inode)?;
        Ok(Held::opened(volume, inode))
    }

    /// For an inode that is already open.
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

    /// The file for buffered I/O, if it was ever used that way.
    pub(crate) fn was_buffered(&self) -> Option<&OpenFile> {
        self.buffered.get()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.buffered.take());
        if let Err(error) = self.volume.fs().close_inode(&self.inode) {
            // It stays on the orphan list, which is processed when the volume is opened next.
            tracing::warn!(%error, "freeing a file that lost its last name");
        }
    }
}

impl Volume {
    /// Opens an image read-only, as `std::fs::File::open` does; [`OpenOptions`] can open for writing.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Volume> {
        OpenOptions::new().open(path)
    }

    /// Opens an in-memory image, for reading and writing. **Changes are lost with the last handle**; use
    /// [`Memory`] to keep them.
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

    /// Makes a volume on your own storage, as [`MkfsOptions::make`] does in a file. **The volume is durable
    /// when this returns. After a crash before that, the device holds no volume, or part of one.**
    ///
    /// ```
    /// use throughline::{Memory, MkfsOptions, OpenOptions, Volume};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let memory = Memory::zeroed(8 << 20);
    /// Volume::make_on(memory.clone(), &MkfsOptions::new())?;
    /// let volume = OpenOptions::new().write(true).open_device(memory.clone())?;
    /// volume.write("/motd", "hello\n")?;
    /// volume.close()?;
    /// let image = memory.to_vec(); // a clean image, for `std::fs::write`
    /// # assert_eq!(image.len(), 8 << 20);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`MkfsOptions::make`]; [`MkfsError::Invalid`] also for an invalid [`Device::block_bytes`].
    pub fn make_on(
        device: impl Device + 'static,
        options: &MkfsOptions,
    ) -> std::result::Result<Made, MkfsError> {
        let device = Own::new(device).map_err(|error| MkfsError::Invalid(error.to_string()))?;
        options.make_on(Arc::new(device))
    }

    pub(crate) fn new(fs: Fs, mode: Mode) -> Volume {
        let fs = Arc::new(fs);
        fs.enable_deferred_truncation();
        Volume::of(Arc::new(Mounted { fs, mode }))
    }

    pub(crate) fn of(mounted: Arc<Mounted>) -> Volume {
        Volume {
            root: Dir::root_of(mounted),
        }
    }

    pub(crate) fn mounted(&self) -> &Arc<Mounted> {
        &self.root.mounted
    }

    pub(crate) fn fs(&self) -> &Arc<Fs> {
        self.mounted().fs()
    }

    /// Facts about the volume and its device.
    ///
    /// # Errors
    /// Errors of reading the volume's own structures.
    pub fn info(&self) -> Result<VolumeInfo> {
        info::of(self.fs())
    }

    /// The hash tree of dm-verity behind the volume, if there is one. To see whether it fits, the whole
    /// volume is read.
    ///
    /// # Errors
    /// Of the device.
    pub fn hash_tree(&self) -> Result<Option<FoundHashTree>> {
        match throughline_make::hash_tree_behind(self.disk(), self.fs().geometry()) {
            Ok(found) => Ok(found),
            Err(MkfsError::Device(error)) => Err(Error::Device(error)),
            Err(other) => Err(Error::Unsupported(other.to_string())),
        }
    }

    /// The state of the journal, as in [`Volume::info`], but without I/O: it does not wait for a hanging
    /// device.
    pub fn journal_state(&self) -> JournalState {
        info::journal_of(self.fs(), &self.fs().superblock())
    }

    pub(crate) fn disk(&self) -> &Arc<throughline_block::Disk> {
        self.fs().disk()
    }

    pub(crate) fn cache(&self) -> &Arc<PageCache> {
        self.fs().cache()
    }

    /// The current state of the page cache.
    pub fn cache_state(&self) -> CacheState {
        CacheState::of(self.cache())
    }

    /// The current status of the volume.
    pub fn status(&self) -> VolumeStatus {
        VolumeStatus::of(self)
    }

    /// The settings that can be changed while the volume is open.
    pub fn tune(&self) -> Tuning<'_> {
        Tuning::of(self.fs())
    }

    /// Number of commits, and the journal writes they caused, since the volume was opened.
    pub fn journal_counts(&self) -> JournalCounts {
        self.fs().journal_counts()
    }

    /// Traces every I/O of the volume's device to `listener`, until the subscription is dropped.
    pub fn subscribe(&self, listener: Arc<dyn Listener>) -> Subscription {
        self.disk().subscribe(listener)
    }

    /// Writes the whole contents of several files, as [`Handle::write_all_at`](crate::Handle::write_all_at)
    /// from byte 0 would. Files that are empty, such as new ones, are written together, with a few large I/Os
    /// and a single wait. Returns one result per file, in order; if a file belongs to another volume, every
    /// result is [`Reason::CrossDevice`]. Uses as much memory as the data while it runs.
    ///
    /// **Until it is synced, a change is lost if the process ends or the machine fails** ([what is
    /// durable](crate#what-is-durable)).
    pub fn write_new(&self, files: &[(&File, &[u8])]) -> Vec<Result<()>> {
        let refused = || Err(Reason::CrossDevice.into());
        match files.first() {
            Some((first, _)) if self.is_same(first.volume()) => ops::write_new(files)
                .into_result()
                .unwrap_or_else(|error| vec![Err(error); files.len()]),
            _ => files.iter().map(|_| refused()).collect(),
        }
    }

    /// Space and inodes, used and free.
    ///
    /// # Errors
    /// Errors of reading the volume's own structures.
    pub fn stat_fs(&self) -> Result<StatFs> {
        Ok(self.fs().statfs()?)
    }

    /// Block size in bytes: 1024 to 65536.
    pub fn block_bytes(&self) -> u32 {
        self.fs().geometry().block_bytes
    }

    /// Whether the volume is read-only.
    pub fn is_read_only(&self) -> bool {
        self.fs().is_read_only()
    }

    /// Returns when all earlier changes survive a crash.
    ///
    /// # Errors
    /// The device's error, on every call until the sync succeeds.
    pub fn sync(&self) -> Result<()> {
        traced(self.disk(), Op::Flush, |()| 0, || Ok(self.fs().sync()?))
    }

    /// Discards the free blocks in a byte range of the volume, in runs of at least `least_bytes` (`FITRIM`):
    /// an image file gets holes there. Returns the number of bytes discarded. Skips blocks whose freeing is
    /// not committed yet.
    ///
    /// # Errors
    /// [`Reason::Invalid`] for a range that begins past the end of the volume or is shorter than a block, or
    /// for a minimum larger than a block group; [`Error::Unsupported`] if the device does not support
    /// discard; [`Reason::ReadOnly`]; damage; device errors.
    pub fn trim(&self, range: Range<u64>, least_bytes: u64) -> Result<u64> {
        Ok(self.fs().trim(range, least_bytes)?)
    }

    /// Takes the volume down while it is in use, as `FS_IOC_SHUTDOWN` does: from then on nothing is written,
    /// and every call fails with [`Error::Down`]. The disk is left as if by a crash at that moment, after
    /// the writes that `mode` allows. Closing the volume then writes nothing. **Accepted data that was not
    /// synced is lost, except what `mode` writes.**
    ///
    /// # Errors
    /// With [`TakeDown::Flush`], those of [`Volume::sync`]; the volume is then not taken down. With
    /// [`TakeDown::FlushLog`], those of the commit; the volume is taken down anyway.
    pub fn take_down(&self, mode: TakeDown) -> Result<()> {
        Ok(self.fs().take_down(mode)?)
    }

    /// Whether [`Volume::take_down`] was called.
    pub fn is_down(&self) -> bool {
        self.fs().is_down()
    }

    /// Ends writing but keeps the volume open for reading: writes everything to the device and marks the
    /// volume clean. No changes may be in progress; later ones fail with [`Reason::ReadOnly`].
    ///
    /// # Errors
    /// The device's error; the volume then stays marked as not cleanly closed.
    pub fn end_writing(&self) -> Result<()> {
        Ok(self.fs().end_writing()?)
    }

    /// Writes everything to the device and marks the volume clean.
    ///
    /// # Errors
    /// [`Reason::Busy`] while other handles, files or directories of the volume are in use: everything is
    /// then on the device, but the volume stays open until the last of them is dropped. Otherwise the
    /// device's error; the volume then stays marked as not cleanly closed.
    pub fn close(self) -> Result<()> {
        match Arc::try_unwrap(self.root.mounted) {
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

    /// What recovery did when the volume was opened for writing after an unclean close.
    pub fn recovery(&self) -> &Recovery {
        self.fs().recovery()
    }

    /// The failure that stopped all changes; `None` if there was none.
    pub fn stopped(&self) -> Option<Error> {
        self.fs().stopped().map(Error::Stopped)
    }

    /// The root directory, kept open. Calls through it do not look it up again.
    ///
    /// # Errors
    /// Errors of reading it.
    pub fn root(&self) -> Result<Dir> {
        self.root.open_dir("/")
    }

    /// The inode with a number that a look-up returned earlier. Refuses the volume's own inodes.
    ///
    /// # Errors
    /// [`Reason::NotFound`] if it is not in use; damage; device errors.
    pub fn node_by_ino(&self, ino: u64) -> Result<Node> {
        let ino = u32::try_from(ino).map_err(|_| Error::from(Reason::NotFound))?;
        Node::new(self, self.fs().inode_for_caller(InodeNumber(ino))?)
    }

    /// The inode with a number from outside, such as an NFS file handle. It may have been freed, or never
    /// have existed. Compare its [generation](crate::Metadata::generation) to detect a reused number.
    ///
    /// # Errors
    /// [`Reason::NotFound`] if it does not exist, has no name left, or is reserved by the volume; damage;
    /// device errors.
    pub fn node_kept(&self, ino: u64) -> Result<Node> {
        let ino = u32::try_from(ino).map_err(|_| Error::from(Reason::NotFound))?;
        Node::new(self, self.fs().inode_kept(InodeNumber(ino))?)
    }

    /// Whether both are handles of the same open volume.
    pub(crate) fn is_same(&self, other: &Volume) -> bool {
        Arc::ptr_eq(self.mounted(), other.mounted())
    }
}

/// A path from the volume's bytes.
pub(crate) fn path_from(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}
