//! The block allocator: claims in memory, bitmaps in transactions.

use throughline_extfmt::FsBlock;

use crate::error::Result;
use crate::fs::Fs;
use crate::handle::Handle;
use crate::inode::Inode;

/// Adjacent blocks, all in one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// First block.
    pub(crate) start: FsBlock,
    /// How many; never 0.
    pub(crate) len: u32,
}

impl Fs {
    /// Claims up to `want` blocks, one long run, at the goal where it is free. In memory only. Never 0 blocks.
    /// Not to be called with a group lock held; a mapping lock and a handle may be held.
    ///
    /// # Errors
    /// `NoSpace` exactly when nothing is left for this caller.
    pub(crate) fn claim(&self, goal: FsBlock, want: u32) -> Result<Run>;

    /// A claimed run (or a part of one) becomes allocated: bitmap bits and counters, in the transaction.
    pub(crate) fn confirm(&self, h: &mut Handle<'_>, run: Run) -> Result<()>;

    /// A claimed run (or a part of one) goes back.
    pub(crate) fn release(&self, run: Run);

    /// Frees allocated blocks, any range, over group borders too. Fixed metadata or a block that is free: `Corrupt`.
    pub(crate) fn free(&self, h: &mut Handle<'_>, start: FsBlock, len: u64) -> Result<()>;

    /// One metadata block, claimed and confirmed. The caller fills it with [`Handle::create`].
    pub(crate) fn alloc_block(&self, h: &mut Handle<'_>, goal: FsBlock) -> Result<FsBlock>;

    /// Where a block of a file without neighbours should go: the inode's group (by flex group for directories).
    /// With a neighbour the mapping's own answer (last block + 1) is better.
    pub(crate) fn goal_for(&self, inode: &Inode) -> FsBlock;

    /// Blocks free for this caller (claims taken off).
    pub(crate) fn free_blocks(&self) -> u64;

    /// Is the range inside the volume and free of fixed metadata (superblocks, descriptors, bitmaps, inode tables)?
    /// For whatever a mapping says, before it is written to or freed.
    pub(crate) fn check_data_range(&self, start: FsBlock, len: u64) -> Result<()>;
}
