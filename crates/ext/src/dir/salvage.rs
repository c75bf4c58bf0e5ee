//! Reading damaged directories around the damage.
//!
//! For reading only. Each damaged place is recorded ([`crate::Base::note_damage`]) and skipped: a hole, a
//! block outside the volume, invalid records in a block. A block with a wrong checksum still yields its
//! names. A caller that changes the directory uses [`DirBlocks::read`] and gets the damage as an error.

use throughline_extfmt::{FileBlock, FsBlock, dir as format};

use super::block::{DirBlock, DirBlocks};
use super::entry::{FIRST, Found, Spot};
use super::list::DirEntry;
use super::wanted::Wanted;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::map::{self, Kind};
use crate::names::Names;

/// Most runs and holes of a directory's mapping examined past its size.
const MAX_RUNS_PAST_END: u32 = 4096;

/// What can be read of a directory from a given block on.
pub(super) enum Readable {
    /// One block.
    Block(DirBlock),
    /// This many blocks have no readable contents.
    Nothing(u32),
}

impl DirBlocks<'_> {
    /// The end of the last mapped block from `at` on.
    pub(super) fn mapped_end(fs: &Names, dir: &Inode, at: FileBlock) -> Result<FileBlock> {
        let (mut at, mut end) = (at, at);
        for _ in 0..MAX_RUNS_PAST_END {
            let Some(found) = fs.around_damage(map::lookup(fs, dir, at, u32::MAX - at.0))? else {
                break;
            };
            at = FileBlock(at.0.saturating_add(found.len_blocks));
            if found.kind != Kind::Hole {
                end = at;
            }
            if at.0 == u32::MAX {
                break;
            }
        }
        Ok(end)
    }

    /// The readable contents of block `at`.
    ///
    /// # Errors
    /// Device errors.
    pub(super) fn readable_part(&self, at: FileBlock) -> Result<Readable> {
        let damage = match self.read(at) {
            Ok(block) => return Ok(Readable::Block(block)),
            Err(Error::Corrupt(damage)) => damage,
            Err(error) => return Err(error),
        };
        self.note_skipped(damage);
        let most = self.count.saturating_sub(at.0).max(1);
        let found = match map::lookup(self.fs, self.dir, at, most) {
            Err(Error::Corrupt(_)) => return Ok(Readable::Nothing(1)),
            found => found?,
        };
        // Every block of a directory was written, even if its extent is marked unwritten.
        let (Kind::Data(block) | Kind::Unwritten(block)) = found.kind else {
            return Ok(Readable::Nothing(found.len_blocks));
        };
        match self.fs.read(block) {
            Ok(bytes) => Ok(Readable::Block(DirBlock {
                block,
                bytes,
                format: self.format.inline(),
            })),
            Err(Error::Corrupt(_)) => Ok(Readable::Nothing(1)),
            Err(error) => Err(error),
        }
    }

    /// The readable entries in use in a block.
    pub(super) fn readable_entries<'b>(
        &'b self,
        block: &'b DirBlock,
    ) -> impl Iterator<Item = format::DirEntry<'b>> {
        format::salvage(&block.bytes, &block.format).filter_map(|entry| {
            let damage = |what| self.note_skipped_at(block.block, what);
            entry.map_err(damage).ok()
        })
    }

    fn note_skipped_at(&self, block: FsBlock, what: throughline_extfmt::Corrupt) {
        if let Error::Corrupt(damage) = self.damage(block, what) {
            self.note_skipped(damage);
        }
    }

    /// Records as damage that the first block does not start with `.` and `..`. That hides no other names.
    pub(super) fn check_dots(&self, first: &DirBlock, names: &[DirEntry]) {
        let is = |at: usize, name: &[u8]| names.get(at).is_some_and(|entry| entry.name == name);
        if !is(0, b".") || !is(1, b"..") {
            let what = "the directory does not start with `.` and `..`";
            self.note_skipped_at(first.block, throughline_extfmt::Corrupt::new(what));
        }
    }

    /// Finds a name by reading the blocks in disk order.
    pub(super) fn find_readable(&self, name: &Wanted<'_>) -> Result<Option<Found>> {
        let mut at = FIRST;
        while at.0 < self.count {
            let mut blocks = 1;
            match self.readable_part(at)? {
                Readable::Nothing(len) => blocks = len.max(1),
                Readable::Block(block) => {
                    let mut entries = self.readable_entries(&block);
                    if let Some(entry) = entries.find(|entry| name.is(entry.name)) {
                        return Ok(Some(Found {
                            ino: entry.inode,
                            at: Spot::Leaf(block.block, entry.offset),
                        }));
                    }
                }
            }
            at = FileBlock(at.0.saturating_add(blocks));
        }
        Ok(None)
    }
}
