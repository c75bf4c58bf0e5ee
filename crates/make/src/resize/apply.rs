//! The steps of a growth, in their order.

use throughline_block::Disk;
use throughline_extfmt::features::{Compat, Incompat};
use throughline_extfmt::superblock::{SUPERBLOCK_OFFSET, State};
use throughline_extfmt::{FsBlock, Geometry, GroupNumber, Superblock, bitmap, group_desc};
use zerocopy::IntoBytes;

use super::groups::NewGroups;
use super::record::{self, FREED, Freed, Interrupted, group_of};
use super::reserved::{self, ResizeInode};
use super::table::{Table, is_uninit, sum_block_bitmap};
use super::{Resized, shape, superblock};
use crate::error::{Error, Result};
use crate::hash_tree;
use crate::write::backup;
use crate::writer::{Writer, read_bytes};

/// Grows the volume on `disk`, which is not in use and has been recovered, to `blocks` blocks, or a little
/// less (see [`grown`](super::grown)). The device is long enough. `is_zero`: beyond the old end, it reads as
/// zeros. `now`: seconds since 1970.
///
/// # Errors
/// `Invalid`: the format does not allow the size, or the volume has to be recovered first. Nothing was
/// written. `Damaged`; of the device.
pub fn grow(disk: &Disk, blocks: u64, is_zero: bool, now: u64) -> Result<Resized> {
    let Checked {
        sb,
        old,
        mut new_sb,
        geo,
        mut table,
        resize_inode,
    } = Checked::read(disk, blocks)?;
    if geo.blocks <= old.blocks {
        return Ok(Resized::new(&old, &old));
    }
    let stride = u32::from(sb.s_raid_stride.get());
    let new = NewGroups::place(&geo, old.groups, stride, is_zero, &mut table)?;
    if !new.is_free(geo.blocks - 1) {
        return Err(Error::invalid(
            "the last group has no room: choose another size",
        ));
    }
    let freed = freed(&old, &geo, resize_inode.as_ref(), &table);
    if sb.s_overhead_clusters.get() != 0 {
        let overhead = u64::from(sb.s_overhead_clusters.get()) + new.overhead();
        new_sb.s_overhead_clusters.set(overhead as u32);
    }
    new_sb.set_wtime(now);
    let [_, begun] = begin(new_sb, &geo, &table).steps_size_first(&sb);
    let begun = Interrupted {
        superblock: begun,
        old_blocks: old.blocks,
        freed,
        is_ending: false,
    };
    let mut last = Finish::new(disk, &geo, begun.clone(), table);
    last.free_bits()?;

    let mut out = Writer::new(disk, 0);
    beyond(&last, &new, is_zero, &mut out)?;
    let block = record::block(&begun.superblock, &last.ended, &old, &begun.freed);
    out.put(record::place(&geo), &block)?;
    out.flush()?;
    disk.flush()?;

    for index in old.groups / geo.descs_per_block()..geo.desc_blocks {
        let at = geo.desc_block(index);
        if at.0 < old.blocks {
            let block = last.begun_block(index);
            out.put(last.bytes_at(at), &block)?;
        }
    }
    if let Some(inode) = resize_inode {
        for (at, block) in inode.blocks(disk, &geo)? {
            out.put(at, &block)?;
        }
    }
    out.flush()?;
    disk.flush()?;

    write_superblock(&mut out, disk, &begun.superblock)?;
    last.run()?;
    Ok(Resized::new(&old, &geo))
}

/// What [`grow`] would give. All is read and checked that is needed for it, as far as that is possible before
/// the device is long enough.
///
/// # Errors
/// As [`grow`].
pub fn check(disk: &Disk, blocks: u64) -> Result<Resized> {
    Checked::read(disk, blocks).map(|found| Resized::new(&found.old, &found.geo))
}

/// A volume that is to grow, read and checked.
struct Checked {
    sb: Superblock,
    old: Geometry,
    new_sb: Superblock,
    geo: Geometry,
    table: Table,
    resize_inode: Option<ResizeInode>,
}

impl Checked {
    fn read(disk: &Disk, blocks: u64) -> Result<Checked> {
        let sb = superblock(disk)?;
        let old = sb
            .validate()
            .map_err(|why| Error::Damaged(why.to_string()))?;
        if !sb.state().contains(State::VALID) || sb.incompat().contains(Incompat::RECOVER) {
            return Err(Error::invalid("the volume has to be recovered first"));
        }
        let (new_sb, geo) = shape::grown(&sb, &old, blocks)?;
        let table = Table::read(disk, &old, &geo)?;
        let resize_inode = ResizeInode::read(disk, &old)?;
        refuse_hash_tree(disk, &old)?;
        Ok(Checked {
            sb,
            old,
            new_sb,
            geo,
            table,
            resize_inode,
        })
    }
}

