//! The path file data takes between a program and a disk, as a user-space library.
//!
//! [`Volume`] is an open ext2, ext3 or ext4 image: names, files, attributes, in the spirit of `std::fs`. [`RawFile`] is a
//! plain file or a block device of the host. Both are opened by [`OpenOptions`], and their files have one set of calls, that of
//! [`Handle`]: buffered through this library's page cache (the default), or direct ([`FileOptions`]).
//!
//! A streaming copy, with the host's page cache left alone and never more than the limit of dirty memory:
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
//! from.copy_range(0, &to, 0, from.size()?)?;
//! to.sync()?;
//! # assert_eq!(std::fs::read(&target).unwrap(), vec![7; 3_000_001]);
//! # Ok(())
//! # }
//! ```
//!
//! What a database does: pages through the cache, a log that is safe when the call returns, and a checkpoint whose work is
//! spread.
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
//! log.append(&page)?; // on the disk when this returns
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
//! A file in an image:
//!
//! ```no_run
//! use throughline::{Attributes, OpenOptions};
//!
//! # fn main() -> throughline::Result<()> {
//! let volume = OpenOptions::new().write(true).open("disk.img")?;
//! let file = volume.create_file_with("/etc/motd", &Attributes::new().mode(0o644))?;
//! file.write_all_at(b"hello\n", 0)?;
//! drop(file);
//! volume.close()
//! # }
//! ```
//!
//! Invariants:
//! - Paths are bytes, start at the root of the volume (or at a [`Dir`]) and never lead out of it: `..` of the root is the
//!   root, an absolute symbolic link starts at the root of the volume.
//! - [`File`] and [`Dir`] keep their inode alive, whatever happens to its names.
//! - After [`Handle::sync`] returned `Ok`, the file survives a crash, and after [`Volume::sync`] everything does.
//! - Errors say whose fault they are; see [`Error`].
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod cache;
mod call;
mod copy;
mod cursor;
mod dir;
mod error;
mod file;
mod handle;
mod hints;
mod info;
mod label;
mod metadata;
mod mode;
mod node;
mod open;
mod own;
mod position;
mod raw;
mod recovery;
mod size;
mod source;
mod status;
mod time;
mod volume;

pub use cache::CacheState;
pub use cursor::Cursor;
pub use dir::{Dir, DirEntry, ReadDir, Walk, WalkEntry};
pub use error::{Error, Result};
pub use file::File;
pub use handle::Handle;
pub use hints::SyncRange;
pub use info::{DeviceState, IoCounts, JournalState, VolumeInfo};
pub use metadata::{Attributes, DeviceNumber, FileType, Metadata};
pub use mode::FileOptions;
pub use node::{Listed, NewNode, Node};
pub use open::OpenOptions;
pub use own::{Device, Memory};
pub use raw::RawFile;
pub use recovery::RecoveryReport;
pub use size::parse_size;
pub use status::{
    CacheStatus, DirtyStatus, IoStatus, JournalStatus, MetadataStatus, VolumeStatus,
    WritebackStatus,
};
pub use throughline_block::{BioInfo, Event, Listener, Purpose, SplitReason, Subscription};
pub use throughline_device::{
    AlignedBuf, EngineChoice, KernelHolder, Limits, Op, give_memory_back, given_descriptor,
    given_file, kernel_holder, limit_allocator,
};
#[cfg(feature = "planted")]
#[doc(hidden)]
pub use throughline_ext::Planted;
pub use throughline_ext::{
    Abort, AccessTimes, Acl, AclEntry, AclTag, Clock, Corrupt, Fallocate, InodeFlags,
    JournalCounts, LogInfo, OnError, OpenFor, OrphansSettled, Reason, Recovery, RenameMode,
    Replayed, StatFs, TakeDown, XattrMode,
};
pub use throughline_fileio::throttle::{self, Pauses, ThrottleState};
pub use throughline_fileio::writeback::WritebackCounts;
pub use throughline_fileio::{Advice, DirtyLimits, PageCache, memory};
pub use volume::Volume;
