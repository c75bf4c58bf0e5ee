//! Files that were emptied to be written anew, while the disk still shows what they held: so that a crash leaves the old
//! content or the new one, whole, though nobody syncs.
//!
//! ```text
//!   truncate to 0 ──► in memory: no blocks, size 0 ──► writes are staged ──► write-back, one run, one transaction:
//!                     on the disk: as before (every store of the inode says so)     old blocks freed, new ones entered, new size
//! ```
//!
//! The truncation takes effect on the disk together with the first blocks that the file gets, or by itself: after a time
//! ([`throughline_fileio::Writeback::age`], as staged data), by a sync, before the file gets another name, before its blocks
//! are allocated otherwise than by a write, and where room is short. Write-back takes what is staged of such a file as one
//! run, up to [`WHOLE_BYTES`], and leaves it alone while it is open, as long as nobody waits for room.
//!
//! Not held back is a truncation of a file with more runs of blocks than [`MOST_RUNS`] (nodes of its map likewise), or whose
//! freeing is too much for one transaction; of a file whose bytes are in its inode; of a volume with every change synchronous.
//!
//! Invariants:
//! - While an inode has an [`Emptied`], its mapping in memory is empty. A transaction that changes the mapping frees the old
//!   blocks first ([`end`]).
//! - What it holds is allocated on the disk and in memory, and nothing else refers to it.
//! - The volume keeps such inodes in memory.

pub(crate) mod inode;
#[cfg(test)]
mod tests;
mod thread;
pub(crate) mod volume;

use std::time::Instant;

use throughline_extfmt::inode::FileType;

use crate::balloc::GROUP_CREDITS;
use crate::coherent;
use crate::data::Data;
use crate::error::Result;
use crate::handle::Handle;
use crate::inode::{INODE_CREDITS, Inode};
use crate::map::{self, Format};
use crate::regular;
use inode::Emptied;
use volume::Next;

/// Runs of blocks of a file that is emptied, and nodes of its map, at most.
const MOST_RUNS: usize = 64;

impl Data {
    /// Before a name comes to stand for a file: all of it that is in memory goes to the device and into the running
    /// transaction, which is no later than the name's. Where there is no journal, nothing says in which order blocks go home: what
    /// `replaces` another file is durable when this returns, and so is a file of which the disk may show what it held before.
    ///
    /// # Errors
    /// What write-back met; those of the journal.
    pub(crate) fn data_before_name(&self, inode: &Inode, replaces: bool) -> Result<()> {
        if !self.emptied.is_on() || inode.kind != Some(FileType::Regular) {
            return Ok(());
        }
        finish(self, inode)?;
        let committed = self.journal.committed();
        let is_shown = inode.made_in.is_none_or(|tid| !tid.is_after(committed));
        let is_newer = inode.changes.last(false).is_after(committed);
        if (replaces || is_shown) && is_newer && !self.has_log() {
            self.sync_metadata()?;
        }
        Ok(())
    }

    /// Carries out all truncations that are held back: their room is needed. What is staged of the files comes later.
    ///
    /// # Errors
    /// As [`settle`].
    pub(crate) fn settle_emptied(&self) -> Result<()> {
        let inodes = self.emptied.inodes();
        inodes.iter().try_for_each(|inode| settle(self, inode))
    }

    /// Writes back every file whose truncation is held back, and carries out the truncation with it.
    ///
    /// # Errors
    /// The first that was met; the others are tried all the same.
    pub(crate) fn finish_emptied(&self) -> Result<()> {
        let inodes = self.emptied.inodes();
        let done = inodes.iter().map(|inode| finish(self, inode));
        done.fold(Ok(()), Result::and)
    }
}