/// Refuses a volume with a hash tree of dm-verity behind it, which would be overwritten or cut off.
///
/// # Errors
/// `Unsupported`; of the device.
pub fn refuse_hash_tree(disk: &Disk, geo: &Geometry) -> Result<()> {
    match hash_tree::superblock(disk, geo)?.is_some() {
        true => Err(Error::unsupported(
            "resizing a volume with a hash tree of dm-verity behind it: the tree would be lost, and a volume \
             that is verified must not change",
        )),
        false => Ok(()),
    }
}

/// Completes a growth that was interrupted.
///
/// # Errors
/// `Damaged`; of the device.
pub fn finish(disk: &Disk, found: Interrupted) -> Result<Resized> {
    let geo = Geometry::new(&found.superblock)?;
    let old_blocks = found.old_blocks;
    let groups_before =
        (old_blocks - geo.first_data_block.0).div_ceil(u64::from(geo.blocks_per_group));
    let resized = Resized {
        blocks_before: old_blocks,
        groups_before: groups_before as u32,
        inodes_before: groups_before as u32 * geo.inodes_per_group,
        ..Resized::new(&geo, &geo)
    };
    // Its second sector may be as before.
    write_superblock(&mut Writer::new(disk, 0), disk, &found.superblock)?;
    if found.is_ending {
        return Ok(resized);
    }
    // The primary table may have been written in part: only the descriptors that were freed into differ, and
    // the record has these.
    let table = read_table(disk, &geo, &found.freed)?;
    let mut last = Finish::new(disk, &geo, found, table);
    last.free_bits()?;
    last.run()?;
    Ok(resized)
}

/// Reads the table of a volume whose growth was interrupted.
fn read_table(disk: &Disk, geo: &Geometry, freed: &[Freed]) -> Result<Table> {
    let skipped: Vec<GroupNumber> = freed.iter().map(|one| group_of(geo, one)).collect();
    let mut table = Table::read_except(disk, geo, geo, &skipped)?;
    for one in freed {
        table.set(geo, group_of(geo, one), one.desc);
    }
    Ok(table)
}

/// The superblock of step 3.
fn begin(mut sb: Superblock, geo: &Geometry, table: &Table) -> Superblock {
    let (blocks, inodes) = table.free(geo);
    sb.set_free_blocks_count(blocks);
    sb.s_free_inodes_count.set(inodes);
    sb.set_state(sb.state() - State::VALID);
    sb
}

/// The runs that become free.
fn freed(old: &Geometry, new: &Geometry, inode: Option<&ResizeInode>, table: &Table) -> Vec<Freed> {
    let last = GroupNumber(old.groups - 1);
    let tail = old.blocks..old.blocks + u64::from(new.group_blocks(last) - old.group_blocks(last));
    let lost = inode
        .filter(|_| !new.compat.contains(Compat::RESIZE_INODE))
        .map(|inode| inode.double()..inode.double() + 1);
    let runs = [Some(tail), lost].into_iter().flatten();
    let freed: Vec<Freed> = runs
        .filter(|run| !run.is_empty())
        .filter_map(|run| {
            let desc = table.get(new.group_of_block(FsBlock(run.start))?);
            Some(Freed { run, desc })
        })
        .collect();
    debug_assert!(freed.len() <= FREED, "the record has room for them");
    freed
}

/// Writes what is beyond the old end of the volume.
fn beyond(
    last: &Finish<'_>,
    new: &NewGroups<'_>,
    is_zero: bool,
    out: &mut Writer<'_>,
) -> Result<()> {
    let geo = last.geo;
    let bytes = u64::from(geo.block_bytes);
    let mut bits = vec![0; geo.block_bytes as usize];
    for group in new.all() {
        let desc = last.table.get(group);
        if !is_uninit(geo, &desc) {
            new.block_bitmap(group, &mut bits);
            out.put(last.bytes_at(desc.block_bitmap()), &bits)?;
        }
    }
    if !geo.has_group_csum() {
        geo.init_inode_bitmap(&mut bits);
        for group in new.all() {
            let desc = last.table.get(group);
            out.put(last.bytes_at(desc.inode_bitmap()), &bits)?;
            if !is_zero {
                let table = last.bytes_at(desc.inode_table());
                out.zero(table..table + u64::from(geo.inode_table_blocks) * bytes)?;
            }
        }
    }
    last.copies(out, |block| block >= last.begun.old_blocks)?;
    for index in 0..geo.desc_blocks {
        let at = geo.desc_block(index);
        if at.0 >= last.begun.old_blocks {
            out.put(last.bytes_at(at), last.table.block(index))?;
        }
    }
    Ok(())
}

/// Writes the primary superblock, durably, so that no power cut tears it.
fn write_superblock(out: &mut Writer<'_>, disk: &Disk, sb: &Superblock) -> Result<()> {
    let mut last = superblock(disk)?;
    for step in sb.steps_size_first(&last) {
        if step.as_bytes() != last.as_bytes() {
            out.put(SUPERBLOCK_OFFSET, step.as_bytes())?;
            out.flush()?;
            disk.flush()?;
            last = step;
        }
    }
    Ok(())
}

