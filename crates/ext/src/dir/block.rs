//! A directory's blocks: found through its mapping, checked when read, and re-checksummed when changed.
//!
//! All readers of a directory block share one check, whether they look for names or for the index: the
//! records fill the block, and the checksum, if the volume has them, is right for the block's kind.

use std::cell::RefCell;

use throughline_extfmt::dir::{self as format, DirFormat};
use throughline_extfmt::htree::{self, TreeFormat};
use throughline_extfmt::inode::{FileType, InodeFlags};
use throughline_extfmt::{Corrupt as FormatCorrupt, FileBlock, FsBlock, InodeNumber};
use throughline_journal::Block;

use super::entry::{FIRST, NewEntry, Shape, shape_of};
use crate::error::{Corrupt, Error, Reason, Result};
use crate::handle::Handle;
use crate::inode::Inode;
use crate::map;
use crate::names::Names;

/// A directory whose contents are in blocks. The directory's lock is held.
pub(super) struct DirBlocks<'a> {
    pub(super) fs: &'a Names,
    pub(super) dir: &'a Inode,
    /// Format of its entries.
    pub(super) format: DirFormat,
    /// Format of its index.
    pub(super) tree: TreeFormat,
    /// Number of blocks.
    pub(super) count: u32,
    /// Whether it is flagged as hashed.
    pub(super) indexed: bool,
    /// Whether its index is used.
    hashed: bool,
    /// Whether its size matches its blocks.
    pub(super) whole: bool,
    /// Damage that was skipped.
    skipped: RefCell<Vec<Corrupt>>,
}

/// Most damaged places reported per directory; there may be more.
const MAX_SKIPPED: usize = 64;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Leaf,
    Root,
    Node,
}

/// A directory block, read and checked.
pub(super) struct DirBlock {
    /// Its location on the volume.
    pub(super) block: FsBlock,
    /// Its contents.
    pub(super) bytes: Block,
    /// Format of its records.
    pub(super) format: DirFormat,
}

impl<'a> DirBlocks<'a> {
    /// The blocks given by the directory's size. [`crate::error::Reason::NotFound`] for a directory that was
    /// removed.
    pub(super) fn new(fs: &'a Names, dir: &'a Inode) -> Result<Self> {
        let (size, links) = {
            let raw = dir.raw.read();
            (raw.size_bytes(&fs.geo), raw.links_count())
        };
        let size = size.map_err(|e| Error::from(e).in_inode(dir.ino))?;
        if size == 0 && links == 0 {
            return Err(Reason::NotFound.into());
        }
        let block_bytes = u64::from(fs.geo.block_bytes);
        let count = u32::try_from(size / block_bytes)
            .ok()
            .filter(|&count| count > 0 && size % block_bytes == 0);
        let count = count.ok_or_else(|| {
            Error::corrupt(format!("a directory of {size} bytes is not whole blocks"))
                .in_inode(dir.ino)
        })?;
        Ok(Self::of(fs, dir, count))
    }

    /// As [`DirBlocks::new`], for reading around damage: an impossible size is cut to a possible one, and a
    /// partial last block counts as a block. On a volume that is not written, a size smaller than the mapped
    /// blocks is ignored.
    pub(super) fn to_read(fs: &'a Names, dir: &'a Inode) -> Result<Self> {
        let (mut damage, mut count) = match Self::new(fs, dir) {
            Ok(blocks) => (None, blocks.count),
            Err(Error::Corrupt(damage)) => {
                let size = dir.raw.read().size_bytes(&fs.geo).unwrap_or(u64::MAX);
                let most = fs.geo.blocks.min(u32::MAX.into());
                let count = size.div_ceil(fs.geo.block_bytes.into()).min(most);
                (Some(damage), count as u32)
            }
            Err(error) => return Err(error),
        };
        let owned = dir.raw.read().blocks_512(&fs.geo) / u64::from(fs.geo.block_bytes / 512);
        if fs.is_as_found() && owned > count.into() {
            let FileBlock(end) = Self::mapped_end(fs, dir, FileBlock(count))?;
            if end > count {
                damage = damage.or_else(|| {
                    Some(Corrupt {
                        inode: Some(dir.ino),
                        block: None,
                        what: format!("a directory of {count} blocks has {end}"),
                    })
                });
                count = end;
            }
        }
        let mut blocks = Self::of(fs, dir, count);
        if let Some(damage) = damage {
            blocks.whole = false;
            blocks.note_skipped(damage);
        }
        Ok(blocks)
    }

