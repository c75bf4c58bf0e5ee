//! Checks whether the index of a hashed directory can be trusted.
//!
//! A tree whose blocks are each valid may still hide names: a leaf that it does not lead to, a name in the
//! wrong leaf, hashes out of order. So the whole tree is checked once while its inode is in memory, before
//! the first listing; on a volume that is not written, also before a name is reported as missing. The check
//! reads the leaves in disk order, so the listing then finds them in memory.
//!
//! A directory with a damaged index is read as if it had none, and cannot be changed.

use throughline_extfmt::{FileBlock, dir as format};

use super::entry::FIRST;
use super::htree::Tree;
use crate::error::{Error, Result};

/// A leaf, and the range of hashes that leads to it.
struct Leaf {
    at: FileBlock,
    /// As in the index: `low` is the hash of its own entry, `high` that of the next.
    low: u32,
    high: Option<u32>,
}

impl Leaf {
    /// Whether a name with `hash` is found here. (Hashes of names are even. The lowest bit of an index entry
    /// means that the names with its hash begin in the leaf before.)
    fn holds(&self, hash: u32) -> bool {
        hash >= self.low & !1 && self.high.is_none_or(|high| hash < high)
    }
}

impl Tree<'_> {
    /// Checks the whole tree.
    ///
    /// # Errors
    /// `Corrupt` if it does not lead to every name; device errors.
    pub(super) fn check(&self) -> Result<()> {
        let blocks = self.blocks;
        let corrupt = |what: &str| Error::corrupt(what).in_inode(blocks.dir.ino);
        blocks.dotdot()?;
        let (mut leaves, mut nodes) = (Vec::new(), 0);
        self.collect(FIRST, 0, (0, None), &mut leaves, &mut nodes)?;
        leaves.sort_unstable_by_key(|leaf| leaf.at);
        if leaves.windows(2).any(|pair| pair[0].at == pair[1].at) {
            return Err(corrupt("a hash tree leads to one leaf twice"));
        }
        if leaves.len() + nodes != blocks.count as usize {
            let what = format!(
                "a hash tree leads to {} of {} blocks",
                leaves.len() + nodes,
                blocks.count
            );
            return Err(corrupt(&what));
        }
        let misplaced = blocks.walk(FIRST, |at, block| {
            let Ok(leaf) = leaves.binary_search_by_key(&at, |leaf| leaf.at) else {
                return Ok(None);
            };
            for entry in format::entries(&block.bytes, &block.format) {
                let entry = entry.map_err(|what| blocks.damage(block.block, what))?;
                if entry.is_used() && !leaves[leaf].holds(self.hash(entry.name)) {
                    return Ok(Some((block.block, entry.offset)));
                }
            }
            Ok(None)
        })?;
        match misplaced {
            None => Ok(()),
            Some((block, offset)) => {
                let what =
                    format!("the name at byte {offset} is in the wrong leaf of the hash tree");
                Err(corrupt(&what).in_block(block))
            }
        }
    }

    /// Collects the leaves below the index block `at`, which covers the hashes from `low` up to `high`.
    fn collect(
        &self,
        at: FileBlock,
        level: u8,
        (low, high): (u32, Option<u32>),
        leaves: &mut Vec<Leaf>,
        nodes: &mut usize,
    ) -> Result<()> {
        let node = self.blocks.read(at)?;
        let view = self.view(&node, at)?;
        *nodes += 1;
        for index in 0..view.count() {
            let own = if index == 0 { low } else { view.hash(index) };
            let next = (index + 1 < view.count()).then(|| view.hash(index + 1));
            let end = next.or(high);
            let in_order = own >= low && end.is_none_or(|end| own <= end);
            // Every node and leaf is a block of the directory, so there cannot be more than it has.
            if !in_order || leaves.len() + *nodes > self.blocks.count as usize {
                let what = format!("entry {index} of hash tree block {at} is out of order");
                return Err(Error::corrupt(what)
                    .in_inode(self.blocks.dir.ino)
                    .in_block(node.block));
            }
            let below = view.block(index);
            if level < self.indirect_levels {
                self.collect(below, level + 1, (own, end), leaves, nodes)?;
            } else {
                leaves.push(Leaf {
                    at: below,
                    low: own,
                    high: end,
                });
            }
        }
        Ok(())
    }
}
