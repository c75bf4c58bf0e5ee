//! Blocks of a file of which a part goes: behind a new end, at the edges of a hole.
//!
//! What the committed state still shows is never overwritten in place, so such a block is not changed. A new one is claimed and
//! written, with the bytes that stay and zeros for the others, and takes its place in the transaction of the change: a crash finds
//! the one or the other.
//!
//! ```text
//!   prepare: claim ─► write ─► enter, in the change's transaction ─┬─► nothing left
//!      └──── no space ───────────────── no space ──────────────────┴─► left: zeros in place, once the change is durable
//! ```
//!
//! Where a volume is so full that there is no new block, [`Edges::zero_left`] writes the zeros in place. Behind a new end nobody
//! sees that; in the middle of a file a crash may leave it in part.
//!
//! The bytes of the block in the page cache are the caller's: written back before, dropped when the change has happened.

use std::ops::Range;

use smallvec::SmallVec;
use throughline_extfmt::FileBlock;

use crate::balloc::{GROUP_CREDITS, Run};
use crate::error::{Error, Reason, Result};
use crate::file;
use crate::fs::Fs;
use crate::handle::Handle;
use crate::inode::Inode;
use crate::map::{self, CONVERT_CREDITS, Kind};

/// What entering one edge touches: an extent in three parts, the bits of the new block and those of the old one.
const EDGE_CREDITS: u32 = CONVERT_CREDITS + 2 * GROUP_CREDITS;

/// Up to two blocks of which a part is to read as zero. Dropped, what was not entered is given back.
pub(crate) struct Edges<'a> {
    fs: &'a Fs,
    inode: &'a Inode,
    left: SmallVec<[Edge; 2]>,
}

struct Edge {
    /// Bytes of the file, all in one block that has data.
    zeros: Range<u64>,
    /// The new block, which has its bytes; `None` where there was no room.
    new: Option<Run>,
}

impl<'a> Edges<'a> {
    /// None.
    pub(crate) fn none(fs: &'a Fs, inode: &'a Inode) -> Self {
        Self {
            fs,
            inode,
            left: SmallVec::new(),
        }
    }

    /// The blocks of some ranges of file bytes, each range in one block, in which there is data. With the I/O lock held exclusively
    /// and nothing of them dirty; not in a handle.
    ///
    /// # Errors
    /// `Corrupt`; those of the device. Nothing has changed then.
    pub(crate) fn prepare(fs: &'a Fs, inode: &'a Inode, zeros: &[Range<u64>]) -> Result<Self> {
        let mut edges = Self::none(fs, inode);
        for range in zeros.iter().filter(|range| !range.is_empty()) {
            let Ok(block) = u32::try_from(range.start >> fs.geo.block_log) else {
                continue;
            };
            if !matches!(
                map::lookup(fs, inode, FileBlock(block), 1)?.kind,
                Kind::Data(_)
            ) {
                continue;
            }
            let new = match fs.with_room(|| write_new(fs, inode, range)) {
                Err(Error::Caller(Reason::NoSpace)) => None,
                other => Some(other?),
            };
            edges.left.push(Edge {
                zeros: range.clone(),
                new,
            });
        }
        Ok(edges)
    }

    /// What [`Edges::enter`] touches, beside the inode.
    pub(crate) fn credits(&self) -> u32 {
        EDGE_CREDITS * self.left.len() as u32
    }

    /// The new blocks take the places of the old ones, as far as there is space. The mapping lock is held exclusively; the caller
    /// stores the inode.
    ///
    /// # Errors
    /// `Corrupt`; those of the journal.
    pub(crate) fn enter(&mut self, h: &mut Handle<'_>) -> Result<()> {
        let (fs, inode) = (self.fs, self.inode);
        for at in (0..self.left.len()).rev() {
            let edge = &mut self.left[at];
            let Some(new) = edge.new else { continue };
            let block = edge.block(fs);
            let old = match map::replace_block(fs, h, inode, block, new.start) {
                Err(Error::Caller(_)) => continue,
                other => other?,
            };
            // What is confirmed is claimed no more, and what fails from here on ends half-done.
            edge.new = None;
            fs.confirm(h, new)?;
            fs.free(h, old, 1).map_err(|e| e.in_inode(inode.ino))?;
            self.left.remove(at);
        }
        Ok(())
    }

    /// Whether some were not entered.
    pub(crate) fn is_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// Makes what was not entered zero in place. What the committed state still shows of it must be gone: the change is durable.
    ///
    /// # Errors
    /// `Corrupt`; those of the device.
    pub(crate) fn zero_left(self) -> Result<()> {
        self.left.iter().try_for_each(|edge| {
            file::zero_in_block(self.fs, self.inode, edge.zeros.start, edge.zeros.end)
        })
    }
}

impl Edge {
    fn block(&self, fs: &Fs) -> FileBlock {
        // It was seen to fit when the edge was made.
        FileBlock((self.zeros.start >> fs.geo.block_log) as u32)
    }
}

impl Drop for Edges<'_> {
    fn drop(&mut self) {
        for edge in &self.left {
            if let Some(new) = edge.new {
                self.fs.release(new);
            }
        }
    }
}

/// Claims a block, and writes to it the bytes of the one that has `zeros`, with zeros there.
fn write_new(fs: &Fs, inode: &Inode, zeros: &Range<u64>) -> Result<Run> {
    let log = fs.geo.block_log;
    let start = zeros.start >> log << log;
    let block = FileBlock((zeros.start >> log) as u32);
    let Kind::Data(old) = map::lookup(fs, inode, block, 1)?.kind else {
        return Err(Error::corrupt("a mapping changes as it is read").in_inode(inode.ino));
    };
    fs.check_data_range(old, 1)
        .map_err(|e| e.in_inode(inode.ino))?;
    let mut bytes = vec![0; fs.geo.block_bytes as usize];
    fs.disk.read_at(old.0 << log, &mut bytes)?;
    bytes[(zeros.start - start) as usize..(zeros.end - start) as usize].fill(0);
    let new = fs.claim_metadata(old, 1)?;
    if let Err(error) = fs.disk.write_at(new.start.0 << log, &bytes, false) {
        fs.release(new);
        return Err(error.into());
    }
    Ok(new)
}