    fn of(fs: &'a Names, dir: &'a Inode, count: u32) -> Self {
        let flags = dir.raw.read().flags();
        Self {
            fs,
            dir,
            format: DirFormat::new(&fs.geo),
            tree: TreeFormat::new(&fs.geo),
            count,
            indexed: flags.contains(InodeFlags::INDEX),
            hashed: shape_of(fs, flags) == Shape::Hashed,
            whole: true,
            skipped: RefCell::default(),
        }
    }

    /// Records damage that is skipped.
    pub(super) fn note_skipped(&self, damage: Corrupt) {
        let Err(Error::Corrupt(damage)) = self.fs.note_damage(Err::<(), _>(damage.into())) else {
            return;
        };
        let mut all = self.skipped.borrow_mut();
        if all.len() < MAX_SKIPPED && all.iter().all(|known| known.place() != damage.place()) {
            all.push(damage);
        }
    }

    /// Returns and clears the damage skipped so far.
    pub(super) fn take_skipped(&self) -> Vec<Corrupt> {
        self.skipped.take()
    }

    /// Up to `max` contiguous blocks from `at`: the first, and how many.
    pub(super) fn run(&self, at: FileBlock, max: u32) -> Result<(FsBlock, u32)> {
        if at.0 >= self.count {
            let what = format!("points to block {at} of a directory of {}", self.count);
            return Err(Error::corrupt(what).in_inode(self.dir.ino));
        }
        let max = max.min(self.count - at.0);
        map::lookup_block_run(self.fs, self.dir, at, max)?.ok_or_else(|| {
            Error::corrupt(format!("block {at} of a directory is a hole")).in_inode(self.dir.ino)
        })
    }

    /// Reads one block.
    pub(super) fn read(&self, at: FileBlock) -> Result<DirBlock> {
        let (block, _) = self.run(at, 1)?;
        self.read_at(at, block)
    }

    /// Reads the block `at`, whose place on the volume is known to be `block`.
    pub(super) fn read_at(&self, at: FileBlock, block: FsBlock) -> Result<DirBlock> {
        let bytes = self
            .fs
            .read_checked_of(self.dir.ino, block, |bytes| self.check(at, bytes))?;
        let format = self.format_of(self.kind(at, &bytes));
        Ok(DirBlock {
            block,
            bytes,
            format,
        })
    }

    /// Adds the place to a damage report.
    pub(super) fn damage(&self, block: FsBlock, what: FormatCorrupt) -> Error {
        Error::from(what).in_inode(self.dir.ino).in_block(block)
    }

    fn kind(&self, at: FileBlock, bytes: &[u8]) -> Kind {
        if !self.indexed {
            Kind::Leaf
        } else if at.0 == 0 {
            Kind::Root
        } else if self.format.tail && htree::is_node(bytes, &self.tree) {
            // With checksums, no leaf has one free record that fills the block, because of the checksum tail.
            // Without checksums, an empty block may count as either.
            Kind::Node
        } else {
            Kind::Leaf
        }
    }

    fn format_of(&self, kind: Kind) -> DirFormat {
        if kind == Kind::Leaf {
            self.format
        } else {
            self.format.inline()
        }
    }

    fn check(&self, at: FileBlock, bytes: &[u8]) -> core::result::Result<(), FormatCorrupt> {
        let kind = self.kind(at, bytes);
        match kind {
            Kind::Leaf => format::verify_checksum(bytes, self.dir.csum_seed)?,
            Kind::Root => htree::verify_checksum(bytes, &self.tree, true, self.dir.csum_seed)?,
            Kind::Node => htree::verify_checksum(bytes, &self.tree, false, self.dir.csum_seed)?,
        }
        if self.hashed && kind == Kind::Root {
            htree::IndexNode::root(bytes, &self.tree)?.check(self.count)?;
        } else if self.hashed && kind == Kind::Node {
            htree::IndexNode::node(bytes, &self.tree)?.check(self.count)?;
        }
        format::check(bytes, &self.format_of(kind))
    }

