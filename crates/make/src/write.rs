//! Carries out a plan: clears the target, then writes every block that is not zero, in ascending order and in
//! long writes.

use std::ops::Range;

use throughline_block::Disk;
use throughline_device::DeviceKind;
use throughline_extfmt::group_desc::{self, GroupFlags};
use throughline_extfmt::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, State};
use throughline_extfmt::{GroupNumber, Superblock};
use zerocopy::IntoBytes;

use crate::buffer::Buffer;
use crate::error::Result;
use crate::pack::inode::{Inline, TreeBlock};
use crate::pack::tree::NodeId;
use crate::plan::Plan;

/// The bytes of a long write, and of a batch that is full.
const LONG_WRITE_BYTES: usize = 4 << 20;

/// The most writes that are prepared at a time.
const BATCH_RUNS: usize = 256;

/// What is done with the old content of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clear {
    /// The target reads as zeros.
    Blank,
    /// All of it goes: holes in a file, discarded blocks of a device.
    All,
    /// What must be zero is zeroed, the rest is left as it is.
    Needed,
    /// Nothing but superblocks and descriptors is written.
    Nothing,
}

/// How a plan is carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// Where the volume begins, in bytes.
    pub(crate) offset: u64,
    pub(crate) clear: Clear,
    /// Whether the log of the journal may keep old content.
    pub(crate) lazy_journal: bool,
    /// Whether the inode tables may keep old content.
    pub(crate) lazy_itable: bool,
}

/// A part of the volume, in the order of its place.
#[derive(Clone, Copy)]
enum Part<'p> {
    Superblock(GroupNumber),
    /// A block of descriptors, and the group whose superblock it belongs to.
    Descs(u32),
    BlockBitmap(GroupNumber),
    InodeBitmap(GroupNumber),
    /// A block of an inode table: the group, and the block in the table.
    Inodes(GroupNumber, u32),
    Content(&'p [u8]),
    Tree(TreeBlock),
}

/// What the data pass found out, for the metadata that follows it.
#[derive(Default)]
pub(crate) struct Found {
    /// The bytes of files that are in their inodes.
    pub(crate) inline: Inline,
    /// Times of files after this are set to it.
    pub(crate) clamp: Option<u64>,
}

/// Clears the target for a plan whose data is written before [`write`], which then finds it
/// [blank](Clear::Blank).
///
/// # Errors
/// Of the device.
pub(crate) fn clear_first(plan: &Plan<'_>, disk: &Disk, how: How) -> Result<()> {
    let mut out = Writer::new(disk, how.offset);
    clear(plan, &mut out, how)?;
    out.flush()
}

/// Writes a planned volume.
///
/// # Errors
/// Of the device.
pub(crate) fn write(plan: &Plan<'_>, disk: &Disk, how: How, found: &Found) -> Result<()> {
    let mut out = Writer::new(disk, how.offset);
    clear(plan, &mut out, how)?;
    let bytes = plan.geo.block_bytes;
    if how.clear != Clear::Nothing {
        // The boot block: what was there before would be mistaken for a boot loader, or for another file
        // system.
        out.put(0, &[0; SUPERBLOCK_OFFSET as usize])?;
    }
    let parts = parts(plan, how.clear == Clear::Nothing);
    let writes_bytes: u64 = parts.len() as u64 * u64::from(bytes);
    let mut superblock = plan.superblock;
    superblock.s_kbytes_written.set(writes_bytes >> 10);
    let table = all_descs(plan);
    let mut block = vec![0; bytes as usize];
    let mut directory = None;
    for (place, part) in parts {
        let at = place * u64::from(bytes);
        match part {
            Part::Superblock(group) => write_superblock(plan, &superblock, group, at, &mut out)?,
            Part::Descs(index) => {
                let from = index as usize * bytes as usize;
                out.put(at, &table[from..][..bytes as usize])?;
            }
            Part::BlockBitmap(group) => {
                plan.block_bitmap(group, &mut block);
                out.put(at, &block)?;
            }
            Part::InodeBitmap(group) => {
                plan.inode_bitmap(group, &mut block);
                out.put(at, &block)?;
            }
            Part::Inodes(group, index) => {
                inodes(plan, group, index, found, &mut block)?;
                out.put(at, &block)?;
            }
            Part::Content(content) => out.put(at, content)?,
            Part::Tree(made) => {
                make(plan, made, &mut directory, &mut block)?;
                out.put(at, &block)?;
            }
        }
    }
    out.finish()
}

