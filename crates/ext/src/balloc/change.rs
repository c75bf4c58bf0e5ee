//! A group's bitmap: built or read into its [`BlockMap`], and changed together with its descriptor.
//!
//! Each time a bitmap is read from disk, it is checked against its checksum, against the descriptor's free
//! count, and against the volume's fixed metadata, which it must show as used. In a group whose bitmap was
//! never written (`BLOCK_UNINIT`), exactly the fixed metadata is in use; the bitmap is created with the first
//! allocation.

use throughline_extfmt::bitmap;
use throughline_extfmt::group_desc::GroupFlags;
use throughline_extfmt::{Corrupt, FsBlock, GroupDesc, GroupNumber};
use throughline_journal::Block;

use super::Blocks;
use super::map::BlockMap;
use crate::error::{Error, Result};
use crate::groups::check_csum;
use crate::handle::Handle;

/// A change of one group's bitmap, under the group's lock.
pub(super) struct Change<'c, 'h> {
    fs: &'c Blocks,
    h: &'c mut Handle<'h>,
    map: &'c mut BlockMap,
    group: GroupNumber,
}

impl Change<'_, '_> {
    /// Sets the bits of a claimed range.
    pub(super) fn allocate(&mut self, first: u32, len: u32) -> Result<()> {
        let desc = self.fs.group_desc(self.group)?;
        let range = first..first.saturating_add(len);
        if desc.free_blocks() < len {
            return Err(self.corrupt("its free count is too small", &desc));
        }
        let csum = if block_uninit(self.fs, &desc) {
            let bits = initial_bitmap(self.fs, self.group)?;
            self.h.create(desc.block_bitmap(), |bytes| {
                bytes.copy_from_slice(&bits);
                bitmap::set_range(bytes, range.clone());
                block_bitmap_csum(self.fs, bytes)
            })?
        } else {
            let bits = block_bits(self.fs, self.group, &desc)?;
            if bitmap::count_clear(&bits, range.clone()) != len {
                return Err(self.corrupt("a block that is free in memory is in use on disk", &desc));
            }
            drop(bits);
            self.modify(&desc, |bytes| bitmap::set_range(bytes, range))?
        };
        self.seal(csum, |desc| {
            desc.set_flags(desc.flags() - GroupFlags::BLOCK_UNINIT);
            desc.set_free_blocks(desc.free_blocks().saturating_sub(len));
        })?;
        self.map.confirmed(len);
        Ok(())
    }

    /// Clears the bits of an allocated range.
    pub(super) fn free(&mut self, first: u32, len: u32) -> Result<()> {
        let desc = self.fs.group_desc(self.group)?;
        check_bits_set(self.fs, self.group, &desc, first, len)?;
        let csum = self.modify(&desc, |bytes| {
            bitmap::clear_range(bytes, first..first.saturating_add(len));
        })?;
        self.seal(csum, |desc| {
            desc.set_free_blocks(desc.free_blocks().saturating_add(len));
        })?;
        self.map.freed(len);
        Ok(())
    }

    /// Changes the bitmap in place. Returns its new checksum.
    fn modify(&mut self, desc: &GroupDesc, change: impl FnOnce(&mut [u8])) -> Result<Option<u32>> {
        let (fs, group) = (self.fs, self.group);
        let check = |bytes: &[u8]| check_bitmap(fs, group, bytes);
        self.h.modify_checked(desc.block_bitmap(), check, |bytes| {
            change(bytes);
            block_bitmap_csum(fs, bytes)
        })
    }

    /// Updates the descriptor: the bitmap's checksum, and the counts through `change`.
    fn seal(&mut self, csum: Option<u32>, change: impl FnOnce(&mut GroupDesc)) -> Result<()> {
        self.fs.change_group_desc(self.h, self.group, |desc| {
            if let Some(csum) = csum {
                desc.set_block_bitmap_csum(csum);
            }
            change(desc);
        })
    }

    fn corrupt(&self, what: &str, desc: &GroupDesc) -> Error {
        Error::corrupt(format!("block bitmap of group {}: {what}", self.group))
            .in_block(desc.block_bitmap())
    }
}

impl Blocks {
    /// Runs `f` on the group's map under the group's lock. Loads the map first if it is not in memory.
    pub(super) fn with_map<R>(
        &self,
        group: GroupNumber,
        f: impl FnOnce(&mut BlockMap) -> R,
    ) -> Result<R> {
        let slot = self.balloc.groups.get_or_insert(group);
        if let Some(map) = slot.lock().as_mut() {
            return Ok(f(map));
        }
        warm_map(self, group);
        let mut held = slot.lock();
        match held.as_mut() {
            Some(map) => Ok(f(map)),
            None => Ok(f(held.insert(load_map(self, group)?))),
        }
    }

