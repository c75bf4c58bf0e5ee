//! Whether the tree can be made at all, before anything is changed.
//!
//! Files are written in the order of their sources, and what a file replaces goes only when the file is
//! there. So the room is followed through that order. Only data is counted, without what its metadata needs:
//! what is refused here certainly does not fit, and what is not refused may still meet a full volume.

use std::collections::{HashMap, HashSet};

use throughline_archive::{self as archive, Kind, NodeId, Sources, Tree};
use throughline_ext::Reason;

use super::names::names_in;
use super::{PackInto, STASH};
use crate::error::Result;
use crate::node::Node;
use crate::read_tree::at;

/// Blocks and inodes.
#[derive(Clone, Copy, Default)]
struct Room {
    blocks: u64,
    inodes: u64,
}

impl Room {
    fn add(&mut self, other: Room) {
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.inodes = self.inodes.saturating_add(other.inodes);
    }
}

/// What becomes free: with the names that go, and when a new file has its data.
#[derive(Default)]
struct Freed {
    at_once: Room,
    after: HashMap<NodeId, Room>,
}

impl PackInto {
    /// Refuses a tree that cannot be made: one that certainly does not fit, or that has a file in place of
    /// the `lost+found` of the volume. Nothing is changed. [`PackInto::apply`] does it first.
    ///
    /// # Errors
    /// [`archive::Error::Invalid`]; [`archive::Error::Io`] with the path and [`Reason::NoSpace`] inside, or
    /// damage, or a device error.
    pub fn check(&self, tree: &Tree, sources: &Sources) -> archive::Result<()> {
        let lost_and_found = tree.child(NodeId::ROOT, b"lost+found");
        if self.is_top
            && lost_and_found.is_some_and(|node| tree.node(node).kind() != Kind::Directory)
        {
            return Err(archive::Error::Invalid(
                "/: has a lost+found that is no directory".to_owned(),
            ));
        }
        let failed = |error| at(b".", error);
        let there = self.volume.stat_fs().map_err(failed)?;
        let block_bytes = u64::from(self.volume.block_bytes());
        let mut freed = self.freed(tree, block_bytes).map_err(failed)?;
        let inodes = freed.after.values().map(|room| room.inodes);
        let inodes = u64::from(there.free_inodes) + freed.at_once.inodes + inodes.sum::<u64>();
        if tree.ids().filter(|id| !self.is_base(*id)).count() as u64 > inodes {
            return Err(failed(Reason::NoSpace.into()));
        }
        let mut free = there.free_blocks.saturating_add(freed.at_once.blocks);
        let mut seen = HashSet::new();
        for piece in sources.pieces_in_order(tree).iter().flatten() {
            if !seen.insert(piece.node) {
                continue;
            }
            let content = tree.node(piece.node).content();
            // Less than a block may be in the inode.
            let blocks = match content.map_or(0, |content| content.data_bytes()) {
                small if small < block_bytes => 0,
                bytes => bytes.div_ceil(block_bytes),
            };
            let left = free.checked_sub(blocks);
            free = left.ok_or_else(|| at(&path_of(tree, piece.node), Reason::NoSpace.into()))?;
            if let Some(room) = freed.after.remove(&piece.node) {
                free = free.saturating_add(room.blocks);
            }
        }
        Ok(())
    }

    fn freed(&self, tree: &Tree, block_bytes: u64) -> Result<Freed> {
        let mut freed = Freed::default();
        let kept = tree.ids().filter(|id| self.is_base(*id));
        let mut counted: HashSet<u64> = kept.map(|id| self.inodes[id.index()]).collect();
        let mut left = vec![(NodeId::ROOT, self.directory.clone())];
        while let Some((directory, node)) = left.pop() {
            let is_root = directory == NodeId::ROOT;
            for (name, ino) in names_in(&node)? {
                if is_root && self.is_top && name == b"lost+found" {
                    continue;
                }
                let there = self.volume.node_by_ino(ino)?;
                let wanted = tree.child(directory, &name);
                let Some(wanted) = wanted.filter(|_| !(is_root && name == STASH)) else {
                    freed
                        .at_once
                        .add(room_of(&there, block_bytes, &mut counted)?);
                    continue;
                };
                let is_directory = tree.node(wanted).kind() == Kind::Directory;
                if is_directory && there.is_dir() {
                    left.push((wanted, there));
                    continue;
                }
                if self.is_base(wanted) && self.inodes[wanted.index()] == ino {
                    continue;
                }
                let room = room_of(&there, block_bytes, &mut counted)?;
                let content = tree.node(wanted).content();
                match content.is_some_and(|content| content.data_bytes() > 0) {
                    true => freed.after.entry(wanted).or_default().add(room),
                    false => freed.at_once.add(room),
                }
            }
        }
        Ok(freed)
    }
}

/// The room of a node and of all below it, without what is kept or was counted before.
fn room_of(node: &Node, block_bytes: u64, counted: &mut HashSet<u64>) -> Result<Room> {
    let mut room = Room::default();
    let mut left = vec![node.clone()];
    while let Some(node) = left.pop() {
        let is_new = counted.insert(node.ino());
        if node.is_dir() && is_new {
            for ino in names_in(&node)?.into_values() {
                left.push(node.volume().node_by_ino(ino)?);
            }
        }
        if is_new {
            let blocks = node.metadata()?.blocks_512().saturating_mul(512) / block_bytes;
            room.add(Room { blocks, inodes: 1 });
        }
    }
    Ok(room)
}

/// The first path of a node.
fn path_of(tree: &Tree, node: NodeId) -> Vec<u8> {
    let mut walk = tree.walk();
    while let Some(step) = walk.next() {
        if step.node == node {
            return step.path.to_vec();
        }
    }
    Vec::new()
}
