//! A tree that other sources are laid over, while it is still to be told what was there before.

use super::Tree;

impl Tree {
    /// From here on, numbers below [`Tree::id_bound`] of now are not used again: a node with such a number is
    /// the one that has it now.
    pub fn keep_numbers(&mut self) {
        self.store.keep_numbers();
    }

    /// From here on, nodes that are added or whose metadata is set get this owner and group, whatever their
    /// source says.
    pub fn set_owner_of_new(&mut self, uid: u32, gid: u32) {
        self.store.owner = Some((uid, gid));
    }
}

#[cfg(test)]
mod tests {
    use crate::{Limits, Meta, Tree};

    #[test]
    fn numbers_that_are_kept_are_not_used_again() {
        let mut tree = Tree::new(Limits::default());
        let meta = Meta::new(0o755);
        let gone = tree.mkdir(b"gone", &meta).expect("a name");
        let first = tree.mkdir(b"a", &meta).expect("a name");
        assert!(tree.remove(b"gone"));
        tree.keep_numbers();
        tree.set_owner_of_new(7, 8);
        assert!(tree.remove(b"a"));
        let second = tree.mkdir(b"b", &meta).expect("a name");
        assert!(second != first && second != gone);
        assert_eq!((tree.node(second).uid(), tree.node(second).gid()), (7, 8));
        assert!(tree.remove(b"b"));
        let third = tree.mkdir(b"c", &meta).expect("a name");
        assert_eq!(second, third);
    }
}
