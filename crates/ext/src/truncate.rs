//! Making files shorter or longer, and freeing all that an inode has.
//!
//! Blocks go from the end of the file to its beginning, a bounded number in one transaction. The first one sets the size;
//! where others follow, it makes the inode an orphan, and the last takes it off ([`crate::orphan`]). So a crash leaves the
//! old size or the new one, and what is still to be freed is freed when the volume is next opened.

#[cfg(test)]
mod tests;

use std::ops::Range;

use smallvec::SmallVec;
use throughline_extfmt::FsBlock;
use throughline_extfmt::extent::Extent;
use throughline_extfmt::inode::FileType;

use crate::coherent;
use crate::error::{Reason, Result};
use crate::file::{self, INODE_CREDITS};
use crate::fs::Fs;
use crate::handle::Handle;
use crate::inline;
use crate::inode::Inode;
use crate::map::{self, Format};
use crate::orphan::{self, ORPHAN_CREDITS};

impl Fs {
    /// Makes a regular file `size` bytes long. What it loses is freed, preallocated blocks behind the end too; what it gains
    /// reads as zero.
    ///
    /// # Errors
    /// `TooLarge`, `ReadOnly`, `Permission` for a file that must not change; `IsDir`, `Invalid` for what is not a regular
    /// file; `Corrupt`; those of the device.
    pub fn truncate(&self, inode: &Inode, size: u64) -> Result<()> {
        self.check_may_write(inode)?;
        self.check_overwrite(inode)?;
        if size > map::max_size(self, inode) {
            return Err(Reason::TooLarge.into());
        }
        self.resize(inode, size)?;
        self.data_changed(inode)
    }

    fn resize(&self, inode: &Inode, size: u64) -> Result<()> {
        let _io = inode.io_exclusive();
        if file::is_inline(inode) {
            if inline::resize(self, inode, size)? {
                coherent::resized(inode, size);
                return Ok(());
            }
            inline::spill(self, inode)?;
        }
        let seen = coherent::size(self, inode)?;
        // A table that loses its last block goes, and what is not written yet may count on it.
        let has_tables = Format::of(&inode.raw.read()) == Format::Indirect;
        let _frozen = if size < seen {
            let rest = has_tables && !inode.delayed.is_idle();
            coherent::clear(self, inode, size..u64::MAX, rest)?
        } else {
            coherent::freeze(inode)
        };
        let done = self.set_size(inode, size, size <= seen);
        inode.delayed.renew(self, inode);
        if done.is_ok() {
            coherent::resized(inode, size);
        }
        done
    }

    /// Makes the committed size `size`, and frees what lies behind it where it `shrinks`.
    fn set_size(&self, inode: &Inode, size: u64, shrinks: bool) -> Result<()> {
        let old = map::size(self, inode)?;
        if size > old {
            file::zero_in_block(self, inode, old, size)?;
            self.transact(INODE_CREDITS, |h| {
                file::grow_to(self, h, inode, size)?;
                file::touch(self, inode);
                self.store(h, inode)
            })?;
        }
        if shrinks {
            file::zero_in_block(self, inode, size, u64::MAX)?;
            shrink(self, inode, size, true)?;
        }
        Ok(())
    }
}

/// Frees every block that an inode has, those of its mapping too; its size is 0 then. Blocks of attributes are not the
/// mapping's. In several transactions: call it with no handle.
///
/// # Errors
/// `Corrupt` where blocks cannot be its own; those of the device.
pub(crate) fn free_all(fs: &Fs, inode: &Inode) -> Result<()> {
    let _io = inode.io_unused();
    let _frozen = coherent::discard_all(fs, inode);
    coherent::resized(inode, 0);
    shrink(fs, inode, 0, false)
}

/// Ends a truncation that a crash cut short: frees what lies behind the size, and makes the rest of the last block zero.
///
/// # Errors
/// As [`free_all`].
pub(crate) fn free_beyond_size(fs: &Fs, inode: &Inode) -> Result<()> {
    let _io = inode.io_exclusive();
    let size = map::size(fs, inode)?;
    if Format::of(&inode.raw.read()) == Format::None {
        return release(fs, inode);
    }
    if inode.kind == Some(FileType::Regular) {
        file::zero_in_block(fs, inode, size, u64::MAX)?;
    }
    shrink(fs, inode, size, false)
}

