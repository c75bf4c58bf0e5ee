//! File ranges, and which blocks are free in the end. A cluster (`bigalloc`) is in use if any of its blocks
//! is.

use throughline_extfmt::extent::Extent;
use throughline_extfmt::fast_commit::Change;
use throughline_extfmt::{FileBlock, FsBlock, InodeNumber};

use super::{CREDITS, Replay};
use crate::balloc::GROUP_CREDITS;
use crate::error::{Error, Reason, Result};
use crate::inode::Inode;
use crate::map::{self, Budget, Format, Kind, Mapping};

/// Limits for unmapping in one transaction.
const STEP: Budget = Budget {
    runs: 16,
    blocks: 1 << 16,
};
/// One past the last file block.
const END: u64 = u32::MAX as u64;

/// Runs of blocks: first block, and one past the last.
type Runs = Vec<(u64, u64)>;

/// Blocks that may have no owner in the end.
#[derive(Default)]
pub(super) struct Space {
    /// Blocks allocated because a range names them, and unmapped blocks.
    doubtful: Runs,
}

impl Space {
    fn doubt(&mut self, start: FsBlock, len: u64) {
        self.doubtful.push((start.0, start.0.saturating_add(len)));
    }
}

impl Replay<'_> {
    /// Allocates the free blocks that ranges name, before anything else can use them.
    pub(super) fn reserve<'c>(&mut self, changes: impl Iterator<Item = &'c Change>) -> Result<()> {
        for change in changes {
            let Change::AddRange(ino, extent) = change else {
                continue;
            };
            let len = u64::from(extent.len);
            self.fs
                .check_data_range(extent.start, len)
                .map_err(|e| e.in_inode(*ino))?;
            let fs = self.fs;
            let groups = extent.len / fs.geo.blocks_per_group.max(1) + 2;
            let credits = groups * GROUP_CREDITS;
            let taken = fs.transact(credits, |h| fs.take_free(h, extent.start, len))?;
            for run in taken {
                self.space.doubt(run.start, run.len.into());
            }
        }
        Ok(())
    }

    /// Maps an extent, replacing any existing mapping.
    pub(super) fn add_range(&mut self, ino: InodeNumber, extent: Extent) -> Result<()> {
        let Some(inode) = self.find(ino)? else {
            return Ok(());
        };
        if extent.len == 0 || extent.end() > END {
            let what = format!("fast commit maps {} blocks at {}", extent.len, extent.block);
            return Err(Error::corrupt(what).in_inode(ino));
        }
        self.changed.insert(ino);
        let mut at = u64::from(extent.block.0);
        while at < extent.end() {
            let wanted = map::extents::clip(&extent, at, extent.end());
            let found = map::lookup(self.fs, &inode, wanted.block, wanted.len)?;
            let len = found.len_blocks.clamp(1, wanted.len);
            let wanted = map::extents::clip(&wanted, at, at + u64::from(len));
            self.map_part(&inode, wanted, found)?;
            at = wanted.end();
        }
        Ok(())
    }

    /// Maps an extent over a run that is currently mapped as `found`.
    fn map_part(&mut self, inode: &Inode, wanted: Extent, found: Mapping) -> Result<()> {
        let range = (u64::from(wanted.block.0), wanted.end());
        match found.kind {
            Kind::Data(start) if start == wanted.start => {
                self.set_written(inode, range, !wanted.unwritten, wanted.unwritten)
            }
            Kind::Unwritten(start) if start == wanted.start => {
                self.set_written(inode, range, !wanted.unwritten, !wanted.unwritten)
            }
            Kind::Hole => self.enter(inode, wanted),
            Kind::Data(_) | Kind::Unwritten(_) => {
                self.unmap(inode, range)?;
                self.enter(inode, wanted)
            }
        }
    }

    fn enter(&self, inode: &Inode, extent: Extent) -> Result<()> {
        let fs = self.fs;
        fs.transact(CREDITS, |h| {
            let _map = inode.map_exclusive();
            map::enter(fs, h, inode, extent, None)?;
            fs.store(h, inode)
        })
    }

    /// Marks mapped blocks as written or unwritten, if that `changes` them.
    fn set_written(
        &self,
        inode: &Inode,
        (from, to): (u64, u64),
        written: bool,
        changes: bool,
    ) -> Result<()> {
        let fs = self.fs;
        let mut next = changes.then_some(from);
        while let Some(from) = next {
            next = fs.transact(CREDITS, |h| {
                let _map = inode.map_exclusive();
                let next = map::set_unwritten(fs, h, inode, (from, to), !written, 1)?;
                fs.store(h, inode)?;
                Ok(next)
            })?;
        }
        Ok(())
    }

    /// Unmaps blocks.
    pub(super) fn remove_range(
        &mut self,
        ino: InodeNumber,
        from: FileBlock,
        len: u32,
    ) -> Result<()> {
        let Some(inode) = self.find(ino)? else {
            return Ok(());
        };
        self.changed.insert(ino);
        let to = u64::from(from.0).saturating_add(len.into()).min(END);
        self.unmap(&inode, (from.0.into(), to))
    }

    /// Unmaps all blocks of an inode.
    pub(super) fn unmap_all(&mut self, inode: &Inode) -> Result<()> {
        self.unmap(inode, (0, END))
    }

    fn unmap(&mut self, inode: &Inode, (from, to): (u64, u64)) -> Result<()> {
        if Format::of(&inode.raw.read()) == Format::None {
            return Ok(());
        }
        let fs = self.fs;
        let is_metadata = inode.is_dir() || inode.is_symlink();
        let mut end = Some(to);
        while let Some(to) = end.filter(|to| *to > from) {
            let mut freed: Vec<Extent> = Vec::new();
            end = fs.transact(CREDITS, |h| {
                let _map = inode.map_exclusive();
                let taken = map::take(fs, h, inode, (from, to), STEP, |extent| freed.push(extent))?;
                for extent in freed.iter().filter(|_| is_metadata) {
                    let blocks = extent.start.0..extent.start.0.saturating_add(extent.len.into());
                    blocks.for_each(|block| h.forget(FsBlock(block)));
                }
                fs.store(h, inode)?;
                Ok(taken.left)
            })?;
            // Not only what the map says that the file has lost: between two changes, one of its clusters may
            // have blocks in two clusters of the volume.
            for extent in freed {
                let len = u64::from(extent.len);
                fs.check_data_range(extent.start, len)
                    .map_err(|e| e.in_inode(inode.ino))?;
                let (start, len) = fs.whole_clusters(extent.start, len);
                self.space.doubt(start, len);
            }
        }
        Ok(())
    }

    /// Frees the blocks without an owner.
    pub(super) fn free_unmapped(&mut self) -> Result<()> {
        let used = self.mapped()?;
        let fs = self.fs;
        for (from, to) in unite(std::mem::take(&mut self.space.doubtful)) {
            for (start, end) in subtract((from, to), &used) {
                // Group by group, to fit in one transaction.
                let mut at = start;
                while at < end {
                    let group = u64::from(fs.geo.blocks_per_group.max(1));
                    let len = (end - at).min(group);
                    fs.transact(CREDITS, |h| fs.free(h, FsBlock(at), len))?;
                    at += len;
                }
            }
        }
        Ok(())
    }

    /// All runs mapped by the changed inodes, ascending.
    fn mapped(&self) -> Result<Runs> {
        let mut all = Runs::new();
        for ino in &self.changed {
            let Some(inode) = self.find(*ino)? else {
                continue;
            };
            self.mapped_by(&inode, &mut all)?;
        }
        all.sort_unstable();
        for pair in all.windows(2) {
            if let [(_, end), (start, _)] = pair
                && end > start
            {
                let what = format!("fast commits map block {start} twice");
                return Err(Error::corrupt(what).in_block(FsBlock(*start)));
            }
        }
        let whole = |(start, end): (u64, u64)| {
            let (FsBlock(start), len) = self.fs.whole_clusters(FsBlock(start), end - start);
            (start, start.saturating_add(len))
        };
        Ok(unite(all.into_iter().map(whole).collect()))
    }

    fn mapped_by(&self, inode: &Inode, all: &mut Runs) -> Result<()> {
        if Format::of(&inode.raw.read()) == Format::None {
            return Ok(());
        }
        let mut at = 0;
        while at < END {
            let left = (END - at) as u32;
            let found = map::lookup(self.fs, inode, FileBlock(at as u32), left)?;
            let len = u64::from(found.len_blocks.max(1));
            if let Kind::Data(start) | Kind::Unwritten(start) = found.kind {
                self.fs
                    .check_data_range(start, len)
                    .map_err(|e| e.in_inode(inode.ino))?;
                all.push((start.0, start.0.saturating_add(len)));
            }
            at += len;
        }
        Ok(())
    }

    /// The inode with this number, if in use.
    pub(super) fn find(&self, ino: InodeNumber) -> Result<Option<std::sync::Arc<Inode>>> {
        if self.fs.geo.inode_place(ino).is_none() {
            let what = format!("fast commit names inode {ino}, which does not exist");
            return Err(Error::corrupt(what));
        }
        if !self.fs.is_inode_used(ino)? {
            return Ok(None);
        }
        match self.fs.inode(ino) {
            Err(Error::Caller(Reason::NotFound)) => Ok(None),
            other => other.map(Some),
        }
    }
}

