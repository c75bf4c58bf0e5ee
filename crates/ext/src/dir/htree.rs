//! Hashed directories: from a name's hash through the index to its leaf.
//!
//! ```text
//! root (block 0) ── up to two levels of nodes ── leaves
//! ```
//! An index entry holds the lowest hash of its subtree. Names with the same hash may fill several adjacent
//! leaves: the lowest bit of the later leaves' hashes marks that, and a search continues there.

use std::cell::Cell;

use smallvec::SmallVec;
use throughline_extfmt::FileBlock;
use throughline_extfmt::hash::HashVersion;
use throughline_extfmt::htree::{IndexNode, Root};

use super::block::{DirBlock, DirBlocks};
use super::entry::{FIRST, Found, Room};
use super::hash::Hashing;
use super::wanted::Wanted;
use crate::error::{Error, Result};

/// Most leaves that names with one hash may fill. More do not arise by chance.
const MAX_CONTINUED: usize = 4096;

/// A hashed directory whose root was read and checked.
pub(super) struct Tree<'a> {
    pub(super) blocks: &'a DirBlocks<'a>,
    hashing: Hashing,
    pub(super) indirect_levels: u8,
    /// The root as it was read, for the first path.
    root: Cell<Option<DirBlock>>,
}

/// An index block on the path to a leaf, and the entry taken there.
pub(super) struct Level {
    pub(super) at: FileBlock,
    pub(super) node: DirBlock,
    pub(super) index: usize,
}

/// The path to a leaf.
pub(super) struct Path {
    /// From the root down; never empty.
    pub(super) levels: SmallVec<[Level; 3]>,
    pub(super) leaf: FileBlock,
}

/// The leaves for a hash.
pub(super) struct Leaves {
    pub(super) blocks: Vec<FileBlock>,
    /// Lowest hash of the leaf that follows.
    pub(super) next: Option<u32>,
}

impl<'a> Tree<'a> {
    /// Reads the root; `None` for a hash version that cannot be computed here.
    pub(super) fn open(blocks: &'a DirBlocks<'a>) -> Result<Option<Self>> {
        let block = blocks.read(FIRST)?;
        let root = Root::read(&block.bytes, &blocks.tree)
            .map_err(|what| blocks.damage(block.block, what))?;
        let version = HashVersion::from_disk(root.hash_version, blocks.fs.hash_rules.unsigned);
        Ok(match version {
            None | Some(HashVersion::SipHash) => None,
            Some(version) => Some(Self {
                blocks,
                hashing: blocks
                    .fs
                    .hash_rules
                    .hashing(blocks.dir.raw.read().flags())
                    .with_version(version),
                indirect_levels: root.indirect_levels,
                root: Cell::new(Some(block)),
            }),
        })
    }

    /// As [`Self::open`], but an unsupported hash version is an error: names cannot be added without the
    /// hash.
    pub(super) fn open_to_change(blocks: &'a DirBlocks<'a>) -> Result<Self> {
        Self::open(blocks)?
            .ok_or_else(|| Error::Unsupported("adding to a directory with siphash hashes".into()))
    }

    /// The hash version of its names.
    pub(super) fn version(&self) -> HashVersion {
        self.hashing.version
    }

    /// The hash of a name.
    pub(super) fn hash(&self, name: &[u8]) -> u32 {
        self.hashing.hash(name).major
    }

    /// The position of a name in a listing.
    pub(super) fn key(&self, name: &[u8]) -> u64 {
        self.hashing.key(name)
    }

    /// The path to the first leaf that can hold names with `hash`.
    pub(super) fn path(&self, hash: u32) -> Result<Path> {
        let mut path = Path {
            levels: SmallVec::new(),
            leaf: FIRST,
        };
        self.descend(&mut path, |node| node.search(hash))?;
        Ok(path)
    }