/// What is left to do once the superblock has the new size.
struct Finish<'d> {
    disk: &'d Disk,
    geo: &'d Geometry,
    begun: Interrupted,
    /// The superblock of step 5.
    ended: Superblock,
    /// The descriptors, with the freed blocks.
    table: Table,
    /// The bitmaps with the freed blocks, and their places in bytes.
    bitmaps: Vec<(u64, Vec<u8>)>,
}

impl<'d> Finish<'d> {
    /// Plans it. `table` has the descriptors before anything is freed.
    fn new(disk: &'d Disk, geo: &'d Geometry, begun: Interrupted, table: Table) -> Finish<'d> {
        let mut ended = begun.superblock;
        let more: u64 = begun
            .freed
            .iter()
            .map(|one| one.run.end - one.run.start)
            .sum();
        ended.set_free_blocks_count(ended.free_blocks_count() + more);
        ended.set_state(ended.state() | State::VALID);
        ended.keep_checksum();
        Finish {
            disk,
            geo,
            begun,
            ended,
            table,
            bitmaps: Vec::new(),
        }
    }

    /// Frees the runs in bitmaps and descriptors, in memory.
    fn free_bits(&mut self) -> Result<()> {
        let geo = self.geo;
        let block_bytes = geo.block_bytes as usize;
        for one in &self.begun.freed {
            let group = group_of(geo, one);
            let mut desc = self.table.get(group);
            let len = (one.run.end - one.run.start) as u32;
            desc.set_free_blocks(desc.free_blocks() + len);
            if !is_uninit(geo, &desc) {
                let at = self.bytes_at(desc.block_bitmap());
                let bits = match self.bitmaps.iter_mut().find(|(place, _)| *place == at) {
                    Some((_, bits)) => bits,
                    None => {
                        let bits = read_bytes(self.disk, at, block_bytes)?;
                        self.bitmaps.push((at, bits));
                        &mut self.bitmaps.last_mut().expect("just added").1
                    }
                };
                let from = (one.run.start - geo.group_first_block(group).0) as u32;
                bitmap::clear_range(bits, from..from + len);
                sum_block_bitmap(geo, &mut desc, bits);
            }
            self.table.set(geo, group, desc);
        }
        Ok(())
    }

    /// Carries it out.
    fn run(&self) -> Result<()> {
        let mut out = Writer::new(self.disk, 0);
        for (at, bits) in &self.bitmaps {
            out.put(*at, bits)?;
        }
        for one in &self.begun.freed {
            let (index, _) = self.geo.desc_index(group_of(self.geo, one));
            let at = self.bytes_at(self.geo.desc_block(index));
            out.flush()?; // two runs may have one block of descriptors
            out.put(at, self.table.block(index))?;
        }
        if let Some((at, block)) = reserved::cleared(self.disk, self.geo, &self.table)? {
            out.put(at, &block)?;
        }
        self.copies(&mut out, |block| block < self.begun.old_blocks)?;
        out.flush()?;
        self.disk.flush()?;
        write_superblock(&mut out, self.disk, &self.ended)?;
        let record = record::place(self.geo);
        out.zero(record..record + u64::from(self.geo.block_bytes))?;
        out.flush()?;
        Ok(self.disk.flush()?)
    }

    /// Writes the copies of superblock and descriptors whose blocks are wanted.
    fn copies(&self, out: &mut Writer<'_>, wanted: impl Fn(u64) -> bool) -> Result<()> {
        let geo = self.geo;
        for group in geo.superblock_groups().skip(1) {
            let Some(at) = geo.superblock_block(group).filter(|at| wanted(at.0)) else {
                continue;
            };
            let block = backup(&self.ended, group, geo.block_bytes as usize);
            out.put(self.bytes_at(at), &block)?;
        }
        for index in 0..geo.desc_blocks {
            for at in geo.desc_block_backups(index) {
                if wanted(at.0) {
                    out.put(self.bytes_at(at), self.table.block(index))?;
                }
            }
        }
        Ok(())
    }

    /// A block of descriptors before anything is freed.
    fn begun_block(&self, index: u32) -> Vec<u8> {
        let mut block = self.table.block(index).to_vec();
        for one in &self.begun.freed {
            let group = group_of(self.geo, one);
            let (at, offset) = self.geo.desc_index(group);
            if at == index {
                let mut desc = one.desc;
                let place = &mut block[offset..offset + usize::from(self.geo.desc_bytes)];
                group_desc::write_with_checksum(self.geo, group, &mut desc, place);
            }
        }
        block
    }

    fn bytes_at(&self, block: FsBlock) -> u64 {
        block.0 * u64::from(self.geo.block_bytes)
    }
}