/// Every part that is written, in ascending order.
fn parts<'p>(plan: &'p Plan<'_>, only_supers: bool) -> Vec<(u64, Part<'p>)> {
    let geo = &plan.geo;
    let mut parts = Vec::new();
    for group in geo.superblock_groups() {
        parts.extend(
            geo.superblock_block(group)
                .map(|at| (at.0, Part::Superblock(group))),
        );
    }
    for index in 0..geo.desc_blocks {
        parts.push((geo.desc_block(index).0, Part::Descs(index)));
        let backups = geo.desc_block_backups(index);
        parts.extend(backups.into_iter().map(|at| (at.0, Part::Descs(index))));
    }
    if !only_supers {
        for (group, desc) in (0..).map(GroupNumber).zip(&plan.descs) {
            if !desc.flags().contains(GroupFlags::BLOCK_UNINIT) {
                parts.push((desc.block_bitmap().0, Part::BlockBitmap(group)));
            }
            if !desc.flags().contains(GroupFlags::INODE_UNINIT) {
                parts.push((desc.inode_bitmap().0, Part::InodeBitmap(group)));
            }
        }
        let mut last = None;
        for ino in plan.numbers() {
            let Some((group, index)) = geo.inode_place(throughline_extfmt::InodeNumber(ino)) else {
                continue;
            };
            let (block, _) = geo.inode_in_table(index);
            if last.replace((group, block)) != Some((group, block)) {
                let table = plan.descs[group.0 as usize].inode_table().0;
                parts.push((table + u64::from(block), Part::Inodes(group, block)));
            }
        }
        let content = plan.content.iter();
        parts.extend(content.map(|(at, bytes)| (*at, Part::Content(bytes))));
        let made = plan.tree.iter().flat_map(|tree| tree.blocks());
        parts.extend(made.map(|(at, block)| (at, Part::Tree(block))));
    }
    parts.sort_unstable_by_key(|(at, _)| *at);
    parts
}

/// Writes a copy of the superblock, which knows its group.
fn write_superblock(
    plan: &Plan<'_>,
    superblock: &Superblock,
    group: GroupNumber,
    at: u64,
    out: &mut Writer<'_>,
) -> Result<()> {
    let mut copy = *superblock;
    copy.s_block_group_nr.set(group.0 as u16);
    copy.update_checksum();
    if group.0 == 0 {
        return out.put(SUPERBLOCK_OFFSET, copy.as_bytes());
    }
    // A backup does not say that the volume is clean: it does not know.
    copy.set_state(State::empty());
    copy.update_checksum();
    let mut block = copy.as_bytes().to_vec();
    block.resize(
        plan.geo.block_bytes.max(SUPERBLOCK_BYTES as u32) as usize,
        0,
    );
    out.put(at, &block)
}

/// The blocks of descriptors, one after the other.
fn all_descs(plan: &Plan<'_>) -> Vec<u8> {
    let bytes = plan.geo.block_bytes as usize;
    let mut table = vec![0; plan.geo.desc_blocks as usize * bytes];
    let size = usize::from(plan.geo.desc_bytes);
    // A descriptor does not cross blocks: its size divides theirs.
    for (group, place) in (0..plan.geo.groups).zip(table.chunks_exact_mut(size)) {
        let mut desc = plan.descs[group as usize];
        group_desc::write_with_checksum(&plan.geo, GroupNumber(group), &mut desc, place);
    }
    table
}

/// Fills a block of an inode table.
fn inodes(
    plan: &Plan<'_>,
    group: GroupNumber,
    index: u32,
    found: &Found,
    block: &mut [u8],
) -> Result<()> {
    block.fill(0);
    let size = usize::from(plan.geo.inode_bytes);
    let per_block = (block.len() / size) as u32;
    for (at, place) in (index * per_block..).zip(block.chunks_exact_mut(size)) {
        let ino = plan.geo.inode_at(group, at);
        if let Some(inode) = plan.inodes.get(&ino.0) {
            place.copy_from_slice(inode.as_bytes());
        } else if let Some(tree) = &plan.tree
            && let Some(inode) = tree.inode(&plan.geo, ino, found)?
        {
            place.copy_from_slice(inode.as_bytes());
        }
    }
    Ok(())
}

