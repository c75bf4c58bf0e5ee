//! Allocating ranges of a file ahead, and taking ranges out of it or putting them in: `fallocate`.
//!
//! All of it is alone in the file. Long ranges take several transactions; each leaves a sound file, so that a crash leaves part
//! of the work done; running out of space leaves what was made zero or moved, and nothing that was allocated. What fits into one
//! transaction is there as a whole or not at all: blocks of which a part becomes zero are replaced in it ([`crate::edge`]), and a
//! range is taken out and closed in it.

use throughline_extfmt::FileBlock;
use throughline_extfmt::extent::{Extent, MAX_UNWRITTEN_LEN};

use crate::balloc::GROUP_CREDITS;
use crate::coherent;
use crate::data::Data;
use crate::edge::Edges;
use crate::emptied;
use crate::error::{Error, Reason, Result};
use crate::handle::Handle;
use crate::inline;
use crate::inode::{INODE_CREDITS, Inode};
use crate::map::{self, CONVERT_CREDITS, Format, INSERT_CREDITS, Kind, Mapping, extents};
use crate::regular;
use crate::truncate;

/// What [`Data::fallocate`] does with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallocate {
    /// Allocates what is missing in it; a range behind the end lengthens the file.
    Allocate,
    /// Allocates, and leaves the size as it is.
    KeepSize,
    /// Makes a hole of it. The size stays.
    PunchHole,
    /// Makes it read as zero, with its blocks allocated; a range behind the end lengthens the file.
    ZeroRange,
    /// Makes it read as zero, and leaves the size as it is.
    ZeroRangeKeepSize,
    /// Takes it out: what follows moves up. Whole blocks, and not to the end of the file.
    Collapse,
    /// Puts a hole in: what follows moves back. Whole blocks, within the file.
    Insert,
}

/// Leaves that move in one transaction.
const LEAVES_PER_STEP: usize = 8;
/// Blocks that moving them may touch: each, and all above it.
const LEAVES_CREDITS: u32 = LEAVES_PER_STEP as u32 * 7;

/// The full blocks of a byte range.
#[derive(Clone, Copy)]
struct Blocks {
    from: u64,
    to: u64,
}

/// What of taking a range out is left to do.
struct Collapse {
    /// The end of the blocks to free.
    free_to: Option<u64>,
    /// The first block to move.
    shift_from: Option<u64>,
}

impl Data {
    /// Changes how `len` bytes from `offset` on are allocated; see [`Fallocate`].
    ///
    /// # Errors
    /// `Invalid` for an empty range, or one that is not whole blocks where it must be; `TooLarge`, `NoSpace`, `ReadOnly`,
    /// `Permission`; `Unsupported` for a file without extents, except for punching holes; `Corrupt`; those of the device.
    pub fn fallocate(&self, inode: &Inode, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.check_may_write(inode)?;
        if len == 0 {
            return Err(Reason::Invalid("an empty range").into());
        }
        if !matches!(mode, Fallocate::Allocate | Fallocate::KeepSize) {
            self.check_overwrite(inode)?;
        }
        let most = map::max_size(self, inode);
        let end = match offset.checked_add(len) {
            Some(end) if end <= most => end,
            // There is nothing to take away behind what the file can hold.
            _ if mode == Fallocate::PunchHole => most.max(offset),
            _ => return Err(Reason::TooLarge.into()),
        };
        self.fallocate_alone(inode, mode, offset, end)?;
        self.data_changed(inode)
    }

    fn fallocate_alone(&self, inode: &Inode, mode: Fallocate, offset: u64, end: u64) -> Result<()> {
        let _io = inode.io_exclusive();
        if regular::is_inline(inode) {
            inline::spill(self, inode)?;
        }
        emptied::settle(self, inode)?;
        let extents = Format::of(&inode.raw.read()) == Format::Extents;
        if !extents && mode != Fallocate::PunchHole {
            return Err(Error::Unsupported(
                "fallocate of a file without extents, but for punching holes".into(),
            ));
        }
        let done = match mode {
            Fallocate::Allocate => self.allocate_beside(inode, offset, end, true),
            Fallocate::KeepSize => self.allocate_beside(inode, offset, end, false),
            Fallocate::PunchHole => self.punch(inode, offset, end),
            Fallocate::ZeroRange => self.zero_range(inode, offset, end, true),
            Fallocate::ZeroRangeKeepSize => self.zero_range(inode, offset, end, false),
            Fallocate::Collapse => self.collapse(inode, offset, end),
            Fallocate::Insert => self.insert_range(inode, offset, end),
        };
        if matches!(done, Err(Error::Caller(_))) {
            // A part of it may have been done.
            coherent::drop_clean(inode);
        }
        done
    }

