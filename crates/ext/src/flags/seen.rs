//! Which flags are valid for which inodes, which flags a new inode inherits, and [`Seen`], the flags of an
//! inode in memory.

use std::sync::atomic::{AtomicU32, Ordering};

use throughline_extfmt::InodeImage;
use throughline_extfmt::inode::{FileType, InodeFlags};

/// Flags reserved for compression, which was never implemented. They have no names of their own here.
pub(super) const COMPRESSION: InodeFlags = InodeFlags::from_bits_retain(0x700);
/// The flag of these that means "do not compress".
const NOCOMPR: InodeFlags = InodeFlags::from_bits_retain(0x400);

/// Flags valid only on directories.
const DIRECTORY_ONLY: InodeFlags = InodeFlags::DIRSYNC
    .union(InodeFlags::TOPDIR)
    .union(InodeFlags::CASEFOLD)
    .union(InodeFlags::PROJINHERIT);
/// Flags valid on inodes other than directories and regular files.
const ON_OTHERS: InodeFlags = InodeFlags::NODUMP.union(InodeFlags::NOATIME);
/// Flags that a new inode inherits from its directory.
const INHERITED: InodeFlags = InodeFlags::SECRM
    .union(InodeFlags::UNRM)
    .union(InodeFlags::COMPR)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(NOCOMPR)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::NOTAIL)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::PROJINHERIT)
    .union(InodeFlags::CASEFOLD)
    .union(InodeFlags::DAX);

/// The flags of an inode's last stored image.
pub(crate) struct Seen(AtomicU32);

impl Seen {
    pub(crate) fn new(raw: &InodeImage) -> Self {
        Self(AtomicU32::new(raw.flags().bits()))
    }

    /// Called when the image is stored.
    pub(crate) fn note(&self, raw: &InodeImage) {
        let flags = raw.flags().bits();
        if self.0.load(Ordering::Relaxed) != flags {
            self.0.store(flags, Ordering::Release);
        }
    }

    /// Whether any of `of` is set.
    pub(crate) fn any(&self, of: InodeFlags) -> bool {
        self.0.load(Ordering::Acquire) & of.bits() != 0
    }
}

/// The flags in `flags` that are valid for this type of inode.
pub(super) fn meaningful(kind: Option<FileType>, flags: InodeFlags) -> InodeFlags {
    match kind {
        Some(FileType::Directory) => flags,
        Some(FileType::Regular) => flags - DIRECTORY_ONLY,
        _ => flags & ON_OTHERS,
    }
}

/// The flags that a new inode of this type inherits from a directory with flags `directory`.
pub(crate) fn inherited(directory: InodeFlags, kind: FileType) -> InodeFlags {
    meaningful(Some(kind), directory & INHERITED)
}
