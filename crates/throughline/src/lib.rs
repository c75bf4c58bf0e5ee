//! Read and write ext2, ext3 and ext4 images without mounting them and without root, and plain files and
//! block devices at the speed of direct I/O. Buffered I/O uses this library's own page cache, not the
//! host's.
//!
//! | if you know | use |
//! | --- | --- |
//! | `std::fs` functions, on a mounted file system | [`Volume`] and [`Dir`], which have the same functions |
//! | `std::fs::OpenOptions` | [`OpenOptions`] for images and raw files, [`FileOptions`] in a volume |
//! | `std::fs::File` | [`File`] in a volume, [`RawFile`] on the host; both are [`Handle`]s |
//! | `std::fs::DirBuilder` | [`DirBuilder`] |
//! | `mount -o` | [`VolumeOptions`] |
//! | `mke2fs` | [`MkfsOptions`] |
//! | `resize2fs` | [`OpenOptions::resize`] |
//! | `getfattr`, `setfattr`, `getfacl`, `setfacl` | [`Xattrs`], from [`Dir::xattrs`] |
//! | `Read`, `Write`, `Seek` | the same: [`File`] and [`RawFile`] implement them |
//! | `FileExt::read_at`, `write_at` | [`Handle::read_at`], [`Handle::write_at`] |
//! | `O_DIRECT`, `O_SYNC`, `O_DSYNC`, `O_APPEND` | [`FileOptions`] |
//! | a loop device, `/dev/mapper` | [`OpenOptions::open_fd`], [`Memory`], or your own [`Device`] |
//!
//! What differs from `std::fs`:
//! - Images and raw files are always opened for reading; [`OpenOptions::write`] adds writing.
//! - Without options, a file in a volume can be read, and written if the volume can be.
//!   `FileOptions::new().read(true)` opens it for reading only.
//! - New files have mode 0o666 and new directories 0o777: the process's umask does not apply. [`Attributes`]
//!   sets mode, owner and times, of new and of existing files.
//! - [`Metadata::mode`] has the permission bits without the type. The times are not wrapped in a `Result`;
//!   only the creation time may be missing.
//! - A volume has the calls of its root directory ([`Dir`]) as its own.
//! - [`Volume::sync`] makes everything durable, and [`Dir::sync`] the names of a directory.
//!
//! # A volume
//!
//! A volume is opened read-only unless you ask for writing. This one is in memory; [`OpenOptions::open`]
//! takes a path.
//!
//! ```
//! use std::io::Write;
//! use throughline::{FileOptions, MkfsOptions, Volume, VolumeSize};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("disk.img");
//! MkfsOptions::new().size(VolumeSize::Bytes(8 << 20)).make(&path)?;
//! let volume = Volume::in_memory(std::fs::read(path)?)?;
//! volume.create_dir_all("/var/log")?;
//! volume.write("/etc-motd", "hello\n")?;
//! volume.rename("/etc-motd", "/motd")?;
//! assert_eq!(volume.read_to_string("/motd")?, "hello\n");
//!
//! let mut log = FileOptions::new().create(true).append(true).open(&volume, "/var/log/boot")?;
//! writeln!(log, "it works")?;
//! log.sync_all()?; // now it survives a crash
//! drop(log);
//!
//! for entry in volume.walk("/var")? {
//!     let entry = entry?;
//!     println!("{} {}", entry.path().display(), entry.metadata()?.len());
//! }
//! volume.close()?; // says what went wrong, which a drop cannot
//! # Ok(())
//! # }
//! ```
//!
//! # Plain files and devices
//!
//! A streaming copy, which bypasses the host's page cache and never exceeds the limit of dirty memory:
//!
//! ```
//! use throughline::OpenOptions;
//!
//! # fn main() -> throughline::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let (source, target) = (folder.path().join("source"), folder.path().join("target"));
//! # std::fs::write(&source, vec![7; 3_000_001]).unwrap();
//! let from = OpenOptions::new().open_raw(&source)?;
//! let to = OpenOptions::new().write(true).create(true).truncate(true).open_raw(&target)?;
//! let mut at = 0;
//! while let copied @ 1.. = from.copy_range(at, &to, at, u64::MAX)? {
//!     at += copied; // a call may copy less than it was asked for
//! }
//! to.sync_all()?;
//! # assert_eq!(std::fs::read(&target).unwrap(), vec![7; 3_000_001]);
//! # Ok(())
//! # }
//! ```
//!
//! The files of a database: cached pages, a log whose appends are durable when they return, and a checkpoint
//! that starts its writes early.
//!
//! ```
//! use throughline::{Advice, FileOptions, OpenOptions, SyncRange};
//!
//! # fn main() -> throughline::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! let mut options = OpenOptions::new();
//! options.write(true).create(true).cache_bytes(Some(16 << 20));
//! let pages = options.open_raw(folder.path().join("pages"))?;
//! pages.advise(Advice::Random, 0, 0)?;
//! let log = options.open_raw(folder.path().join("log"))?;
//! let log = log.reopen(FileOptions::new().append(true).data_sync(true))?;
//!
//! let page = [42; 8192];
//! log.append_all(&page)?; // on the disk when this returns
//! pages.write_all_at(&page, 7 * 8192)?; // in the cache
//! pages.sync_range(0, 0, SyncRange::Start)?; // begins to go out
//! let mut back = [0; 8192];
//! pages.read_exact_at(&mut back, 7 * 8192)?;
//! pages.sync_data()?; // the checkpoint is complete
//! # assert_eq!(back, page);
//! # Ok(())
//! # }
//! ```
//!
//! # What is durable
//!
//! A write is *accepted* when it returns: every reader sees it, and its space on the disk is reserved. It is
//! *synced* when [`Handle::sync_all`] (or [`Handle::sync_data`], [`Volume::sync`], [`Dir::sync`]) has then
//! returned `Ok`, or when it was written through a handle with [`FileOptions::sync`] or
//! [`FileOptions::data_sync`]. A sync that fails returns an error, on every call until it succeeds.
//!
//! **Synced data survives all of the following events. Data that was accepted but not synced is in this
//! process's memory, not in the kernel's**, until it is written back:
//!
//! | event | accepted data that was not synced |
//! | --- | --- |
//! | a [`File`], [`Dir`] or [`Handle`] is dropped | kept in memory, and written back later |
//! | [`Volume::close`], or the last handle is dropped | **made durable** |
//! | a panic unwinds and drops the last handle | **made durable**, with an exception |
//! | `main` returns or `std::process::exit` is called while handles exist | **lost** |
//! | the process is killed or aborts | **lost** |
//! | the machine loses power | **lost** |
//!
//! - Dropping a handle other than the last one loses nothing: the data belongs to the volume. It is written
//!   back within half a minute, or when the volume is closed.
//! - [`Volume::close`] returns errors; a drop can only log them.
//! - The exception: if the panic interrupted a change inside this library, nothing more is written. After any
//!   panic, the volume is not marked clean.
//! - Handles may still exist when `main` returns: in statics, in other threads, or after `mem::forget`.
//! - *Lost* excludes what was already written back or committed by age. Operations are lost as a whole: a
//!   rename has happened or not, and a replaced file has either its old or its new contents
//!   ([`VolumeOptions::auto_da_alloc`]).
//! - A volume that was not closed is recovered the next time it is opened for writing.
//!
//! # Errors
//!
//! An [`Error`] shows whether the caller's request ([`Reason`]), the device, or the volume ([`Corrupt`], with
//! inode and block) is at fault. `?` converts it to a `std::io::Error` of the kind that `std::fs` would
//! return.
//!
//! # Threads
//!
//! All types are `Send` and `Sync`, and calls take `&self`. Threads that share a volume or a file need no
//! lock of their own. Calls block only for the device and to limit dirty memory.
//!
//! # More
//!
//! `examples/` has a device in memory, an encrypting device, a streaming copy, a log-structured store that
//! survives `kill -9`, a reproducible image, and eight threads in one volume.
//!
//! Invariants:
//! - Paths are bytes. They start at the root of the volume (or at a [`Dir`]) and never lead out of it: `..`
//!   of the root is the root, and an absolute symbolic link starts at the root of the volume.
//! - [`File`] and [`Dir`] keep their inode alive, whatever happens to its names.
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod cache;
mod call;
mod copy;
mod cursor;
mod dir;
mod errno;
mod error;
mod file;
mod handle;
mod hints;
mod info;
// Not part of the public API, and not covered by its version.
#[doc(hidden)]
pub mod internal;
mod label;
mod metadata;
mod mode;
mod node;
mod open;
pub mod ops;
pub mod overlay;
mod own;
mod pack_into;
mod position;
mod raw;
mod read_tree;
mod recovery;
mod resize;
mod size;
mod source;
mod status;
mod time;
mod volume;
mod xattrs;