    /// The blocks that a byte range touches.
    fn touched(&self, offset: u64, end: u64) -> Blocks {
        Blocks {
            from: offset >> self.geo.block_log,
            to: end.div_ceil(self.geo.block_bytes.into()),
        }
    }

    /// The blocks that lie in a byte range whole. What is left of a range at the end of the file belongs to its last block.
    fn whole(&self, offset: u64, end: u64, size: u64) -> Blocks {
        let bytes = u64::from(self.geo.block_bytes);
        let to = if end >= size {
            end.div_ceil(bytes)
        } else {
            end / bytes
        };
        let from = offset.div_ceil(bytes);
        Blocks {
            from,
            to: to.max(from),
        }
    }

    /// Allocates beside what is dirty elsewhere. What is dirty in the range has its blocks promised, and gets them first.
    fn allocate_beside(&self, inode: &Inode, offset: u64, end: u64, grow: bool) -> Result<()> {
        let seen = coherent::size(self, inode)?;
        // What was written behind the committed end is on the device before a size is that reaches it.
        let _frozen = if grow && end > seen && seen > map::size(self, inode)? {
            coherent::before_move(inode)?
        } else {
            coherent::flush(inode, offset..end)?;
            coherent::freeze(inode)
        };
        let done = self.allocate(inode, offset, end, grow);
        inode.delayed.renew(self, inode);
        coherent::resized(inode, map::size(self, inode)?.max(seen));
        done
    }

    /// The size comes last, and where the room does not suffice what was allocated goes back: who is refused finds the file as
    /// it was.
    fn allocate(&self, inode: &Inode, offset: u64, end: u64, grow: bool) -> Result<()> {
        let size = map::size(self, inode)?;
        if grow && end > size {
            regular::zero_in_block(self, inode, size, end)?;
        }
        let mut taken = Vec::new();
        let blocks = self.touched(offset, end);
        match self.allocate_blocks(inode, blocks, &mut taken) {
            Ok(()) => self.settle(inode, if grow { end } else { 0 }),
            Err(error) => {
                for run in taken {
                    self.free_again(inode, run)?;
                }
                Err(error)
            }
        }
    }

    /// Frees blocks that were allocated just now.
    fn free_again(&self, inode: &Inode, blocks: Blocks) -> Result<()> {
        let mut end = Some(blocks.to);
        while let Some(to) = end {
            end = self.with_room(|| {
                self.transact_on(inode, map::take_credits(self, inode), |h| {
                    let _map = inode.map_exclusive();
                    let left = truncate::free_range(self, h, inode, (blocks.from, to));
                    self.store(h, inode)?;
                    left
                })
            })?;
        }
        Ok(())
    }

    /// Allocates what is missing of a range, and says what that was.
    fn allocate_blocks(
        &self,
        inode: &Inode,
        blocks: Blocks,
        taken: &mut Vec<Blocks>,
    ) -> Result<()> {
        let mut at = blocks.from;
        while at < blocks.to {
            let left = u32::try_from(blocks.to - at).unwrap_or(u32::MAX);
            let found = map::lookup(self, inode, FileBlock(at as u32), left)?;
            let len = match found.kind {
                Kind::Hole => self.with_room(|| self.allocate_hole(inode, at, found))?,
                Kind::Data(_) | Kind::Unwritten(_) => found.len_blocks,
            };
            let to = at + u64::from(len);
            if matches!(found.kind, Kind::Hole) {
                match taken.last_mut() {
                    Some(last) if last.to == at => last.to = to,
                    _ => taken.push(Blocks { from: at, to }),
                }
            }
            at = to;
        }
        Ok(())
    }

    /// Allocates the first run of a hole as unwritten; how many blocks that was.
    fn allocate_hole(&self, inode: &Inode, at: u64, hole: Mapping) -> Result<u32> {
        let at = FileBlock(at as u32);
        let run = self.claim(
            map::goal(self, inode, at)?,
            hole.len_blocks.min(MAX_UNWRITTEN_LEN),
        )?;
        let extent = Extent {
            block: at,
            len: run.len,
            start: run.start,
            unwritten: true,
        };
        let entered =
            self.transact_on(inode, INSERT_CREDITS + GROUP_CREDITS + INODE_CREDITS, |h| {
                let _map = inode.map_exclusive();
                map::enter(self, h, inode, extent, None)?;
                self.confirm(h, run)?;
                self.store(h, inode)
            });
        match entered {
            Ok(()) => Ok(run.len),
            Err(error) => {
                if matches!(error, Error::Caller(_)) {
                    self.release(run);
                }
                Err(error)
            }
        }
    }

