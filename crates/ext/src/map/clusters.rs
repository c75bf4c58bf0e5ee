//! Which clusters a file has (`bigalloc`).
//!
//! Blocks are allocated in clusters, but mapped one by one. The blocks of a cluster of the volume belong to
//! one aligned cluster of one file, at the same offsets in it:
//!
//! ```text
//!   file:    | 0  1  2  3 | 4  5  6  7 | 8 …         mapped: 1, 2, 6
//!   volume:  | 40 41 42 43 |   | 72 73 74 75 |       1+2 → 41, 6 → 74; 0, 3, 4, 5, 7 are holes
//! ```
//!
//! A file has a cluster while at least one of its blocks is mapped. Whoever maps a hole must use the cluster
//! that the file has there, and whoever unmaps a block frees the cluster only with its last mapped block. So
//! the tree alone says which clusters a file has: [`gained`] and [`lost`] derive from it which bits a change
//! sets and clears. A block that shares its cluster with data and was never written stays unmapped, so it
//! reads as zero whatever it held before.
//!
//! A block that was unmapped while its cluster stayed may be mapped again at once. It is not written before
//! the unmapping is durable ([`super::state::State::zeroed`]): until then, the committed state shows its
//! contents.
//!
//! Nodes of the tree and attribute blocks have a cluster each. Without `bigalloc`, a cluster is a block, and
//! nothing here reads the tree.

use std::cmp::Reverse;
use std::ops::Range;

use smallvec::SmallVec;
use throughline_extfmt::extent::{Extent, MAX_LEN};
use throughline_extfmt::{FileBlock, FsBlock};

use super::tree::View;
use super::{Kind, extents, look};
use crate::balloc::Run;
use crate::error::{Error, Result};
use crate::inode::{Inode, Inodes};

/// Runs of blocks to be freed.
pub(crate) type Runs = SmallVec<[(FsBlock, u64); 16]>;

/// Blocks for a hole.
#[derive(Clone, Copy)]
pub(crate) struct Placed {
    /// Blocks for the beginning of the hole.
    pub(crate) data: Run,
    /// The clusters that were claimed for it; `None` if the file has the cluster already.
    pub(crate) claimed: Option<Run>,
}

/// The first block of the volume's cluster that the file has as its cluster `cluster`. The mapping lock is
/// held.
///
/// # Errors
/// As [`super::lookup`].
pub(crate) fn cluster_at(fs: &Inodes, inode: &Inode, cluster: u32) -> Result<Option<FsBlock>> {
    cluster_without(&View::new(fs, inode), cluster.into(), 0..0)
}

/// Whether no other block of a block's cluster is mapped. No other thread maps blocks of the file.
///
/// # Errors
/// As [`super::lookup`].
pub(crate) fn is_alone(fs: &Inodes, inode: &Inode, block: FileBlock) -> Result<bool> {
    let log = fs.geo.cluster_ratio_log;
    if log == 0 {
        return Ok(true);
    }
    let _map = inode.map_shared();
    let own = u64::from(block.0)..u64::from(block.0) + 1;
    Ok(cluster_without(&View::new(fs, inode), own.start >> log, own)?.is_none())
}

/// Finds blocks for the hole at `first`, which has `want` blocks: in the cluster that the file has there, or
/// in clusters that `claim` claims (given a number of blocks). No other thread maps blocks of the file.
///
/// # Errors
/// As [`super::lookup`]; those of `claim`.
pub(crate) fn place(
    fs: &Inodes,
    inode: &Inode,
    first: FileBlock,
    want: u32,
    claim: impl FnOnce(u32) -> Result<Run>,
) -> Result<Placed> {
    let log = fs.geo.cluster_ratio_log;
    if log == 0 {
        let data = claim(want)?;
        return Ok(Placed {
            data,
            claimed: Some(data),
        });
    }
    let (cluster, skip) = (first.0 >> log, first.0 & mask(log));
    if let Some(at) = cluster_at(fs, inode, cluster)? {
        let data = within(at, skip, want, 1 << log);
        return Ok(Placed {
            data,
            claimed: None,
        });
    }
    let count = new_clusters(fs, inode, first, want)?;
    let run = claim(count << log)?;
    Ok(Placed {
        data: within(run.start, skip, want, run.len),
        claimed: Some(run),
    })
}

/// The part of a run of clusters for `want` blocks, of which the first is `skip` blocks behind its start.
pub(crate) fn within(start: FsBlock, skip: u32, want: u32, len: u32) -> Run {
    Run {
        start: FsBlock(start.0.saturating_add(skip.into())),
        len: want.min(len.saturating_sub(skip)).max(1),
    }
}

/// The number of clusters to claim for a hole of `want` blocks at `first`, in whose first cluster nothing is
/// mapped: all that it touches, without a last one that the file has. The mapping lock is held, or no other
/// thread maps blocks.
///
/// # Errors
/// As [`super::lookup`].
pub(crate) fn new_clusters(fs: &Inodes, inode: &Inode, first: FileBlock, want: u32) -> Result<u32> {
    let log = fs.geo.cluster_ratio_log;
    let own = first.0 >> log;
    let last = first.0.saturating_add(want.max(1) - 1) >> log;
    let has_last = last > own && cluster_at(fs, inode, last)?.is_some();
    Ok(last.saturating_sub(own) + u32::from(!has_last))
}

/// `want` blocks from `first`, at most `most` and as many as an extent holds; cut at the end of a cluster.
pub(crate) fn fitting(fs: &Inodes, first: FileBlock, want: u32, most: u32) -> u32 {
    let log = fs.geo.cluster_ratio_log;
    let most = most.min(MAX_LEN);
    if want <= most || log == 0 {
        return want.min(most);
    }
    let end = first.0.saturating_add(most) >> log << log;
    match end.checked_sub(first.0) {
        None | Some(0) => most,
        Some(len) => len,
    }
}

