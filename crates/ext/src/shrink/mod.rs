//! Makes a volume smaller, by its own transactions: each leaves a sound volume.
//!
//! ```text
//! survey        who owns which block, compared with the bitmaps; what is beyond the new end
//! confine       nothing beyond it is allocated any more
//! move_out      blocks, attribute blocks, inodes: allocate, copy, switch, free
//! cut           the superblock gets the new size
//! ```
//!
//! The journal, the orphan file and the resize inode are in use while the volume is open: they are moved
//! while it is closed, by the caller.
//!
//! Invariants:
//! - A block or an inode is switched and the old one freed in one transaction. Data is durable before it.
//! - An inode that gets another number gets the generation with which the seed of its checksums stays the
//!   same ([`inodes`]), so none of its blocks is rewritten.
//! - Nobody else uses the volume meanwhile: no lock of a file or directory is taken to change it.
//! - After the cut, the open volume is of no use but to be closed.

mod attributes;
mod blocks;
mod cut;
mod inodes;
mod own;
mod scan;

use throughline_extfmt::{FsBlock, InodeNumber};

use crate::balloc::GROUP_CREDITS;
use crate::error::{Reason, Result};
use crate::fs::Fs;

pub use own::OwnFile;
pub use scan::Tenants;

/// Groups in which runs are freed in one transaction.
const FREED_TOGETHER: usize = 16;

/// The size that a volume is to get: what is beyond it goes.
#[derive(Clone, Copy, Debug)]
struct Limit {
    /// The first block beyond.
    block: FsBlock,
    /// The groups that remain.
    groups: u32,
    /// The last inode that remains.
    last: InodeNumber,
}

impl Fs {
    /// Frees the blocks without an owner.
    ///
    /// # Errors
    /// `Corrupt`; journal errors.
    pub fn free_ownerless(&self, tenants: &Tenants) -> Result<()> {
        for (start, len) in &tenants.ownerless {
            // A run found in a bitmap is in one group.
            self.transact(GROUP_CREDITS, |h| self.free(h, FsBlock(*start), *len))?;
        }
        Ok(())
    }

    /// From now on, allocates nothing from block `end` on.
    ///
    /// # Errors
    /// `Corrupt`; errors of the device and the journal.
    pub fn confine(&self, end: u64) -> Result<()> {
        // Nothing may wait to be freed.
        self.sync_metadata()?;
        self.release_durable();
        self.set_block_limit(FsBlock(end))
    }

    /// Checks that all inodes that would have to move for this can.
    ///
    /// # Errors
    /// `Unsupported`; `Corrupt`; device errors.
    pub fn check_moves(&self, tenants: &Tenants, end: u64) -> Result<()> {
        inodes::plan(self, &tenants.inodes, Limit::new(self, end)).map(|_| ())
    }

    /// Moves everything of files from block `end` on, and from the inodes of the groups there, to what
    /// precedes it. The volume is [confined](Fs::confine), and unchanged since `tenants` was made. `moved` is
    /// called with numbers of blocks that have been moved, [`Tenants::blocks`] in all.
    ///
    /// # Errors
    /// `NoSpace`: what was moved remains so, and the volume is sound. `Unsupported`: an inode cannot be
    /// moved. `Corrupt`; errors of the device and the journal.
    pub fn move_out(&self, tenants: &Tenants, end: u64, moved: &mut dyn FnMut(u64)) -> Result<()> {
        let limit = Limit::new(self, end);
        let inodes = inodes::plan(self, &tenants.inodes, limit)?;
        for (at, users) in &tenants.attributes {
            attributes::move_out(self, FsBlock(*at), users)?;
        }
        for ino in &tenants.with_blocks {
            blocks::move_out(self, &self.inode(*ino)?, limit, moved)?;
        }
        inodes::move_out(self, &inodes, limit)?;
        self.sync_metadata()
    }

    /// Allocates blocks that no file owns yet: runs of first block and length. Durable when it returns.
    ///
    /// # Errors
    /// `NoSpace`, with nothing allocated; `Corrupt`; journal errors.
    pub fn take_blocks(&self, blocks: u64) -> Result<Vec<(u64, u32)>> {
        let mut runs = Vec::new();
        let mut left = blocks;
        let mut claim = || {
            while left > 0 {
                let want = u32::try_from(left).unwrap_or(u32::MAX);
                let goal = self.geo.first_data_block;
                let run = self.with_room(|| self.claim_metadata(goal, want))?;
                left = left.saturating_sub(run.len.into());
                runs.push(run);
            }
            Ok(())
        };
        let claimed: Result<()> = claim();
        if let Err(error) = claimed {
            runs.iter().for_each(|run| self.release(*run));
            return Err(error);
        }
        for some in runs.chunks(FREED_TOGETHER) {
            self.transact(FREED_TOGETHER as u32 * GROUP_CREDITS, |h| {
                some.iter().try_for_each(|run| self.confirm(h, *run))
            })?;
        }
        self.sync_metadata()?;
        Ok(runs.iter().map(|run| (run.start.0, run.len)).collect())
    }
}

/// Without a journal, writes new metadata blocks before anything that leads to them is written. They are in
/// place before the transaction of the open handle can end.
fn settle(fs: &Fs, blocks: &[FsBlock]) -> Result<()> {
    if fs.has_log() || blocks.is_empty() {
        return Ok(());
    }
    for block in blocks {
        let content = fs.read(*block)?;
        let at = block
            .byte_offset(fs.geo.block_bytes)
            .ok_or(Reason::TooLarge)?;
        fs.disk.write_at(at, &content, false)?;
    }
    Ok(fs.disk.flush()?)
}