    /// Changes a leaf and updates its checksum.
    pub(super) fn modify_leaf<R>(
        &self,
        h: &mut Handle<'_>,
        block: FsBlock,
        change: impl FnOnce(&mut [u8], &DirFormat) -> core::result::Result<R, FormatCorrupt>,
    ) -> Result<R> {
        let check = |bytes: &[u8]| {
            format::verify_checksum(bytes, self.dir.csum_seed)?;
            format::check(bytes, &self.format)
        };
        let changed = h.modify_checked(block, check, |bytes| {
            let result = change(bytes, &self.format);
            format::update_checksum(bytes, self.dir.csum_seed);
            result
        })?;
        changed.map_err(|what| self.damage(block, what))
    }

    /// Changes an index block and updates its checksum.
    pub(super) fn modify_index<R>(
        &self,
        h: &mut Handle<'_>,
        block: FsBlock,
        is_root: bool,
        change: impl FnOnce(&mut [u8]) -> core::result::Result<R, FormatCorrupt>,
    ) -> Result<R> {
        let check = |bytes: &[u8]| {
            htree::verify_checksum(bytes, &self.tree, is_root, self.dir.csum_seed)?;
            format::check(bytes, &self.format.inline())
        };
        let changed = h.modify_checked(block, check, |bytes| {
            let result = change(bytes)?;
            htree::update_checksum(bytes, &self.tree, is_root, self.dir.csum_seed)?;
            Ok(result)
        })?;
        changed.map_err(|what| self.damage(block, what))
    }

    /// The inode of `..`, and the offset of its entry in the first block.
    pub(super) fn dotdot(&self) -> Result<(InodeNumber, usize)> {
        let block = self.read(FIRST)?;
        let mut entries = format::entries(&block.bytes, &block.format);
        let damaged = || FormatCorrupt::new("the directory does not start with `.` and `..`");
        let mut next = |name: &[u8]| match entries.next().transpose()? {
            Some(entry) if entry.name == name => Ok(entry),
            _ => Err(damaged()),
        };
        let found = next(b".").and_then(|_| next(b".."));
        found
            .map(|entry| (entry.inode, entry.offset))
            .map_err(|what| self.damage(block.block, what))
    }

    /// Points `..` to another directory.
    pub(super) fn set_dotdot(&self, h: &mut Handle<'_>, parent: InodeNumber) -> Result<()> {
        let (_, offset) = self.dotdot()?;
        let block = self.run(FIRST, 1)?.0;
        if self.indexed {
            return self.modify_index(h, block, true, |bytes| {
                htree::set_parent(bytes, parent);
                Ok(())
            });
        }
        let code = FileType::Directory.dir_code();
        self.modify_leaf(h, block, |bytes, format| {
            format::set_inode(bytes, format, offset, parent, code)
        })
    }

    /// Points `.`, the first entry, to the directory itself.
    pub(super) fn set_dot(&self, h: &mut Handle<'_>) -> Result<()> {
        // Checks that the block starts with both.
        self.dotdot()?;
        let block = self.run(FIRST, 1)?.0;
        if self.indexed {
            return self.modify_index(h, block, true, |bytes| {
                htree::set_own(bytes, self.dir.ino);
                Ok(())
            });
        }
        let code = FileType::Directory.dir_code();
        self.modify_leaf(h, block, |bytes, format| {
            format::set_inode(bytes, format, 0, self.dir.ino, code)
        })
    }

    /// Adds a name to a leaf, at an offset from [`DirBlocks::room_in`]; `false` if the leaf has no room.
    pub(super) fn insert(
        &self,
        h: &mut Handle<'_>,
        (block, offset): (FsBlock, usize),
        entry: &NewEntry<'_>,
    ) -> Result<bool> {
        let new = (entry.name, entry.ino, entry.code);
        self.modify_leaf(h, block, |bytes, format| {
            Ok(format::insert(bytes, format, offset, new)?.is_some())
        })
    }
}
