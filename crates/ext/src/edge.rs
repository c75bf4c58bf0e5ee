//! File blocks of which a part is removed: at a new end of file, or at the edges of a hole.
//!
//! Such a block is never changed in place, because after a crash the committed state still shows its old
//! contents. A new block is claimed and written with the remaining bytes and zeros, and replaces the old
//! one in the transaction of the change. After a crash, the file has either the old block or the new one.
//!
//! ```text
//!   prepare: claim ─► write ─► enter, in the change's transaction ─┬─► done
//!      └──── no space ───────────────── no space ──────────────────┴─► left: zeroed in the block itself
//! ```
//!
//! If the volume is too full for a new block, the zeros go into the block itself through the journal. The
//! journal writes it home before the call returns ([`Edges::end_left`]): afterwards it is a data block
//! again, which the journal must not write. Without a journal, the zeros are written in place; a crash may
//! leave only part of them, as in the kernel's ext4.
//!
//! If the change would leave more extents than fit in the inode, the remainder of a short extent beside the
//! edge is copied with the edge ([`COPY_BYTES`]), so that it stays one extent.
//!
//! With `bigalloc`, the new block is in a new cluster, because a cluster of the file is one cluster of the
//! volume. So that is done only if nothing else is mapped in the cluster; else the zeros go into the block
//! itself, as on a full volume.
//!
//! The caller handles the page cache: it writes the block back before the change, and drops it afterwards.

use std::ops::Range;

use smallvec::SmallVec;
use throughline_extfmt::extent::Extent;
use throughline_extfmt::{FileBlock, FsBlock};

use crate::balloc::{Blocks, GROUP_CREDITS, Run};
use crate::data::Data;
use crate::error::{Error, Reason, Result};
use crate::given_up;
use crate::handle::Handle;
use crate::inode::{Inode, Inodes};
use crate::map::clusters::{self, Placed};
use crate::map::{self, CONVERT_CREDITS, Kind, extents};
use crate::regular;

/// Credits for entering one edge: an extent split in three, the bitmaps of the new blocks, those of the old
/// ones in two groups.
const EDGE_CREDITS: u32 = CONVERT_CREDITS + 3 * GROUP_CREDITS;

/// Most bytes copied with an edge.
const COPY_BYTES: u64 = 64 << 10;

/// Up to two blocks in which a range is to read as zero. On drop, blocks that were not entered are released.
pub(crate) struct Edges<'a> {
    fs: &'a Data,
    inode: &'a Inode,
    left: SmallVec<[Edge; 2]>,
}

struct Edge {
    /// Byte range of the file, in one block that has data.
    zeros: Range<u64>,
    /// The old blocks: that block, or it and its neighbours.
    old: Extent,
    /// The new blocks, already written; `None` if there was no room, or if they share their cluster.
    new: Option<Placed>,
    /// The zeros went through the journal.
    is_journaled: bool,
}

impl<'a> Edges<'a> {
    /// No edges.
    pub(crate) fn none(fs: &'a Data, inode: &'a Inode) -> Self {
        Self {
            fs,
            inode,
            left: SmallVec::new(),
        }
    }

    /// Prepares the blocks of byte ranges of the file, each range in one block; holes are skipped. The I/O
    /// lock is held exclusively, the ranges are not dirty, and no handle is open.
    ///
    /// # Errors
    /// `Corrupt`; device errors. Nothing has changed then.
    pub(crate) fn prepare(fs: &'a Data, inode: &'a Inode, zeros: &[Range<u64>]) -> Result<Self> {
        let mut edges = Self::none(fs, inode);
        let zeros = || zeros.iter().filter(|range| !range.is_empty());
        let is_tight = map::is_tight(fs, inode, 1 + zeros().count())?;
        for range in zeros() {
            let Some(block) = data_block(fs, inode, range)? else {
                continue;
            };
            let extent_part = match is_tight && fs.geo.cluster_ratio_log == 0 {
                true => extent_part(fs, inode, range, &block)?,
                false => None,
            };
            let edge = Edge {
                zeros: range.clone(),
                old: extent_part.unwrap_or(block),
                new: None,
                is_journaled: false,
            };
            let mut edge = match extent_part {
                Some(_) => edge.written(|edge| write_new(fs, edge, Blocks::claim))?,
                None => edge,
            };
            if edge.new.is_none() && clusters::is_alone(fs, inode, block.block)? {
                edge.old = block;
                edge = edge
                    .written(|edge| fs.with_room(|| write_new(fs, edge, Blocks::claim_metadata)))?;
            }
            edges.left.push(edge);
        }
        Ok(edges)
    }

    /// Credits for [`Edges::enter`], without the inode.
    pub(crate) fn credits(&self) -> u32 {
        EDGE_CREDITS * self.left.len() as u32
    }

    /// Replaces old blocks by the new ones, as far as there is space. With a journal, the others are zeroed
    /// in the transaction. The mapping lock is held exclusively; the caller stores the inode.
    ///
    /// # Errors
    /// `Corrupt`; errors of the journal.
    pub(crate) fn enter(&mut self, h: &mut Handle<'_>) -> Result<()> {
        let (fs, inode) = (self.fs, self.inode);
        for at in (0..self.left.len()).rev() {
            let edge = &mut self.left[at];
            if edge.take_place(fs, h, inode)? {
                self.left.remove(at);
            } else if fs.has_log() {
                edge.journal(fs, h)?;
            }
        }
        Ok(())
    }

