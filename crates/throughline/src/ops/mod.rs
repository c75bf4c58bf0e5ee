//! Operations that change names and attributes: one function for each; and those of file data, which wrap the
//! calls of [`Handle`](crate::Handle). The faces ([`Node`], [`Dir`](crate::Dir),
//! [`File`](crate::File), [`Volume`](crate::Volume)) and servers call these.
//!
//! Invariants:
//! - An operation takes inodes that are held ([`Node`]), so they exist from look-up to change. Numbers from
//!   outside become nodes in [`Volume::node_by_ino`](crate::Volume::node_by_ino) and
//!   [`Volume::node_kept`](crate::Volume::node_kept) only, which refuse the volume's own inodes, free ones,
//!   and numbers that do not exist.
//! - All nodes of an operation are in one volume: checked here, before anything else.
//! - An operation says which inodes it changed, whether it succeeds or fails ([`Outcome`]).

mod attributes;
mod data;
mod names;

use smallvec::SmallVec;
use throughline_ext::{Reason, Watch};

pub use attributes::{
    drop_capability, drop_privileges, remove_xattr, set_acl_clearing_setgid, set_attributes,
    set_flags, set_project, set_version, set_xattr,
};
pub use data::{allocate, copy_range, set_len, write, write_back, write_new};
pub use names::{create, link, rename, rmdir, tmpfile, unlink, unlink_held};

use crate::error::{Error, Result};
use crate::node::Node;

/// The result of an operation, and the inodes that it changed.
#[must_use = "it may hold an error"]
#[derive(Debug)]
pub struct Outcome<T> {
    result: Result<T>,
    changed: SmallVec<[u64; 4]>,
}

impl<T> Outcome<T> {
    /// The numbers of the inodes whose attributes, names or data may have changed, on success and on failure.
    /// An inode that is not listed has not changed.
    pub fn changed(&self) -> &[u64] {
        &self.changed
    }

    /// The result alone.
    ///
    /// # Errors
    /// The operation's error. It may have changed something all the same.
    pub fn into_result(self) -> Result<T> {
        self.result
    }

    /// Converts the value of a success.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Outcome<U> {
        Outcome {
            result: self.result.map(convert),
            changed: self.changed,
        }
    }

    /// Nothing was changed.
    fn refused(why: impl Into<Error>) -> Outcome<T> {
        Outcome {
            result: Err(why.into()),
            changed: SmallVec::new(),
        }
    }

    /// Runs `call` on these nodes. It adds to the watch what else it may change.
    fn of(nodes: &[&Node], call: impl FnOnce(&mut Watch) -> Result<T>) -> Outcome<T> {
        if let [first, others @ ..] = nodes
            && !others
                .iter()
                .all(|node| first.volume().is_same(node.volume()))
        {
            return Outcome::refused(Reason::CrossDevice);
        }
        let mut watch = Watch::new();
        nodes.iter().for_each(|node| watch.add(node.inode()));
        let result = call(&mut watch);
        let changed = watch.changed().map(|ino| ino.0.into()).collect();
        Outcome { result, changed }
    }

    /// Adds a node to the list.
    fn and_changed(mut self, node: &Node) -> Outcome<T> {
        if !self.changed.contains(&node.ino()) {
            self.changed.push(node.ino());
        }
        self
    }
}
