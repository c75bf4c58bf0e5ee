//! The size of the journal, and where it begins.

use throughline_extfmt::features::{Compat, Incompat};
use throughline_extfmt::{Geometry, GroupNumber};

use super::space::Space;
use crate::error::{Error, Result};
use crate::request::Request;

/// Fewest blocks of a journal.
const LEAST_BLOCKS: u64 = 1024;
/// Most blocks of a journal.
const MOST_BLOCKS: u64 = 10_240_000;

/// Blocks of the journal by blocks of the volume, below each limit. More than 262144 blocks do not make a
/// commit faster.
const BY_SIZE: &[(u64, u32)] = &[
    (2048, 0),
    (32 << 10, 1024),
    (256 << 10, 4096),
    (512 << 10, 8192),
    (4096 << 10, 16384),
    (8192 << 10, 32768),
    (16384 << 10, 65536),
    (32768 << 10, 131_072),
    (u64::MAX, 262_144),
];

/// The size of a journal, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JournalSize {
    /// The log.
    pub(crate) blocks: u32,
    /// The area for fast commits, after the log.
    pub(crate) fast_commit_blocks: u32,
}

/// The size of the journal for a request; `None`: the volume gets none, because it is too small for one and
/// no size was asked for.
///
/// # Errors
/// A size that is out of bounds, with the bounds.
pub(crate) fn size(request: &Request, blocks: u64) -> Result<Option<JournalSize>> {
    if !request.features.has_journal() {
        return Ok(None);
    }
    let block_bytes = u64::from(request.block_bytes);
    let log = match request.journal.size_mib {
        Some(mib) => (u64::from(mib) << 20) / block_bytes,
        None => {
            let row = BY_SIZE.iter().find(|(limit, _)| blocks < *limit);
            match row.map_or(0, |(_, size)| *size) {
                0 => return Ok(None),
                size => u64::from(size),
            }
        }
    };
    let fast = match request.journal.fast_commit_kib {
        _ if !request.features.compat.contains(Compat::FAST_COMMIT) => 0,
        Some(kib) => (u64::from(kib) << 10) / block_bytes,
        None => log / 64,
    };
    let total = log + fast;
    let most = MOST_BLOCKS.min(blocks / 2);
    let mib = |blocks: u64| (blocks * block_bytes) >> 20;
    if request.journal.size_mib.is_some() && log < LEAST_BLOCKS
        || total > most && request.journal.size_mib.is_some()
    {
        return Err(Error::invalid(format!(
            "a journal of {total} blocks (-J size=): from {} to {} MiB is allowed for {blocks} blocks of \
             {block_bytes} bytes",
            (LEAST_BLOCKS * block_bytes).div_ceil(1 << 20),
            mib(most)
        )));
    }
    if request
        .journal
        .fast_commit_kib
        .is_some_and(|kib| (u64::from(kib) << 10) % block_bytes != 0 || kib == 0)
    {
        return Err(Error::invalid(format!(
            "the area for fast commits (-J fast_commit_size=) is a multiple of the block size, {} KiB",
            block_bytes >> 10
        )));
    }
    Ok(Some(JournalSize {
        blocks: log as u32,
        fast_commit_blocks: fast as u32,
    }))
}

/// The block from which the journal is laid out.
///
/// With extents it is in the middle of the volume, where the way to it is short from everywhere, and in the
/// emptier of two groups, so that it is in one piece. A journal mapped by pointers follows the directories.
pub(crate) fn goal(geo: &Geometry, request: &Request, space: &Space) -> u64 {
    let first = geo.first_data_block.0;
    if let Some(location) = request.journal.location {
        return location.clamp(first, geo.blocks - 1);
    }
    if !geo.incompat.contains(Incompat::EXTENTS) || request.packed_meta_blocks {
        return first;
    }
    let free = |group: u32| {
        let number = GroupNumber(group);
        let start = geo.group_first_block(number).0;
        let blocks = u64::from(geo.group_blocks(number));
        blocks - space.count(start..start + blocks)
    };
    let middle = geo.blocks / 2;
    let mut group = ((middle - first) / u64::from(geo.blocks_per_group)) as u32;
    let per_flex = 1u32
        .checked_shl(geo.log_groups_per_flex)
        .unwrap_or(u32::MAX);
    let start = if geo.log_groups_per_flex > 0 && group > per_flex {
        // The first group of its flex group that is not full of tables.
        group &= !(per_flex - 1);
        while group < geo.groups && free(group) == 0 {
            group += 1;
        }
        group = if group == geo.groups { 0 } else { group };
        group
    } else {
        group.saturating_sub(1)
    };
    let end = if group + 1 < geo.groups {
        group + 1
    } else {
        group
    };
    let mut best = start;
    for candidate in start + 1..=end {
        if free(candidate) > free(best) {
            best = candidate;
        }
    }
    geo.group_first_block(GroupNumber(best)).0
}
