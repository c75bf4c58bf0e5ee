//! The ext2/ext3/ext4 file system.
//!
//! [`Fs`] is an open volume, [`Inode`] an inode in memory. Each file covers one on-disk concept.
//! `throughline-extfmt` has the on-disk formats, the journal crate the metadata blocks, `throughline-fileio`
//! the data path.
//!
//! A volume is built in layers; each owns the one below and derefs to it: [`Fs`] (sync, close), [`Names`]
//! (directories and paths), [`Attrs`] (attributes, flags, freeing inodes), [`Data`] (contents of files),
//! [`Inodes`], [`Alloc`], [`Blocks`], [`Groups`], [`Base`]. All operations can be called on an [`Fs`]; the
//! page of each layer lists its own. `ARCHITECTURE.md` shows which file is in which layer, and a test checks
//! every import against it.
//!
//! Crate-wide invariants:
//! - Every metadata change happens inside a [`Handle`] from `Base::begin`; a read-only volume hands out none.
//! - Data blocks are claimed in memory, written, and only then mapped (see [`throughline_fileio::Mapper`]).
//! - Before a buffered write returns, space for its data and its mapping is reserved (`delayed`).
//! - Locks are taken in the order of [`throughline_locks::Rank`]; no mapping or group lock is held when a
//!   handle is begun.
//! - On-disk data is checked before use; nothing on a disk makes this crate panic or loop forever.
#![forbid(unsafe_code)]

mod alloc;
mod attr;
mod attrs;
mod balloc;
mod base;
mod cached;
mod caller;
mod changes;
mod check;
mod coherent;
mod damage;
mod data;
mod delayed;
mod dir;
mod edge;
mod emptied;
mod error;
mod external;
mod fallocate;
mod file;
mod flags;
mod fs;
mod given_up;
mod groups;
mod handle;
mod ialloc;
mod inline;
mod inode;
mod label;
mod log_info;
mod many;
mod map;
mod mapper;
mod mmp;
mod namei;
mod names;
mod open;
mod open_file;
mod ops;
mod options;
mod orphan;
mod owners;
mod primary;
mod privileges;
mod protected;
mod quota;
mod reclaim;
mod regular;
mod replay;
mod room;
mod seek;
mod shrink;
mod shutdown;
mod statfs;
mod sums;
mod synchronous;
mod system;
#[cfg(test)]
mod testing;
mod times;
mod truncate;
mod xattr;

pub use alloc::Alloc;
pub use attr::{Attributes, Metadata, SetTime};
pub use attrs::Attrs;
pub use balloc::Blocks;
pub use base::Base;
pub use caller::Caller;
pub use data::Data;
pub use dir::{DirEntry, Listing, ReadDir};
pub use error::{Corrupt, Error, NotExt, Reason, Result};
pub use fallocate::Fallocate;
pub use flags::OpenFor;
pub use fs::Fs;
pub use groups::Groups;
pub use handle::Handle;
pub use inode::{Inode, Inodes, Watch};
pub use label::MAX_LABEL_BYTES;
pub use log_info::{JournalCounts, LogInfo};
pub use mmp::Claim;
pub use namei::{Last, MAX_LINKS, MAX_NAME_BYTES, Place};
pub use names::Names;
pub use open::Recovery;
pub use open_file::OpenFile;
pub use ops::{NewInode, NewKind, RenameMode};
pub use options::{AccessTimes, JournalDevice, OpenOptions, QuotaLimits};
pub use primary::{check_backups, find as find_superblock};
pub use reclaim::OrphansProcessed;
pub use replay::Replayed;
pub use shrink::{OwnFile, Tenants};
pub use shutdown::TakeDown;
pub use statfs::StatFs;
pub use throughline_extfmt::acl::{Acl, Entry as AclEntry, Tag as AclTag};
pub use throughline_extfmt::features::{Compat, Incompat, RoCompat};
pub use throughline_extfmt::inode::{FileType, InodeFlags};
pub use throughline_extfmt::superblock::{OnError, State, Superblock};
pub use throughline_extfmt::time::Timestamp;
pub use throughline_extfmt::{FsBlock, Geometry, InodeImage, InodeNumber};
#[doc(hidden)]
pub use throughline_journal::Planted;
pub use throughline_journal::{Abort, Clock, SharedClock, Status as JournalStatus};
pub use xattr::XattrMode;
