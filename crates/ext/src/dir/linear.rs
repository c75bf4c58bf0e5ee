//! Directories with unordered entries in blocks: every search reads the blocks in sequence.

use throughline_extfmt::dir::{self as format, Vacancy};
use throughline_extfmt::{FileBlock, FsBlock};

use super::block::{DirBlock, DirBlocks};
use super::entry::{FIRST, Found, Room, Spot};
use super::wanted::Wanted;
use crate::error::{Reason, Result};

/// Blocks read ahead of a search at once.
const READAHEAD_BLOCKS: u32 = 64;

impl DirBlocks<'_> {
    /// Visits the blocks in order until `visit` returns a value.
    pub(super) fn walk<R>(
        &self,
        from: FileBlock,
        mut visit: impl FnMut(FileBlock, &DirBlock) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        let mut at = from;
        while at.0 < self.count {
            let (first, len) = self.run(at, READAHEAD_BLOCKS)?;
            if len > 1 {
                let ahead: Vec<_> = (0..u64::from(len)).map(|i| FsBlock(first.0 + i)).collect();
                self.fs.journal.readahead(&ahead);
            }
            for i in 0..len {
                let here = FileBlock(at.0 + i);
                let block = self.read_at(here, FsBlock(first.0 + u64::from(i)))?;
                if let Some(answer) = visit(here, &block)? {
                    return Ok(Some(answer));
                }
            }
            at = FileBlock(at.0 + len);
        }
        Ok(None)
    }

    /// Finds a name in one block.
    pub(super) fn find_in(&self, block: &DirBlock, name: &Wanted<'_>) -> Option<Found> {
        let entry = match name.is_exact() {
            true => format::find_in_checked(&block.bytes, &block.format, name.name),
            false => format::find_where(&block.bytes, &block.format, |other| name.is(other)),
        }?;
        Some(Found {
            ino: entry.inode,
            at: Spot::Leaf(block.block, entry.offset),
        })
    }

    /// Where `name` would fit in this block; an error if it is already there.
    pub(super) fn room_in(&self, block: &DirBlock, name: &Wanted<'_>) -> Result<Room> {
        let (bytes, format) = (&block.bytes, &block.format);
        let vacancy = match name.is_exact() {
            true => format::vacancy(bytes, format, name.name),
            false => format::vacancy_where(bytes, format, name.name.len(), |other| name.is(other)),
        };
        match vacancy {
            Vacancy::Taken => Err(Reason::Exists.into()),
            Vacancy::Room(offset) => Ok(Room::Leaf(block.block, offset)),
            Vacancy::Full => Ok(Room::None),
        }
    }
}

/// Finds a name.
pub(super) fn find(blocks: &DirBlocks<'_>, name: &Wanted<'_>) -> Result<Option<Found>> {
    blocks.walk(FIRST, |_, block| Ok(blocks.find_in(block, name)))
}

/// Where a new name can be added: the first block with room. The same pass checks that the name does not
/// exist.
pub(super) fn room(blocks: &DirBlocks<'_>, name: &Wanted<'_>) -> Result<Room> {
    let mut place = Room::None;
    blocks.walk(FIRST, |_, block| {
        let room = blocks.room_in(block, name)?;
        if place == Room::None {
            place = room;
        }
        Ok(None::<()>)
    })?;
    Ok(place)
}

/// Whether there are no names but `.` and `..`. Works for hashed directories too: their index blocks hold no
/// other names.
pub(super) fn is_empty(blocks: &DirBlocks<'_>) -> Result<bool> {
    let name = blocks.walk(FIRST, |_, block| {
        for entry in format::entries(&block.bytes, &block.format) {
            let entry = entry.map_err(|what| blocks.damage(block.block, what))?;
            if entry.is_used() && !matches!(entry.name, b"." | b"..") {
                return Ok(Some(()));
            }
        }
        Ok(None)
    })?;
    Ok(name.is_none())
}
