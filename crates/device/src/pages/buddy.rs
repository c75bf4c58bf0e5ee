//! The buddy allocator of a [`super::PagePool`]: tracks which pages of which chunk are free. It handles
//! numbers, not memory.
//!
//! A chunk is a binary tree of blocks: node 1 is the whole chunk, nodes `2n` and `2n + 1` are the halves of
//! node `n`, and nodes 512 to 1023 are single pages. A node of order `o` is `2^o` pages long.
//!
//! Invariants:
//! - A node's bit is set when the node is wholly free **and not part of a larger free node**. So a page is in
//!   at most one free node, and two buddies (`n` and `n ^ 1`) are never both free: their parent is.
//! - `with_free[o]` lists, unordered and without duplicates, the chunks that have a free node of order `o`. A
//!   chunk's `place[o]` is its index in that list.

/// Pages of the smallest size in a chunk.
const PAGES: usize = 1 << TOP_ORDER;
/// The order of a whole chunk.
pub(super) const TOP_ORDER: usize = 9;
const ORDERS: usize = TOP_ORDER + 1;
const WHOLE: usize = 1;
const NOWHERE: u32 = u32::MAX;

const _: () = assert!(super::MAX_PAGES_BYTES == PAGES * super::MIN_PAGES_BYTES);

/// `2^order` pages of a chunk, from `first_page` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) chunk: u32,
    pub(super) first_page: u32,
}

/// The free blocks of all chunks.
#[derive(Debug, Default)]
pub(super) struct Buddy {
    chunks: Vec<Tree>,
    with_free: [Vec<u32>; ORDERS],
    /// Numbers of removed chunks, to be reused.
    vacant: Vec<u32>,
}

/// The tree of one chunk.
#[derive(Debug)]
struct Tree {
    /// Bit `n`: node `n` is free.
    free: [u64; 2 * PAGES / 64],
    place: [u32; ORDERS],
}

impl Tree {
    const FULL: Tree = Tree {
        free: [0; 2 * PAGES / 64],
        place: [NOWHERE; ORDERS],
    };

    fn is_free(&self, node: usize) -> bool {
        self.free[node / 64] & (1 << (node % 64)) != 0
    }

    fn set_free(&mut self, node: usize) {
        self.free[node / 64] |= 1 << (node % 64);
    }

    fn clear_free(&mut self, node: usize) {
        self.free[node / 64] &= !(1 << (node % 64));
    }

    /// The first free node of `order`.
    fn first_free(&self, order: usize) -> Option<usize> {
        let first = 1 << (TOP_ORDER - order);
        if first >= 64 {
            let words = first / 64..2 * first / 64;
            let word = words.into_iter().find(|w| self.free[*w] != 0)?;
            return Some(word * 64 + self.free[word].trailing_zeros() as usize);
        }
        let of_order = ((1_u64 << first) - 1) << first;
        let found = self.free[0] & of_order;
        (found != 0).then(|| found.trailing_zeros() as usize)
    }
}

impl Buddy {
    /// The number of chunks, in use or free.
    pub(super) fn chunks(&self) -> usize {
        self.chunks.len() - self.vacant.len()
    }

    /// Adds a wholly free chunk. Returns its number: that of a removed chunk, else the next one.
    pub(super) fn add_chunk(&mut self) -> u32 {
        let chunk = self.vacant.pop().unwrap_or_else(|| {
            self.chunks.push(Tree::FULL);
            (self.chunks.len() - 1) as u32
        });
        self.free(chunk, WHOLE, TOP_ORDER);
        chunk
    }

    /// Removes a wholly free chunk, if there is one.
    pub(super) fn remove_free_chunk(&mut self) -> Option<u32> {
        let chunk = *self.with_free[TOP_ORDER].last()?;
        self.occupy(chunk, WHOLE, TOP_ORDER);
        self.vacant.push(chunk);
        Some(chunk)
    }

    /// Allocates a block of `order`, splitting the smallest larger free block if needed.
    pub(super) fn take(&mut self, order: usize) -> Option<Block> {
        let from = (order..ORDERS).find(|o| !self.with_free[*o].is_empty())?;
        let chunk = *self.with_free[from].last()?;
        let mut node = self.chunks[chunk as usize].first_free(from)?;
        self.occupy(chunk, node, from);
        for half in (order..from).rev() {
            node *= 2;
            self.free(chunk, node + 1, half);
        }
        let first_page = (node << order) - PAGES;
        Some(Block {
            chunk,
            first_page: first_page as u32,
        })
    }