/// Sorts runs and merges those that overlap or touch.
fn unite(mut runs: Runs) -> Runs {
    runs.sort_unstable();
    let mut united = Runs::with_capacity(runs.len());
    for (start, end) in runs {
        match united.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => united.push((start, end)),
        }
    }
    united
}

/// The parts of a run outside `used`, which is sorted and merged.
fn subtract((from, to): (u64, u64), used: &[(u64, u64)]) -> Runs {
    let mut left = Runs::new();
    let mut at = from;
    let first = used.partition_point(|(_, end)| *end <= from);
    for &(start, end) in used.get(first..).unwrap_or_default() {
        if start >= to {
            break;
        }
        if start > at {
            left.push((at, start));
        }
        at = at.max(end);
    }
    if at < to {
        left.push((at, to));
    }
    left
}

#[cfg(test)]
mod tests {
    use super::{subtract, unite};

    #[test]
    fn runs_are_united_and_subtracted() {
        assert_eq!(
            unite(vec![(5, 7), (1, 3), (3, 4), (6, 9)]),
            [(1, 4), (5, 9)]
        );
        let used = [(2, 4), (6, 8), (20, 30)];
        assert_eq!(subtract((0, 10), &used), [(0, 2), (4, 6), (8, 10)]);
        assert_eq!(subtract((3, 7), &used), [(4, 6)]);
        assert_eq!(subtract((6, 8), &used), []);
        assert_eq!(subtract((8, 20), &used), [(8, 20)]);
        assert_eq!(subtract((25, 35), &used), [(30, 35)]);
    }
}