    /// Descends from the path's last block to a leaf; `choose` selects the entry.
    fn descend(&self, path: &mut Path, choose: impl Fn(&IndexNode<'_>) -> usize) -> Result<()> {
        while path.levels.len() <= usize::from(self.indirect_levels) {
            let at = path.leaf;
            let root = if at == FIRST { self.root.take() } else { None };
            let node = root.map_or_else(|| self.blocks.read(at), Ok)?;
            let view = self.view(&node, at)?;
            let index = choose(&view);
            let next = view.block(index);
            if next == FIRST || next == at || path.levels.iter().any(|level| level.at == next) {
                let what =
                    format!("entry {index} of hash tree block {at} leads back to block {next}");
                return Err(Error::corrupt(what)
                    .in_inode(self.blocks.dir.ino)
                    .in_block(node.block));
            }
            path.levels.push(Level { at, node, index });
            path.leaf = next;
        }
        Ok(())
    }

    /// The entries of an index block.
    pub(super) fn view<'b>(&self, node: &'b DirBlock, at: FileBlock) -> Result<IndexNode<'b>> {
        let format = &self.blocks.tree;
        let view = if at == FIRST {
            IndexNode::root(&node.bytes, format)
        } else {
            IndexNode::node(&node.bytes, format)
        };
        // Without checksums, only the root is recognized as an index block when it is loaded, so others are
        // checked here.
        let checked = view.and_then(|view| {
            if at != FIRST && !format.tail {
                view.check(self.blocks.count)?;
            }
            Ok(view)
        });
        checked.map_err(|what| self.blocks.damage(node.block, what))
    }

    /// The lowest hash of the leaf after the path's; `None` after the last.
    fn next_hash(&self, path: &Path) -> Result<Option<u32>> {
        for level in path.levels.iter().rev() {
            let view = self.view(&level.node, level.at)?;
            if level.index + 1 < view.count() {
                return Ok(Some(view.hash(level.index + 1)));
            }
        }
        Ok(None)
    }

    /// Moves the path to the next leaf.
    fn advance(&self, path: &mut Path) -> Result<()> {
        while let Some(mut level) = path.levels.pop() {
            let view = self.view(&level.node, level.at)?;
            if level.index + 1 < view.count() {
                level.index += 1;
                path.leaf = view.block(level.index);
                path.levels.push(level);
                return self.descend(path, |_| 0);
            }
        }
        Err(Error::corrupt("a hash tree ends too early").in_inode(self.blocks.dir.ino))
    }

    /// Visits the leaves that can hold names with `hash` until `visit` returns a value.
    fn visit<R>(
        &self,
        hash: u32,
        mut visit: impl FnMut(&DirBlock) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        let mut path = self.path(hash)?;
        for _ in 0..self.blocks.count {
            let leaf = self.blocks.read(path.leaf)?;
            if let Some(answer) = visit(&leaf)? {
                return Ok(Some(answer));
            }
            match self.next_hash(&path)? {
                Some(next) if next & !1 == hash => self.advance(&mut path)?,
                _ => return Ok(None),
            }
        }
        Err(
            Error::corrupt("a hash tree has more leaves than the directory blocks")
                .in_inode(self.blocks.dir.ino),
        )
    }

    /// Finds a name.
    pub(super) fn find(&self, name: &Wanted<'_>) -> Result<Option<Found>> {
        self.visit(self.hash(name.name), |leaf| {
            Ok(self.blocks.find_in(leaf, name))
        })
    }

    /// Where a new name can be added.
    pub(super) fn room(&self, name: &Wanted<'_>) -> Result<Room> {
        let mut place = Room::None;
        self.visit(self.hash(name.name), |leaf| {
            let room = self.blocks.room_in(leaf, name)?;
            if place == Room::None {
                place = room;
            }
            Ok(None::<()>)
        })?;
        Ok(place)
    }

    /// The leaf for `hash`, and the leaves in which the names with its last hash continue.
    pub(super) fn leaves_of(&self, hash: u32) -> Result<Leaves> {
        let mut path = self.path(hash)?;
        let mut leaves = Leaves {
            blocks: vec![path.leaf],
            next: None,
        };
        loop {
            leaves.next = self.next_hash(&path)?;
            match leaves.next {
                Some(next) if next & 1 == 1 => {}
                Some(next) if next <= hash => {
                    let what = "the hashes of a hash tree do not ascend";
                    return Err(Error::corrupt(what).in_inode(self.blocks.dir.ino));
                }
                _ => return Ok(leaves),
            }
            if leaves.blocks.len() >= MAX_CONTINUED.min(self.blocks.count as usize) {
                let what = format!("names of one hash fill {} leaves", leaves.blocks.len());
                return Err(Error::corrupt(what).in_inode(self.blocks.dir.ino));
            }
            self.advance(&mut path)?;
            leaves.blocks.push(path.leaf);
        }
    }
}