/// Empties a file in memory, and holds the truncation back; `false` where it has to be carried out. The I/O lock is held
/// exclusively, nothing of the file is cached, and background work is kept out.
pub(crate) fn hold(fs: &Data, inode: &Inode) -> Result<bool> {
    if inode.emptied.is_some() {
        // Its mapping is empty.
        let _map = inode.map_exclusive();
        map::set_size(inode, 0);
        regular::touch(fs, inode);
        return Ok(true);
    }
    let all = &fs.emptied;
    let is_fit = all.is_on() && all.has_thread() && !fs.is_all_synchronous();
    if !is_fit || !all.has_room() || map::is_metadata(inode) {
        return Ok(false);
    }
    let size = map::size(fs, inode)?;
    if size == 0 || Format::of(&inode.raw.read()) == Format::None {
        return Ok(false);
    }
    let Some(found) = map::survey(fs, inode, size, MOST_RUNS)? else {
        return Ok(false);
    };
    let blocks = found.blocks();
    let credits = credits(fs, &found);
    if blocks == 0 || credits > fs.step_credits() / 2 {
        return Ok(false);
    }
    let held = fs.inode(inode.ino)?;
    {
        let _map = inode.map_exclusive();
        let sectors = blocks.saturating_mul(u64::from(fs.geo.block_bytes / 512));
        map::empty(fs, inode, sectors, |raw| {
            inode.emptied.set(Emptied {
                root: *raw.i_block(),
                size,
                sectors,
                data: found.data,
                nodes: found.nodes,
                credits,
            });
        });
        // Under the lock of the mapping, as in [`end`]: nobody ends what is not in the list yet.
        let due = Instant::now() + fs.cache.writeback().age();
        fs.emptied.add(held, blocks, due);
    }
    regular::touch(fs, inode);
    Ok(true)
}

/// The bits of each run in its groups, and nodes that are forgotten.
fn credits(fs: &Data, found: &map::Survey) -> u32 {
    let per_group = u64::from(fs.geo.blocks_per_group.max(1));
    let groups = |len: u32| u64::from(len) / per_group + 2;
    let runs = found.data.iter().map(|(_, len)| groups(*len));
    let groups = runs.sum::<u64>() + found.nodes.len() as u64;
    let most = u64::from(fs.geo.groups).min(groups);
    let blocks = most * u64::from(GROUP_CREDITS) + found.nodes.len() as u64;
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

/// Frees what the disk still shows of an inode, if it does: part of a change that stores the inode in the end. Credits:
/// [`inode::OfInode::credits`]. The mapping lock is held exclusively.
///
/// # Errors
/// Those of the journal; `Corrupt` where blocks cannot be its own.
pub(crate) fn end(fs: &Data, h: &mut Handle<'_>, inode: &Inode) -> Result<()> {
    let Some(old) = inode.emptied.take() else {
        return Ok(());
    };
    fs.emptied.remove(inode.ino);
    for node in old.nodes {
        h.forget(node);
        fs.free(h, node, 1).map_err(|e| e.in_inode(inode.ino))?;
    }
    for (start, len) in old.data {
        fs.free(h, start, len.into())
            .map_err(|e| e.in_inode(inode.ino))?;
    }
    Ok(())
}

/// Has the disk show the inode as it is in memory. No handle is open.
///
/// # Errors
/// As [`end`].
pub(crate) fn settle(fs: &Data, inode: &Inode) -> Result<()> {
    let Some(credits) = inode.emptied.credits() else {
        return Ok(());
    };
    fs.transact(credits + INODE_CREDITS, |h| {
        let _map = inode.map_exclusive();
        if !inode.emptied.is_some() {
            // Others carried it out while this waited for its turn. The inode may be free by now.
            return Ok(());
        }
        end(fs, h, inode)?;
        fs.store(h, inode)
    })
}

/// Writes back what is in memory only, and has the disk show the inode as it is then. Where the data cannot be written, the
/// disk goes on showing what it did.
///
/// # Errors
/// What write-back met; as [`settle`].
pub(crate) fn finish(fs: &Data, inode: &Inode) -> Result<()> {
    coherent::flush(inode, coherent::ALL)?;
    settle(fs, inode)
}

/// What the volume's thread ([`thread`]) runs, until the volume is closed.
pub(crate) fn run(fs: &Data) {
    loop {
        let now = Instant::now();
        let until = match fs.emptied.next(now) {
            Next::Now(inode) => {
                if let Err(error) = finish(fs, &inode) {
                    tracing::debug!(ino = inode.ino.0, %error, "a file that was emptied stays as it was");
                }
                Some(now)
            }
            Next::At(due) => Some(due),
            Next::Nothing => None,
        };
        if !fs.emptied.thread.wait(until) {
            return;
        }
    }
}