    /// Whether [`Edges::end_left`] has work to do.
    pub(crate) fn is_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// Completes the edges that got no new block, once the change is durable, so that the committed state no
    /// longer shows the old contents: journaled ones are written home, the rest are zeroed in place.
    ///
    /// # Errors `Corrupt`; device errors. What has taken effect then shows after the next success
    /// ([`crate::given_up`]).
    pub(crate) fn end_left(self) -> Result<()> {
        let (fs, inode) = (self.fs, self.inode);
        let durable = fs.sync_through(inode.changes.last(true));
        let journaled = self.left.iter().filter(|edge| edge.is_journaled);
        given_up::give_up(fs, durable, journaled.map(|edge| edge.block(fs)))?;
        let in_place = self.left.iter().filter(|edge| !edge.is_journaled);
        in_place.into_iter().try_for_each(|edge| {
            regular::zero_in_block(fs, inode, edge.zeros.start, edge.zeros.end)
        })
    }
}

impl Edge {
    /// Writes the new blocks; `new` stays `None` if there is no room.
    fn written(mut self, write: impl FnOnce(&Self) -> Result<Placed>) -> Result<Self> {
        self.new = match write(&self) {
            Err(Error::Caller(Reason::NoSpace)) => None,
            other => Some(other?),
        };
        Ok(self)
    }

    /// Replaces the old blocks by the new ones; `false` if there are none, or no room in the mapping.
    fn take_place(&mut self, fs: &Data, h: &mut Handle<'_>, inode: &Inode) -> Result<bool> {
        let Some(Placed { data, claimed }) = self.new else {
            return Ok(false);
        };
        match map::replace(fs, h, inode, &self.old, data.start) {
            Err(Error::Caller(_)) => return Ok(false),
            other => other?,
        }
        // Once confirmed, the blocks are no longer claimed. A failure from here on leaves the change half
        // done.
        self.new = None;
        claimed.map_or(Ok(()), |run| fs.confirm(h, run))?;
        fs.free(h, self.old.start, self.old.len.into())
            .map_err(|e| e.in_inode(inode.ino))?;
        Ok(true)
    }

    /// Zeroes the range in the transaction.
    fn journal(&mut self, fs: &Data, h: &mut Handle<'_>) -> Result<()> {
        let start = self.zeros.start >> fs.geo.block_log << fs.geo.block_log;
        let zeros = (self.zeros.start - start) as usize..(self.zeros.end - start) as usize;
        h.modify(self.block(fs), |bytes| bytes[zeros].fill(0))?;
        self.is_journaled = true;
        Ok(())
    }

    /// The old block that contains the range.
    fn block(&self, fs: &Data) -> FsBlock {
        let before = (self.zeros.start >> fs.geo.block_log) - u64::from(self.old.block.0);
        FsBlock(self.old.start.0 + before)
    }
}

impl Drop for Edges<'_> {
    fn drop(&mut self) {
        for edge in &self.left {
            if let Some(run) = edge.new.and_then(|new| new.claimed) {
                self.fs.release(run);
            }
        }
    }
}

/// The block that contains a byte range, if it has data.
fn data_block(fs: &Inodes, inode: &Inode, range: &Range<u64>) -> Result<Option<Extent>> {
    let Ok(block) = u32::try_from(range.start >> fs.geo.block_log).map(FileBlock) else {
        return Ok(None);
    };
    let Kind::Data(start) = map::lookup(fs, inode, block, 1)?.kind else {
        return Ok(None);
    };
    Ok(Some(Extent {
        block,
        len: 1,
        start,
        unwritten: false,
    }))
}

/// The block together with the part of its extent beside it that remains; `None` if there is none, or too
/// much to copy.
fn extent_part(
    fs: &Inodes,
    inode: &Inode,
    zeros: &Range<u64>,
    block: &Extent,
) -> Result<Option<Extent>> {
    let bytes = u64::from(fs.geo.block_bytes);
    let Some(whole) = map::extent_at(fs, inode, block.block)? else {
        return Ok(None);
    };
    let from = match zeros.start.is_multiple_of(bytes) {
        true => u64::from(block.block.0),
        false => 0,
    };
    let to = match zeros.end.is_multiple_of(bytes) {
        true => block.end(),
        false => extents::END,
    };
    let part = extents::clip(&whole, from, to);
    let is_fit = part.len > 1 && u64::from(part.len) * bytes <= COPY_BYTES;
    Ok(is_fit.then_some(part))
}

/// Claims new blocks, and writes the old bytes to them, with the zeros.
fn write_new(
    fs: &Data,
    edge: &Edge,
    claim: fn(&Blocks, FsBlock, u32) -> Result<Run>,
) -> Result<Placed> {
    let (log, old) = (fs.geo.block_log, &edge.old);
    fs.check_data_range(old.start, old.len.into())?;
    let mut bytes = vec![0; (old.len as usize) << log];
    fs.disk.read_at(old.start.0 << log, &mut bytes)?;
    let first = u64::from(old.block.0) << log;
    let zeros = (edge.zeros.start - first) as usize..(edge.zeros.end - first) as usize;
    bytes[zeros].fill(0);
    let run = claim(fs, old.start, old.len)?;
    // At the same place in its cluster.
    let skip = old.block.0 & ((1 << fs.geo.cluster_ratio_log) - 1);
    let data = clusters::within(run.start, skip, old.len, run.len);
    let written = match data.len == old.len {
        true => fs.disk.write_at(data.start.0 << log, &bytes, false),
        false => {
            fs.release(run);
            return Err(Reason::NoSpace.into());
        }
    };
    if let Err(error) = written {
        fs.release(run);
        return Err(error.into());
    }
    Ok(Placed {
        data,
        claimed: Some(run),
    })
}
