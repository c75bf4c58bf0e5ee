//! Moves the blocks of one inode: first its tables or tree nodes, then its data.
//!
//! Data of regular files is copied on the device and made durable, many runs at a time, before the mapping
//! is switched. What is read and written as metadata (directories, links, attribute values) is copied within
//! the transaction.

use std::collections::VecDeque;
use std::sync::Arc;

use throughline_extfmt::FsBlock;
use throughline_extfmt::extent::Extent;

use super::{Limit, settle};
use crate::balloc::{GROUP_CREDITS, Run};
use crate::error::Result;
use crate::fs::Fs;
use crate::handle::Handle;
use crate::inode::{INODE_CREDITS, Inode};
use crate::map::{self, CONVERT_CREDITS, Format, MOVE_NODE_CREDITS, Piece};

/// Most blocks of one run, if each is switched or copied on its own.
const BLOCKS_ONE_BY_ONE: u32 = 32;
/// Most bytes that are copied before their mappings are switched.
const BATCH_BYTES: u64 = 64 << 20;
/// Most runs of a batch.
const BATCH_RUNS: usize = 512;
/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// Blocks of a file, and those that they move to.
struct Move {
    old: Extent,
    new: Run,
}

/// Moves all blocks of an inode from the limit on. Its number of blocks stays the same, but for nodes that
/// more pieces may need.
///
/// # Errors
/// `NoSpace`: what was moved remains so. `Corrupt`; device and journal errors.
pub(super) fn move_out(
    fs: &Fs,
    inode: &Arc<Inode>,
    limit: Limit,
    moved: &mut dyn FnMut(u64),
) -> Result<()> {
    moved(move_nodes(fs, inode, limit)?);
    let mut left = pieces(fs, inode, limit)?;
    while !left.is_empty() {
        let mut batch = Vec::new();
        let claimed = claim(fs, inode, &mut left, &mut batch);
        let done = claimed.and_then(|()| copy(fs, inode, &batch));
        if let Err(error) = done {
            batch.iter().for_each(|one| fs.release(one.new));
            return Err(error);
        }
        let mut batch = batch.into_iter();
        while let Some(one) = batch.next() {
            if let Err(error) = switch(fs, inode, &one) {
                batch.for_each(|one| fs.release(one.new));
                return Err(error);
            }
            moved(one.old.len.into());
        }
    }
    Ok(())
}

/// Moves the nodes, as many at a time as a handle has credits for. Returns their number.
fn move_nodes(fs: &Fs, inode: &Arc<Inode>, limit: Limit) -> Result<u64> {
    let most = (fs.step_credits().saturating_sub(INODE_CREDITS) / MOVE_NODE_CREDITS).max(1);
    let mut all = 0;
    loop {
        let mut places = Vec::new();
        fs.with_room(|| {
            fs.transact(most * MOVE_NODE_CREDITS + INODE_CREDITS, |h| {
                let moved = {
                    let _map = inode.map_exclusive();
                    map::move_nodes(fs, h, inode, (limit.block, most), &mut places)
                };
                settle(fs, &places)?;
                fs.store(h, inode)?;
                moved
            })
        })?;
        all += places.len() as u64;
        if places.len() < most as usize {
            return Ok(all);
        }
    }
}

/// The parts of the mapping that are beyond the limit.
fn pieces(fs: &Fs, inode: &Arc<Inode>, limit: Limit) -> Result<VecDeque<Extent>> {
    let mut all = VecDeque::new();
    map::each_piece(fs, inode, |piece| {
        if let Piece::Data(extent) = piece
            && extent.start.0.saturating_add(extent.len.into()) > limit.block.0
        {
            let kept = limit.block.0.saturating_sub(extent.start.0) as u32;
            all.push_back(rest(&extent, kept));
        }
        Ok(())
    })?;
    Ok(all)
}

/// An extent without its first `len` blocks.
fn rest(extent: &Extent, len: u32) -> Extent {
    Extent {
        block: throughline_extfmt::FileBlock(extent.block.0.saturating_add(len)),
        len: extent.len.saturating_sub(len),
        start: FsBlock(extent.start.0.saturating_add(len.into())),
        unwritten: extent.unwritten,
    }
}