/// Makes a block of the tree. The blocks of a directory are made together, and kept in `directory` for those
/// that follow.
fn make(
    plan: &Plan<'_>,
    made: TreeBlock,
    directory: &mut Option<(NodeId, Vec<u8>)>,
    block: &mut [u8],
) -> Result<()> {
    let Some(tree) = &plan.tree else {
        return Ok(());
    };
    match made {
        TreeBlock::Attributes(node) => tree.attribute_block(&plan.geo, node, block)?,
        TreeBlock::Link(node) => tree.link_block(node, block),
        TreeBlock::Directory(node, at) => {
            let blocks = match directory {
                Some((known, blocks)) if *known == node => blocks,
                _ => &mut directory.insert((node, tree.directory(&plan.geo, node)?)).1,
            };
            block.copy_from_slice(&blocks[at as usize * block.len()..][..block.len()]);
        }
    }
    Ok(())
}

/// Clears what must read as zeros.
fn clear(plan: &Plan<'_>, out: &mut Writer<'_>, how: How) -> Result<()> {
    let geo = &plan.geo;
    let bytes = u64::from(geo.block_bytes);
    let all = 0..geo.blocks * bytes;
    let is_file = out.disk.info().kind == DeviceKind::RegularFile;
    match how.clear {
        Clear::Blank | Clear::Nothing => return Ok(()),
        // A hole reads as zeros.
        Clear::All if is_file && out.discard(all.clone())? => return Ok(()),
        Clear::All => {
            out.discard(all)?;
        }
        Clear::Needed => {}
    }
    if !how.lazy_itable || !geo.has_group_csum() {
        let tables = plan.descs.iter().map(|desc| {
            let first = desc.inode_table().0;
            first..first + u64::from(geo.inode_table_blocks)
        });
        zero_all(tables, bytes, out)?;
    } else {
        // What is beyond the inodes in use is initialised by the first mount.
        let used = plan
            .descs
            .iter()
            .filter(|desc| !desc.flags().contains(GroupFlags::INODE_UNINIT));
        let tables = used.map(|desc| {
            let first = desc.inode_table().0;
            first..first + u64::from(geo.inode_table_blocks)
        });
        zero_all(tables, bytes, out)?;
    }
    if !how.lazy_journal {
        zero_all(plan.zeroed.iter().cloned(), bytes, out)?;
    }
    // Signatures of other file systems and volume managers, at the end and near the beginning.
    let end = geo.blocks * bytes;
    let edge = (64 << 10).min(end / 2);
    out.zero(end - edge..end)?;
    out.zero(0..edge)
}

/// Zeroes runs of blocks; adjacent ones are joined.
fn zero_all(
    runs: impl Iterator<Item = Range<u64>>,
    bytes: u64,
    out: &mut Writer<'_>,
) -> Result<()> {
    let mut open: Option<Range<u64>> = None;
    for run in runs {
        open = match open {
            Some(before) if before.end == run.start => Some(before.start..run.end),
            Some(before) => {
                out.zero(before.start * bytes..before.end * bytes)?;
                Some(run)
            }
            None => Some(run),
        };
    }
    match open {
        Some(run) => out.zero(run.start * bytes..run.end * bytes),
        None => Ok(()),
    }
}

/// Reads bytes anywhere on the device.
///
/// # Errors
/// Of the device.
pub(crate) fn read_bytes(disk: &Disk, at: u64, len: usize) -> Result<Vec<u8>> {
    let unit = u64::from(disk.limits().logical_block_bytes);
    let from = at - at % unit;
    let whole = (at + len as u64).next_multiple_of(unit) - from;
    let mut bytes = vec![0; whole as usize];
    disk.read_at(from, &mut bytes)?;
    bytes.drain(..(at - from) as usize);
    bytes.truncate(len);
    Ok(bytes)
}

/// Collects pieces into long writes, and writes into batches that are on the device at the same time. Places
/// are relative to the start of the volume, and need not be aligned to the device's logical blocks: what else
/// is in the first and last of them is kept.
pub(crate) struct Writer<'d> {
    disk: &'d Disk,
    offset: u64,
    /// The bytes of the batch, then those of the run that grows. Each run begins at a multiple of the logical
    /// block.
    bytes: Buffer,
    /// Runs of the batch, in whole logical blocks: places on the device, ascending and disjoint, and bytes.
    batch: Vec<(u64, Range<usize>)>,
    /// Where the run that grows begins: on the device, at the start of a logical block, and in `bytes`.
    start: u64,
    first: usize,
    /// Bytes before those that were put, in its first logical block.
    lead: usize,
}

