//! Searches the tree of a quota file for the entry of an id.

use throughline_extfmt::FsBlock;
use throughline_extfmt::quota::{self as format, DiskEntry, LEVELS, QuotaKind, ROOT_BLOCK};
use throughline_journal::Block;

use super::file::{BlockPlace, QuotaFile};
use super::owner::EntryPlace;
use crate::base::Base;
use crate::error::{Error, Result};

/// The blocks from the root to the leaf of an id, as far as they exist: the inner blocks of all levels, and
/// the leaf. 0: missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) inner: [u32; LEVELS as usize],
    pub(super) leaf: u32,
}

/// The entry of an id, if it has one.
///
/// # Errors
/// `Corrupt`, with inode and block; device errors.
pub(super) fn entry(
    base: &Base,
    kind: QuotaKind,
    id: u32,
) -> Result<Option<(EntryPlace, DiskEntry)>> {
    let Some(file) = base.quotas.file(kind) else {
        return Ok(None);
    };
    let path = path(base, file, id)?;
    if path.leaf == 0 {
        return Ok(None);
    }
    let (bytes, place) = block(base, file, path.leaf)?;
    let (at, entry) = format::find(place.of(&bytes), id).ok_or_else(|| {
        file.corrupt(format!("the leaf of id {id} has no entry for it"))
            .in_block(place.block)
    })?;
    let place = EntryPlace {
        block: place.block,
        offset: place.offset + at,
    };
    Ok(Some((place, entry)))
}

/// The path of an id.
///
/// # Errors
/// As [`entry`].
pub(super) fn path(base: &Base, file: &QuotaFile, id: u32) -> Result<Path> {
    let header = file.header();
    let mut path = Path::default();
    let mut number = ROOT_BLOCK;
    for (level, inner) in (0..).zip(path.inner.iter_mut()) {
        *inner = number;
        let (bytes, place) = block(base, file, number)?;
        number = format::child(place.of(&bytes), id, level);
        if number == 0 {
            return Ok(path);
        }
        header
            .check_block(number)
            .map_err(|e| located(file, e, place.block))?;
    }
    path.leaf = number;
    Ok(path)
}

/// Reads a quota block: the volume's block, and its place there.
pub(super) fn block(base: &Base, file: &QuotaFile, number: u32) -> Result<(Block, BlockPlace)> {
    let place = file.place(number)?;
    let bytes = base
        .read(place.block)
        .map_err(|e| e.in_inode(file.ino).in_block(place.block))?;
    Ok((bytes, place))
}

/// Damage found in a block of a quota file.
pub(super) fn located(file: &QuotaFile, what: throughline_extfmt::Corrupt, at: FsBlock) -> Error {
    Error::from(what).in_inode(file.ino).in_block(at)
}
