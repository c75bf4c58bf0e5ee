//! [`Residents`]: the cached blocks of one shard, and the clock that evicts clean ones.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use foldhash::fast::RandomState;
use throughline_extfmt::FsBlock;

use crate::buffer::Buffer;

/// See the head of this file.
#[derive(Default)]
pub(crate) struct Residents {
    pub(crate) map: HashMap<FsBlock, Resident, RandomState>,
    /// The blocks of `map` in the order in which the clock visits them.
    ring: Vec<FsBlock>,
    hand: usize,
}

pub(crate) struct Resident {
    pub(crate) buffer: Arc<Buffer>,
    /// Its index in the ring.
    place: usize,
}

impl Residents {
    pub(crate) fn insert(&mut self, block: FsBlock) -> Arc<Buffer> {
        let buffer = Arc::new(Buffer::new(block));
        self.map.insert(
            block,
            Resident {
                buffer: Arc::clone(&buffer),
                place: self.ring.len(),
            },
        );
        self.ring.push(block);
        buffer
    }

    pub(crate) fn remove(&mut self, block: FsBlock) {
        let Some(resident) = self.map.remove(&block) else {
            return;
        };
        self.ring.swap_remove(resident.place);
        if let Some(moved) = self.ring.get(resident.place)
            && let Some(moved) = self.map.get_mut(moved)
        {
            moved.place = resident.place;
        }
    }

    /// Advances the hand to the next evictable block and evicts it. `false` if two rounds find none.
    pub(crate) fn evict_one(&mut self) -> bool {
        for _ in 0..self.ring.len().saturating_mul(2) {
            if self.hand >= self.ring.len() {
                self.hand = 0;
            }
            let Some(&block) = self.ring.get(self.hand) else {
                return false;
            };
            if self
                .map
                .get(&block)
                .is_some_and(|resident| is_evictable(&resident.buffer))
            {
                self.remove(block);
                return true;
            }
            self.hand += 1;
        }
        false
    }
}

/// Whether the clock may evict `buffer`. The caller holds the shard's lock, so no other thread can find the
/// buffer. Changing, loading and writing threads and the dirty set hold references, so a buffer with one
/// owner is clean and idle.
fn is_evictable(buffer: &Arc<Buffer>) -> bool {
    !buffer.referenced.swap(false, Ordering::Relaxed) && Arc::strong_count(buffer) == 1
}