/// Claims new blocks for the next pieces, until there is a batch of them.
fn claim(
    fs: &Fs,
    inode: &Arc<Inode>,
    left: &mut VecDeque<Extent>,
    batch: &mut Vec<Move>,
) -> Result<()> {
    let is_extents = Format::of(&inode.raw.read()) == Format::Extents;
    let one_by_one = !is_extents || map::is_metadata(inode);
    let most = match one_by_one {
        true => BLOCKS_ONE_BY_ONE,
        false => (BATCH_BYTES >> fs.geo.block_log) as u32,
    };
    let mut blocks = 0;
    let mut goal = fs.geo.first_data_block;
    while let Some(piece) = left.pop_front() {
        let want = piece.len.min(most.max(1));
        let claimed = fs.with_room(|| fs.claim_metadata(goal, want));
        let new = claimed.inspect_err(|_| left.push_front(piece))?;
        let old = Extent {
            len: new.len,
            ..piece
        };
        if new.len < piece.len {
            left.push_front(rest(&piece, new.len));
        }
        goal = FsBlock(new.start.0.saturating_add(new.len.into()));
        blocks += u64::from(new.len);
        batch.push(Move { old, new });
        if blocks << fs.geo.block_log >= BATCH_BYTES || batch.len() >= BATCH_RUNS {
            break;
        }
    }
    Ok(())
}

/// Copies data of a regular file, durably.
fn copy(fs: &Fs, inode: &Inode, batch: &[Move]) -> Result<()> {
    if map::is_metadata(inode) {
        return Ok(());
    }
    let log = fs.geo.block_log;
    let mut buffer = vec![0; COPY_BYTES.max(fs.geo.block_bytes as usize)];
    let mut copied = false;
    for one in batch.iter().filter(|one| !one.old.unwritten) {
        let len = u64::from(one.old.len) << log;
        let mut at = 0;
        while at < len {
            let bytes = &mut buffer[..(len - at).min(COPY_BYTES.max(1 << log) as u64) as usize];
            fs.disk.read_at((one.old.start.0 << log) + at, bytes)?;
            fs.disk
                .write_at((one.new.start.0 << log) + at, bytes, false)?;
            at += bytes.len() as u64;
        }
        copied = true;
    }
    if copied {
        fs.disk.flush()?;
    }
    Ok(())
}

/// Switches the mapping of one run, and frees the old blocks.
fn switch(fs: &Fs, inode: &Arc<Inode>, one: &Move) -> Result<()> {
    let is_extents = Format::of(&inode.raw.read()) == Format::Extents;
    let is_metadata = map::is_metadata(inode);
    let each = u32::from(!is_extents) + 2 * u32::from(is_metadata);
    // The old run may be in two groups.
    let credits = CONVERT_CREDITS + 4 * GROUP_CREDITS + INODE_CREDITS + each * one.old.len;
    let mut confirmed = false;
    let done = fs.transact(credits, |h| {
        let _map = inode.map_exclusive();
        fs.check_freeable(one.old.start, one.old.len.into())?;
        // With an error, nothing has changed yet.
        if is_extents {
            map::replace(fs, h, inode, &one.old, one.new.start)?;
        } else {
            for at in 0..one.old.len {
                let old = Extent {
                    len: 1,
                    ..rest(&one.old, at)
                };
                let with = FsBlock(one.new.start.0 + u64::from(at));
                map::replace(fs, h, inode, &old, with)?;
            }
        }
        if is_metadata {
            copy_metadata(fs, h, one)?;
        }
        fs.confirm(h, one.new)?;
        confirmed = true;
        fs.free(h, one.old.start, one.old.len.into())?;
        fs.store(h, inode)
    });
    if done.is_err() && !confirmed {
        fs.release(one.new);
    }
    done
}

/// Copies blocks that are read and written as metadata.
fn copy_metadata(fs: &Fs, h: &mut Handle<'_>, one: &Move) -> Result<()> {
    let mut places = Vec::new();
    for at in 0..u64::from(one.old.len) {
        let (old, new) = (FsBlock(one.old.start.0 + at), FsBlock(one.new.start.0 + at));
        let content = fs.read(old)?;
        h.create(new, |bytes| bytes.copy_from_slice(&content))?;
        drop(content);
        h.forget(old);
        places.push(new);
    }
    settle(fs, &places)
}
