//! The lock order, checked per thread in debug builds.
//!
//! ```text
//! rename → directory inode (by number) → file inode (by number) → unused inode (by number)
//!   → end of file (by number) → journal handle → tree of a quota file → shared attributes
//!   → mapping (by number)
//!   → space reserved for a file → discarding of freed blocks → freed blocks → allocation group (by number)
//!   → orphan record of an inode (by number) → orphan list or slots → owners of quotas → usage of an owner
//!   → superblock → image of an inode
//!   → metadata buffer → device queue
//! ```
//!
//! The handle comes before mapping and group locks: begin must not be called while one of those is held,
//! since it may wait for a commit that needs them. The last two locks belong to the journal and the block
//! layer and are not checked here. The page cache's locks come after the file end; the cache holds none of
//! them when it asks for mappings and space. The flusher takes no file locks, only locks from the journal
//! handle on. Under the lock of an inode's image ([`crate::Inode::raw`]), only the buffer of its block is
//! locked.

use std::ops::{Deref, DerefMut};

/// Kinds of locks, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Serializes renames that move directories.
    Rename,
    /// A directory's contents; ascending by inode number.
    Directory,
    /// Excludes truncation from file I/O; ascending by inode number.
    FileIo,
    /// An inode without users while it is freed; possibly an attribute value of a file that is locked.
    Unused,
    /// Serializes buffered writes past the end of a file; by inode number.
    Extend,
    /// An open journal handle.
    Handle,
    /// The tree of a quota file, while an entry is added or removed; by kind.
    QuotaTree,
    /// Attributes shared between inodes, while a reference is added or dropped.
    Shares,
    /// An inode's block mapping; ascending by inode number.
    Mapping,
    /// Freed blocks being discarded.
    Trimming,
    /// Freed blocks whose transaction is not committed.
    Freed,
    /// An allocation group; ascending by group number.
    Group,
    /// An inode's orphan record; ascending by inode number.
    Orphan,
    /// The orphan list, or a block of orphan slots.
    OrphanSlots,
    /// The table of users, groups and projects in memory.
    Owners,
    /// What one of them uses; by kind and number.
    Usage,
    /// The superblock's bytes.
    Super,
    /// The image of an inode.
    Image,
}

/// A lock guard with its place in the order.
pub(crate) struct Held<G> {
    guard: G,
    _place: Place,
}

impl<G> Deref for Held<G> {
    type Target = G;
    fn deref(&self) -> &G {
        &self.guard
    }
}

impl<G> DerefMut for Held<G> {
    fn deref_mut(&mut self) -> &mut G {
        &mut self.guard
    }
}

/// Takes a lock at its place in the order; the place is checked before `lock` may block.
pub(crate) fn locked<G>(rank: Rank, number: u64, lock: impl FnOnce() -> G) -> Held<G> {
    let place = Place::enter(rank, number);
    Held {
        guard: lock(),
        _place: place,
    }
}

#[cfg(debug_assertions)]
pub(crate) use checked::Place;
#[cfg(not(debug_assertions))]
pub(crate) use unchecked::Place;

#[cfg(not(debug_assertions))]
mod unchecked {
    /// A held place in the order; free in release builds.
    pub(crate) struct Place;

    impl Place {
        /// Enters the place.
        pub(crate) fn enter(_rank: super::Rank, _number: u64) -> Self {
            Self
        }
    }
}

#[cfg(debug_assertions)]
mod checked {
    use std::cell::RefCell;
    use std::marker::PhantomData;

    use super::Rank;

    thread_local! {
        static HELD: RefCell<Vec<(Rank, u64)>> = const { RefCell::new(Vec::new()) };
    }

    /// A place in the order, held by this thread until dropped.
    pub(crate) struct Place {
        held: (Rank, u64),
        _not_send: PhantomData<*const ()>,
    }

    impl Place {
        /// Enters the place. Panics if the order is violated, which is a bug in this crate.
        pub(crate) fn enter(rank: Rank, number: u64) -> Self {
            HELD.with_borrow_mut(|held| {
                if let Some(max) = held.iter().max() {
                    assert!(
                        *max < (rank, number),
                        "lock order: {rank:?} {number} taken under {max:?}"
                    );
                }
                held.push((rank, number));
            });
            Self {
                held: (rank, number),
                _not_send: PhantomData,
            }
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            // When a thread exits, the list may already be destroyed.
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(at) = held.iter().rposition(|h| *h == self.held) {
                    held.remove(at);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept() {
        let _a = locked(Rank::Directory, 2, || ());
        let _b = locked(Rank::Directory, 12, || ());
        let _c = locked(Rank::Mapping, 2, || ());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock order")]
    fn handle_under_mapping_is_caught() {
        let _a = locked(Rank::Mapping, 2, || ());
        let _b = locked(Rank::Handle, 0, || ());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock order")]
    fn two_inodes_the_wrong_way_round_are_caught() {
        let _a = locked(Rank::FileIo, 12, || ());
        let _b = locked(Rank::FileIo, 11, || ());
    }
}
