//! The order in which locks are taken, checked per thread in debug builds.
//!
//! ```text
//! rename → directory inode (by number) → file inode (by number) → inode nobody uses (by number) → file end (by number) → journal handle
//!   → shared attributes → mapping (by number) → room put by for a file → discarding of freed blocks → freed blocks → allocation group (by number) → an inode's place among the orphans (by number) → orphan list or slots → superblock → metadata buffer → device queue
//! ```
//!
//! The handle stands before mapping and group: nobody begins a handle while holding one of those, since a begin may wait
//! for a commit that waits for them. The last two are the journal's and the block layer's own and are not seen here.
//! The page cache's locks stand behind the file's end; it asks for mappings and room with none of them held. The flusher
//! takes no lock of a file: only what stands behind the journal handle.
//! Below the lock of an inode's image ([`crate::Inode::raw`]) nothing is locked but the buffer of its block.

use std::ops::{Deref, DerefMut};

/// Kinds of locks, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// One rename of directories at a time.
    Rename,
    /// A directory's contents, ascending by inode number.
    Directory,
    /// A file against truncation, ascending by inode number.
    FileIo,
    /// An inode that nobody uses any more, while it is freed: also as the value of an attribute of a file that is locked.
    Unused,
    /// A file's end against buffered writes behind it, by inode number.
    Extend,
    /// An open journal handle.
    Handle,
    /// What inodes share of their attributes, when one of them takes it or gives it up.
    Shares,
    /// An inode's block mapping, ascending by inode number.
    Mapping,
    /// Freed blocks that are being discarded.
    Trimming,
    /// Freed blocks that wait for their transaction.
    Freed,
    /// An allocation group, ascending by group number.
    Group,
    /// Where an inode is among the orphans, ascending by inode number.
    Orphan,
    /// The orphan list, or a block of orphan slots.
    OrphanSlots,
    /// The superblock's bytes.
    Super,
}

/// A lock guard that remembers its place in the order.
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

/// Takes a lock at its place in the order: the place is entered, and checked, before `lock` may block.
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
    /// A place in the order, held; costs nothing here.
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

    /// A place in the order, held until dropped, by this thread.
    pub(crate) struct Place {
        held: (Rank, u64),
        _not_send: PhantomData<*const ()>,
    }

    impl Place {
        /// Enters the place; panics, in debug builds, where the order is broken: that is our own bug.
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
            // During a thread's end the list may be gone already.
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
