//! [`OpenOptions`]: the choices for opening an image, a plain file or a device.

mod image;
#[cfg(feature = "remote")]
pub(crate) mod object;
#[cfg(not(feature = "remote"))]
#[path = "no_object.rs"]
pub(crate) mod object;
mod opening;
mod partition;
mod volume;

use std::fmt;
use std::sync::Arc;

use throughline_block::Listener;
use throughline_device::EngineChoice;
use throughline_fileio::DirtyLimits;

pub(crate) use image::{Image, base_of};
pub use image::{ImageOptions, OtherBase};
pub(crate) use opening::{not_opened, on_devices};
pub use partition::partitions;
pub(crate) use partition::{located, table};
pub use volume::VolumeOptions;

/// Options for opening a [`Volume`](crate::Volume) or a [`RawFile`](crate::RawFile).
///
/// The defaults ([`OpenOptions::new`]): read-only, bypassing the host's page cache, from byte 0 of the
/// device, with an engine and I/O size that fit the machine. How a volume behaves once it is open has options
/// of its own ([`OpenOptions::volume`]).
///
/// ```no_run
/// use throughline::OpenOptions;
///
/// # fn main() -> throughline::Result<()> {
/// let seen = OpenOptions::new().open("disk.img")?; // not changed, not even its journal
/// seen.close()?;
/// let changed = OpenOptions::new().write(true).open("disk.img")?;
/// changed.write("/etc/motd", "hello\n")?;
/// changed.close()
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    engine: EngineChoice,
    through_host_cache: bool,
    write: bool,
    pub(crate) offset_bytes: u64,
    /// How long its place is: a partition. `None`: to the end of the device.
    pub(crate) len_bytes: Option<u64>,
    partition: Option<String>,
    pub(crate) image: ImageOptions,
    bio_target_bytes: Option<u32>,
    allow_unclean: bool,
    create: bool,
    truncate: bool,
    unbuffered: bool,
    cache_bytes: Option<u64>,
    dirty_limits: DirtyLimits,
    readahead_max_bytes: Option<u64>,
    no_replay: bool,
    beside_writer: bool,
    held_by_mount: bool,
    listener: Option<Attached>,
    volume: VolumeOptions,
}

/// A listener that is attached from the start.
#[derive(Clone)]
struct Attached(Arc<dyn Listener>);

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a listener")
    }
}

impl OpenOptions {
    /// The default options, as described for the type.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// The engine that drives the device.
    pub fn engine(&mut self, engine: EngineChoice) -> &mut Self {
        self.engine = engine;
        self
    }

    /// Bypasses the host's page cache if the file allows it (the default).
    pub fn direct(&mut self, direct: bool) -> &mut Self {
        self.through_host_cache = !direct;
        self
    }

    /// Opens for writing too; the default is read-only. An image may be open either for several readers or
    /// for one writer.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.write = write;
        self
    }

    /// Where the volume begins in the file or device, in bytes, such as a partition's start. A multiple of
    /// the logical block size.
    pub fn offset(&mut self, offset_bytes: u64) -> &mut Self {
        self.offset_bytes = offset_bytes;
        self
    }

    /// The partition that holds the volume, in a disk with partitions: a number (0 is the whole disk), or a
    /// label or UUID, of the partition or of the volume in it; `label=` or `uuid=` before it excludes the
    /// other kinds. `None`, the default: the whole disk if it holds a volume, else the only partition with
    /// one. Applies to volumes that are opened by path.
    pub fn partition(&mut self, name: Option<String>) -> &mut Self {
        self.partition = name;
        self
    }

    /// How the disk lies in the image: its format, its backing files, an overlay. Applies to volumes that are
    /// opened by path; [`OpenOptions::open_raw`] opens the file as it is.
    pub fn image(&mut self, image: &ImageOptions) -> &mut Self {
        self.image = image.clone();
        self
    }

    /// Target size of data I/Os, in bytes; `None` derives it from the device. [`Tuning`](crate::Tuning)
    /// changes this and the sizes below later.
    pub fn bio_target(&mut self, bytes: Option<u32>) -> &mut Self {
        self.bio_target_bytes = bytes;
        self
    }

    /// Allows writing although the volume has recorded errors. Running `e2fsck` is the better choice.
    pub fn allow_unclean(&mut self, allow: bool) -> &mut Self {
        self.allow_unclean = allow;
        self
    }

    /// Memory for the page cache, in bytes; `None` takes a quarter of the memory available to the process.
    pub fn cache_bytes(&mut self, bytes: Option<u64>) -> &mut Self {
        self.cache_bytes = bytes;
        self
    }

    /// How much memory may be dirty, and the threshold for background write-back.
    pub fn dirty_limits(&mut self, limits: DirtyLimits) -> &mut Self {
        self.dirty_limits = limits;
        self
    }

    /// Largest readahead window, in bytes (0 disables readahead); `None` derives it from the device.
    pub fn readahead_max(&mut self, bytes: Option<u64>) -> &mut Self {
        self.readahead_max_bytes = bytes;
        self
    }

    /// Ignores the journal of a volume that is opened read-only (`noload`). The volume may then be
    /// inconsistent.
    pub fn no_replay(&mut self, no_replay: bool) -> &mut Self {
        self.no_replay = no_replay;
        self
    }

    /// Opens the volume read-only and without a lock, although another process may be writing it. Each read
    /// returns what is on the device at that moment. So a superblock and its counts are consistent, but
    /// structures that span several blocks may not be. Use it with [`OpenOptions::no_replay`].
    pub fn beside_writer(&mut self, beside: bool) -> &mut Self {
        self.beside_writer = beside;
        self
    }

    /// See [`OpenImages`](crate::internal::OpenImages).
    pub(crate) fn held_by_mount(&mut self, held: bool) -> &mut Self {
        self.held_by_mount = held;
        self
    }

    /// Whether files use this library's page cache (the default). Applies to the handle of
    /// [`OpenOptions::open_raw`], and to files of a volume opened without
    /// [`FileOptions`](crate::FileOptions); `reopen` makes a handle of the other kind.
    /// [`OpenOptions::direct`] controls the use of the *host's* page cache.
    pub fn buffered(&mut self, buffered: bool) -> &mut Self {
        self.unbuffered = !buffered;
        self
    }

    /// Traces every I/O of the device to `listener`, from opening to closing.
    /// [`Volume::subscribe`](crate::Volume::subscribe) attaches a listener later, for a limited time.
    pub fn listener(&mut self, listener: Option<Arc<dyn Listener>>) -> &mut Self {
        self.listener = listener.map(Attached);
        self
    }

    /// How a volume behaves while it is open, all of its options at once. Raw files have none of them.
    pub fn volume(&mut self, options: &VolumeOptions) -> &mut Self {
        self.volume = options.clone();
        self
    }

    /// [`OpenOptions::open_raw`] creates a plain file if there is none. Requires [`OpenOptions::write`].
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.create = create;
        self
    }

    /// [`OpenOptions::open_raw`] truncates a plain file to zero length, once it is locked. Requires
    /// [`OpenOptions::write`].
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.truncate = truncate;
        self
    }
}
