//! Where an orphan is recorded on the disk.

/// Blocks that making an inode an orphan, or no orphan, touches beside its own: the superblock, that of its neighbour on
/// the list, or one of slots.
pub(crate) const ORPHAN_CREDITS: u32 = 1;

/// Where the disk remembers an orphan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// It is none.
    #[default]
    Nowhere,
    /// On the list.
    List,
    /// In the orphan file.
    Slot(Slot),
}

/// A slot: block of the file, slot in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(super) block: usize,
    pub(super) slot: usize,
}
