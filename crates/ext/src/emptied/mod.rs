//! Deferred truncation: a file truncated to 0 to be rewritten, while the disk keeps the old contents. After a
//! crash, the file has its complete old or complete new contents, even without a sync.
//!
//! ```text
//!   truncate to 0 ──► in memory: no blocks, size 0   ──► writes ──► write-back: in one run and one
//!                     on disk: as before (every store               transaction, old blocks are freed,
//!                     of the inode keeps the old image)             new blocks and new size are entered
//! ```
//!
//! Changes of the file's attributes wait with the truncation: mode, owner, flags, times and extended
//! attributes reach the disk in the same transaction. So the old contents are never shown under rights that
//! were given after the truncation, nor the new contents under rights that were taken away before. Values of
//! attributes in inodes (`ea_inode`) cannot wait: such a change carries out the truncation first.
//!
//! The truncation reaches the disk together with the first new blocks of the file, or alone: after a time
//! ([`throughline_fileio::Writeback::age`], as for dirty data), on a sync, before the file is renamed or
//! linked, before any directory gets wider rights or another place, before blocks are allocated other than by
//! a write, and when space is short. The time begins again if the file is truncated again, but is at most
//! twice as long in all. Write-back handles the dirty data of such a file as one run, up to [`WHOLE_BYTES`],
//! and skips the file while it is open, unless a caller waits for space.
//!
//! A truncation is not deferred for a file with more than [`MAX_RUNS`] runs of blocks (or that many mapping
//! nodes), or whose freeing does not fit one transaction; for a file with inline data; and on a volume where
//! every change is synchronous.
//!
//! Invariants:
//! - While an inode has an [`Emptied`], its mapping in memory is empty. A transaction that changes the
//!   mapping first frees the old blocks ([`end`]).
//! - The old blocks are allocated on disk and in memory, and nothing else refers to them.
//! - Only its link count and orphan record change on disk, since they belong to other changes of the same
//!   transaction. A new name for the file is made after the truncation.
//! - The volume keeps such inodes in memory.

pub(crate) mod inode;
#[cfg(test)]
mod tests;
mod thread;
pub(crate) mod volume;

use std::time::Instant;

use throughline_extfmt::inode::FileType;
use throughline_journal::Planted;

use crate::balloc::{GROUP_CREDITS, Run};
use crate::coherent;
use crate::data::Data;
use crate::error::Result;
use crate::handle::Handle;
use crate::inode::{INODE_CREDITS, Inode};
use crate::map::{self, Format};
use crate::regular;
use inode::{Emptied, List};
use volume::Next;

/// Credits for a changed attribute block, and its bits.
const LIST_CREDITS: u32 = 1 + GROUP_CREDITS;

/// Most runs of blocks of a file whose truncation is deferred; likewise for the nodes of its mapping.
const MAX_RUNS: usize = 64;

impl Data {
    /// Called before a file gets a name that no file had, as [`Data::data_before_name`]. Costs nothing unless
    /// the disk still shows contents from before a truncation.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn truncation_before_name(&self, inode: &Inode) -> Result<()> {
        match inode.emptied.is_some() && !self.journal.has_bug(Planted::AttributesFirst) {
            true => self.data_before_name(inode, false),
            false => Ok(()),
        }
    }

    /// Called before a directory gets wider rights or another place, which publishes the files below it:
    /// carries out all deferred truncations, with the data if that can be written. So a file that is being
    /// rewritten meanwhile may be incomplete after a crash. Whether its program has closed it is not known: a
    /// mount learns of that later, or not at all. Without a journal, the order in which blocks are written is
    /// not defined, so truncations that are not yet durable are made so.
    ///
    /// # Errors
    /// Errors of the journal.
    pub(crate) fn truncations_before_directory(&self) -> Result<()> {
        if self.journal.has_bug(Planted::AttributesFirst) {
            return Ok(());
        }
        for inode in &self.emptied.inodes() {
            if let Err(error) = finish(self, inode) {
                tracing::debug!(ino = inode.ino.0, %error, "data before a directory's change");
                carry_out_truncation(self, inode)?;
            }
        }
        let committed = self.journal.committed();
        let ended = self.emptied.last_ended();
        match ended.is_some_and(|tid| tid.is_after(committed)) && !self.has_log() {
            true => self.sync_metadata(),
            false => Ok(()),
        }
    }

    /// Called before a name is pointed at a file: writes back all its data that is only in memory, and puts
    /// the changes into the running transaction, which is no later than the name's. Without a journal, the
    /// order in which blocks are written is not defined, so the file is made durable first if it `replaces`
    /// another one, or if the disk may still show its earlier contents.
    ///
    /// # Errors
    /// Errors of write-back; errors of the journal.
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

    /// Carries out all deferred truncations, because their space is needed. Staged data of the files is
    /// written back later.
    ///
    /// # Errors
    /// As [`carry_out_truncation`].
    pub(crate) fn carry_out_truncations(&self) -> Result<()> {
        let inodes = self.emptied.inodes();
        inodes
            .iter()
            .try_for_each(|inode| carry_out_truncation(self, inode))
    }

    /// Writes back every file with a deferred truncation, and carries out the truncation with it.
    ///
    /// # Errors
    /// The first error; the other files are tried all the same.
    pub(crate) fn finish_emptied(&self) -> Result<()> {
        let inodes = self.emptied.inodes();
        let done = inodes.iter().map(|inode| finish(self, inode));
        done.fold(Ok(()), Result::and)
    }
}