pub use cache::CacheState;
pub use cursor::Cursor;
pub use dir::{Dir, DirBuilder, DirEntry, ReadDir, Walk, WalkEntry};
pub use error::{Error, Result};
pub use file::File;
pub use handle::Handle;
pub use hints::SyncRange;
pub use info::{DeviceState, JournalState, VolumeInfo};
pub use metadata::{Attributes, DeviceNumber, FileType, Metadata};
pub use mode::FileOptions;
pub use node::{Listed, NewNode, Node};
pub use open::{ImageOptions, OpenOptions, OtherBase, VolumeOptions, partitions};
pub use own::{Device, Memory};
pub use pack_into::{PackInto, PackedInto};
pub use raw::RawFile;
pub use read_tree::{read_tree, read_tree_past};
pub use recovery::RecoveryReport;
pub use resize::{NewSize, ResizeError, ResizeReport};
pub use status::{
    CacheStatus, DirtyStatus, IoStatus, JournalStatus, MetadataStatus, VolumeStatus,
    WritebackStatus,
};
pub use throughline_archive as archive;
pub use throughline_block::{
    BioInfo, CallerFault, Error as DeviceError, Event, Listener, Purpose, SplitReason, Subscription,
};
pub use throughline_device::{
    AlignedBuf, EngineChoice, KernelHolder, Limits, Op, is_no_room, kernel_holder,
};
pub use throughline_ext::{
    Abort, AccessTimes, Acl, AclEntry, AclTag, Caller, Clock, Corrupt, Fallocate, InodeFlags,
    JournalCounts, LogInfo, NotExt, OnError, OpenFor, OrphansProcessed, QuotaLimits, Reason,
    Recovery, RenameMode, Replayed, StatFs, TakeDown, XattrMode,
};
pub use throughline_fileio::throttle::{Pauses, ThrottleState};
pub use throughline_fileio::writeback::WritebackCounts;
pub use throughline_fileio::{Advice, DirtyLimits};
pub use throughline_image::{
    Backing, Doubtful, Error as PartitionError, Format, NotAllowed, NotWhole, OnlyRead, Partition,
    Signature as PartitionVolume, Table as PartitionTable, UnknownFormat,
};
pub use throughline_make::pack;
pub use throughline_make::resize::Resized;
pub use throughline_make::{
    Config as MkfsConfig, Error as MkfsError, FoundHashTree, Made, MkfsOptions, VolumeSize,
};
#[cfg(feature = "remote")]
pub use throughline_remote::Failure as ObjectFailure;
pub use volume::{Tuning, Volume};
pub use xattrs::Xattrs;

/// The examples of the README are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
