//! Space and inode counts, as in `df`.

#[cfg(test)]
mod tests;

use throughline_extfmt::features::Compat;
use throughline_extfmt::{GroupNumber, InodeNumber};

use crate::data::Data;
use crate::error::Result;

/// A volume's counts, as in the kernel's `statfs` (with its default, `minixdf` off).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Block size in bytes.
    pub block_bytes: u32,
    /// Blocks usable by files: all but the volume's own structures.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Free blocks, not counting reserved ones.
    pub available_blocks: u64,
    /// Number of inodes.
    pub inodes: u32,
    /// Number of free inodes.
    pub free_inodes: u32,
    /// Longest name, in bytes.
    pub name_max: u32,
    /// The volume's ID, derived from its UUID.
    pub fsid: u64,
    /// The label.
    pub label: Vec<u8>,
    /// The UUID.
    pub uuid: [u8; 16],
}

impl Data {
    /// Space and inode counts, as in `df`.
    ///
    /// # Errors
    /// Errors of reading the journal's inode, whose blocks count as overhead.
    pub fn statfs(&self) -> Result<StatFs> {
        let sb = self.superblock();
        let overhead = match u64::from(sb.s_overhead_clusters.get()) << self.geo.cluster_ratio_log {
            known if known != 0 && known < self.geo.blocks => known,
            _ => overhead(self)?,
        };
        let (free, kept) = self.free_and_kept(&sb);
        let free = free.saturating_add(self.emptied.blocks());
        let (low, high) = sb.s_uuid.split_at(8);
        let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        Ok(StatFs {
            block_bytes: self.geo.block_bytes,
            blocks: self.geo.blocks.saturating_sub(overhead),
            free_blocks: free,
            available_blocks: free.saturating_sub(kept),
            inodes: self.geo.inodes,
            free_inodes: sb.s_free_inodes_count.get(),
            name_max: 255,
            fsid: word(low) ^ word(high),
            label: sb.volume_name().to_vec(),
            uuid: sb.s_uuid,
        })
    }
}

/// Blocks of the volume's own structures, counted as the kernel does if the superblock has no count.
fn overhead(fs: &Data) -> Result<u64> {
    let mut blocks = fs.geo.first_data_block.0;
    let log = fs.geo.cluster_ratio_log;
    if log > 0 {
        // Structures share clusters.
        let mut next = 0;
        for (start, end) in fs.zones()?.within(0, fs.geo.blocks) {
            let first = (start >> log).max(next);
            next = end.div_ceil(1 << log);
            blocks = blocks.saturating_add(next.saturating_sub(first) << log);
        }
    }
    let groups = if log > 0 { 0 } else { fs.geo.groups };
    for group in (0..groups).map(GroupNumber) {
        let group_own =
            u64::from(fs.geo.fixed_blocks(group)).saturating_add(fs.geo.inode_table_blocks.into());
        blocks = blocks.saturating_add(group_own).saturating_add(2);
    }
    let sb = fs.superblock();
    if fs.geo.compat.contains(Compat::HAS_JOURNAL) && sb.s_journal_inum.get() != 0 {
        let journal = fs.inode(InodeNumber(sb.s_journal_inum.get()))?;
        blocks = blocks.saturating_add(journal.image().size_bytes(&fs.geo)? >> fs.geo.block_log);
    }
    Ok(blocks)
}
