//! Where an orphan is recorded on disk.

/// Blocks, other than the inode's own, that adding or removing an orphan changes: the superblock, or the
/// block of its list neighbour, or a slot block.
pub(crate) const ORPHAN_CREDITS: u32 = 1;

/// Where an orphan is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// Not an orphan.
    #[default]
    Nowhere,
    /// On the list.
    List,
    /// In the orphan file.
    Slot(Slot),
}

/// A slot: the block of the orphan file and the slot in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(super) block: usize,
    pub(super) slot: usize,
}