/// Takes the file down to `size`; an orphan with names is none afterwards. The I/O lock is held exclusively.
fn shrink(fs: &Fs, inode: &Inode, size: u64, touch: bool) -> Result<()> {
    if Format::of(&inode.raw.read()) == Format::None {
        return Ok(());
    }
    let before = map::size(fs, inode)?;
    let keep = size.div_ceil(fs.geo.block_bytes.into());
    let mut end = Some(u64::from(u32::MAX));
    while let Some(to) = end {
        let step = fs.transact(map::take_credits(fs, inode), |h| {
            shrink_step(fs, h, inode, (size, keep..to), touch)
        });
        end = step.inspect_err(|_| stop_short(fs, inode, before, to))?;
    }
    Ok(())
}

/// One transaction of [`shrink`]. Answers the end of the blocks that are left to free.
fn shrink_step(
    fs: &Fs,
    h: &mut Handle<'_>,
    inode: &Inode,
    (size, blocks): (u64, Range<u64>),
    touch: bool,
) -> Result<Option<u64>> {
    let _map = inode.map_exclusive();
    let left = free_range(fs, h, inode, (blocks.start, blocks.end))?;
    if size < map::size(fs, inode)? {
        map::set_size(inode, size);
    }
    if touch {
        file::touch(fs, inode);
    }
    if left.is_some() {
        // Whoever holds an inode has it from the table.
        orphan::add_named(fs, h, &fs.inode(inode.ino)?)?;
    } else {
        orphan::remove_named(fs, h, inode)?;
        fs.store(h, inode)?;
    }
    Ok(left)
}

/// What a crash leaves of a truncation that has just begun: its first transaction; whether there would be others.
#[cfg(test)]
pub(crate) fn begin_only(fs: &Fs, inode: &Inode, size: u64) -> Result<bool> {
    let _io = inode.io_exclusive();
    file::zero_in_block(fs, inode, size, u64::MAX)?;
    let keep = size.div_ceil(fs.geo.block_bytes.into());
    fs.transact(map::take_credits(fs, inode), |h| {
        let left = shrink_step(fs, h, inode, (size, keep..u64::from(u32::MAX)), true)?;
        Ok(left.is_some())
    })
}

/// A truncation that cannot go on leaves the file as long as the blocks that it has: were it shorter, they would show
/// when it grows. `to` is the end of those blocks. Where not even that can be done, the inode stays an orphan.
fn stop_short(fs: &Fs, inode: &Inode, before: u64, to: u64) {
    let reached = before.min(to << fs.geo.block_log);
    let stopped = map::size(fs, inode).and_then(|size| {
        if size >= reached {
            return Ok(());
        }
        fs.transact(INODE_CREDITS + ORPHAN_CREDITS, |h| {
            let _map = inode.map_exclusive();
            file::grow_to(fs, h, inode, reached)?;
            orphan::remove_named(fs, h, inode)?;
            fs.store(h, inode)
        })
    });
    if let Err(error) = stopped {
        tracing::warn!(ino = inode.ino.0, %error, "a truncation was left half-done");
    }
}

/// An orphan with names and without blocks of its own is none.
fn release(fs: &Fs, inode: &Inode) -> Result<()> {
    fs.transact(INODE_CREDITS + ORPHAN_CREDITS, |h| {
        orphan::remove_named(fs, h, inode)?;
        fs.store(h, inode)
    })
}

/// Unmaps and frees blocks of `from..to`, the last first, as many as the handle's credits allow, which leaves some to store
/// the inode ([`map::take_credits`]). The mapping lock is held exclusively. Answers the end of what is left; `None` when nothing is.
pub(crate) fn free_range(
    fs: &Fs,
    h: &mut Handle<'_>,
    inode: &Inode,
    range: (u64, u64),
) -> Result<Option<u64>> {
    let mut freed: SmallVec<[Extent; 16]> = SmallVec::new();
    let is_metadata = map::is_metadata(inode);
    let budget = map::take_budget(fs, inode, h.credits_left());
    let left = map::take(fs, h, inode, range, budget, |extent| freed.push(extent))?;
    for extent in &freed {
        if is_metadata {
            (0..u64::from(extent.len)).for_each(|i| h.forget(FsBlock(extent.start.0 + i)));
        }
        fs.free(h, extent.start, extent.len.into())
            .map_err(|e| e.in_inode(inode.ino))?;
    }
    Ok(left)
}
