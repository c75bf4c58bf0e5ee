//! What a file block can be mapped to, and names for the tables of an indirect map.

use throughline_extfmt::FsBlock;

/// A run of a file's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// What is there, and where its first block is.
    pub(crate) kind: Kind,
    /// Blocks; never 0.
    pub(crate) len_blocks: u32,
}

/// What a run of a file's blocks is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing: reads as zero.
    Hole,
    /// Allocated, never written: reads as zero.
    Unwritten(FsBlock),
    /// Data.
    Data(FsBlock),
}

impl Mapping {
    /// The mapping without its first `blocks` blocks; there are more than that.
    pub(super) fn behind(self, blocks: u32) -> Self {
        let on = |b: FsBlock| FsBlock(b.0 + u64::from(blocks));
        let kind = match self.kind {
            Kind::Hole => Kind::Hole,
            Kind::Unwritten(block) => Kind::Unwritten(on(block)),
            Kind::Data(block) => Kind::Data(on(block)),
        };
        Self {
            kind,
            len_blocks: self.len_blocks - blocks,
        }
    }

    /// The mapping, at most `max` blocks of it.
    pub(super) fn first(self, max: u32) -> Self {
        Self {
            len_blocks: self.len_blocks.min(max),
            ..self
        }
    }
}

/// A table of a file, there or not: the slots that lead to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TableName(u64);

impl TableName {
    /// The table that these slots lead to, at least one.
    pub(super) fn new(slots: &[usize]) -> Self {
        // A table has 2^14 slots at most; a way leads through two of them before its last.
        let name = slots
            .iter()
            .fold(slots.len() as u64, |name, slot| name << 14 | *slot as u64);
        Self(name)
    }
}
