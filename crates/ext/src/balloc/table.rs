//! The table of groups in memory that blocks are allocated from, bounded in size.
//!
//! Invariant: a group leaves the table only if it has no holder and nothing in it is claimed or waiting, so
//! that its map can be rebuilt from disk.

use std::collections::HashMap;
use std::sync::Arc;

use throughline_extfmt::GroupNumber;
use throughline_locks::{Mutex, MutexGuard, Rank, RwLock};

use super::map::BlockMap;

/// Memory for the maps of groups not in use.
const KEEP_BYTES: usize = 16 << 20;

/// See the head of this file.
pub(crate) struct GroupTable {
    groups: RwLock<Groups>,
    keep: usize,
}

#[derive(Default)]
struct Groups {
    by_number: HashMap<u32, Arc<Group>>,
    sweep_at: usize,
}

/// One group. Its map is loaded on first use and stays as long as the group is in memory.
pub(crate) struct Group {
    map: Mutex<Option<BlockMap>>,
}

impl Group {
    /// Takes the group's lock. It protects the map, the bitmap and the descriptor's block counts.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<BlockMap>> {
        self.map.lock()
    }
}

impl GroupTable {
    /// A table for a volume with blocks (and so bitmaps) of `block_bytes`.
    pub(crate) fn new(block_bytes: u32) -> Self {
        let keep = (KEEP_BYTES / (block_bytes as usize).max(1)).max(64);
        Self {
            groups: RwLock::new(Groups {
                by_number: HashMap::new(),
                sweep_at: keep,
            }),
            keep,
        }
    }

    /// The group, if it is in memory.
    pub(crate) fn get(&self, number: GroupNumber) -> Option<Arc<Group>> {
        self.groups.read().by_number.get(&number.0).cloned()
    }

    /// The group; added to the table if it is not there.
    pub(crate) fn get_or_insert(&self, number: GroupNumber) -> Arc<Group> {
        if let Some(group) = self.get(number) {
            return group;
        }
        let mut groups = self.groups.write();
        if groups.by_number.len() >= groups.sweep_at {
            groups.by_number.retain(|_, group| !is_evictable(group));
            groups.sweep_at = groups
                .by_number
                .len()
                .saturating_add(self.keep / 2)
                .max(self.keep);
        }
        let fresh = || {
            Arc::new(Group {
                map: Mutex::numbered(Rank::Group, number.0.into(), None),
            })
        };
        Arc::clone(groups.by_number.entry(number.0).or_insert_with(fresh))
    }
}

/// Whether a group may leave the table. The table is locked for writing, so an unheld group cannot gain a
/// holder.
fn is_evictable(group: &mut Arc<Group>) -> bool {
    Arc::get_mut(group)
        .is_some_and(|group| group.map.get_mut().as_ref().is_none_or(BlockMap::is_idle))
}