    /// Frees a block of `order` that [`Buddy::take`] returned.
    pub(super) fn give(&mut self, block: Block, mut order: usize) {
        let mut node = (PAGES + block.first_page as usize) >> order;
        while node != WHOLE && self.chunks[block.chunk as usize].is_free(node ^ 1) {
            self.occupy(block.chunk, node ^ 1, order);
            node /= 2;
            order += 1;
        }
        self.free(block.chunk, node, order);
    }

    fn free(&mut self, chunk: u32, node: usize, order: usize) {
        let tree = &mut self.chunks[chunk as usize];
        debug_assert!(!tree.is_free(node), "freed twice");
        tree.set_free(node);
        if tree.place[order] == NOWHERE {
            tree.place[order] = self.with_free[order].len() as u32;
            self.with_free[order].push(chunk);
        }
    }

    fn occupy(&mut self, chunk: u32, node: usize, order: usize) {
        let tree = &mut self.chunks[chunk as usize];
        debug_assert!(tree.is_free(node), "taken twice");
        tree.clear_free(node);
        if tree.first_free(order).is_some() {
            return;
        }
        let place = std::mem::replace(&mut tree.place[order], NOWHERE);
        self.with_free[order].swap_remove(place as usize);
        if let Some(moved) = self.with_free[order].get(place as usize) {
            self.chunks[*moved as usize].place[order] = place;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use throughline_testkit::cases::config;

    use super::*;

    /// The allocated pages.
    #[derive(Default)]
    struct Model {
        pages: Vec<[bool; PAGES]>,
        out: Vec<(Block, usize)>,
    }

    impl Model {
        fn mark(&mut self, block: Block, order: usize, to: bool) {
            let first = block.first_page as usize;
            for page in &mut self.pages[block.chunk as usize][first..first + (1 << order)] {
                assert_ne!(*page, to, "overlap, or freed twice");
                *page = to;
            }
        }

        /// Whether any chunk has an aligned free run of `order`.
        fn has_room(&self, order: usize) -> bool {
            let size = 1 << order;
            self.pages
                .iter()
                .any(|chunk| chunk.chunks(size).any(|run| run.iter().all(|used| !used)))
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Take(usize),
        Give(prop::sample::Index),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let one = prop_oneof![
            3 => (0..ORDERS).prop_map(Step::Take),
            2 => any::<prop::sample::Index>().prop_map(Step::Give),
        ];
        prop::collection::vec(one, 1..if cfg!(miri) { 30 } else { 300 })
    }

    proptest! {
        #![proptest_config(config(if cfg!(miri) { 2 } else { 256 }))]

        #[test]
        fn blocks_never_overlap_and_join_again(chunks in 1_usize..4, steps in steps()) {
            let mut buddy = Buddy::default();
            let mut model = Model::default();
            for number in 0..chunks {
                prop_assert_eq!(buddy.add_chunk() as usize, number);
                model.pages.push([false; PAGES]);
            }
            for step in steps {
                match step {
                    Step::Take(order) => match buddy.take(order) {
                        Some(block) => {
                            prop_assert!((block.first_page as usize).is_multiple_of(1 << order));
                            model.mark(block, order, true);
                            model.out.push((block, order));
                        }
                        None => prop_assert!(!model.has_room(order), "order {order} is free"),
                    },
                    Step::Give(which) if !model.out.is_empty() => {
                        let (block, order) = model.out.swap_remove(which.index(model.out.len()));
                        model.mark(block, order, false);
                        buddy.give(block, order);
                    }
                    Step::Give(_) => {}
                }
            }
            for (block, order) in model.out.drain(..) {
                buddy.give(block, order);
            }
            for _ in 0..chunks {
                prop_assert!(buddy.take(TOP_ORDER).is_some(), "freed blocks are merged into whole chunks");
            }
            prop_assert!(buddy.take(0).is_none());
        }
    }

    #[test]
    fn chunks_come_and_go() {
        let mut buddy = Buddy::default();
        assert!(buddy.take(0).is_none() && buddy.remove_free_chunk().is_none());
        assert_eq!((buddy.add_chunk(), buddy.add_chunk()), (0, 1));
        let page = buddy.take(0).unwrap();
        let other = 1 - page.chunk;
        assert_eq!(buddy.remove_free_chunk(), Some(other));
        assert_eq!((buddy.remove_free_chunk(), buddy.chunks()), (None, 1));
        assert!(buddy.take(TOP_ORDER).is_none());
        assert_eq!(buddy.add_chunk(), other, "its number is used again");
        buddy.give(page, 0);
        assert_eq!(buddy.chunks(), 2);
        assert!(buddy.take(TOP_ORDER).is_some() && buddy.take(TOP_ORDER).is_some());
    }
}