    /// Notes that the file changed, and grew to `size` if it was smaller.
    fn settle(&self, inode: &Inode, size: u64) -> Result<()> {
        let old = map::size(self, inode)?;
        if size > old {
            regular::zero_in_block(self, inode, old, size)?;
        }
        self.transact_on(inode, INODE_CREDITS, |h| {
            regular::grow_to(self, h, inode, size)?;
            regular::touch(self, inode);
            self.store(h, inode)
        })
    }

    /// The parts of blocks at the edges of a range.
    fn edges<'a>(
        &'a self,
        inode: &'a Inode,
        (offset, end): (u64, u64),
        whole: Blocks,
    ) -> Result<Edges<'a>> {
        let log = self.geo.block_log;
        let (first, last) = (whole.from << log, whole.to << log);
        Edges::prepare(
            self,
            inode,
            &[offset..end.min(first), last.max(offset)..end],
        )
    }

    /// Ends what of a change's edges there was no room for.
    fn end_edges(&self, inode: &Inode, edges: Edges<'_>) -> Result<()> {
        if edges.is_left() {
            self.sync_through(inode.changes.last(true))?;
            edges.end_left()?;
        }
        Ok(())
    }

    fn punch(&self, inode: &Inode, offset: u64, end: u64) -> Result<()> {
        let size = coherent::size(self, inode)?;
        let _frozen = coherent::before_loss(inode, offset..end, true)?;
        // The bytes that made the file so long may be those that go.
        self.settle(inode, size)?;
        let whole = self.whole(offset, end, size);
        truncate::look_ahead(self, inode, (offset >> self.geo.block_log, whole.to))?;
        let mut edges = self.edges(inode, (offset, end), whole)?;
        let mut to = Some(whole.to);
        let mut lost = end;
        while let Some(next) = to {
            to = self.with_room(|| self.punch_step(inode, (whole.from, next), &mut edges))?;
            let from = to.map_or(offset, |to| to << self.geo.block_log);
            coherent::drop_cached(self, inode, from..lost);
            lost = from;
        }
        self.end_edges(inode, edges)
    }

    /// One transaction. Answers the end of the blocks that are left to free.
    fn punch_step(
        &self,
        inode: &Inode,
        blocks: (u64, u64),
        edges: &mut Edges<'_>,
    ) -> Result<Option<u64>> {
        let credits = map::take_credits(self, inode).saturating_add(edges.credits());
        let credits = credits.min(self.journal.max_credits());
        self.transact_on(inode, credits, |h| {
            let _map = inode.map_exclusive();
            edges.enter(h)?;
            let left = truncate::free_range(self, h, inode, blocks);
            self.store(h, inode)?;
            left
        })
    }

    fn zero_range(&self, inode: &Inode, offset: u64, end: u64, grow: bool) -> Result<()> {
        let size = coherent::size(self, inode)?;
        let _frozen = coherent::before_loss(inode, offset..end, true)?;
        self.settle(inode, size)?;
        let done = self.zero_on_device(inode, offset, end, grow);
        coherent::resized(inode, map::size(self, inode)?);
        done
    }

    fn zero_on_device(&self, inode: &Inode, offset: u64, end: u64, grow: bool) -> Result<()> {
        let whole = self.whole(offset, end, map::size(self, inode)?);
        self.look_at_place(inode)?;
        let mut edges = self.edges(inode, (offset, end), whole)?;
        let mut at = Some(whole.from);
        let credits = self.step_credits();
        let most = (credits.saturating_sub(INODE_CREDITS) / CONVERT_CREDITS).max(1);
        while let Some(from) = at {
            at = self.with_room(|| {
                let credits = most * CONVERT_CREDITS + INODE_CREDITS + edges.credits();
                let credits = credits.min(self.journal.max_credits());
                self.transact_on(inode, credits, |h| {
                    let _map = inode.map_exclusive();
                    edges.enter(h)?;
                    let range = (from, whole.to);
                    let next = map::set_unwritten(self, h, inode, range, true, most as usize);
                    self.store(h, inode)?;
                    next
                })
            })?;
            let reached = at.map_or(end, |at| at << self.geo.block_log);
            coherent::drop_cached(self, inode, offset..reached);
        }
        self.end_edges(inode, edges)?;
        self.allocate(inode, offset, end, grow)
    }

    fn collapse(&self, inode: &Inode, offset: u64, end: u64) -> Result<()> {
        let blocks = self.aligned(offset, end)?;
        let size = coherent::size(self, inode)?;
        if end >= size {
            return Err(
                Reason::Invalid("a range to take out must end before the file does").into(),
            );
        }
        let _frozen = coherent::before_move(inode)?;
        self.settle(inode, size)?;
        let done = self.collapse_on_device(inode, blocks, size - (end - offset));
        coherent::resized(inode, map::size(self, inode)?);
        done
    }

    fn collapse_on_device(&self, inode: &Inode, blocks: Blocks, size: u64) -> Result<()> {
        truncate::look_ahead(self, inode, (blocks.from, blocks.to))?;
        let shift = LEAVES_CREDITS + INODE_CREDITS;
        let both = map::take_credits(self, inode) + shift;
        let credits = both.min(self.journal.max_credits()).max(shift);
        let mut left = Collapse {
            free_to: Some(blocks.to),
            shift_from: Some(blocks.to),
        };
        while left.shift_from.is_some() {
            self.with_room(|| {
                self.transact_on(inode, credits, |h| {
                    let _map = inode.map_exclusive();
                    let done = self.collapse_step(h, inode, blocks, &mut left);
                    if left.shift_from.is_none() {
                        map::set_size(inode, size);
                    }
                    regular::touch(self, inode);
                    self.store(h, inode)?;
                    done
                })
            })?;
            coherent::drop_cached(self, inode, blocks.from << self.geo.block_log..u64::MAX);
        }
        Ok(())
    }

    /// Frees, and closes the hole when all is free and the credits are enough.
    fn collapse_step(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        blocks: Blocks,
        left: &mut Collapse,
    ) -> Result<()> {
        if let Some(to) = left.free_to {
            left.free_to = truncate::free_range(self, h, inode, (blocks.from, to))?;
            if left.free_to.is_some() || h.credits_left() < LEAVES_CREDITS + INODE_CREDITS {
                return Ok(());
            }
        }
        let Some(from) = left.shift_from else {
            return Ok(());
        };
        let by = (blocks.to - blocks.from) as u32;
        left.shift_from = map::with_extents(self, h, inode, |t| {
            extents::shift_left(t, from, by, LEAVES_PER_STEP)
        })?;
        Ok(())
    }

    fn insert_range(&self, inode: &Inode, offset: u64, end: u64) -> Result<()> {
        let blocks = self.aligned(offset, end)?;
        let size = coherent::size(self, inode)?;
        if offset >= size {
            return Err(Reason::Invalid("a range to put in must begin within the file").into());
        }
        let new_size = size
            .checked_add(end - offset)
            .filter(|s| *s <= map::max_size(self, inode));
        let new_size = new_size.ok_or(Reason::TooLarge)?;
        let _frozen = coherent::before_move(inode)?;
        self.settle(inode, size)?;
        let done = self.insert_on_device(inode, blocks, new_size);
        coherent::resized(inode, map::size(self, inode)?);
        done
    }

    fn insert_on_device(&self, inode: &Inode, blocks: Blocks, new_size: u64) -> Result<()> {
        self.look_at_place(inode)?;
        let by = (blocks.to - blocks.from) as u32;
        let mut cursor = Some(extents::END);
        while let Some(to) = cursor {
            cursor = self.with_room(|| {
                let credits = CONVERT_CREDITS + LEAVES_CREDITS + INODE_CREDITS;
                self.transact_on(inode, credits, |h| {
                    let _map = inode.map_exclusive();
                    let next = map::with_extents(self, h, inode, |tree| {
                        extents::split_at(tree, blocks.from as u32)?;
                        extents::shift_right(tree, blocks.from, to, by, LEAVES_PER_STEP)
                    });
                    // The size first, so that nothing ever lies behind it.
                    if next.is_ok() {
                        regular::grow_to(self, h, inode, new_size)?;
                        regular::touch(self, inode);
                    }
                    self.store(h, inode)?;
                    next
                })
            })?;
            coherent::drop_cached(self, inode, blocks.from << self.geo.block_log..u64::MAX);
        }
        Ok(())
    }

    fn aligned(&self, offset: u64, end: u64) -> Result<Blocks> {
        let bytes = u64::from(self.geo.block_bytes);
        if !offset.is_multiple_of(bytes) || !end.is_multiple_of(bytes) {
            return Err(Reason::Invalid("the range is not whole blocks").into());
        }
        Ok(Blocks {
            from: offset / bytes,
            to: end / bytes,
        })
    }
}