    /// Runs a change of the group's bitmap under the group's lock.
    pub(super) fn change_group(
        &self,
        h: &mut Handle<'_>,
        group: GroupNumber,
        f: impl FnOnce(&mut Change<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        self.with_map(group, |map| {
            f(&mut Change {
                fs: self,
                h,
                map,
                group,
            })
        })?
    }

    /// Checks that a range is allocated on disk.
    pub(super) fn check_allocated(&self, group: GroupNumber, first: u32, len: u32) -> Result<()> {
        // Under the group's lock, because loading a bitmap checks it against its descriptor.
        self.with_map(group, |_| {
            let desc = self.group_desc(group)?;
            check_bits_set(self, group, &desc, first, len)
        })?
    }

    /// Makes a group the last of a volume: the bits behind its end are set, and its bitmap is on disk
    /// ([`super::GROUP_CREDITS`]). `after` is the new geometry.
    ///
    /// # Errors
    /// Errors of the journal; `Corrupt`.
    pub(crate) fn end_last_group(
        &self,
        h: &mut Handle<'_>,
        group: GroupNumber,
        after: &throughline_extfmt::Geometry,
    ) -> Result<()> {
        let (before, blocks) = (self.geo.group_blocks(group), after.group_blocks(group));
        self.change_group(h, group, |change| {
            let desc = self.group_desc(group)?;
            let mut bits = match block_uninit(self, &desc) {
                true => initial_bitmap(self, group)?,
                false => block_bits(self, group, &desc)?.to_vec(),
            };
            let fixed = self.geo.fixed_blocks(group);
            if block_uninit(self, &desc) && after.fixed_blocks(group) < fixed {
                bitmap::clear_range(&mut bits, after.fixed_blocks(group)..fixed);
            }
            bitmap::set_range(&mut bits, blocks..before.max(blocks));
            let free = bitmap::count_clear(&bits, 0..blocks);
            let csum = change.h.create(desc.block_bitmap(), |place| {
                place.copy_from_slice(&bits);
                block_bitmap_csum(self, place)
            })?;
            change.seal(csum, |desc| {
                desc.set_flags(desc.flags() - GroupFlags::BLOCK_UNINIT);
                desc.set_free_blocks(free);
            })
        })
    }

    /// The bitmap of a group, as it is on disk or would be written.
    ///
    /// # Errors
    /// Errors of reading it; `Corrupt`.
    pub(crate) fn block_bitmap(&self, group: GroupNumber) -> Result<Vec<u8>> {
        self.with_map(group, |_| {
            let desc = self.group_desc(group)?;
            match block_uninit(self, &desc) {
                true => initial_bitmap(self, group),
                false => Ok(block_bits(self, group, &desc)?.to_vec()),
            }
        })?
    }

    /// Checks the group's bitmap on disk against its descriptor and the fixed metadata.
    pub(crate) fn check_block_bitmap(&self, group: GroupNumber) -> Result<()> {
        let slot = self.balloc.groups.get_or_insert(group);
        let _held = slot.lock();
        load_map(self, group).map(|_| ())
    }
}

/// Reads what [`load_map`] needs into memory, without a lock. Checks nothing: another thread may have
/// changed the bitmap but not yet its descriptor, and that mismatch is not damage.
fn warm_map(fs: &Blocks, group: GroupNumber) {
    // Errors are reported by the read that uses the block.
    if let Ok(desc) = fs.group_desc(group)
        && !block_uninit(fs, &desc)
    {
        let _ = fs.read(desc.block_bitmap());
    }
    let _ = fs.zones();
}

fn check_bits_set(
    fs: &Blocks,
    group: GroupNumber,
    desc: &GroupDesc,
    first: u32,
    len: u32,
) -> Result<()> {
    let free = if block_uninit(fs, desc) {
        len
    } else {
        bitmap::count_clear(
            &block_bits(fs, group, desc)?,
            first..first.saturating_add(len),
        )
    };
    if free == 0 {
        return Ok(());
    }
    let start = fs
        .geo
        .group_first_block(group)
        .0
        .saturating_add(u64::from(first) << fs.geo.cluster_ratio_log);
    let what = match fs.geo.cluster_ratio_log {
        0 => "blocks",
        _ => "clusters",
    };
    Err(Error::corrupt(format!(
        "{free} of the {len} {what} to free from {start} on are already free"
    )))
}

/// Builds the group's map from its bitmap. The caller holds the group's lock: bitmap and descriptor do not
/// change at once.
fn load_map(fs: &Blocks, group: GroupNumber) -> Result<BlockMap> {
    let desc = fs.group_desc(group)?;
    let blocks = fs.geo.group_clusters(group);
    let mut map = if block_uninit(fs, &desc) {
        BlockMap::new(&initial_bitmap(fs, group)?, blocks)
    } else {
        BlockMap::new(&block_bits(fs, group, &desc)?, blocks)
    };
    check_count(group, map.free(), &desc)?;
    if let Some(limit) = fs.balloc.limit.get() {
        map.withhold(limit.bit(&fs.geo, group));
    }
    Ok(map)
}

/// The group's bitmap on disk. The caller holds the group's lock: bitmap and descriptor do not change at
/// once.
fn block_bits(fs: &Blocks, group: GroupNumber, desc: &GroupDesc) -> Result<Block> {
    fs.read_checked(desc.block_bitmap(), |bytes| check_bitmap(fs, group, bytes))
}

/// Checks a bitmap just read against its current descriptor and the fixed metadata.
fn check_bitmap(
    fs: &Blocks,
    group: GroupNumber,
    bytes: &[u8],
) -> core::result::Result<(), Corrupt> {
    let corrupt = |e: Error| Corrupt::new(e.to_string());
    let desc = fs.group_desc(group).map_err(corrupt)?;
    if let Some(seed) = fs.geo.csum_seed {
        let right = fs.kept_csum(bitmap::checksum(bytes, fs.geo.clusters_per_group, seed));
        check_csum("block bitmap", group, desc.block_bitmap_csum(), right)?;
    }
    for (first, end) in zone_bits(fs, group).map_err(corrupt)? {
        if bitmap::count_clear(bytes, first..end) != 0 {
            let what =
                format!("block bitmap of group {group} shows the volume's own structures as free");
            return Err(Corrupt::new(what));
        }
    }
    let free = bitmap::count_clear(bytes, 0..fs.geo.group_clusters(group));
    check_count(group, free, &desc)
}

/// The bitmap of a group with only fixed metadata in use: padding bits set, one block long.
fn initial_bitmap(fs: &Blocks, group: GroupNumber) -> Result<Vec<u8>> {
    let mut bits = vec![0; fs.geo.block_bytes as usize];
    for (first, end) in zone_bits(fs, group)? {
        bitmap::set_range(&mut bits, first..end);
    }
    let (blocks, all) = (
        fs.geo.group_clusters(group),
        fs.geo.block_bytes.saturating_mul(8),
    );
    bitmap::set_range(&mut bits, blocks..all);
    Ok(bits)
}

/// The fixed metadata in a group, as bit ranges. A cluster that it fills in part is all its own.
fn zone_bits(fs: &Blocks, group: GroupNumber) -> Result<impl Iterator<Item = (u32, u32)>> {
    let FsBlock(start) = fs.geo.group_first_block(group);
    let end = start.saturating_add(fs.geo.group_blocks(group).into());
    let log = fs.geo.cluster_ratio_log;
    let within = move |block: u64| block.clamp(start, end) - start;
    Ok(fs.zones()?.within(start, end).map(move |zone| {
        let end = within(zone.1).div_ceil(1 << log);
        ((within(zone.0) >> log) as u32, end as u32)
    }))
}

/// Whether the group's block bitmap was never written.
fn block_uninit(fs: &Blocks, desc: &GroupDesc) -> bool {
    fs.geo.has_group_csum() && desc.flags().contains(GroupFlags::BLOCK_UNINIT)
}

/// The checksum of a changed bitmap, for its descriptor. `None` without metadata checksums.
fn block_bitmap_csum(fs: &Blocks, bits: &[u8]) -> Option<u32> {
    let seed = fs.geo.csum_seed?;
    Some(bitmap::checksum(bits, fs.geo.clusters_per_group, seed))
}

fn check_count(
    group: GroupNumber,
    free: u32,
    desc: &GroupDesc,
) -> core::result::Result<(), Corrupt> {
    let recorded = desc.free_blocks();
    if free == recorded {
        return Ok(());
    }
    Err(Corrupt::new(format!(
        "group {group} has {free} free blocks in its bitmap, {recorded} in its descriptor"
    )))
}