/// The clusters that an extent adds to a file, as a run of blocks. The extent is not mapped yet; the mapping
/// lock is held.
///
/// # Errors
/// As [`super::lookup`]; `Corrupt` if the extent is not where its cluster must be.
pub(super) fn gained(view: &View<'_>, extent: &Extent) -> Result<Option<Run>> {
    let run = alone(view, extent, u64::MAX)?;
    Ok(run.map(|(start, len)| Run {
        start,
        len: len as u32,
    }))
}

/// The clusters that a file has no more, after `gone` was unmapped. The mapping lock is held.
///
/// # Errors
/// As [`gained`].
pub(super) fn lost(view: &View<'_>, gone: &[Extent]) -> Result<Runs> {
    let log = view.fs.geo.cluster_ratio_log;
    if log == 0 {
        return Ok(gone.iter().map(|e| (e.start, e.len.into())).collect());
    }
    let mut descending: SmallVec<[Extent; 16]> = gone.into();
    descending.sort_unstable_by_key(|extent| Reverse(extent.block));
    let mut runs = Runs::new();
    let mut judged = u64::MAX;
    for extent in &descending {
        runs.extend(alone(view, extent, judged)?);
        judged = u64::from(extent.block.0) >> log;
    }
    Ok(runs)
}

/// Whether an extent that was unmapped is in clusters that the file has no more.
pub(super) fn is_within(lost: &Runs, extent: &Extent) -> bool {
    let end = extent.start.0.saturating_add(extent.len.into());
    lost.iter()
        .any(|(start, len)| *start <= extent.start && end <= start.0.saturating_add(*len))
}

/// The clusters of extents that ascend in the file, each once, and with all their blocks.
///
/// # Errors
/// `Corrupt` if an extent is not where its cluster must be.
pub(super) fn whole(
    fs: &Inodes,
    ascending: impl Iterator<Item = Extent>,
) -> Result<Vec<(FsBlock, u32)>> {
    let log = fs.geo.cluster_ratio_log;
    let mut runs: Vec<(FsBlock, u32)> = Vec::new();
    let mut next = 0;
    for extent in ascending {
        check(log, &extent)?;
        let from = (u64::from(extent.block.0) >> log).max(next);
        next = extent.end().div_ceil(1 << log);
        if from < next {
            let start = on_volume(&extent, from << log);
            runs.push((start, ((next - from) << log) as u32));
        }
    }
    Ok(runs)
}

/// The clusters below `below` that an extent touches and in which no other block is mapped, as a run of
/// blocks.
fn alone(view: &View<'_>, extent: &Extent, below: u64) -> Result<Option<(FsBlock, u64)>> {
    let log = view.fs.geo.cluster_ratio_log;
    if log == 0 {
        return Ok(Some((extent.start, extent.len.into())));
    }
    check(log, extent)?;
    let own = extent.block.0.into()..extent.end();
    let others = |cluster| cluster_without(view, cluster, own.clone());
    let mut first = own.start >> log;
    let mut end = own.end.div_ceil(1 << log).min(below);
    // Of the clusters in the middle, the extent has all blocks.
    if first < end && others(first)?.is_some() {
        first += 1;
    }
    if first < end && others(end - 1)?.is_some() {
        end -= 1;
    }
    if first >= end {
        return Ok(None);
    }
    Ok(Some((
        on_volume(extent, first << log),
        (end - first) << log,
    )))
}

/// The volume block of a file block at or near an extent.
fn on_volume(extent: &Extent, block: u64) -> FsBlock {
    let start = extent.start.0.saturating_add(block);
    FsBlock(start.saturating_sub(extent.block.0.into()))
}

/// As [`cluster_at`], without regard to the blocks in `ignored`.
fn cluster_without(view: &View<'_>, cluster: u64, ignored: Range<u64>) -> Result<Option<FsBlock>> {
    let log = view.fs.geo.cluster_ratio_log;
    let (from, to) = (cluster << log, ((cluster + 1) << log).min(extents::END));
    let parts = [
        from..ignored.start.clamp(from, to),
        ignored.end.clamp(from, to)..to,
    ];
    for part in parts {
        let mut at = part.start;
        while at < part.end {
            let found = look(view, FileBlock(at as u32), (part.end - at) as u32)?;
            let (Kind::Data(start) | Kind::Unwritten(start)) = found.kind else {
                at += u64::from(found.len_blocks.max(1));
                continue;
            };
            let extent = Extent {
                block: FileBlock(at as u32),
                len: found.len_blocks,
                start,
                unwritten: false,
            };
            check(log, &extent).map_err(|e| e.in_inode(view.inode.ino))?;
            return Ok(Some(on_volume(&extent, from)));
        }
    }
    Ok(None)
}

/// Checks that a block is at the same offset in a cluster in the file and on the volume.
///
/// # Errors
/// `Corrupt`.
pub(crate) fn check_place(fs: &Inodes, block: FileBlock, start: FsBlock) -> Result<()> {
    let extent = Extent {
        block,
        len: 1,
        start,
        unwritten: false,
    };
    check(fs.geo.cluster_ratio_log, &extent)
}

fn check(log: u32, extent: &Extent) -> Result<()> {
    let mask = u64::from(mask(log));
    if u64::from(extent.block.0) & mask == extent.start.0 & mask {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "file block {} is at block {}, elsewhere in its cluster",
        extent.block, extent.start
    )))
}

fn mask(log: u32) -> u32 {
    (1 << log) - 1
}