impl<'d> Writer<'d> {
    pub(crate) fn new(disk: &'d Disk, offset: u64) -> Writer<'d> {
        Writer {
            disk,
            offset,
            bytes: Buffer::default(),
            batch: Vec::new(),
            start: 0,
            first: 0,
            lead: 0,
        }
    }

    fn unit(&self) -> u64 {
        u64::from(self.disk.limits().logical_block_bytes)
    }

    /// Writes bytes at a place, soon.
    pub(crate) fn put(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let mut at = at + self.offset;
        for part in bytes.chunks(LONG_WRITE_BYTES) {
            let end = self.start + (self.bytes.len() - self.first) as u64;
            if at != end || self.bytes.len() + part.len() > LONG_WRITE_BYTES {
                self.end_run()?;
                self.begin_run(at);
            }
            self.bytes.extend_from_slice(part);
            at += part.len() as u64;
        }
        Ok(())
    }

    fn begin_run(&mut self, at: u64) {
        self.lead = (at % self.unit()) as usize;
        self.start = at - self.lead as u64;
        self.bytes.grow(self.lead);
    }

    /// Adds the run to the batch.
    fn end_run(&mut self) -> Result<()> {
        if self.bytes.len() == self.first {
            return Ok(());
        }
        let filled = self.bytes.len() - self.first;
        let tail = filled.next_multiple_of(self.unit() as usize) - filled;
        if self.lead > 0 || tail > 0 {
            self.complete(tail)?;
        }
        self.batch.push((self.start, self.first..self.bytes.len()));
        self.first = self.bytes.len();
        self.lead = 0;
        if self.bytes.len() >= LONG_WRITE_BYTES || self.batch.len() >= BATCH_RUNS {
            self.write_batch()?;
        }
        Ok(())
    }

    /// Fills the first and the last logical block of the run with what the device has there.
    fn complete(&mut self, tail: usize) -> Result<()> {
        // What is read may be in the batch.
        self.write_runs()?;
        let unit = self.unit();
        let mut block = vec![0; unit as usize];
        if self.lead > 0 {
            self.disk.read_at(self.start, &mut block)?;
            let lead = self.first..self.first + self.lead;
            self.bytes
                .range_mut(lead)
                .copy_from_slice(&block[..self.lead]);
        }
        if tail > 0 {
            let end = self.start + (self.bytes.len() + tail - self.first) as u64;
            self.disk.read_at(end - unit, &mut block)?;
            self.bytes.extend_from_slice(&block[unit as usize - tail..]);
        }
        Ok(())
    }

    /// Writes the runs of the batch, whose bytes are kept.
    fn write_runs(&mut self) -> Result<()> {
        let runs = self.batch.iter();
        let pieces: Vec<(u64, &[u8])> = runs
            .map(|(at, run)| (*at, &self.bytes[run.clone()]))
            .collect();
        self.disk.write_batch(&pieces)?;
        self.batch.clear();
        Ok(())
    }

    /// Writes the batch. No run is open.
    fn write_batch(&mut self) -> Result<()> {
        self.write_runs()?;
        self.bytes.clear();
        self.first = 0;
        Ok(())
    }

    /// Writes all that was put.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.end_run()?;
        self.write_batch()
    }

    /// Discards the whole logical blocks in a range and zeroes the rest of it. Whether that was possible.
    pub(crate) fn discard(&mut self, range: Range<u64>) -> Result<bool> {
        let (inside, unit) = (
            range.start + self.offset..range.end + self.offset,
            self.unit(),
        );
        let from = inside.start.next_multiple_of(unit);
        let to = inside.end - inside.end % unit;
        if from >= to || !self.disk.discard(from, to - from)? {
            return Ok(false);
        }
        self.zero_edge(inside.start..from)?;
        self.zero_edge(to..inside.end)?;
        Ok(true)
    }

    /// Makes a range read as zeros.
    pub(crate) fn zero(&mut self, range: Range<u64>) -> Result<()> {
        let (inside, unit) = (
            range.start + self.offset..range.end + self.offset,
            self.unit(),
        );
        let from = inside.start.next_multiple_of(unit);
        let to = inside.end - inside.end % unit;
        if from >= to {
            return self.zero_edge(inside);
        }
        self.zero_edge(inside.start..from)?;
        self.disk.write_zeroes(from, to - from)?;
        self.zero_edge(to..inside.end)
    }

    /// Zeroes a part of a logical block. `range` is in bytes of the device.
    fn zero_edge(&mut self, range: Range<u64>) -> Result<()> {
        if range.start >= range.end {
            return Ok(());
        }
        let zeros = vec![0; (range.end - range.start) as usize];
        self.put(range.start - self.offset, &zeros)?;
        self.flush()
    }

    /// Writes what is left, and makes all of it durable.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.flush()?;
        Ok(self.disk.flush()?)
    }
}