/// Truncates a file to 0 in memory and defers the truncation on disk; `false` if the caller must carry it out
/// at once. The I/O lock is held exclusively, nothing of the file is cached, and background work is frozen.
pub(crate) fn defer(fs: &Data, inode: &Inode) -> Result<bool> {
    if inode.emptied.is_some() {
        // Already deferred: the mapping is empty.
        let _map = inode.map_exclusive();
        map::set_size(inode, 0);
        let age = fs.cache.writeback().age();
        fs.emptied.add_again(inode.ino, Instant::now(), age);
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
    let Some(found) = map::survey(fs, inode, size, MAX_RUNS)? else {
        return Ok(false);
    };
    let blocks = found.blocks(&fs.geo);
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
                image: raw.clone(),
                data: found.data,
                nodes: found.nodes,
                credits,
                list: None,
                held: [None, None],
            });
        });
        // Under the mapping lock, as in [`end`], so that the truncation cannot end before it is in the list.
        let age = fs.cache.writeback().age();
        fs.emptied.add(held, blocks, Instant::now(), age);
    }
    regular::touch(fs, inode);
    Ok(true)
}

/// Credits for the bitmaps of each run's groups, for the nodes that are forgotten, and for the attribute
/// block.
fn credits(fs: &Data, found: &map::Survey) -> u32 {
    let per_group = u64::from(fs.geo.blocks_per_group.max(1));
    let groups = |len: u32| u64::from(len) / per_group + 2;
    let runs = found.data.iter().map(|(_, len)| groups(*len));
    let groups = runs.sum::<u64>() + found.nodes.len() as u64;
    let most = u64::from(fs.geo.groups).min(groups);
    let blocks =
        most * u64::from(GROUP_CREDITS) + found.nodes.len() as u64 + u64::from(LIST_CREDITS);
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

/// Frees the blocks that the disk still shows for an inode, if any, and enters its attribute block. Part of a
/// change that stores the inode afterwards. Credits: [`inode::OfInode::credits`]. The mapping lock is held
/// exclusively.
///
/// # Errors
/// Errors of the journal; `Corrupt` if the blocks cannot be the inode's.
pub(crate) fn end(fs: &Data, h: &mut Handle<'_>, inode: &Inode) -> Result<()> {
    // First: readers of the attributes find the list here until it is in its block.
    if let Some(list) = inode.emptied.list() {
        enter_list(fs, h, list).map_err(|e| e.in_inode(inode.ino))?;
    }
    let Some(old) = inode.emptied.take() else {
        return Ok(());
    };
    fs.emptied.remove(inode.ino, h.tid());
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

fn enter_list(fs: &Data, h: &mut Handle<'_>, list: List) -> Result<()> {
    match (list.old, list.claimed, list.new) {
        (Some(at), _, Some(new)) => h.modify(at, |block| block.copy_from_slice(&new)),
        (Some(at), _, None) => {
            h.forget(at);
            fs.free(h, at, 1)
        }
        (None, Some((start, len)), Some(new)) => {
            fs.confirm(h, Run { start, len })?;
            h.create(start, |block| block.copy_from_slice(&new))
        }
        (None, ..) => Ok(()),
    }
}

/// Carries out a deferred truncation: the disk then shows the inode as it is in memory. No handle is open.
///
/// # Errors
/// As [`end`].
pub(crate) fn carry_out_truncation(fs: &Data, inode: &Inode) -> Result<()> {
    let Some(credits) = inode.emptied.credits() else {
        return Ok(());
    };
    fs.transact(credits + INODE_CREDITS, |h| {
        let _map = inode.map_exclusive();
        if !inode.emptied.is_some() {
            // Another thread carried it out meanwhile. The inode may be free by now.
            return Ok(());
        }
        end(fs, h, inode)?;
        fs.store(h, inode)
    })
}

/// Writes back the data that is only in memory, then carries out the deferred truncation. If the data cannot
/// be written, the disk keeps the old contents.
///
/// # Errors
/// Errors of write-back; as [`carry_out_truncation`].
pub(crate) fn finish(fs: &Data, inode: &Inode) -> Result<()> {
    coherent::flush(inode, coherent::ALL)?;
    carry_out_truncation(fs, inode)
}

/// The loop of the volume's thread ([`thread`]), until the volume is closed.
pub(crate) fn run(fs: &Data) {
    loop {
        let now = Instant::now();
        let until = match fs.emptied.next(now) {
            Next::Now(inode) => {
                if let Err(error) = finish(fs, &inode) {
                    tracing::debug!(ino = inode.ino.0, %error, "a deferred truncation will be tried again");
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
