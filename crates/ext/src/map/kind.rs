//! The kinds of file block mappings, and names for the tables of an indirect map.

use throughline_extfmt::FsBlock;

/// A run of a file's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// The kind, and the first volume block if there is one.
    pub(crate) kind: Kind,
    /// Length in blocks; never 0.
    pub(crate) len_blocks: u32,
}

/// The kind of a run of file blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Not mapped: reads as zero.
    Hole,
    /// Allocated, never written: reads as zero.
    Unwritten(FsBlock),
    /// Data.
    Data(FsBlock),
}

impl Mapping {
    /// The mapping without its first `blocks` blocks; it must be longer than that.
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

    /// The first `max` blocks of the mapping.
    pub(super) fn first(self, max: u32) -> Self {
        Self {
            len_blocks: self.len_blocks.min(max),
            ..self
        }
    }
}

/// The name of a table of a file, whether allocated or not: the slots that lead to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TableName(u64);

impl TableName {
    /// The table reached by these slots (at least one).
    pub(super) fn new(slots: &[usize]) -> Self {
        // A table has at most 2^14 slots; a path has at most two slots before its last.
        let name = slots
            .iter()
            .fold(slots.len() as u64, |name, slot| name << 14 | *slot as u64);
        Self(name)
    }
}
